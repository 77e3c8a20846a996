//go:build unix

package upstream

import (
	"errors"
	"os"
	"syscall"
)

// readNow reads what is there without waiting; it returns 0 when there is nothing.
func readNow(f *os.File, b []byte) (n int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	cerr := raw.Control(func(fd uintptr) {
		for {
			n, err = syscall.Read(int(fd), b)
			if !errors.Is(err, syscall.EINTR) {
				return
			}
		}
	})
	if cerr != nil {
		return 0, cerr
	}
	return max(n, 0), err
}
