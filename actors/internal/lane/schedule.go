package lane

import "time"

// Next starts the next call that may start now and returns it; ok is false when
// there is none. Call it until it says so.
func (l *Lane) Next() (it Item, ok bool) {
	e := l.startable()
	if e == nil {
		return Item{}, false
	}
	l.waiting[e.item.Class].remove(e)
	l.bytes -= e.item.Bytes
	l.active.pushBack(e)
	e.place = running
	l.count(e, +1)
	return e.item, true
}

func (l *Lane) startable() *entry {
	if l.paused {
		return nil
	}
	read, effect := l.waiting[Read].head, l.waiting[SideEffect].head
	first, second := read, effect
	if read == nil || effect != nil && effect.seq < read.seq {
		first, second = effect, read
	}
	if l.mayStart(first) {
		return first
	}
	if l.limits.Serial && l.mayStart(second) {
		return second
	}
	return nil
}

func (l *Lane) mayStart(e *entry) bool { return e != nil && !e.held && l.fits(e.item.Class) }

// fits reports whether the places that are taken leave room for one more.
func (l *Lane) fits(c Class) bool {
	if c == Read {
		return l.reads < l.limits.MaxReads && (l.limits.Serial || l.effects == 0)
	}
	return l.effects < l.limits.MaxSideEffects && (l.limits.Serial || l.reads == l.bypassed)
}

// count keeps the numbers that fits asks for. It must be called with the entry's
// place as it is while it counts.
func (l *Lane) count(e *entry, d int) {
	if e.item.Class == SideEffect {
		l.effects += d
		return
	}
	l.reads += d
	switch e.place {
	case fenced:
		l.zombies += d
	case abandoned:
		l.zombies += d
		l.bypassed += d
	case waiting, running:
	}
}

func (l *Lane) move(e *entry, to place) {
	l.count(e, -1)
	e.place = to
	l.count(e, +1)
}

// Done frees the place of a running or fenced call. ran is how long it ran, for
// the retry-after; 0 leaves the estimate alone.
func (l *Lane) Done(id string, ran time.Duration) bool {
	e := l.entries[id]
	if e == nil || e.place == waiting {
		return false
	}
	if mean := &l.meanRun[e.item.Class]; ran > 0 {
		if *mean == 0 {
			*mean = ran
		}
		*mean += (ran - *mean) / 8
	}
	l.count(e, -1)
	l.active.remove(e)
	l.forget(e)
	return true
}

// Fence says that a running call got its outcome while its server may still work:
// it keeps its place until Done.
func (l *Lane) Fence(id string) bool {
	e := l.entries[id]
	if e == nil || e.place != running {
		return false
	}
	l.move(e, fenced)
	return true
}

// Occupy gives a fenced place to a waiting call that will not start any more, while
// an earlier attempt of it may still be worked on. The limits are not asked: what
// runs, runs.
func (l *Lane) Occupy(id string) bool {
	e := l.entries[id]
	if e == nil || e.place != waiting {
		return false
	}
	l.waiting[e.item.Class].remove(e)
	l.bytes -= e.item.Bytes
	l.active.pushBack(e)
	e.place, e.held = fenced, false
	l.count(e, +1)
	return true
}

// Abandon lets side effects pass a fenced read. Nobody will see what it still
// reads, but its place among the reads stays taken until Done.
func (l *Lane) Abandon(id string) bool {
	e := l.entries[id]
	if e == nil || e.place != fenced || e.item.Class != Read {
		return false
	}
	l.move(e, abandoned)
	return true
}

// Remove takes a waiting call out of the line.
func (l *Lane) Remove(id string) bool {
	e := l.entries[id]
	if e == nil || e.place != waiting {
		return false
	}
	l.waiting[e.item.Class].remove(e)
	l.bytes -= e.item.Bytes
	l.forget(e)
	return true
}

// Requeue puts a running call back to where it stood, ahead of all that came after
// it. No bound is asked: it was admitted once. A held call, and who stands behind
// it, waits for Release.
func (l *Lane) Requeue(id string, held bool) bool {
	e := l.entries[id]
	if e == nil || e.place != running {
		return false
	}
	l.count(e, -1)
	l.active.remove(e)
	e.place, e.held = waiting, held
	l.waiting[e.item.Class].insertBySeq(e)
	l.bytes += e.item.Bytes
	return true
}

// Release lets a held call start again.
func (l *Lane) Release(id string) bool {
	e := l.entries[id]
	if e == nil || !e.held {
		return false
	}
	e.held = false
	return true
}
