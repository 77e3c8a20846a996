package lane

import (
	"time"

	"mcpbridge/internal/planted"
)

// Next starts the next call that may start now and returns it; ok is false when
// there is none. Call it until it says so.
func (l *Lane) Next() (it Item, ok bool) {
	e := l.startable()
	if e == nil {
		return Item{}, false
	}
	l.line(e.item.Class).take(e)
	l.wait(e, -1)
	l.active.pushBack(e)
	e.place = running
	l.count(e, +1)
	return e.item, true
}

func (l *Lane) startable() *entry {
	if l.paused {
		return nil
	}
	var read *entry
	if head := l.line(Read).head(); head != nil && head.item.Class == Read && !head.held && l.readFits() {
		read = head
	}
	effect := l.candidate()
	if effect != nil && !l.group.admits(l, effect) {
		effect = nil
	}
	if read != nil && (effect == nil || read.seq < effect.seq) {
		return read
	}
	return effect
}

// candidate is the side effect that the lane could start if it had no group. Those
// that wait for another key are passed; a read, and a side effect that takes all
// lanes, are not.
func (l *Lane) candidate() (found *entry) {
	if l.paused || l.queued[SideEffect] == 0 || !l.limits.Serial && l.reads > l.bypassed {
		return nil
	}
	ln := l.line(SideEffect)
	head := ln.head()
	if head.item.Class == Read {
		return nil
	}
	if !head.held && l.effectFits(head.key) {
		return head
	}
	if head.key == nil || l.effects > l.withKey || l.withKey >= maxKeys {
		return nil
	}
	l.search++
	l.walk(ln, func(e *entry) bool {
		switch {
		case e.item.Class == Read || e.key == nil:
			return false
		case e.key.seen == l.search:
			return true
		}
		e.key.seen = l.search
		if !e.held && l.effectFits(e.key) {
			found = e
		}
		return found == nil
	})
	return found
}

// readFits reports whether the places that are taken leave room for one more read.
func (l *Lane) readFits() bool {
	if planted.Is(planted.SerialReadWaits) {
		return l.reads < l.limits.MaxReads && l.effects == 0
	}
	return l.reads < l.limits.MaxReads && (l.limits.Serial || l.effects == 0 || planted.Is(planted.ReadBesideEffect))
}

// effectFits is the same for a side effect with that key; nil for none.
func (l *Lane) effectFits(k *keyed) bool {
	if !l.limits.Serial && l.reads > l.bypassed {
		return false
	}
	if k == nil {
		if planted.Is(planted.TwoEffects) {
			return l.withKey == 0 && l.effects <= l.limits.MaxSideEffects
		}
		return l.withKey == 0 && l.effects < l.limits.MaxSideEffects
	}
	return l.effects == l.withKey && k.active == 0 && l.withKey < maxKeys
}

// wait keeps the numbers of those who wait.
func (l *Lane) wait(e *entry, d int) {
	l.queued[e.item.Class] += d
	l.bytes += int64(d) * e.item.Bytes
	if e.haunts { // it waits no longer
		e.haunts = false
		l.haunts--
	}
	switch {
	case e.key != nil:
		e.key.waiting += d
	case e.item.Class == SideEffect:
		l.openWait += d
	}
}

// count keeps the numbers of those who hold a place. It must be called with the
// entry's place as it is while it counts.
func (l *Lane) count(e *entry, d int) {
	if e.item.Class == SideEffect {
		l.effects += d
		if e.key != nil {
			l.withKey += d
			e.key.active += d
		}
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
	l.line(e.item.Class).drop(e)
	l.wait(e, -1)
	l.fence(e)
	return true
}

// Hold gives a fenced place to a call that never waited here: one of an earlier
// life of the bridge that its server may still work on. An id that is in the lane
// already panics.
func (l *Lane) Hold(it Item) { l.fence(l.newEntry(it)) }

func (l *Lane) fence(e *entry) {
	l.active.pushBack(e)
	e.place, e.held = fenced, false
	l.count(e, +1)
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
	l.line(e.item.Class).drop(e)
	l.wait(e, -1)
	l.forget(e)
	return true
}

// Requeue puts a running call back into line, ahead of all that were not started yet.
// No bound is asked: it was admitted once. A held call waits for Release, and so does
// who may not pass it.
func (l *Lane) Requeue(id string, held bool) bool {
	e := l.entries[id]
	if e == nil || e.place != running {
		return false
	}
	l.count(e, -1)
	l.active.remove(e)
	e.place, e.held = waiting, held
	l.wait(e, +1)
	l.line(e.item.Class).putBack(e)
	return true
}

// Haunt says of a waiting side effect whether an earlier attempt of it may still be
// worked on: then the other lanes of the group start none. It ends by itself when the
// call leaves the line.
func (l *Lane) Haunt(id string, yes bool) bool {
	e := l.entries[id]
	if e == nil || e.place != waiting || e.item.Class != SideEffect || e.haunts == yes {
		return false
	}
	e.haunts = yes
	if yes {
		l.haunts++
	} else {
		l.haunts--
	}
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
