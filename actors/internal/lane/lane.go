// Package lane orders the calls of one server instance.
//
// A Lane knows who waits and who holds a place, and says who may start next. It
// knows no clock, no server and no outcome: deadlines, deaths and answers are its
// owner's business, who tells it with Remove, Requeue, Fence and Done.
//
// # Order
//
// A line serves its clients round robin, and the calls of one client in the order in
// which they were admitted; a call that comes back (Requeue) is ahead of all that
// were not started yet. With one client, or with as many as there are calls, that is
// the order of arrival.
//
//   - exclusive: both classes stand in one line. A side effect runs while no read
//     runs, and whoever stands behind a waiting call of the other class waits too: a
//     stream of reads cannot starve a side effect, nor the other way round.
//   - serial: each class has a line of its own, and neither waits for the other.
//
// # Side by side
//
// Up to MaxReads reads run at once. Side effects without a key run up to
// MaxSideEffects at once. A side effect with a key has the lane of that key: one at
// a time within a key, different keys side by side (up to maxKeys, whatever
// MaxSideEffects says, which counts within one lane), and it may pass side effects
// that wait for another key. One without a key takes all lanes: it runs beside none
// that has one, and nobody passes it while it waits. Reads of an exclusive lane wait
// for every key.
//
// Lanes in one Group share their side effects: while one of them has some, the
// others start none, keys or not, because two servers may well spell one thing in
// two ways. Among the lanes that could start one, the earliest call comes first; a
// paused lane has no say. A call that was requeued holds the group while it waits if
// its earlier attempt may still be worked on (Haunt).
//
// # Places
//
//	waiting ──Next───► running ──Done──► gone
//	 ▲   │ └─Remove─► gone │ └──Fence──► fenced ──Done──► gone
//	 │   └──────Occupy─────┼───────────► fenced ◄──Hold── (never waited here)
//	 └───────Requeue───────┘
//
// A fenced call has its outcome, but its server may still work on it, so that it
// keeps its place. A fenced read is a zombie: Abandon lets side effects pass it,
// and its place among the reads stays taken.
//
// A Lane is not safe for concurrent use, and neither are the lanes of one Group.
package lane

