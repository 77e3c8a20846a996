package own

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"mcpbridge/internal/flock"
)

const (
	// lowest is the rung that needs nothing, daemonRung the lowest of a daemon.
	lowest     = RungMarkers
	daemonRung = RungSubreaper
)

// system is what an Owner holds on Linux.
type system struct {
	v2      *hierarchy      // nil below the first rung
	lost    bool            // v2 is there, but no process can be born into it
	on      map[string]bool // controllers of v2 that limit
	pids    *hierarchy      // the pids controller of version 1
	last    *lastRun
	orphans *orphanage // nil when orphans are not adopted
	census  *census    // nil on the first rung; under Owner.mu

	known map[int]bool // children beside the trees: the guardian; under Owner.mu
}

func (w *Owner) open() error {
	// What the bridge inherited from whoever started it is kept away from the children;
	// what Go opens is marked so already.
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	rungs := []string{RungCgroup, RungSubreaper, RungMarkers}
	from := 0
	if w.o.Rung != "" {
		if from = slices.Index(rungs, w.o.Rung); from < 0 {
			return fmt.Errorf("%s=%s: there is no such rung; there are %v", ForceVar, w.o.Rung, rungs)
		}
		w.state.Forced = true
	}
	w.sys.known = map[int]bool{}
	w.state.Memory, w.state.PIDs, w.state.Rung = "process", "none", RungMarkers
	if from > 0 {
		w.state.Reason = "asked for by " + ForceVar
	}
	if from == 0 {
		w.openGroups()
	}
	if w.o.Wanted.PIDs > 0 && w.state.PIDs == "none" {
		w.openPIDs()
	}
	if w.o.Adopt && from < 2 {
		w.adopt()
	}
	w.sweepLast()
	return nil
}

// openGroups takes the first rung where control groups are delegated.
func (w *Owner) openGroups() {
	h, err := openHierarchy("", w.o.RunID)
	if err != nil {
		w.state.Reason = "no control groups of version 2: " + err.Error()
		return
	}
	w.sys.v2, w.state.Rung = h, RungCgroup
	if !w.o.plain {
		w.complain(h.sweep())
	}
	var want []string
	if w.o.Wanted.Memory > 0 {
		want = append(want, "memory")
	}
	if w.o.Wanted.PIDs > 0 {
		want = append(want, "pids")
	}
	w.sys.on = h.enable(want...)
	if w.sys.on["memory"] {
		w.state.Memory = RungCgroup
	}
	if w.sys.on["pids"] {
		w.state.PIDs = RungCgroup
	}
}

// openPIDs finds the pids controller where it still belongs to version 1.
func (w *Owner) openPIDs() {
	h, err := openHierarchy("pids", w.o.RunID)
	if err != nil {
		return
	}
	w.sys.pids, w.state.PIDs = h, "cgroup v1"
	if !w.o.plain {
		w.complain(h.sweep())
	}
}

func (w *Owner) complain(left int) {
	if left > 0 {
		w.log.Error("control groups of an earlier life could not be emptied: their processes do not die", "groups", left)
	}
}

// unified is the hierarchy that trees are born into, or nil.
func (s *system) unified() *hierarchy {
	if s.lost {
		return nil
	}
	return s.v2
}

// lostGroups steps down from the first rung. It runs on the starting thread only, which
// is also the only reader of lost.
func (w *Owner) lostGroups(err error) {
	w.sys.lost = true
	why := "no process can be born into a control group here: " + err.Error()
	w.mu.Lock()
	w.state.Rung, w.state.Reason = RungMarkers, why
	if w.sys.orphans != nil {
		w.state.Rung = RungSubreaper
	}
	rung := w.state.Rung
	w.mu.Unlock()
	w.log.Warn("process ownership is weaker than it seemed", "rung", rung, "reason", why)
	w.o.Notice("rung "+rung, why)
	w.startCensus()
}

// cgroups are the groups that hold every process of the run.
func (w *Owner) cgroups() (dirs []string) {
	for _, h := range []*hierarchy{w.sys.v2, w.sys.pids} {
		if h != nil {
			dirs = append(dirs, h.run)
		}
	}
	return dirs
}

