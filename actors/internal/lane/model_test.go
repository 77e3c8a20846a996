package lane

import (
	"fmt"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

type machine struct {
	lanes []*Lane
	ref   *reference
}

func newMachine(t *rapid.T, lanes int) *machine {
	m := &machine{ref: &reference{grouped: lanes > 1}}
	g := NewGroup()
	for range lanes {
		l := Limits{MaxReads: rapid.IntRange(1, 3).Draw(t, "reads"), MaxSideEffects: rapid.IntRange(1, 2).Draw(t, "effects"),
			Serial: rapid.Bool().Draw(t, "serial"), Queue: rapid.IntRange(1, 8).Draw(t, "queue"), QueueBytes: 100}
		m.lanes = append(m.lanes, New(l))
		r := &refLane{limits: l}
		r.lines[0].next, r.lines[1].next = map[string]int{}, map[string]int{}
		m.ref.lanes = append(m.ref.lanes, r)
		if lanes > 1 {
			m.lanes[len(m.lanes)-1].Join(g)
		}
	}
	return m
}

func (m *machine) draw(t *rapid.T, p ...place) *row {
	rows := m.ref.pick(func(r *row) bool { return slices.Contains(p, r.place) })
	if len(rows) == 0 {
		t.Skip("nobody there")
	}
	return rapid.SampledFrom(rows).Draw(t, "row")
}

func (m *machine) fresh(t *rapid.T) (*row, Item) {
	m.ref.n++
	r := &row{n: m.ref.n, id: fmt.Sprintf("c%d", m.ref.n), lane: rapid.IntRange(0, len(m.lanes)-1).Draw(t, "lane"),
		class: Class(rapid.IntRange(0, 1).Draw(t, "class")), client: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "client"),
		bytes: int64(rapid.IntRange(0, 40).Draw(t, "bytes"))}
	if r.effect() {
		r.key = rapid.SampledFrom([]string{"", "x", "x", "y", "z"}).Draw(t, "key")
	}
	return r, Item{ID: r.id, Class: r.class, Bytes: r.bytes, Client: r.client, Key: r.key}
}

func (m *machine) Admit(t *rapid.T) {
	r, it := m.fresh(t)
	lane, l := m.ref.lanes[r.lane], m.lanes[r.lane]
	queued, bytes := 0, int64(0)
	for _, o := range m.ref.pick(func(o *row) bool { return o.lane == r.lane && o.waits() }) {
		queued, bytes = queued+1, bytes+o.bytes
	}
	free := l.Free(it)
	want := free || queued < lane.limits.Queue && bytes+it.Bytes <= lane.limits.QueueBytes
	over, got := l.Admit(it)
	if got != want {
		t.Fatalf("admitted = %v (%+v), want %v", got, over, want)
	}
	if !got {
		if over.RetryAfter <= 0 || over.Reason == "" {
			t.Fatalf("refused without a reason or a time: %+v", over)
		}
		return
	}
	m.ref.rows = append(m.ref.rows, r)
	if next := m.ref.turnsOf(r).next; next[r.client] == 0 {
		next[r.client] = m.ref.turnsOf(r).now + 1
	}
	starts := m.ref.may(r) && (!r.effect() || m.ref.groupAdmits(r))
	if free && !starts {
		t.Fatalf("%s is said to start at once, and may not", r.id)
	}
	if starts && !free && queued == 0 && m.ref.candidates(r.lane) == 0 {
		t.Fatalf("%s may start at once and is not said to", r.id)
	}
}

// candidates counts the side effects that other lanes could start.
func (m *reference) candidates(but int) (n int) {
	for lane := range m.lanes {
		if lane != but && m.candidate(lane) != nil {
			n++
		}
	}
	return n
}