import (
	"fmt"
	"slices"
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

// Item is one call as the lane sees it.
type Item struct {
	ID     string
	Class  Class
	Bytes  int64
	Client string // whose turn it takes
	Key    string // of a side effect: its lane, see KeyOf; "" takes all lanes
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

// maxKeys bounds the side effects with different keys that run side by side.
const maxKeys = 64

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

// entry is one call in the lane. It stands in exactly one list.
type entry struct {
	item    Item
	seq     uint64 // order of admission, kept for life
	arrival uint64 // order of admission in the group
	place   place
	held    bool   // may not start before Release
	haunts  bool   // waits, and an earlier attempt may still be worked on
	key     *keyed // of a side effect with a key
	queue   *queue // while it waits and was not started yet
	next    *entry
	prev    *entry
}

// keyed counts the side effects of one key.
type keyed struct {
	waiting, active int
	seen            uint64 // the search that has passed one that waits
}

// Lane orders the calls of one server instance. Make one with New.
type Lane struct {
	limits  Limits
	paused  bool
	seq     uint64
	entries map[string]*entry
	lines   [2]line // serial: by class; exclusive: all stand in the first
	active  list    // running and fenced, in the order in which they started
	group   *Group

	queued   [2]int // by class
	bytes    int64  // that wait
	reads    int    // places that reads hold
	bypassed int    // of those, abandoned
	zombies  int    // of those, fenced or abandoned
	effects  int    // places that side effects hold
	withKey  int    // of those, with a key
	openWait int    // waiting side effects without a key
	haunts   int    // waiting side effects of which an earlier attempt may still be worked on
	keys     map[string]*keyed
	search   uint64
	cursors  []cursor

	meanRun    [2]time.Duration // a moving average, for the retry-after
	free       *entry           // entries to use again, linked by next
	freeLength int
}

// New returns an open, empty lane.
func New(l Limits) *Lane {
	return &Lane{limits: l.normal(), entries: map[string]*entry{}, keys: map[string]*keyed{}}
}

// SetLimits changes the limits of a living lane. Nobody who is in it is sent away.
func (l *Lane) SetLimits(n Limits) {
	n = n.normal()
	if n.Serial != l.limits.Serial { // other lines: everybody lines up again, oldest first
		var all []*entry
		for _, e := range l.entries {
			if e.place == waiting {
				all = append(all, e)
			}
		}
		slices.SortFunc(all, func(a, b *entry) int { return int(a.seq) - int(b.seq) })
		l.lines = [2]line{}
		l.limits = n
		for _, e := range all {
			back := e.queue == nil
			e.prev, e.next = nil, nil
			if ln := l.line(e.item.Class); back {
				ln.putBack(e)
			} else {
				ln.push(e)
			}
		}
	}
	l.limits = n
}

// Limits returns the limits in force.
func (l *Lane) Limits() Limits { return l.limits }

// Pause stops Next from starting anything; Resume lifts it.
func (l *Lane) Pause() { l.paused = true }

// Resume lifts Pause.
func (l *Lane) Resume() { l.paused = false }

// Paused reports whether Pause is in force.
func (l *Lane) Paused() bool { return l.paused }

// Queued counts the calls that wait.
func (l *Lane) Queued() int { return l.queued[Read] + l.queued[SideEffect] }

// Active counts the calls that hold a place, fenced ones included.
func (l *Lane) Active() int { return l.active.n }

// Zombies counts the fenced reads.
func (l *Lane) Zombies() int { return l.zombies }

// Empty reports whether nobody waits and nobody holds a place.
func (l *Lane) Empty() bool { return len(l.entries) == 0 }

func (l *Lane) line(c Class) *line {
	if l.limits.Serial {
		return &l.lines[c]
	}
	return &l.lines[0]
}

// Overload says why a call was not admitted, and when another try is worth it.
type Overload struct {
	Reason     string
	RetryAfter time.Duration
}

// Admit takes a call into the line, or says why not. A call that starts at once is
// under no bound. An id that is in the lane already is a mistake of the owner and
// panics.
func (l *Lane) Admit(it Item) (Overload, bool) {
	if !l.Free(it) {
		switch {
		case l.Queued() >= l.limits.Queue:
			return Overload{fmt.Sprintf("%d calls wait already", l.Queued()), l.RetryAfter(it.Class)}, false
		case l.bytes+it.Bytes > l.limits.QueueBytes:
			return Overload{fmt.Sprintf("%d bytes wait already, and %d more are over the limit of %d", l.bytes, it.Bytes, l.limits.QueueBytes), l.RetryAfter(it.Class)}, false
		}
	}
	e := l.newEntry(it)
	l.wait(e, +1)
	l.line(it.Class).push(e)
	return Overload{}, true
}

// Free reports whether a call like it that came now would start at once.
func (l *Lane) Free(it Item) bool {
	if l.paused || !l.limits.Serial && l.queued[1-it.Class] > 0 {
		return false
	}
	if it.Class == Read {
		return l.queued[Read] == 0 && l.readFits()
	}
	k := l.keys[it.Key]
	switch {
	case l.openWait > 0, it.Key == "" && l.queued[SideEffect] > 0, it.Key != "" && k != nil && k.waiting > 0:
		return false
	case it.Key == "":
		k = nil
	case k == nil:
		k = &keyed{}
	}
	return l.effectFits(k) && l.group.idleBut(l)
}

// RetryAfter estimates when a place in the line becomes free, from how long calls
// ran lately: those of the class alone where it has a line of its own, of both
// classes where they share one.
func (l *Lane) RetryAfter(c Class) time.Duration {
	const least, unknown, most = 100 * time.Millisecond, time.Second, time.Minute
	side := [2]int{Read: l.limits.MaxReads, SideEffect: l.limits.MaxSideEffects}
	if l.withKey > side[SideEffect] {
		side[SideEffect] = l.withKey
	}
	d := l.meanRun[c] * time.Duration(l.queued[c]+1) / time.Duration(side[c])
	if !l.limits.Serial {
		d += l.meanRun[1-c] * time.Duration(l.queued[1-c]) / time.Duration(side[1-c])
	}
	if d == 0 {
		return unknown
	}
	return min(max(d, least), most)
}

func (l *Lane) newEntry(it Item) *entry {
	if _, twice := l.entries[it.ID]; twice {
		panic("lane: call " + it.ID + " admitted twice")
	}
	e := l.free
	if e == nil {
		e = &entry{}
	} else {
		l.free, l.freeLength = e.next, l.freeLength-1
	}
	l.seq++
	*e = entry{item: it, seq: l.seq, arrival: l.group.stamp()}
	if it.Class == SideEffect && it.Key != "" {
		if e.key = l.keys[it.Key]; e.key == nil {
			e.key = &keyed{}
			l.keys[it.Key] = e.key
		}
	}
	l.entries[it.ID] = e
	return e
}

func (l *Lane) forget(e *entry) {
	const keep = 64
	delete(l.entries, e.item.ID)
	if e.key != nil && e.key.waiting+e.key.active == 0 {
		delete(l.keys, e.item.Key)
	}
	*e = entry{}
	if l.freeLength < keep {
		e.next, l.free = l.free, e
		l.freeLength++
	}
}
