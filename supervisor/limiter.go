package supervisor

import (
	"slices"
	"time"

	"golang.org/x/time/rate"

	"mcpbridge/messages"
)

// The spawn limiter of semantics section 3: a restart of the machine is no
// stampede, and a slow or hung server delays nobody, because a slot covers the spawn
// only and is taken back after slotHold.
const (
	slotsAtOnce    = 4
	slotsPerSecond = 10
	slotHold       = 2 * time.Second
)

// slotID is one wish to spawn.
type slotID struct {
	key messages.Key
	gen uint64
}

// limiter decides who may spawn, first come, first served. It is pure: time comes
// in, and whoever owns it calls next again at the time that it names.
type limiter struct {
	rate    *rate.Limiter
	held    map[slotID]time.Time // until when at most
	waiting []slotID
}

func newLimiter() *limiter {
	return &limiter{rate: rate.NewLimiter(slotsPerSecond, slotsPerSecond), held: map[slotID]time.Time{}}
}

// request queues a wish, once.
func (l *limiter) request(id slotID) {
	if _, held := l.held[id]; held || slices.Contains(l.waiting, id) {
		return
	}
	l.waiting = append(l.waiting, id)
}

// release gives a slot back, or withdraws a wish.
func (l *limiter) release(id slotID) {
	delete(l.held, id)
	for i, w := range l.waiting {
		if w == id {
			l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
			return
		}
	}
}

// next grants what can be granted now, and tells when it should be asked again
// (zero = only after the next request or release).
func (l *limiter) next(now time.Time) (granted []slotID, again time.Time) {
	for id, until := range l.held {
		if !now.Before(until) {
			delete(l.held, id)
		}
	}
	for len(l.waiting) > 0 {
		if len(l.held) >= slotsAtOnce {
			return granted, l.earliest()
		}
		r := l.rate.ReserveN(now, 1)
		if d := r.DelayFrom(now); d > 0 {
			r.CancelAt(now)
			return granted, now.Add(d)
		}
		id := l.waiting[0]
		l.waiting = l.waiting[1:]
		l.held[id] = now.Add(slotHold)
		granted = append(granted, id)
	}
	return granted, time.Time{}
}

// earliest is when the first held slot is taken back.
func (l *limiter) earliest() time.Time {
	var at time.Time
	for _, until := range l.held {
		if at.IsZero() || until.Before(at) {
			at = until
		}
	}
	return at
}
