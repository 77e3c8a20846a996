//go:build !linux && !darwin

package control

import "net"

// peerUID and peerPID are not known on this system.
func peerUID(net.Conn) (uid int, known bool) { return 0, false }

func peerPID(net.Conn) (pid int, known bool) { return 0, false }
