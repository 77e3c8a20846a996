package own

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Tree is one started process with everything that came of it.
type Tree struct {
	w       *Owner
	id      uint64
	pid     int
	started uint64 // of the leader
	marks   [][]byte
	limits  Limits

	dir           string // control group, "" without one
	pidsDir       string // control group of version 1 that limits the number of processes
	memoryByGroup bool

	mu     sync.Mutex
	reaped uint64       // when the leader's number became free, in ticks; 0 = not yet
	known  map[int]proc // members that were seen and may have hidden since
	bare   map[int]bool // those of them that the guardian was told of
	clean  int          // looks in a row that found nothing
	left   string       // what the last look found, for people
	found  bool         // one found somebody beside the leader
	over   bool         // Done was called
}

var lastTree atomic.Uint64

// Start starts cmd as the leader of a tree, in a process group of its own, with these
// limits and no way to gain rights. marks are the variables, each NAME=value and a zero
// byte, that tell its processes from those of any other tree. It must be called on a
// thread that outlives the process: the system kills the process when that thread ends.
// Done must be called once the tree has ended.
func (w *Owner) Start(cmd *exec.Cmd, gen uint64, marks [][]byte, limits Limits) (*Tree, error) {
	if err := w.Check(limits); err != nil {
		return nil, &errLimits{err}
	}
	t := &Tree{w: w, id: lastTree.Add(1), marks: marks, limits: limits, known: map[int]proc{}, bare: map[int]bool{}}
	if err := t.prepare(gen); err != nil {
		t.removeGroups()
		return nil, err
	}
	w.starting.RLock()
	defer w.starting.RUnlock()
	err := t.start(cmd)
	if err != nil && t.dir != "" && groupRefused(err) {
		err = t.withoutGroup(cmd, err)
	}
	if err == nil && limits.any() {
		err = t.limit(cmd)
	}
	if err != nil {
		t.removeGroups()
		return nil, err
	}
	t.pid = cmd.Process.Pid
	if p, err := look(t.pid); err == nil {
		t.started = p.started
	}
	w.entered(t)
	return t, nil
}

// prepare makes the tree's control groups.
func (t *Tree) prepare(gen uint64) error {
	name := fmt.Sprintf("g%d-%d", gen, t.id)
	s := &t.w.sys
	if h := s.unified(); h != nil {
		t.dir = filepath.Join(h.run, name)
		if err := os.Mkdir(t.dir, 0o755); err != nil {
			return fmt.Errorf("control group: %w", err)
		}
		if t.limits.Memory > 0 && s.on["memory"] {
			t.memoryByGroup = true
			// Of a tree that is short of memory nothing is worth keeping: it is killed whole.
			_ = os.WriteFile(filepath.Join(t.dir, "memory.oom.group"), []byte("1"), 0)
			_ = os.WriteFile(filepath.Join(t.dir, "memory.swap.max"), []byte("0"), 0)
			if err := writeLimit(t.dir, "memory.max", t.limits.Memory); err != nil {
				return err
			}
		}
		if t.limits.PIDs > 0 && s.on["pids"] {
			return writeLimit(t.dir, "pids.max", int64(t.limits.PIDs))
		}
	}
	if t.limits.PIDs > 0 {
		if s.pids == nil {
			return &errLimits{errors.New("limits.pids: the control group that could is gone")}
		}
		t.pidsDir = filepath.Join(s.pids.run, name)
		if err := os.Mkdir(t.pidsDir, 0o755); err != nil {
			return fmt.Errorf("control group: %w", err)
		}
		return writeLimit(t.pidsDir, "pids.max", int64(t.limits.PIDs))
	}
	return nil
}

func writeLimit(dir, file string, n int64) error {
	if err := os.WriteFile(filepath.Join(dir, file), []byte(strconv.FormatInt(n, 10)), 0); err != nil {
		return &errLimits{err}
	}
	return nil
}

