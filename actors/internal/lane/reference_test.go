package lane

import (
	"cmp"
	"slices"
)

// row is a call of the reference: a plain slice in the order of admission, looked
// through from the start for every question.
type row struct {
	n      int // order of admission
	id     string
	lane   int
	class  Class
	client string
	key    string
	bytes  int64
	place  place
	held   bool
	haunts bool
	back   bool // it was started before
	start  int  // when it got its place
	extra  bool // it got it by Occupy or Hold, limits or not
}

func (r *row) waits() bool  { return r.place == waiting }
func (r *row) effect() bool { return r.class == SideEffect }

// conflicts is the rule about two side effects of one lane, the number aside.
func conflicts(a, b *row) bool { return a.key == b.key || a.key == "" || b.key == "" }

// turns is the round robin of one line: whose turn is which.
type turns struct {
	now  int
	next map[string]int // by client, of its first waiting call
}

type refLane struct {
	limits Limits
	paused bool
	lines  [2]turns
}

// reference is the package doc, word by word.
type reference struct {
	lanes   []*refLane
	grouped bool
	rows    []*row
	n       int
	starts  int
}

func (m *reference) pick(f func(*row) bool) (out []*row) {
	for _, r := range m.rows {
		if f(r) {
			out = append(out, r)
		}
	}
	return out
}

func (m *reference) lineOf(lane int, c Class) int {
	if m.lanes[lane].limits.Serial {
		return int(c)
	}
	return 0
}

func (m *reference) turnsOf(r *row) *turns { return &m.lanes[r.lane].lines[m.lineOf(r.lane, r.class)] }

// line lists who waits there, in order.
func (m *reference) line(lane, line int) []*row {
	out := m.pick(func(r *row) bool { return r.lane == lane && r.waits() && m.lineOf(lane, r.class) == line })
	turn, ahead := map[*row]int{}, map[string]int{}
	for _, r := range out {
		if r.back {
			continue // turn 0
		}
		turn[r] = m.lanes[lane].lines[line].next[r.client] + ahead[r.client]
		ahead[r.client]++
	}
	slices.SortFunc(out, func(a, b *row) int { return cmp.Or(cmp.Compare(turn[a], turn[b]), cmp.Compare(a.n, b.n)) })
	return out
}

func (m *reference) fits(r *row) bool {
	l := m.lanes[r.lane].limits
	holds := m.pick(func(o *row) bool { return o.lane == r.lane && !o.waits() })
	same := 0
	for _, o := range holds {
		switch {
		case o.class != r.class:
			if !l.Serial && o.place != abandoned {
				return false
			}
		case !r.effect():
			same++
		case r.key == "" && o.key == "" || r.key != "" && o.key != "" && r.key != o.key:
			same++
		default:
			return false
		}
	}
	switch {
	case !r.effect():
		return same < l.MaxReads
	case r.key == "":
		return same < l.MaxSideEffects
	default:
		return same < maxKeys
	}
}

// may reports whether a waiting call may start, the group aside.
func (m *reference) may(r *row) bool {
	if m.lanes[r.lane].paused || r.held || !m.fits(r) {
		return false
	}
	for _, o := range m.line(r.lane, m.lineOf(r.lane, r.class)) {
		if o == r {
			return true
		}
		if o.class != r.class || !r.effect() || conflicts(o, r) {
			return false
		}
	}
	panic("not in its line")
}

// candidate is the first side effect of a lane that may start, the group aside.
func (m *reference) candidate(lane int) *row {
	for _, r := range m.line(lane, m.lineOf(lane, SideEffect)) {
		if r.effect() && m.may(r) {
			return r
		}
	}
	return nil
}

func (m *reference) groupAdmits(r *row) bool {
	for lane := range m.lanes {
		if lane == r.lane || !m.grouped {
			continue
		}
		if len(m.pick(func(o *row) bool { return o.lane == lane && o.effect() && !o.waits() })) > 0 {
			return false
		}
		mine, its := m.haunted(r.lane), m.haunted(lane)
		if its && !mine {
			return false
		}
		if c := m.candidate(lane); c != nil && c.n < r.n && its == mine {
			return false
		}
	}
	return true
}

func (m *reference) haunted(lane int) bool {
	return len(m.pick(func(o *row) bool { return o.lane == lane && o.haunts })) > 0
}

func (m *reference) next(lane int) *row {
	var best *row
	for line := range 2 {
		for _, r := range m.line(lane, line) {
			if m.may(r) && (!r.effect() || m.groupAdmits(r)) {
				if best == nil || r.n < best.n {
					best = r
				}
				break
			}
			if r.effect() && m.may(r) {
				break // the group wants the first or none
			}
		}
	}
	return best
}

func (m *reference) begin(r *row) {
	t := m.turnsOf(r)
	if !r.back {
		t.now = max(t.now, t.next[r.client])
		t.next[r.client]++
	}
	m.place(r, running)
	m.left(r, t)
}

func (m *reference) place(r *row, p place) {
	r.place, r.held, r.haunts, r.start = p, false, false, m.starts
	m.starts++
}

// left forgets the turn of a client that has nothing more in that line.
func (m *reference) left(r *row, t *turns) {
	if len(m.pick(func(o *row) bool {
		return o.lane == r.lane && o.waits() && !o.back && o.client == r.client && m.turnsOf(o) == t
	})) == 0 {
		delete(t.next, r.client)
	}
}

func (m *reference) find(id string) *row {
	i := slices.IndexFunc(m.rows, func(r *row) bool { return r.id == id })
	if i < 0 {
		return nil
	}
	return m.rows[i]
}

func (m *reference) drop(r *row) {
	m.rows = slices.DeleteFunc(m.rows, func(o *row) bool { return o == r })
}

func ids(rows []*row) (out []string) {
	for _, r := range rows {
		out = append(out, r.id)
	}
	return out
}
