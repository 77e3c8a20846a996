//go:build planted

package journal

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// systemFS is, in a build for tests, the operating system's file layer with the faults
// that the environment asks for. A word that is not understood ends the process: a test
// must not believe that something was struck.
func systemFS() FS {
	value := os.Getenv(faultVariable)
	if value == "" {
		return osFS{}
	}
	plan, err := parseFaults(value)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s=%s: %v\n%s", faultVariable, value, err, faultForms)
		os.Exit(2)
	}
	s := &strickenFS{plan: plan, count: map[string]int{}, sizes: map[string]*extent{}}
	if plan.log != "" {
		if s.log, err = os.OpenFile(plan.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", faultVariable, err)
			os.Exit(2)
		}
	}
	return s
}

// extent is what of a file a power failure leaves.
type extent struct {
	synced int64
	named  bool // its name is on the disk too
}

// strickenFS is osFS that counts its operations and fails where the plan says. A file
// system of a test process remembers what was synced, so that a power failure can be
// played: what was not is taken away before the process dies.
type strickenFS struct {
	osFS
	plan faultPlan
	log  *os.File

	mu      sync.Mutex
	count   map[string]int
	sizes   map[string]*extent // of the files that this process made
	renamed [][2]string        // since the last sync of the directory
	removed [][2]string        // name, and the second link that keeps it
}

// strike counts an operation and does what is planned before it. It returns the fault
// that is to be played in its place, if there is one.
func (s *strickenFS) strike(op, name string) (action string, err error) {
	s.count[op]++
	n := s.count[op]
	if s.log != nil {
		fmt.Fprintf(s.log, "%s %s\n", op, filepath.Base(name))
	}
	for _, f := range s.plan.faults {
		if f.op != op || n != f.n && (!f.on || n < f.n) {
			continue
		}
		switch f.action {
		case "kill-before":
			die()
		case "power-before":
			s.powerFailure()
			die()
		case "enospc":
			return f.action, &os.PathError{Op: op, Path: name, Err: syscall.ENOSPC}
		case "eio":
			return f.action, &os.PathError{Op: op, Path: name, Err: syscall.EIO}
		default:
			action = f.action
		}
	}
	return action, nil
}

// after does what is planned after an operation.
func (s *strickenFS) after(action string) {
	switch action {
	case "kill-after":
		die()
	case "power-after":
		s.powerFailure()
		die()
	}
}

// do is strike, the operation, and after.
func (s *strickenFS) do(op, name string, f func(lie bool) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	action, err := s.strike(op, name)
	if err != nil {
		return err
	}
	err = f(action == "lie")
	s.after(action)
	return err
}

// die ends the process as kill -9 does.
func die() {
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Kill()
	}
	select {} // nothing more happens here
}

// powerFailure takes away what is on no disk.
func (s *strickenFS) powerFailure() {
	for _, r := range slices.Backward(s.renamed) {
		_ = os.Rename(r[1], r[0])
	}
	for _, r := range s.removed {
		_ = os.Rename(r[1], r[0])
	}
	for name, e := range s.sizes {
		if !e.named {
			_ = os.Remove(name)
		} else if fi, err := os.Stat(name); err == nil && fi.Size() > e.synced {
			_ = os.Truncate(name, e.synced)
		}
	}
}

