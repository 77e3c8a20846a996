package dispatch

import "time"

// alarm is the one timer of a call or of a server; what it means follows from the
// state of its owner. Exactly one of the two is set.
type alarm struct {
	due    time.Time
	index  int // in the heap; -1 = not armed
	call   *call
	server *server
}

// timers is a heap of alarms by the time at which they are due.
type timers []*alarm

func (h timers) next() time.Time {
	if len(h) == 0 {
		return time.Time{}
	}
	return h[0].due
}

// set arms the alarm; a zero time disarms it.
func (h *timers) set(a *alarm, at time.Time) {
	switch {
	case at.IsZero():
		h.remove(a)
	case a.index < 0:
		a.due, a.index = at, len(*h)
		*h = append(*h, a)
		h.up(a.index)
	case at.Before(a.due):
		a.due = at
		h.up(a.index)
	default:
		a.due = at
		h.down(a.index)
	}
}

func (h *timers) remove(a *alarm) {
	i := a.index
	if i < 0 {
		return
	}
	last := len(*h) - 1
	h.swap(i, last)
	(*h)[last] = nil
	*h = (*h)[:last]
	a.index = -1
	if i < last {
		h.down(i)
		h.up(i)
	}
}

func (h timers) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h timers) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h[i].due.Before(h[parent].due) {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h timers) down(i int) {
	for {
		least := i
		for k := 2*i + 1; k <= 2*i+2 && k < len(h); k++ {
			if h[k].due.Before(h[least].due) {
				least = k
			}
		}
		if least == i {
			return
		}
		h.swap(i, least)
		i = least
	}
}
