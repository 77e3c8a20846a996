package lane

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// row is a call of the reference: a plain slice in the order of admission, looked
// through from the start for every question.
type row struct {
	id    string
	class Class
	bytes int64
	place place
	held  bool
	start int  // when it got its place
	extra bool // it got it by Occupy, limits or not
}

type reference struct {
	limits Limits
	paused bool
	rows   []*row
	starts int
}

func (m *reference) count(f func(*row) bool) (n int) {
	for _, r := range m.rows {
		if f(r) {
			n++
		}
	}
	return n
}

func (m *reference) fits(c Class) bool {
	reads := m.count(func(r *row) bool { return r.class == Read && r.place != waiting })
	excluding := m.count(func(r *row) bool { return r.class == Read && (r.place == running || r.place == fenced) })
	effects := m.count(func(r *row) bool { return r.class == SideEffect && r.place != waiting })
	if c == Read {
		return reads < m.limits.MaxReads && (m.limits.Serial || effects == 0)
	}
	return effects < m.limits.MaxSideEffects && (m.limits.Serial || excluding == 0)
}

// next applies the two rules as they are written in the package doc.
func (m *reference) next() *row {
	if m.paused {
		return nil
	}
	var seen [2]bool
	for _, r := range m.rows {
		if r.place != waiting {
			continue
		}
		behind := seen[r.class] || !m.limits.Serial && (seen[Read] || seen[SideEffect])
		seen[r.class] = true
		if !behind && !r.held && m.fits(r.class) {
			r.place, r.start = running, m.starts
			m.starts++
			return r
		}
	}
	return nil
}

func (m *reference) find(id string) *row {
	for _, r := range m.rows {
		if r.id == id {
			return r
		}
	}
	return nil
}

func (m *reference) ids(f func(*row) bool) []string {
	var ids []string
	for _, r := range m.rows {
		if f(r) {
			ids = append(ids, r.id)
		}
	}
	return ids
}

func (m *reference) drop(id string) {
	m.rows = slices.DeleteFunc(m.rows, func(r *row) bool { return r.id == id })
}

type machine struct {
	lane *Lane
	ref  *reference
	n    int
	last [2]int // the admission number that started last, by class; requeued ones set it back
}

func number(id string) (n int) {
	if _, err := fmt.Sscanf(id, "c%d", &n); err != nil {
		panic(err)
	}
	return n
}

func (m *machine) pick(t *rapid.T, p ...place) string {
	ids := m.ref.ids(func(r *row) bool { return slices.Contains(p, r.place) })
	if len(ids) == 0 {
		t.Skip("nobody there")
	}
	return rapid.SampledFrom(ids).Draw(t, "id")
}

func (m *machine) Admit(t *rapid.T) {
	m.n++
	it := Item{ID: fmt.Sprintf("c%d", m.n), Class: Class(rapid.IntRange(0, 1).Draw(t, "class")), Bytes: int64(rapid.IntRange(0, 40).Draw(t, "bytes"))}
	mine := m.ref.ids(func(r *row) bool { return r.place == waiting && (r.class == it.Class || !m.ref.limits.Serial) })
	free := !m.ref.paused && len(mine) == 0 && m.ref.fits(it.Class)
	queued, bytes := 0, int64(0)
	for _, r := range m.ref.rows {
		if r.place == waiting {
			queued, bytes = queued+1, bytes+r.bytes
		}
	}
	want := free || queued < m.ref.limits.Queue && bytes+it.Bytes <= m.ref.limits.QueueBytes
	over, got := m.lane.Admit(it)
	if got != want {
		t.Fatalf("admitted = %v (%+v), want %v", got, over, want)
	}
	if !got && (over.RetryAfter <= 0 || over.Reason == "") {
		t.Fatalf("refused without a reason or a time: %+v", over)
	}
	if got {
		m.ref.rows = append(m.ref.rows, &row{id: it.ID, class: it.Class, bytes: it.Bytes})
	}
}

func (m *machine) Next(t *rapid.T) {
	it, ok := m.lane.Next()
	want := m.ref.next()
	if ok != (want != nil) || ok && it.ID != want.id {
		t.Fatalf("started %q (%v), want %+v", it.ID, ok, want)
	}
	if !ok {
		return
	}
	n := number(it.ID)
	if n < m.last[it.Class] {
		t.Fatalf("%s overtook within its class: %d came after it", it.ID, m.last[it.Class])
	}
	m.last[it.Class] = n
}

func (m *machine) Done(t *rapid.T) {
	id := m.pick(t, running, fenced, abandoned)
	if !m.lane.Done(id, time.Duration(rapid.IntRange(0, 1000).Draw(t, "ran"))) {
		t.Fatal("not done", id)
	}
	m.ref.drop(id)
}

func (m *machine) Fence(t *rapid.T) {
	id := m.pick(t, running)
	m.lane.Fence(id)
	m.ref.find(id).place = fenced
}

func (m *machine) Occupy(t *rapid.T) {
	id := m.pick(t, waiting)
	m.lane.Occupy(id)
	r := m.ref.find(id)
	r.place, r.held, r.start, r.extra = fenced, false, m.ref.starts, true
	m.ref.starts++
}

