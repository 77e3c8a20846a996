//go:build unix

package daemon

import (
	"errors"
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

const openNoFollow = unix.O_NOFOLLOW

func owner(fi fs.FileInfo) (uid int, ok bool) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(st.Uid), true
}

func inUse(err error) bool { return errors.Is(err, unix.EADDRINUSE) }
