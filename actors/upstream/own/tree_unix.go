//go:build unix && !linux

package own

import (
	"os/exec"
	"syscall"
)

const (
	rung       = RungGroup
	rungReason = "this system knows process groups only: who leaves the group is not found, and servers that ignore the end of stdin outlive a bridge that is killed"
)

// Tree is one started process with its group.
type Tree struct {
	w       *Owner
	id      uint64
	pid     int
	started uint64
}

// Start starts cmd in a process group of its own.
func (w *Owner) Start(cmd *exec.Cmd, _ uint64, _ [][]byte, limits Limits) (*Tree, error) {
	t, err := w.newTree(limits)
	if err != nil {
		return nil, err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	t.pid = cmd.Process.Pid
	w.entered(t)
	return t, nil
}

func guardAttr() *syscall.SysProcAttr { return nil }

// Reaped changes nothing here.
func (t *Tree) Reaped() {}

// Terminate asks every process of the group to end.
func (t *Tree) Terminate() { _ = syscall.Kill(-t.pid, syscall.SIGTERM) }

// Kill kills the group.
func (t *Tree) Kill() { _ = syscall.Kill(-t.pid, syscall.SIGKILL) }

// Sweep kills what is left of a dead leader's group; 0 means that nothing is.
func (t *Tree) Sweep() int {
	if err := syscall.Kill(-t.pid, syscall.SIGKILL); err == syscall.ESRCH {
		return 0
	}
	return 1
}

// Left says nothing here: only the system knows.
func (t *Tree) Left() string { return "" }

// Done gives the tree up.
func (t *Tree) Done(proven bool) { t.w.forget(t, proven) }
