//go:build linux

package crash

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpbridge/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// whole says that this is `make crash`.
var whole = os.Getenv("MCPBRIDGE_CRASH") == "1"

// point is one fault at one operation.
type point struct {
	action, op string
	n          int
	more       string // further faults
}

func (p point) String() string {
	s := fmt.Sprintf("%s:%s:%d", p.action, p.op, p.n)
	if p.persists() {
		s += "+"
	}
	if p.more != "" {
		s += "," + p.more
	}
	return s
}

// persists: a disk that is full or broken stays so for the rest of the life.
func (p point) persists() bool { return p.action == "enospc" || p.action == "eio" }

// ops are the kinds of operations, and what may happen at each.
var ops = []string{"write", "sync", "create", "rename", "remove", "truncate", "syncdir", "syncfile"}

var actions = []string{"kill-before", "kill-within", "kill-after", "power-before", "power-after", "enospc", "eio"}

// points are all faults at all operations of a life.
func points(l *life) (out []point) {
	for _, op := range ops {
		for _, action := range actions {
			for n := 1; n <= l.count(op) && (op == "write" || action != "kill-within"); n++ {
				out = append(out, point{action: action, op: op, n: n})
			}
		}
	}
	return out
}

// choose is what this run plays: all, or a spread.
func choose(all []point, n int) []point {
	switch {
	case whole:
		return all
	case testing.Short():
		return every(all, 1+len(all)/12)
	default:
		return spread(all, n)
	}
}

func every(all []point, k int) (out []point) {
	for i := 0; i < len(all); i += k {
		out = append(out, all[i])
	}
	return out
}

// spread takes about n of the points: each kind's first and last, and of the rest every
// k-th, so that each kind of operation and of fault is among them.
func spread(all []point, n int) (out []point) {
	step := max(1, len(all)/n)
	for i, p := range all {
		kind := func(j int) string {
			if j < 0 || j >= len(all) {
				return ""
			}
			return all[j].action + all[j].op
		}
		if i%step == 0 || kind(i) != kind(i-1) || kind(i) != kind(i+1) {
			out = append(out, p)
		}
	}
	return out
}

// each runs f for every point, two at a time, each of the two at a site of its own.
func each(t *testing.T, list []point, f func(t *testing.T, s *site, p point)) {
	work := make(chan point)
	var wg sync.WaitGroup
	for range 2 {
		s := newSite(t)
		wg.Go(func() {
			for p := range work {
				t.Run(p.String(), func(t *testing.T) { f(t, s, p) })
			}
		})
	}
	for _, p := range list {
		work <- p
	}
	close(work)
	wg.Wait()
}

// tally counts what the points met, so that a run which struck nothing is seen.
type tally struct {
	mu     sync.Mutex
	counts map[string]int
}

func (y *tally) add(what string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.counts == nil {
		y.counts = map[string]int{}
	}
	y.counts[what]++
}

// TestEveryOperation strikes a daemon at the operations of its journal from its first
// start on.
func TestEveryOperation(t *testing.T) {
	s := newSite(t)
	w := s.newWorld(t)
	calm := w.live(t, "", "calm", script)
	a := w.ask(t, "calm-next", calm.calls)
	for _, f := range compare(calm, a, w.witness(t)) {
		t.Errorf("without any fault: %s", f)
	}
	if t.Failed() {
		return
	}
	all := points(calm)
	list := choose(all, 50)
	var y tally
	start := time.Now()
	each(t, list, func(t *testing.T, s *site, p point) { strike(t, s.newWorld(t), p, script, &y) })
	report(t, &y, start, len(list), len(all), calm)
}

