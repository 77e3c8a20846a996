//go:build unix

package control

import (
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// listenPrivate binds with a umask, because a mode that is set afterwards comes too
// late for somebody who connects in between.
func listenPrivate(path string) (net.Listener, error) {
	old := unix.Umask(0o177)
	l, err := net.Listen("unix", path)
	unix.Umask(old)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

func refused(err error) bool { return errors.Is(err, unix.ECONNREFUSED) }

// control runs f on the connection's file descriptor.
func withFD(conn net.Conn, f func(fd int)) bool {
	u, ok := conn.(*net.UnixConn)
	if !ok {
		return false
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return false
	}
	return raw.Control(func(fd uintptr) { f(int(fd)) }) == nil
}