func (t *Tree) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Ptrace: t.limits.any()}
	if t.dir == "" {
		return cmd.Start()
	}
	fd, err := unix.Open(t.dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("control group: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, fd
	return cmd.Start()
}

// groupRefused reports whether a start may have failed because a process cannot be born
// into a control group here (clone3 forbidden, say). The program itself may be at fault.
func groupRefused(err error) bool {
	for _, no := range []unix.Errno{unix.ENOSYS, unix.EPERM, unix.EACCES, unix.EINVAL, unix.EOPNOTSUPP, unix.EBUSY, unix.EBADF, unix.ENODEV} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}

// withoutGroup tries once more without the control group. If that works, this rung does
// not hold here, and nobody stands on it any longer.
func (t *Tree) withoutGroup(cmd *exec.Cmd, was error) error {
	if t.memoryByGroup || t.limits.PIDs > 0 && t.pidsDir == "" {
		return was
	}
	dir := t.dir
	t.dir = ""
	again := &exec.Cmd{Path: cmd.Path, Args: cmd.Args, Env: cmd.Env, Dir: cmd.Dir, Stdin: cmd.Stdin, Stdout: cmd.Stdout, Stderr: cmd.Stderr}
	err := t.start(again)
	removeGroup(dir)
	if err != nil {
		return was
	}
	*cmd = *again //nolint:govet // never used: its Start failed
	t.w.lostGroups(was)
	return nil
}

// Reaped says that the leader has been waited for: its number may be another's from now on.
func (t *Tree) Reaped() {
	t.mu.Lock()
	t.reaped = ticks()
	t.mu.Unlock()
}

// Terminate asks every process of the group to end. The leader must not be reaped yet.
func (t *Tree) Terminate() { _ = unix.Kill(-t.pid, unix.SIGTERM) }

// Kill kills the control group and the process group. The leader must not be reaped yet.
func (t *Tree) Kill() {
	if t.dir != "" {
		killGroupDir(t.dir)
	}
	_ = unix.Kill(-t.pid, unix.SIGKILL)
}

// Note remembers who belongs to the tree, for those that are about to be orphaned.
func (t *Tree) Note() {
	if t.dir != "" {
		return // the control group remembers
	}
	if all, ok := table(); ok {
		t.mu.Lock()
		t.members(all)
		t.mu.Unlock()
	}
}

// members are the living processes of the tree but for a reaped leader; the lock is held.
func (t *Tree) members(all []proc) (alive []proc) {
	seed := func(p proc) bool {
		if k, ok := t.known[p.pid]; ok && k.started == p.started {
			return true
		}
		if p.pid == t.pid || p.pgid == t.pid {
			// A group whose members are all younger than the leader's end is another's.
			return t.reaped == 0 || p.started <= t.reaped
		}
		return !p.dead() && carries(p.pid, t.marks)
	}
	for _, p := range kin(all, seed, t.w.spared(t)) {
		t.known[p.pid] = p
		if !p.dead() {
			alive = append(alive, p)
		}
	}
	return alive
}

// Sweep kills what is left of the tree and returns how much it found. 0 is proof that
// nothing of it is alive; -1 means that it could not look.
func (t *Tree) Sweep() int {
	n := 0
	if t.dir != "" {
		switch lives, err := populated(t.dir); {
		case err != nil:
			return t.leaves(-1, "the control group cannot be read: "+err.Error())
		case lives:
			killGroupDir(t.dir)
			n++
		}
	}
	all, ok := table()
	if !ok {
		return t.leaves(-1, "the process table cannot be read whole")
	}
	t.mu.Lock()
	alive := t.members(all)
	leading := map[int]bool{}
	for _, p := range alive {
		leading[p.pid] = true
	}
	t.found = t.found || n+len(alive) > 0
	t.mu.Unlock()
	killAll(alive)
	n += len(alive)
	if n > 0 {
		t.clean = 0
		return t.leaves(n, describe(alive))
	}
	// One look is not at one moment: where there was somebody, it takes a second one.
	if t.clean++; t.found && t.clean < 2 {
		return t.leaves(1, "nothing at the last look; one more was due")
	}
	return t.leaves(0, "")
}

func (t *Tree) leaves(n int, what string) int {
	t.mu.Lock()
	t.left = what
	t.mu.Unlock()
	return n
}

// Left says what the last Sweep found, for people: process numbers and states.
func (t *Tree) Left() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.left
}

// describe names processes, the first few of them. None are those that only the control
// group knows of.
func describe(list []proc) string {
	const most = 8
	if len(list) == 0 {
		return "the control group is not empty"
	}
	var b strings.Builder
	for i, p := range list {
		if i == most {
			fmt.Fprintf(&b, " and %d more", len(list)-most)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "pid %d (state %c)", p.pid, p.state)
	}
	return b.String()
}

// killAll kills processes, whole groups first where one of them leads it: those cannot
// fork on while they are killed one by one.
func killAll(list []proc) {
	for _, p := range list {
		if p.pgid == p.pid {
			if now, err := look(p.pid); err == nil && now.started == p.started {
				_ = unix.Kill(-p.pid, unix.SIGKILL)
			}
		}
	}
	for _, p := range list {
		p.kill()
	}
}

// Done gives the tree up; proven says that a Sweep returned 0.
func (t *Tree) Done(proven bool) {
	t.w.forget(t, proven)
	t.mu.Lock()
	t.over = true
	if proven {
		for pid := range t.bare {
			t.w.keeper.drop(memberID(pid))
		}
	}
	t.mu.Unlock()
	if proven {
		t.removeGroups()
	}
}

func (t *Tree) removeGroups() {
	for _, dir := range []string{t.dir, t.pidsDir} {
		if dir != "" && !removeGroup(dir) {
			t.w.log.Warn("a control group could not be removed; the next start will", "dir", dir)
		}
	}
}
