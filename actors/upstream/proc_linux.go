package upstream

import (
	"bytes"
	"math"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// sysProcAttr puts a child into a process group of its own and lets the kernel
// kill it when the spawning thread, that is the bridge, dies.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// sealDescriptors keeps descriptors that the bridge inherited from whoever started
// it away from the children. What Go opens is marked so already.
func sealDescriptors() { _ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC) }

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

func terminateGroup(p *os.Process) { _ = unix.Kill(-p.Pid, unix.SIGTERM) }

func killGroup(p *os.Process) { _ = unix.Kill(-p.Pid, unix.SIGKILL) }

// killSurvivors kills what is left of the tree of a dead leader: live members of
// its group, and processes that left the group but still carry all markers in the
// environment that they were started with. It returns how many it found.
func killSurvivors(pgid int, markers [][]byte) int {
	dir, err := os.Open("/proc")
	if err != nil {
		if unix.Kill(-pgid, unix.SIGKILL) == nil {
			return 1
		}
		return 0
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	found := 0
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() {
			continue
		}
		state, group, ok := procStat(name)
		if !ok || state == 'Z' || state == 'X' {
			continue
		}
		if group != pgid && !hasMarkers(name, markers) {
			continue
		}
		found++
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	return found
}

// procStat reads state and process group from /proc/<pid>/stat. The command name
// in it may hold anything, so parsing starts behind its last parenthesis.
func procStat(pid string) (state byte, group int, ok bool) {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0, 0, false
	}
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 3 {
		return 0, 0, false
	}
	group, err = strconv.Atoi(string(f[2]))
	return f[0][0], group, err == nil
}

func hasMarkers(pid string, markers [][]byte) bool {
	if len(markers) == 0 {
		return false
	}
	env, err := os.ReadFile("/proc/" + pid + "/environ")
	if err != nil || len(env) == 0 {
		return false
	}
	for _, m := range markers {
		if !bytes.HasPrefix(env, m) && !bytes.Contains(env, append([]byte{0}, m...)) {
			return false
		}
	}
	return true
}
