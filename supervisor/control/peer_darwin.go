package control

import (
	"net"

	"golang.org/x/sys/unix"
)

// peerUID tells which user is at the other end.
func peerUID(conn net.Conn) (uid int, known bool) {
	withFD(conn, func(fd int) {
		if c, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED); err == nil {
			uid, known = int(c.Uid), true
		}
	})
	return uid, known
}

// peerPID tells which process is at the other end.
func peerPID(conn net.Conn) (pid int, known bool) {
	withFD(conn, func(fd int) {
		if p, err := unix.GetsockoptInt(fd, unix.SOL_LOCAL, unix.LOCAL_PEERPID); err == nil {
			pid, known = p, true
		}
	})
	return pid, known
}