// startKnown starts a child that belongs to no tree.
func (w *Owner) startKnown(cmd *exec.Cmd) error {
	w.starting.RLock()
	defer w.starting.RUnlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	w.mu.Lock()
	w.sys.known[cmd.Process.Pid] = true
	w.mu.Unlock()
	return nil
}

func (w *Owner) forgetKnown(pid int) {
	w.mu.Lock()
	delete(w.sys.known, pid)
	w.mu.Unlock()
}

// spared are the processes that are never killed as kin of a tree (nil: of any): the
// bridge, the guardian, and the leaders of the other trees.
func (w *Owner) spared(of *Tree) map[int]bool {
	spare := map[int]bool{os.Getpid(): true}
	w.mu.Lock()
	defer w.mu.Unlock()
	for pid := range w.sys.known {
		spare[pid] = true
	}
	for t := range w.trees {
		if t != of {
			spare[t.pid] = true
		}
	}
	return spare
}

// close ends what open began; false means that something may still live.
func (w *Owner) close(clean bool) bool {
	w.mu.Lock()
	c := w.sys.census
	w.mu.Unlock()
	c.close()
	if w.sys.orphans != nil {
		clean = w.sys.orphans.close() && clean
	}
	for _, h := range []*hierarchy{w.sys.v2, w.sys.pids} {
		if h != nil {
			h.moveBack()
			h.close()
		}
	}
	w.sys.last.close(clean)
	return clean
}

// lastRun is the file that tells the next life whom to look for. It is locked as long as
// the bridge lives.
type lastRun struct {
	f    *os.File
	path string
}

// sweepLast kills what the last life left behind, as far as its mark is found, and takes
// its place. A file that somebody else holds is left alone.
func (w *Owner) sweepLast() {
	if w.o.StateDir == "" || w.o.RunID == "" {
		return
	}
	path := w.o.StateDir + "/last-run"
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err == nil {
		err = flock.Lock(f)
		if err != nil {
			_ = f.Close()
		}
	}
	if err != nil {
		w.log.Warn("what an earlier life left running is not looked for", "err", fmt.Errorf("%s: %w", path, err))
		return
	}
	var b [256]byte
	n, _ := f.ReadAt(b[:], 0)
	if old := string(b[:n]); validRun(old) && old != w.o.RunID {
		switch killed, left := sweepRun(old, 2*time.Second); {
		case left:
			w.log.Error("processes of an earlier life do not die", "run", old)
		case killed > 0:
			w.log.Warn("processes of an earlier life were still running and were killed", "run", old, "count", killed)
		}
	}
	w.sys.last = &lastRun{f, path}
	if err := errors.Join(f.Truncate(0), second(f.WriteAt([]byte(w.o.RunID), 0))); err != nil {
		w.log.Warn("the next start will not know this run", "err", err)
	}
}

func second[T any](_ T, err error) error { return err }

// validRun reports whether a name may be a run's: nothing else is searched for.
func validRun(s string) bool {
	for _, c := range s {
		if c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return len(s) >= 8
}

func runMark(run string) [][]byte { return [][]byte{[]byte(RunVar + "=" + run + "\x00")} }

// sweepRun kills every process that carries the mark of a run, with its kin.
func sweepRun(run string, within time.Duration) (killed int, left bool) {
	spare := map[int]bool{os.Getpid(): true}
	for end, wait := time.Now().Add(within), time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		all, ok := table()
		var alive []proc
		for _, p := range kin(all, func(p proc) bool { return !p.dead() && carries(p.pid, runMark(run)) }, spare) {
			if !p.dead() {
				alive = append(alive, p)
			}
		}
		if ok && len(alive) == 0 {
			return killed, false
		}
		if time.Now().After(end) {
			return killed, true
		}
		killAll(alive)
		killed = max(killed, len(alive))
		time.Sleep(wait)
	}
}

func (l *lastRun) close(clean bool) {
	if l == nil {
		return
	}
	if clean {
		_ = os.Remove(l.path)
	}
	_ = l.f.Close()
}
