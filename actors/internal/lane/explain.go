package lane

// Waiting is where one waiting call stands.
type Waiting struct {
	ID       string
	Position int // from 1, in its line
	// BlockedBy are the calls that it waits for: those whose places it needs, then
	// the one right ahead of it in the line. Empty when only the server is missing.
	BlockedBy []string
}

// Explain tells of every waiting call where it stands and what it waits for, in
// the order of admission.
func (l *Lane) Explain() []Waiting {
	out := make([]Waiting, 0, l.Queued())
	var ahead [2]string // the last one seen, by class
	var last string     // the last one seen at all
	var at [2]int
	l.eachWaiting(func(e *entry) {
		c := e.item.Class
		at[c]++
		w := Waiting{ID: e.item.ID, Position: at[c], BlockedBy: l.holders(c)}
		before := ahead[c]
		if !l.limits.Serial {
			w.Position, before = at[Read]+at[SideEffect], last
		}
		if before != "" {
			w.BlockedBy = append(w.BlockedBy, before)
		}
		ahead[c], last = e.item.ID, e.item.ID
		out = append(out, w)
	})
	return out
}

// holders lists the calls whose places a call of class c needs.
func (l *Lane) holders(c Class) []string {
	if l.fits(c) {
		return nil
	}
	var ids []string
	for e := l.active.head; e != nil; e = e.next {
		same := e.item.Class == c
		// Within a class only a full house blocks; a read that was passed blocks reads alone.
		blocks := same && l.full(c) || !same && !l.limits.Serial && e.place != abandoned
		if blocks {
			ids = append(ids, e.item.ID)
		}
	}
	return ids
}

func (l *Lane) full(c Class) bool {
	if c == Read {
		return l.reads >= l.limits.MaxReads
	}
	return l.effects >= l.limits.MaxSideEffects
}

// eachWaiting walks the waiting calls of both lines in the order of admission.
func (l *Lane) eachWaiting(f func(*entry)) {
	r, s := l.waiting[Read].head, l.waiting[SideEffect].head
	for r != nil || s != nil {
		if s == nil || r != nil && r.seq < s.seq {
			f(r)
			r = r.next
		} else {
			f(s)
			s = s.next
		}
	}
}

// AppendWaiting appends the ids of the waiting calls, in the order of admission.
func (l *Lane) AppendWaiting(ids []string) []string {
	l.eachWaiting(func(e *entry) { ids = append(ids, e.item.ID) })
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
