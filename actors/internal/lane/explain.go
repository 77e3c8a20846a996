package lane

// Waiting is where one waiting call stands.
type Waiting struct {
	ID       string
	Position int // from 1, in its line
	// BlockedBy are the calls that it waits for: those whose places it needs, then
	// the one ahead of it in the line that it may not pass. Empty when only the
	// server is missing.
	BlockedBy []string
}

// Explain tells of every waiting call where it stands and what it waits for, line
// by line in their order.
func (l *Lane) Explain() []Waiting {
	out := make([]Waiting, 0, l.Queued())
	for i := range l.lines {
		at := 0
		var last, open string        // the one right ahead, and the last that nobody passes
		ahead := map[*keyed]string{} // the last of each key
		l.walk(&l.lines[i], func(e *entry) bool {
			at++
			w := Waiting{ID: e.item.ID, Position: at, BlockedBy: l.holders(e)}
			before := last
			if e.key != nil {
				if before = ahead[e.key]; before == "" {
					before = open
				}
				ahead[e.key] = e.item.ID
			} else {
				open = e.item.ID
				clear(ahead)
			}
			if before != "" {
				w.BlockedBy = append(w.BlockedBy, before)
			}
			last = e.item.ID
			out = append(out, w)
			return true
		})
	}
	return out
}

// holders lists the calls whose places e needs.
func (l *Lane) holders(e *entry) (ids []string) {
	for a := l.active.head; a != nil; a = a.next {
		if l.blocks(a, e) {
			ids = append(ids, a.item.ID)
		}
	}
	if e.item.Class == SideEffect {
		ids = append(ids, l.group.blockers(l, e)...)
	}
	return ids
}

// blocks reports whether e needs the place that a holds.
func (l *Lane) blocks(a, e *entry) bool {
	if a.item.Class != e.item.Class {
		// A read that was passed blocks reads alone.
		return !l.limits.Serial && a.place != abandoned
	}
	switch {
	case e.item.Class == Read: // within a class only a full house blocks
		return l.reads >= l.limits.MaxReads
	case e.key == nil:
		return a.key != nil || l.effects-l.withKey >= l.limits.MaxSideEffects
	default:
		return a.key == nil || a.key == e.key || l.withKey >= maxKeys
	}
}

// AppendWaiting appends the ids of the waiting calls, line by line in their order.
func (l *Lane) AppendWaiting(ids []string) []string {
	for i := range l.lines {
		l.walk(&l.lines[i], func(e *entry) bool {
			ids = append(ids, e.item.ID)
			return true
		})
	}
	return ids
}

// AppendActive appends the ids of the calls that hold a place, in the order in
// which they started.
func (l *Lane) AppendActive(ids []string) []string {
	for e := l.active.head; e != nil; e = e.next {
		ids = append(ids, e.item.ID)
	}
	return ids
}