func (m *machine) Abandon(t *rapid.T) {
	id := m.pick(t, fenced)
	if m.lane.Abandon(id) {
		m.ref.find(id).place = abandoned
	}
}

func (m *machine) Requeue(t *rapid.T) {
	id := m.pick(t, running)
	held := rapid.Bool().Draw(t, "held")
	m.lane.Requeue(id, held)
	r := m.ref.find(id)
	r.place, r.held = waiting, held
	m.last[r.class] = min(m.last[r.class], number(id)-1)
}

func (m *machine) Release(t *rapid.T) {
	id := m.pick(t, waiting)
	r := m.ref.find(id)
	if got := m.lane.Release(id); got != r.held {
		t.Fatalf("release of %s: %v", id, got)
	}
	r.held = false
}

func (m *machine) Remove(t *rapid.T) {
	id := m.pick(t, waiting)
	m.lane.Remove(id)
	m.ref.drop(id)
}

func (m *machine) Pause(*rapid.T)  { m.lane.Pause(); m.ref.paused = true }
func (m *machine) Resume(*rapid.T) { m.lane.Resume(); m.ref.paused = false }

// Check holds after every step.
func (m *machine) Check(t *rapid.T) {
	l, r := m.lane, m.ref
	isWaiting := func(x *row) bool { return x.place == waiting }
	if d := cmp.Diff(r.ids(isWaiting), l.AppendWaiting(nil)); d != "" {
		t.Fatalf("waiting:\n%s", d)
	}
	active := slices.DeleteFunc(slices.Clone(r.rows), isWaiting)
	slices.SortFunc(active, func(a, b *row) int { return a.start - b.start })
	var ids []string
	for _, x := range active {
		ids = append(ids, x.id)
	}
	if d := cmp.Diff(ids, l.AppendActive(nil)); d != "" {
		t.Fatalf("active:\n%s", d)
	}
	if got, want := l.Zombies(), r.count(func(x *row) bool { return x.class == Read && (x.place == fenced || x.place == abandoned) }); got != want {
		t.Fatalf("zombies %d, want %d", got, want)
	}
	reads := r.count(func(x *row) bool { return x.class == Read && x.place != waiting && !x.extra })
	watching := r.count(func(x *row) bool { return x.class == Read && (x.place == running || x.place == fenced) && !x.extra })
	effects := r.count(func(x *row) bool { return x.class == SideEffect && x.place != waiting && !x.extra })
	if reads > r.limits.MaxReads || effects > r.limits.MaxSideEffects {
		t.Fatalf("%d reads and %d side effects are over %+v", reads, effects, r.limits)
	}
	if !r.limits.Serial && effects > 0 && watching > 0 {
		t.Fatalf("%d reads beside %d side effects in an exclusive lane", watching, effects)
	}
	if len(l.Explain()) != r.count(isWaiting) || l.Queued() != r.count(isWaiting) || l.Active() != len(active) {
		t.Fatal("the counts disagree")
	}
	for _, w := range l.Explain() {
		for _, id := range w.BlockedBy {
			if r.find(id) == nil || id == w.ID {
				t.Fatalf("%s is blocked by %s, which is not there", w.ID, id)
			}
		}
	}
}

// drain lets everything finish: nobody may be left standing.
func (m *machine) drain(t *rapid.T) {
	m.lane.Resume()
	for _, id := range m.lane.AppendWaiting(nil) {
		m.lane.Release(id)
	}
	for rounds := 0; !m.lane.Empty(); rounds++ {
		if rounds > 2*m.n {
			t.Fatalf("starved: %v waits for ever", m.lane.AppendWaiting(nil))
		}
		next(m.lane)
		if ids := m.lane.AppendActive(nil); len(ids) > 0 {
			m.lane.Done(ids[0], 0)
		}
	}
}

func TestLaneIsTheReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := Limits{MaxReads: rapid.IntRange(1, 3).Draw(t, "reads"), MaxSideEffects: rapid.IntRange(1, 2).Draw(t, "effects"),
			Serial: rapid.Bool().Draw(t, "serial"), Queue: rapid.IntRange(1, 6).Draw(t, "queue"), QueueBytes: 100}
		m := &machine{lane: New(limits), ref: &reference{limits: limits}}
		t.Repeat(rapid.StateMachineActions(m))
		m.drain(t)
	})
}

// A stream of either class cannot keep the other from starting: whoever is admitted
// starts after those that were admitted before, however many come later.
func TestNobodyStarves(t *testing.T) {
	for _, serial := range []bool{false, true} {
		for _, victim := range []Class{Read, SideEffect} {
			t.Run(fmt.Sprint("serial=", serial, " ", victim), func(t *testing.T) {
				l := New(Limits{MaxReads: 2, Serial: serial})
				stream := 1 - victim
				admit(t, l, stream, "s0", "s1", "s2")
				admit(t, l, victim, "victim")
				for i := 3; i < 50; i++ {
					admit(t, l, stream, fmt.Sprint("s", i))
					if slices.Contains(next(l), "victim") {
						return
					}
					l.Done(l.AppendActive(nil)[0], 0)
				}
				t.Error("the stream went by for ever")
			})
		}
	}
}