func (m *machine) Next(t *rapid.T) {
	lane := rapid.IntRange(0, len(m.lanes)-1).Draw(t, "lane")
	it, ok := m.lanes[lane].Next()
	want := m.ref.next(lane)
	if ok != (want != nil) || ok && it.ID != want.id {
		t.Fatalf("lane %d started %q (%v), want %+v", lane, it.ID, ok, want)
	}
	if !ok {
		return
	}
	// Whatever the turns say: within a client, nobody of the class overtakes but by
	// another key.
	for _, o := range m.ref.line(lane, m.ref.lineOf(lane, it.Class)) {
		if o.n < want.n && o.client == want.client && (o.class != want.class || !o.effect() || conflicts(o, want)) {
			t.Fatalf("%s overtook %s", want.id, o.id)
		}
	}
	m.ref.begin(want)
}

func (m *machine) Done(t *rapid.T) {
	r := m.draw(t, running, fenced, abandoned)
	if !m.lanes[r.lane].Done(r.id, time.Duration(rapid.IntRange(0, 1000).Draw(t, "ran"))) {
		t.Fatal("not done", r.id)
	}
	m.ref.drop(r)
}

func (m *machine) Fence(t *rapid.T) {
	r := m.draw(t, running)
	m.lanes[r.lane].Fence(r.id)
	r.place = fenced
}

func (m *machine) Occupy(t *rapid.T) {
	r := m.draw(t, waiting)
	m.lanes[r.lane].Occupy(r.id)
	turns := m.ref.turnsOf(r)
	m.ref.place(r, fenced)
	r.extra = true
	m.ref.left(r, turns)
}

func (m *machine) Hold(t *rapid.T) {
	if len(m.ref.pick(func(r *row) bool { return r.extra })) > 2 {
		t.Skip("enough of them")
	}
	r, it := m.fresh(t)
	m.lanes[r.lane].Hold(it)
	m.ref.rows = append(m.ref.rows, r)
	m.ref.place(r, fenced)
	r.extra = true
}

func (m *machine) Abandon(t *rapid.T) {
	r := m.draw(t, fenced)
	if m.lanes[r.lane].Abandon(r.id) {
		r.place = abandoned
	}
}

func (m *machine) Requeue(t *rapid.T) {
	r := m.draw(t, running)
	held := rapid.Bool().Draw(t, "held")
	m.lanes[r.lane].Requeue(r.id, held)
	r.place, r.held, r.back = waiting, held, true
}

func (m *machine) Haunt(t *rapid.T) {
	r := m.draw(t, waiting)
	yes := rapid.Bool().Draw(t, "yes")
	if got := m.lanes[r.lane].Haunt(r.id, yes); got != (r.effect() && r.haunts != yes) {
		t.Fatalf("haunt %s: %v", r.id, got)
	}
	r.haunts = r.effect() && yes
}

func (m *machine) Release(t *rapid.T) {
	r := m.draw(t, waiting)
	if got := m.lanes[r.lane].Release(r.id); got != r.held {
		t.Fatalf("release of %s: %v", r.id, got)
	}
	r.held = false
}

func (m *machine) Remove(t *rapid.T) {
	r := m.draw(t, waiting)
	m.lanes[r.lane].Remove(r.id)
	turns := m.ref.turnsOf(r)
	m.ref.drop(r)
	m.ref.left(r, turns)
}

func (m *machine) PauseOrResume(t *rapid.T) {
	i, pause := rapid.IntRange(0, len(m.lanes)-1).Draw(t, "lane"), rapid.IntRange(0, 2).Draw(t, "pause") == 0
	m.ref.lanes[i].paused = pause
	if pause {
		m.lanes[i].Pause()
	} else {
		m.lanes[i].Resume()
	}
}

// Check holds after every step.
func (m *machine) Check(t *rapid.T) {
	for i := range m.lanes {
		m.checkLane(t, i)
	}
}

