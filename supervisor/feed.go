package supervisor

import "sync"

// feed is a bounded history with followers: events and log lines are both one.
// put never blocks and never waits for a follower. Each follower reads the shared
// ring from a goroutine of its own, so a callback may take its time, call back into
// the bridge or close it; one that falls behind by more than the ring misses items
// and is told how many.
type feed[T any] struct {
	mu        sync.Mutex
	chunks    [][]T // allocated as they are first needed, then overwritten in a circle
	size      uint64
	last      uint64 // number of the newest item; the first is 1
	floor     uint64 // items up to this number are forgotten, whatever room there is
	weigh     func(T) int
	weight    int // of what is remembered; with weigh
	most      int // what weight may be
	followers map[*follower]struct{}
	closed    bool
}

// feedChunk is how many items are allocated at a time.
const feedChunk = 512

// feedBatch is how many items a follower takes out under one lock.
const feedBatch = 128

// follower is the wake-up line of one subscriber.
type follower struct {
	wake chan struct{} // capacity one
	stop chan struct{}
	once sync.Once
}

// newFeed returns a feed that remembers size items, rounded up to whole chunks.
func newFeed[T any](size int) *feed[T] {
	n := (size + feedChunk - 1) / feedChunk
	return &feed[T]{chunks: make([][]T, n), size: uint64(n * feedChunk), followers: map[*follower]struct{}{}}
}

// bounded makes the feed forget its oldest items also where all together weigh too much;
// before anything is put.
func (f *feed[T]) bounded(weigh func(T) int, most int) *feed[T] {
	f.weigh, f.most = weigh, most
	return f
}

// slot is the place of item number n; mu must be held.
func (f *feed[T]) slot(n uint64) *T {
	i := (n - 1) % f.size
	c := i / feedChunk
	if f.chunks[c] == nil {
		f.chunks[c] = make([]T, feedChunk)
	}
	return &f.chunks[c][i%feedChunk]
}

// put adds one item; build gets its number and runs under the lock, so that numbers
// and times have one order.
func (f *feed[T]) put(build func(n uint64) T) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last++
	slot := f.slot(f.last)
	if f.weigh == nil {
		*slot = build(f.last)
	} else {
		f.weight -= f.weigh(*slot) // of the item that is overwritten; the empty one weighs nothing
		*slot = build(f.last)
		f.weight += f.weigh(*slot)
		f.forget()
	}
	for w := range f.followers {
		w.poke()
	}
}

// forget drops the oldest items until the rest is light enough; the newest stays.
func (f *feed[T]) forget() {
	if f.last > f.size {
		f.floor = max(f.floor, f.last-f.size)
	}
	for f.weight > f.most && f.floor+1 < f.last {
		f.floor++
		slot := f.slot(f.floor)
		f.weight -= f.weigh(*slot)
		var none T
		*slot = none
	}
}

func (w *follower) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// since copies the items after number n, oldest first, at most limit of them (0 =
// all that are left), and tells how many between n and the first were overwritten.
func (f *feed[T]) since(n uint64, limit int) (items []T, lost uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sinceLocked(n, limit)
}

func (f *feed[T]) sinceLocked(n uint64, limit int) (items []T, lost uint64) {
	if n >= f.last {
		return nil, 0
	}
	oldest := f.floor
	if f.last > f.size {
		oldest = max(oldest, f.last-f.size)
	}
	if n < oldest {
		lost = oldest - n
		n = oldest
	}
	count := f.last - n
	if limit > 0 && count > uint64(limit) {
		count = uint64(limit)
	}
	items = make([]T, count)
	for i := range items {
		items[i] = *f.slot(n + 1 + uint64(i))
	}
	return items, lost
}

// follow calls fn for each item that is put from now on, in order, from one
// goroutine, until stop is called or the feed is closed and read to its end. gap
// builds what fn gets in place of lost items. fn may still be running for one last
// item when stop returns; stop may be called from fn.
func (f *feed[T]) follow(fn func(T), gap func(lost, upTo uint64) T) (stop func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return func() {}
	}
	w := &follower{wake: make(chan struct{}, 1), stop: make(chan struct{})}
	f.followers[w] = struct{}{}
	go f.run(w, f.last, fn, gap)
	return func() { w.once.Do(func() { close(w.stop) }) }
}

// run is a follower's goroutine; at is the number of the last item it has seen.
func (f *feed[T]) run(w *follower, at uint64, fn func(T), gap func(lost, upTo uint64) T) {
	defer func() {
		f.mu.Lock()
		delete(f.followers, w)
		f.mu.Unlock()
	}()
	for {
		f.mu.Lock()
		items, lost := f.sinceLocked(at, feedBatch)
		closed := f.closed
		f.mu.Unlock()
		if lost > 0 {
			at += lost
			if w.stopped() {
				return
			}
			fn(gap(lost, at))
		}
		for _, it := range items {
			if w.stopped() {
				return
			}
			fn(it)
		}
		at += uint64(len(items))
		if len(items) > 0 {
			continue
		}
		if closed {
			return
		}
		select {
		case <-w.wake:
		case <-w.stop:
			return
		}
	}
}

func (w *follower) stopped() bool {
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}

// close ends the followers once they have read what there is. Items may still be
// put and read afterwards; nobody follows any more.
func (f *feed[T]) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for w := range f.followers {
		w.poke()
	}
}
