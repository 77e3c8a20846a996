package own

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

const limitsFiles = true

// errLimits is the error of a start whose limits could not be set. Trying again cannot
// help, so it names what can.
type errLimits struct{ err error }

func (e *errLimits) Error() string { return "the limits could not be set: " + e.err.Error() }
func (e *errLimits) Unwrap() error { return e.err }

// IsLimits reports whether a start failed of its limits, which no repetition changes.
func IsLimits(err error) bool { return errors.As(err, new(*errLimits)) }

// noNewPrivileges gives up, for the calling thread and whatever it starts, every gain of
// rights by setuid programs and file capabilities.
func noNewPrivileges() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }

// stopped waits until the child stands still at its first instruction.
func awaitStop(pid int) error {
	for {
		var si unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &si, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if si.Code != cldTrapped && si.Code != cldStopped {
			return errors.New("the process was killed before it ran")
		}
		return nil
	}
}

const (
	cldTrapped = 4
	cldStopped = 5
)

// limit sets the limits of a child that stands still, and lets it go. The calling thread
// must be the one that started it.
func (t *Tree) limit(cmd *exec.Cmd) error {
	pid := cmd.Process.Pid
	err := awaitStop(pid)
	if err == nil {
		err = t.apply(pid)
	}
	if err == nil {
		err = unix.PtraceDetach(pid)
	}
	runtime.KeepAlive(cmd)
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return &errLimits{err}
	}
	return nil
}

func (t *Tree) apply(pid int) error {
	set := func(what string, resource int, n uint64) error {
		if n == 0 {
			return nil
		}
		if err := unix.Prlimit(pid, resource, &unix.Rlimit{Cur: n, Max: n}, nil); err != nil {
			return fmt.Errorf("limits.%s: %d: %w", what, n, err)
		}
		return nil
	}
	if err := set("nofile", unix.RLIMIT_NOFILE, uint64(t.limits.NoFile)); err != nil {
		return err
	}
	if !t.memoryByGroup {
		// What a process maps for writing: RLIMIT_AS would count the address space that
		// runtimes reserve and never use.
		if err := set("memory", unix.RLIMIT_DATA, uint64(t.limits.Memory)); err != nil {
			return err
		}
	}
	if t.pidsDir != "" {
		if err := os.WriteFile(filepath.Join(t.pidsDir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			return fmt.Errorf("limits.pids: %w", err)
		}
	}
	return nil
}
