//go:build unix && !linux

package upstream

import (
	"os"
	"syscall"
)

// Outside Linux there is no parent-death signal: a bridge that is killed leaves
// children behind that do not end when their stdin closes. Processes that leave
// the group are not found either.

func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func sealDescriptors() {}

// observesDeath: a death cannot be seen without reaping here, so the group is
// signalled just after it.
const observesDeath = false

func awaitDeath(int) {}

func terminateGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGTERM) }

func killGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }

// killSurvivors kills what is left of a dead leader's group and returns 0 when
// nothing is.
func killSurvivors(pgid int, _ [][]byte) int {
	if err := syscall.Kill(-pgid, syscall.SIGKILL); err == syscall.ESRCH {
		return 0
	}
	return 1
}
