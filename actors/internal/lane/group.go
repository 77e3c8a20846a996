package lane

import "slices"

// Group ties the side effects of several lanes together. Make one with NewGroup; a
// nil Group is that of a lane which has none.
type Group struct {
	lanes []*Lane
	seq   uint64
}

// NewGroup returns a group without lanes.
func NewGroup() *Group { return &Group{} }

// Lanes returns the members, in the order in which they joined. The slice is the
// group's own.
func (g *Group) Lanes() []*Lane {
	if g == nil {
		return nil
	}
	return g.lanes
}

// Join makes the lane a member of a group in place of the one that it was in; nil
// for none. What waits in it counts as having arrived now. What runs, runs.
func (l *Lane) Join(g *Group) {
	if l.group == g {
		return
	}
	if old := l.group; old != nil {
		old.lanes = slices.DeleteFunc(old.lanes, func(m *Lane) bool { return m == l })
	}
	l.group = g
	if g == nil {
		return
	}
	g.lanes = append(g.lanes, l)
	all := make([]*entry, 0, len(l.entries))
	for _, e := range l.entries {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *entry) int { return int(a.seq) - int(b.seq) })
	for _, e := range all {
		e.arrival = g.stamp()
	}
}

func (g *Group) stamp() uint64 {
	if g == nil {
		return 0
	}
	g.seq++
	return g.seq
}

// ahead returns the call of l that comes before e of the lane `of`, one that arrived
// earlier and could start, or nil. A lane with a haunting call comes first, or nobody
// could start.
func (l *Lane) ahead(of *Lane, e *entry) *entry {
	if of.haunts > 0 && l.haunts == 0 {
		return nil
	}
	if c := l.candidate(); c != nil && c.arrival < e.arrival {
		return c
	}
	return nil
}

// shuts reports whether l lets no other lane start a side effect; out is the one that
// asks.
func (l *Lane) shuts(out *Lane) bool { return l.effects > 0 || l.haunts > 0 && out.haunts == 0 }

// admits reports whether the group lets e of lane l start: no other lane has a side
// effect, and none could start an earlier one.
func (g *Group) admits(l *Lane, e *entry) bool {
	if g == nil {
		return true
	}
	for _, m := range g.lanes {
		if m != l && (m.shuts(l) || m.ahead(l, e) != nil) {
			return false
		}
	}
	return true
}

// idleBut reports whether no lane but l has a side effect, or one that could start.
func (g *Group) idleBut(l *Lane) bool {
	if g == nil {
		return true
	}
	for _, m := range g.lanes {
		if m != l && (m.effects+m.haunts > 0 || m.candidate() != nil) {
			return false
		}
	}
	return true
}

// blockers lists the calls of other lanes that e of lane l waits for.
func (g *Group) blockers(l *Lane, e *entry) (ids []string) {
	if g == nil {
		return nil
	}
	for _, m := range g.lanes {
		if m == l {
			continue
		}
		for a := m.active.head; a != nil; a = a.next {
			if a.item.Class == SideEffect {
				ids = append(ids, a.item.ID)
			}
		}
		c := m.ahead(l, e)
		if c != nil {
			ids = append(ids, c.item.ID)
		}
		if m.haunts > 0 && l.haunts == 0 {
			for _, a := range m.entries {
				if a.haunts && a != c {
					ids = append(ids, a.item.ID)
				}
			}
		}
	}
	slices.Sort(ids)
	return ids
}
