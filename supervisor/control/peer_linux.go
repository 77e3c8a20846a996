package control

import (
	"net"

	"golang.org/x/sys/unix"
)

func peerCred(conn net.Conn) *unix.Ucred {
	var cred *unix.Ucred
	withFD(conn, func(fd int) {
		if c, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			cred = c
		}
	})
	return cred
}

// peerUID tells which user is at the other end.
func peerUID(conn net.Conn) (uid int, known bool) {
	if c := peerCred(conn); c != nil {
		return int(c.Uid), true
	}
	return 0, false
}

// peerPID tells which process is at the other end.
func peerPID(conn net.Conn) (pid int, known bool) {
	if c := peerCred(conn); c != nil {
		return int(c.Pid), true
	}
	return 0, false
}
