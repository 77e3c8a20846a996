package daemon

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/windows"
)

const openNoFollow = 0

func owner(fs.FileInfo) (uid int, ok bool) { return 0, false }

func inUse(err error) bool { return errors.Is(err, windows.WSAEADDRINUSE) }
