// Package own holds on to the processes that a bridge starts: whatever they fork,
// and wherever that hides, it ends with its server, and nothing outlives the bridge.
//
// # The ladder
//
// An Owner stands on the strongest rung that the system offers, chosen once at Open
// and shown by State:
//
//	cgroup      each process tree has a control group (version 2) of its own: it is born
//	            in it, cannot leave it, and is killed whole, by the kernel
//	subreaper   orphans of the trees become children of the bridge; a tree is its group,
//	            what carries its marks in the environment, and what descends from those
//	markers     the same without adoption: for hosts that have children of their own
//	group       the process group only (unix other than Linux)
//	job         a job object (Windows)
//
// The rungs add up: on the first one the group is killed and the marks are looked for
// as well. What is promised is proof: Sweep returns 0 only when group, control group,
// marked processes and their descendants are gone, and says -1 when it could not look.
//
// # The guardian
//
// A bridge that is killed cleans nothing up. The guardian is bridgectl, started again in
// a session of its own (Guard is its whole life): it holds a pipe from the bridge, is told
// what runs, and when the pipe ends without a farewell it kills all of it. It holds no
// other descriptor of the bridge. When it dies, it is started again.
//
// # Limits
//
// A child with limits is stopped at its first instruction (ptrace) until they are set, so
// nothing of it ever runs without them. Memory is limited by the control group where the
// controller is there, else per process (RLIMIT_DATA); the number of processes only by a
// control group: Check says so before anything is started.
//
// No method blocks for long but Close and Start. All may be called from any goroutine,
// except Start, which wants the one thread that outlives every child.
package own

import (
	"fmt"
	"log/slog"
	"os"
	"sync"

	"mcpbridge/messages"
)

// The rungs, strongest first.
const (
	RungCgroup    = "cgroup"
	RungSubreaper = "subreaper"
	RungMarkers   = "markers"
	RungGroup     = "group"
	RungJob       = "job"
)

// ForceVar is the environment variable by which a person makes the daemon take a lower
// rung than it could, to try what that one does. The status shows it.
const ForceVar = "MCPBRIDGE_OWNERSHIP"

// Options say what an Owner may use.
type Options struct {
	RunID    string // marks every process; "" = nothing can be swept by it
	StateDir string // where the run is remembered for the sweep of the next one; "" = nowhere
	Guardian string // path of bridgectl; "" = none
	// Adopt: every child of this program is started here, so it may take in orphans and
	// reap them.
	Adopt  bool
	Rung   string // take this rung and no stronger one; "" = the strongest
	Wanted Limits // the union of what servers want: control groups are prepared for them
	Logger *slog.Logger
	// Notice hears what a person should know: the guardian coming and going (state
	// running or down), a rung lost. It must not block.
	Notice func(state, reason string)

	plain bool // nothing runs beside
}

// Limits of one process tree; 0 = none.
type Limits struct {
	NoFile int
	Memory int64
	PIDs   int
}

func (l Limits) any() bool { return l != Limits{} }

// Owner owns the processes of one bridge.
type Owner struct {
	o      Options
	log    *slog.Logger
	keeper *keeper // nil without a guardian

	// starting is held for reading while a process is started and entered in trees, and
	// for writing while orphans are told from children.
	starting sync.RWMutex

	mu    sync.Mutex
	state messages.Ownership
	trees map[*Tree]bool
	left  bool // some tree was given up without proof

	sys     system
	closing sync.Once
}

// Open chooses the rung, sweeps up what an earlier life left, and starts the guardian.
// The only error is a rung that does not exist here.
func Open(o Options) (*Owner, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Notice == nil {
		o.Notice = func(string, string) {}
	}
	w := &Owner{o: o, log: o.Logger, trees: map[*Tree]bool{}}
	if err := w.open(); err != nil {
		return nil, fmt.Errorf("process ownership: %w", err)
	}
	w.openKeeper()
	w.begin()
	return w, nil
}

// Probe says what an Owner would come to, and leaves nothing behind. The guardian is
// reported as none: it takes a bridge.
func Probe(rung string, wanted Limits) (messages.Ownership, error) {
	w, err := Open(Options{RunID: fmt.Sprintf("probe-%d", os.Getpid()), Rung: rung, Wanted: wanted, plain: true})
	if err != nil {
		return messages.Ownership{}, err
	}
	defer w.Close()
	s := w.State()
	s.Guardian, s.GuardianReason = guardianNone, "no bridge runs"
	if guards {
		s.Guardian, s.GuardianReason = guardianStarting, "with the bridge"
	}
	if s.Rung == RungMarkers && rung == "" || rung == RungSubreaper {
		s.Rung, s.Adopts = daemonRung, true
	}
	return s, nil
}

// Plain is an Owner on the lowest rung of the system, with neither guardian nor adoption:
// for programs that want a process or two looked after. It needs no Close.
func Plain() *Owner {
	w, err := Open(Options{Rung: lowest, plain: true})
	if err != nil {
		panic(err) // the lowest rung exists everywhere
	}
	return w
}

// State is the rung, what enforces limits, and how the guardian is.
func (w *Owner) State() messages.Ownership {
	w.mu.Lock()
	s := w.state
	w.mu.Unlock()
	if w.keeper != nil {
		s.Guardian, s.GuardianPID, s.GuardianReason = w.keeper.report()
	}
	return s
}

// Check says why a server with these limits cannot be run, or nil.
func (w *Owner) Check(l Limits) error {
	s := w.State()
	switch {
	case l.PIDs > 0 && s.PIDs == "none":
		return fmt.Errorf("limits.pids: nothing here can limit the number of processes (it takes a control group with the pids controller that this user may write to, such as a systemd unit with Delegate=yes): remove the limit, or delegate one")
	case l.Memory > 0 && s.Memory == "none":
		return fmt.Errorf("limits.memory: cannot be enforced on this system: remove the limit")
	case l.NoFile > 0 && !limitsFiles:
		return fmt.Errorf("limits.nofile: cannot be enforced on this system: remove the limit")
	}
	return nil
}

// entered makes a started tree known.
func (w *Owner) entered(t *Tree) {
	w.mu.Lock()
	w.trees[t] = true
	w.mu.Unlock()
	w.keeper.add(t.id, t.pid, t.started)
}

// forget ends the care for a tree; proven says that nothing of it is alive. One that is
// not stays with the guardian.
func (w *Owner) forget(t *Tree, proven bool) {
	w.mu.Lock()
	delete(w.trees, t)
	w.left = w.left || !proven
	w.mu.Unlock()
	if proven {
		w.keeper.drop(t.id)
	}
}

// Close releases everything. Children must have ended; if some could not be proven dead,
// the guardian gets the last word. It is idempotent.
func (w *Owner) Close() { w.closing.Do(w.end) }

func (w *Owner) end() {
	w.mu.Lock()
	clean := !w.left && len(w.trees) == 0
	w.mu.Unlock()
	clean = w.close(clean) && clean
	w.keeper.close(clean)
}

// RunVar and GenVar are the marks that every process of a bridge carries in its
// environment: the run, and the generation of its server.
const (
	RunVar = "MCPBRIDGE_RUN"
	GenVar = "MCPBRIDGE_GEN"
)

// NoNewPrivileges gives up every gain of rights by setuid programs and file capabilities,
// for the calling thread and whatever it starts. Only Linux knows that.
func NoNewPrivileges() error { return noNewPrivileges() }
