package own

import (
	"fmt"
	"os/exec"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

const (
	rung       = RungJob
	rungReason = "a process is put into its job just after it was started: what it starts before that escapes"
)

// Tree is one started process with its job object, which ends whatever is in it when the
// bridge ends, however that comes.
type Tree struct {
	w       *Owner
	id      uint64
	pid     int
	started uint64
	job     windows.Handle
}

// Start starts cmd and puts it into a job of its own.
func (w *Owner) Start(cmd *exec.Cmd, _ uint64, _ [][]byte, limits Limits) (*Tree, error) {
	t, err := w.newTree(limits)
	if err != nil {
		return nil, err
	}
	if t.job, err = newJob(); err != nil {
		return nil, fmt.Errorf("job object: %w", err)
	}
	if err := cmd.Start(); err != nil {
		_ = windows.CloseHandle(t.job)
		return nil, err
	}
	t.pid = cmd.Process.Pid
	if err := t.enter(); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = windows.CloseHandle(t.job)
		return nil, fmt.Errorf("job object: %w", err)
	}
	w.entered(t)
	return t, nil
}

func newJob() (windows.Handle, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0, err
	}
	var info windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	info.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	if _, err := windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info))); err != nil {
		_ = windows.CloseHandle(job)
		return 0, err
	}
	return job, nil
}

func (t *Tree) enter() error {
	p, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, uint32(t.pid))
	if err != nil {
		return err
	}
	defer func() { _ = windows.CloseHandle(p) }()
	return windows.AssignProcessToJobObject(t.job, p)
}

func guardAttr() *syscall.SysProcAttr { return nil }

// Reaped changes nothing here.
func (t *Tree) Reaped() {}

// Terminate ends the job: there is no gentle signal.
func (t *Tree) Terminate() { t.Kill() }

// Kill ends the job.
func (t *Tree) Kill() { _ = windows.TerminateJobObject(t.job, 1) }

// Sweep ends the job; it is over as soon as the call returns.
func (t *Tree) Sweep() int {
	if err := windows.TerminateJobObject(t.job, 1); err != nil {
		return -1
	}
	return 0
}

// Left says nothing here: only the system knows.
func (t *Tree) Left() string { return "" }

// Done gives the tree up, and with the last handle whatever is left in the job.
func (t *Tree) Done(proven bool) {
	t.w.forget(t, proven)
	_ = windows.CloseHandle(t.job)
}
