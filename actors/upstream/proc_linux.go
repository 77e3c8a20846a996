package upstream

import "golang.org/x/sys/unix"

// observesDeath: awaitDeath works here.
const observesDeath = true

// awaitDeath blocks until the process is dead without reaping it: as long as the
// zombie stands, neither its pid nor its group can be anybody else's.
func awaitDeath(pid int) {
	var si unix.Siginfo
	for {
		err := unix.Waitid(unix.P_PID, pid, &si, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return
		}
	}
}