func (m *machine) checkLane(t *rapid.T, i int) {
	l, r := m.lanes[i], m.ref
	waits := slices.Concat(r.line(i, 0), r.line(i, 1))
	if d := gocmp.Diff(ids(waits), l.AppendWaiting(nil)); d != "" {
		t.Fatalf("waiting:\n%s", d)
	}
	active := r.pick(func(x *row) bool { return x.lane == i && !x.waits() })
	slices.SortFunc(active, func(a, b *row) int { return a.start - b.start })
	if d := gocmp.Diff(ids(active), l.AppendActive(nil)); d != "" {
		t.Fatalf("active:\n%s", d)
	}
	var reads, watching, zombies, effects int
	for _, x := range active {
		switch {
		case x.effect() && !x.extra:
			effects++
			for _, o := range active {
				if o != x && o.effect() && !o.extra && o.key == x.key && x.key != "" {
					t.Fatalf("%s and %s are in the lane of one key", x.id, o.id)
				}
				if o.effect() && !o.extra && (o.key == "") != (x.key == "") {
					t.Fatalf("%s takes all lanes or one beside %s", x.id, o.id)
				}
			}
			if x.key == "" && effects > l.Limits().MaxSideEffects {
				t.Fatalf("%d side effects", effects)
			}
		case !x.effect():
			if x.place != running {
				zombies++
			}
			if !x.extra {
				reads++
				if x.place != abandoned {
					watching++
				}
			}
		}
	}
	if reads > l.Limits().MaxReads || !l.Limits().Serial && effects > 0 && watching > 0 {
		t.Fatalf("%d reads (%d watching) beside %d side effects", reads, watching, effects)
	}
	if zombies != l.Zombies() {
		t.Fatalf("zombies %d, want %d", l.Zombies(), zombies)
	}
	for j := range m.lanes {
		if i != j && effects > 0 && len(r.pick(func(o *row) bool { return o.lane == j && o.effect() && !o.waits() && !o.extra })) > 0 {
			t.Fatal("two lanes of the group have side effects")
		}
	}
	explained := l.Explain()
	if len(explained) != len(waits) || l.Queued() != len(waits) || l.Active() != len(active) {
		t.Fatal("the counts disagree")
	}
	for k, w := range explained {
		x := waits[k]
		if w.ID != x.id {
			t.Fatalf("explained %s, want %s", w.ID, x.id)
		}
		for _, id := range w.BlockedBy {
			if o := r.find(id); o == nil || o == x {
				t.Fatalf("%s is blocked by %s, which is not there", w.ID, id)
			}
		}
		starts := r.may(x) && (!x.effect() || r.groupAdmits(x))
		if !starts && !r.lanes[i].paused && !x.held && len(w.BlockedBy) == 0 {
			t.Fatalf("%s may not start, and nobody blocks it", x.id)
		}
	}
}

// drain lets everything finish: nobody may be left standing.
func (m *machine) drain(t *rapid.T) {
	for _, l := range m.lanes {
		l.Resume()
		for _, id := range l.AppendWaiting(nil) {
			l.Release(id)
			l.Haunt(id, false)
		}
	}
	for rounds := 0; slices.ContainsFunc(m.lanes, func(l *Lane) bool { return !l.Empty() }); rounds++ {
		if rounds > 4*m.ref.n {
			t.Fatal("starved")
		}
		for _, l := range m.lanes {
			next(l)
		}
		for _, l := range m.lanes {
			if ids := l.AppendActive(nil); len(ids) > 0 {
				l.Done(ids[0], 0)
			}
		}
	}
	for _, l := range m.lanes {
		if len(l.keys) != 0 || l.bytes != 0 || l.openWait+l.haunts != 0 || l.reads+l.effects+l.withKey+l.bypassed+l.zombies != 0 ||
			len(l.lines[0].clients)+len(l.lines[1].clients) != 0 {
			t.Fatalf("left over: %+v", l)
		}
	}
}

func TestLaneIsTheReference(t *testing.T) {
	for _, lanes := range []int{1, 3} {
		t.Run(fmt.Sprint(lanes, " lanes"), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				m := newMachine(t, lanes)
				actions := rapid.StateMachineActions(m)
				for i := range 3 {
					actions[fmt.Sprint("Admit", i)], actions[fmt.Sprint("Next", i)] = m.Admit, m.Next
				}
				t.Repeat(actions)
				m.drain(t)
			})
		})
	}
}
