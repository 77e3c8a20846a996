package journal

import (
	"io/fs"
	"os"
)

// Windows creates no file through a link where one must not exist, and the user's
// profile protects the directory.
const noFollow = 0

// lockFile leaves the guard to the lock of the state directory above.
func lockFile(*os.File) error { return nil }

func owner(fs.FileInfo) (int, bool) { return 0, false }

// SyncDir has nothing to do: NTFS journals its directories itself.
func (osFS) SyncDir(string) error { return nil }
