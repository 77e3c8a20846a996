package own

import "time"

// censusEvery is how often the descendants of every tree are looked at where no control
// group remembers them. It bounds how long a process must have lived to be found although
// it has given up its marks, its session and then its parents.
const censusEvery = time.Second

// census remembers who descends from which tree, below the first rung.
type census struct{ quit, done chan struct{} }

// startCensus begins to count, unless that goes on already.
func (w *Owner) startCensus() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sys.census == nil && !w.o.plain {
		w.sys.census = &census{make(chan struct{}), make(chan struct{})}
		go w.count(w.sys.census)
	}
}

func (w *Owner) count(c *census) {
	defer close(c.done)
	tick := time.NewTicker(censusEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-c.quit:
			return
		}
		w.mu.Lock()
		trees := make([]*Tree, 0, len(w.trees))
		for t := range w.trees {
			trees = append(trees, t)
		}
		w.mu.Unlock()
		if len(trees) == 0 {
			continue
		}
		all, ok := table()
		if !ok {
			continue // who is missing from half a table is not dead
		}
		for _, t := range trees {
			t.remember(all)
		}
	}
}

func (c *census) close() {
	if c != nil {
		close(c.quit)
		<-c.done
	}
}

// remember takes in the descendants of the leader and of whoever was taken in before, and
// tells the guardian of those that carry no mark. It reads no environment but theirs.
func (t *Tree) remember(all []proc) {
	spare := t.w.spared(t)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	seed := func(p proc) bool {
		k, ok := t.known[p.pid]
		return ok && k.started == p.started || p.pid == t.pid && p.started == t.started
	}
	living := map[int]proc{}
	for _, p := range kin(all, seed, spare) {
		living[p.pid] = p
		if k, ok := t.known[p.pid]; ok && k.started == p.started || p.pid == t.pid || p.dead() {
			continue
		}
		if !carries(p.pid, t.marks) {
			t.bare[p.pid] = true
			t.w.keeper.add(memberID(p.pid), p.pid, p.started)
		}
	}
	for pid := range t.bare {
		if _, ok := living[pid]; !ok {
			delete(t.bare, pid)
			t.w.keeper.drop(memberID(pid))
		}
	}
	t.known = living
}

// memberID keeps the numbers of descendants apart from those of trees and orphans.
func memberID(pid int) uint64 { return 2<<40 | uint64(pid) }