// TestNextStart strikes the daemon that comes after a crash: the one that reads what is
// left, cuts off what is torn, settles what was open and holds the remote lane.
func TestNextStart(t *testing.T) {
	s := newSite(t)
	w := s.newWorld(t)
	fallen := w.live(t, torn, "calm-0", seed)
	calm := w.live(t, "", "calm-1", short)
	a := w.ask(t, "calm-next", slices.Concat(fallen.calls, calm.calls))
	if both := merge("calm", fallen, calm); len(a.fenced) != 1 || calm.count("truncate") == 0 || calm.count("syncfile") == 0 {
		t.Fatalf("the seed is not what it should be: fenced %v, operations of the next start %v", a.fenced, calm.ops)
	} else {
		for _, f := range compare(both, a, w.witness(t)) {
			t.Errorf("without a further fault: %s", f)
		}
	}
	if t.Failed() {
		return
	}
	all := points(calm)
	list := choose(all, 20)
	var y tally
	start := time.Now()
	each(t, list, func(t *testing.T, s *site, p point) {
		w := s.newWorld(t)
		prefix := name("y", p)
		before := w.live(t, torn, prefix+"-0", seed)
		if !before.died {
			t.Fatalf("the seed did not die: exit %d", before.exit)
		}
		l := w.live(t, p.String(), prefix+"-1", short)
		judge(t, w, p, l, merge(prefix, before, l), &y)
	})
	report(t, &y, start, len(list), len(all), calm)
}

// torn dies within the record that says how the call of the remote server ended.
const torn = "kill-within:write:6"

var (
	seed  = script[:3]
	short = []step{{wave: 1, server: "s", tool: "read"}, {wave: 2, server: "s", tool: "write"}, {wave: 3, server: "s", tool: "big", key: "k", bytes: 9000},
		{wave: 4, server: "s", tool: "write", key: "k2"}}
)

// merge is two lives, one after the other, as one.
func merge(prefix string, a, b *life) *life {
	return &life{prefix: prefix, calls: slices.Concat(a.calls, b.calls), ops: b.ops, died: a.died || b.died, exit: b.exit, struck: true}
}

func report(t *testing.T, y *tally, start time.Time, played, all int, calm *life) {
	var counts []string
	for _, op := range ops {
		counts = append(counts, fmt.Sprintf("%s %d", op, calm.count(op)))
	}
	say := t.Logf
	if whole { // who runs them all wants to see it
		say = func(format string, args ...any) { fmt.Printf(t.Name()+": "+format+"\n", args...) }
	}
	say("operations: %s; points: %d of %d, in %s", strings.Join(counts, ", "), played, all, time.Since(start).Round(time.Second))
	var lines []string
	for what, n := range y.counts {
		lines = append(lines, fmt.Sprintf("%s %d", what, n))
	}
	slices.Sort(lines)
	say("%s", strings.Join(lines, "; "))
	if y.counts["struck"] < played*9/10 {
		t.Errorf("only %d of %d points were reached: the script has changed under its count", y.counts["struck"], played)
	}
}

func name(prefix string, p point) string {
	return fmt.Sprintf("%s-%s-%s-%d", prefix, p.action, p.op, p.n)
}

// strike plays one point and compares.
func strike(t *testing.T, w *world, p point, steps []step, y *tally) {
	l := w.live(t, p.String(), name("x", p), steps)
	judge(t, w, p, l, l, y)
}

// judge looks at a life that was struck, and compares it, or more of them, with what
// the next daemon says.
func judge(t *testing.T, w *world, p point, l, whole *life, y *tally) {
	l.struck = l.count(p.op) >= p.n
	if l.struck {
		y.add("struck")
	} else {
		y.add("not reached")
	}
	if l.died != (l.struck && !p.persists()) {
		t.Errorf("died %t, exit %d, struck %t", l.died, l.exit, l.struck)
	}
	a := w.ask(t, whole.prefix+"-next", whole.calls)
	if a == nil {
		return
	}
	for _, c := range whole.calls {
		switch {
		case !c.answered:
			y.add("calls without an answer")
		case c.unavailable():
			y.add("calls refused")
		}
		for _, e := range a.entries[c.id] {
			y.add("entries " + e.Outcome)
		}
	}
	if len(a.fenced) > 0 {
		y.add("lanes fenced at start")
	}
	for _, f := range compare(whole, a, w.witness(t)) {
		t.Error(f)
	}
}