func (s *strickenFS) Create(name string) (f File, err error) {
	err = s.do("create", name, func(bool) error {
		in, err := s.osFS.Create(name)
		if err == nil {
			f, s.sizes[name] = &strickenFile{s: s, name: name, f: in}, &extent{}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (s *strickenFS) SyncFile(name string) error {
	return s.do("syncfile", name, func(lie bool) error {
		if lie {
			return nil
		}
		return s.osFS.SyncFile(name)
	})
}

func (s *strickenFS) Truncate(name string, size int64) error {
	return s.do("truncate", name, func(bool) error {
		err := s.osFS.Truncate(name, size)
		if e := s.sizes[name]; err == nil && e != nil {
			e.synced = size
		}
		return err
	})
}

func (s *strickenFS) Rename(from, to string) error {
	return s.do("rename", from, func(bool) error {
		err := s.osFS.Rename(from, to)
		if err == nil {
			s.renamed = append(s.renamed, [2]string{from, to})
			if e := s.sizes[from]; e != nil {
				delete(s.sizes, from)
				s.sizes[to] = e
			}
		}
		return err
	})
}

func (s *strickenFS) Remove(name string) error {
	return s.do("remove", name, func(bool) error {
		if keep := filepath.Dir(name) + ".removed"; s.plan.power {
			_ = os.Mkdir(keep, 0o700)
			link := filepath.Join(keep, fmt.Sprint(s.count["remove"]))
			if os.Link(name, link) == nil {
				s.removed = append(s.removed, [2]string{name, link})
			}
		}
		delete(s.sizes, name)
		return s.osFS.Remove(name)
	})
}

func (s *strickenFS) SyncDir(dir string) error {
	return s.do("syncdir", dir, func(lie bool) error {
		if lie {
			return nil
		}
		if err := s.osFS.SyncDir(dir); err != nil {
			return err
		}
		for _, e := range s.sizes {
			e.named = true
		}
		for _, r := range s.removed {
			_ = os.Remove(r[1])
		}
		s.renamed, s.removed = nil, nil
		return nil
	})
}

// strickenFile is a segment that is being written.
type strickenFile struct {
	s    *strickenFS
	name string
	f    File
	size int64
	held []byte // written, as the disk said; it lied
}

func (f *strickenFile) Write(p []byte) (n int, err error) {
	s := f.s
	s.mu.Lock()
	defer s.mu.Unlock()
	action, err := s.strike("write", f.name)
	switch {
	case action == "enospc", action == "kill-within": // a disk takes what it can
		n, _ = f.f.Write(p[:len(p)/2])
		f.size += int64(n)
		if action == "kill-within" {
			die()
		}
		return n, err
	case err != nil:
		return 0, err
	case action == "lie":
		f.held = append(f.held, p...)
		return len(p), nil
	}
	if err := f.flush(); err != nil {
		return 0, err
	}
	n, err = f.f.Write(p)
	f.size += int64(n)
	s.after(action)
	return n, err
}

func (f *strickenFile) flush() error {
	n, err := f.f.Write(f.held)
	f.size, f.held = f.size+int64(n), nil
	return err
}

func (f *strickenFile) Sync() error {
	return f.s.do("sync", f.name, func(lie bool) error {
		if lie {
			return nil
		}
		err := f.f.Sync()
		if e := f.s.sizes[f.name]; err == nil && e != nil {
			e.synced = f.size
		}
		return err
	})
}

func (f *strickenFile) Close() error {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	return joinClose(f.flush(), f.f)
}

func joinClose(err error, c io.Closer) error {
	if e := c.Close(); err == nil {
		err = e
	}
	return err
}

var _ FS = (*strickenFS)(nil)

// faultVariable holds the faults that a build with the tag `planted` plays.
const faultVariable = "MCPBRIDGE_JOURNAL_FAULT"

const faultForms = `forms, separated by commas:
  ACTION:OP:N    strikes the N-th operation of that kind (from 1)
  ACTION:OP:N+   and every one after it
  log:FILE       appends each operation and its file to FILE
ACTION: kill-before, kill-after (kill -9 of the process), kill-within (write: half of it, then kill -9),
  power-before, power-after (what was not synced is taken away, then kill -9),
  enospc, eio (the error; a write without space takes half),
  lie (sync, syncdir, syncfile: said to be done, not done; write: held back until the next)
OP: write, sync, create, rename, remove, truncate, syncdir, syncfile
`

// fault strikes an operation.
type fault struct {
	action, op string
	n          int
	on         bool // and all that follow
}

type faultPlan struct {
	faults []fault
	log    string
	power  bool
}

var (
	faultActions = []string{"kill-before", "kill-after", "kill-within", "power-before", "power-after", "enospc", "eio", "lie"}
	faultOps     = []string{"write", "sync", "create", "rename", "remove", "truncate", "syncdir", "syncfile"}
)

func parseFaults(value string) (faultPlan, error) {
	var p faultPlan
	for word := range strings.SplitSeq(value, ",") {
		if file, ok := strings.CutPrefix(word, "log:"); ok && file != "" {
			p.log = file
			continue
		}
		part := strings.Split(word, ":")
		if len(part) != 3 {
			return p, fmt.Errorf("%q is no fault", word)
		}
		f := fault{action: part[0], op: part[1]}
		number, on := strings.CutSuffix(part[2], "+")
		f.on = on
		if _, err := fmt.Sscanf(number, "%d", &f.n); err != nil || f.n < 1 || fmt.Sprint(f.n) != number {
			return p, fmt.Errorf("%q: the number is no number from 1", word)
		}
		switch {
		case !slices.Contains(faultActions, f.action):
			return p, fmt.Errorf("%q: no such action", word)
		case !slices.Contains(faultOps, f.op):
			return p, fmt.Errorf("%q: no such operation", word)
		case f.action == "kill-within" && f.op != "write",
			f.action == "lie" && f.op != "write" && !strings.HasPrefix(f.op, "sync"):
			return p, fmt.Errorf("%q: that action has no meaning for this operation", word)
		}
		p.power = p.power || strings.HasPrefix(f.action, "power-")
		p.faults = append(p.faults, f)
	}
	return p, nil
}
