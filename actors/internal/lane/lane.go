// Package lane orders the calls of one server instance.
//
// A Lane knows who waits and who holds a place, and says who may start next. It
// knows no clock, no server and no outcome: deadlines, deaths and answers are its
// owner's business, who tells it with Remove, Requeue, Fence and Done.
//
// # Order
//
// Calls start in the order in which they were admitted; a call that comes back
// (Requeue) takes its old place. Reads may run side by side up to MaxReads, side
// effects up to MaxSideEffects.
//
//   - exclusive: both classes stand in one line. A side effect runs while no read
//     runs, and whoever stands behind a waiting call waits too: a stream of reads
//     cannot starve a side effect, nor the other way round.
//   - serial: each class has a line of its own, and neither waits for the other.
//
// # Places
//
//	waiting ──Next───► running ──Done──► gone
//	 ▲   │ └─Remove─► gone │ └──Fence──► fenced ──Done──► gone
//	 │   └──────Occupy─────┼───────────► fenced
//	 └───────Requeue───────┘
//
// A fenced call has its outcome, but its server may still work on it, so that it
// keeps its place. A fenced read is a zombie: Abandon lets side effects pass it,
// and its place among the reads stays taken.
//
// A Lane is not safe for concurrent use.
package lane

import (
	"fmt"
	"time"
)

// Class says which line a call stands in.
type Class uint8

// The two classes. Idempotent calls are scheduled like side effects.
const (
	Read Class = iota
	SideEffect
)

// String returns the word that `calls` shows.
func (c Class) String() string {
	switch c {
	case Read:
		return "read"
	case SideEffect:
		return "side_effect"
	default:
		return fmt.Sprintf("bug: unknown class %d", uint8(c))
	}
}

// Item is one call as the lane sees it. Client and Deadline are carried for whoever
// looks at the line; they do not change the order.
type Item struct {
	ID       string
	Class    Class
	Bytes    int64
	Client   string
	Deadline time.Time
}

// Limits of one lane. A zero field means the contract's default.
type Limits struct {
	MaxReads       int
	MaxSideEffects int
	Serial         bool
	Queue          int   // calls that may wait
	QueueBytes     int64 // bytes that may wait
}

// The contract's defaults.
const (
	defaultReads       = 8
	defaultSideEffects = 1
	defaultQueue       = 256
	defaultQueueBytes  = 64 << 20
)

func (l Limits) normal() Limits {
	if l.MaxReads <= 0 {
		l.MaxReads = defaultReads
	}
	if l.MaxSideEffects <= 0 {
		l.MaxSideEffects = defaultSideEffects
	}
	if l.Queue <= 0 {
		l.Queue = defaultQueue
	}
	if l.QueueBytes <= 0 {
		l.QueueBytes = defaultQueueBytes
	}
	return l
}

type place uint8

const (
	waiting place = iota
	running
	fenced
	abandoned // a fenced read that side effects pass
)

// entry is one call in the lane; it stands in exactly one list.
type entry struct {
	item  Item
	seq   uint64 // order of admission, kept for life
	place place
	held  bool // may not start before Release
	next  *entry
	prev  *entry
}

// Lane orders the calls of one server instance. Make one with New.
type Lane struct {
	limits  Limits
	paused  bool
	seq     uint64
	entries map[string]*entry
	waiting [2]list // by class
	active  list    // running and fenced, in the order in which they started
	bytes   int64   // that wait

	reads      int              // places that reads hold
	bypassed   int              // of those, abandoned
	zombies    int              // of those, fenced or abandoned
	effects    int              // places that side effects hold
	meanRun    [2]time.Duration // a moving average, for the retry-after
	free       *entry           // entries to use again, linked by next
	freeLength int
}

// New returns an open, empty lane.
func New(l Limits) *Lane {
	return &Lane{limits: l.normal(), entries: map[string]*entry{}}
}

// SetLimits changes the limits of a living lane. Nobody who is in it is sent away.
func (l *Lane) SetLimits(n Limits) { l.limits = n.normal() }

// Limits returns the limits in force.
func (l *Lane) Limits() Limits { return l.limits }

// Pause stops Next from starting anything; Resume lifts it.
func (l *Lane) Pause() { l.paused = true }

// Resume lifts Pause.
func (l *Lane) Resume() { l.paused = false }

// Queued counts the calls that wait.
func (l *Lane) Queued() int { return l.waiting[Read].n + l.waiting[SideEffect].n }

// Active counts the calls that hold a place, fenced ones included.
func (l *Lane) Active() int { return l.active.n }

// Zombies counts the fenced reads.
func (l *Lane) Zombies() int { return l.zombies }

// Empty reports whether nobody waits and nobody holds a place.
func (l *Lane) Empty() bool { return len(l.entries) == 0 }

// Overload says why a call was not admitted, and when another try is worth it.
type Overload struct {
	Reason     string
	RetryAfter time.Duration
}

// Admit takes a call into the line, or says why not. An id that is in the lane
// already is a mistake of the owner and panics.
func (l *Lane) Admit(it Item) (Overload, bool) {
	if _, twice := l.entries[it.ID]; twice {
		panic("lane: call " + it.ID + " admitted twice")
	}
	if !l.Free(it.Class) {
		switch {
		case l.Queued() >= l.limits.Queue:
			return Overload{fmt.Sprintf("%d calls wait already", l.Queued()), l.RetryAfter(it.Class)}, false
		case l.bytes+it.Bytes > l.limits.QueueBytes:
			return Overload{fmt.Sprintf("%d bytes wait already, and %d more are over the limit of %d", l.bytes, it.Bytes, l.limits.QueueBytes), l.RetryAfter(it.Class)}, false
		}
	}
	e := l.newEntry(it)
	l.entries[it.ID] = e
	l.waiting[it.Class].pushBack(e)
	l.bytes += it.Bytes
	return Overload{}, true
}

// Free reports whether a call of that class that came now would start at once.
func (l *Lane) Free(c Class) bool {
	if l.paused {
		return false
	}
	if l.waiting[c].n > 0 || !l.limits.Serial && l.Queued() > 0 {
		return false
	}
	return l.fits(c)
}

// RetryAfter estimates when a place in the line becomes free, from how long calls
// of that class ran lately.
func (l *Lane) RetryAfter(c Class) time.Duration {
	const least, unknown, most = 100 * time.Millisecond, time.Second, time.Minute
	mean, side := l.meanRun[c], l.limits.MaxReads
	if c == SideEffect {
		side = l.limits.MaxSideEffects
	}
	if mean == 0 {
		return unknown
	}
	return min(max(mean*time.Duration(l.waiting[c].n+1)/time.Duration(side), least), most)
}

func (l *Lane) newEntry(it Item) *entry {
	e := l.free
	if e == nil {
		e = &entry{}
	} else {
		l.free, l.freeLength = e.next, l.freeLength-1
	}
	l.seq++
	*e = entry{item: it, seq: l.seq}
	return e
}

func (l *Lane) forget(e *entry) {
	const keep = 64
	delete(l.entries, e.item.ID)
	*e = entry{}
	if l.freeLength < keep {
		e.next, l.free = l.free, e
		l.freeLength++
	}
}
