// Package results keeps results that are too large to be passed on, for a while, and makes
// the short form that is passed on instead (requirement D7).
//
// A Store holds a result for ten minutes, in bounded number and bytes: on disk where it
// is given a directory, in files that have no name and end with the process, else in
// memory. Where there is too much, whoever holds most loses the oldest first. Ids cannot
// be guessed, and a result exists only for the client that made the call, through the
// view that it was made through.
package results

import (
	"crypto/rand"
	"encoding/json"
	"os"
	"strings"
	"sync"
	"time"
)

// The bounds of a Store.
const (
	keepFor    = 10 * time.Minute
	keepCount  = 100
	keepMemory = 32 << 20
	keepDisk   = 1 << 30
)

// Owner is for whom a result exists.
type Owner struct{ Client, View, Server string }

// Store keeps results. Its methods may be used from any goroutine.
type Store struct {
	dir string

	mu     sync.Mutex
	byID   map[string]*entry
	order  []*entry // oldest first
	memory int64
	disk   int64
	timer  *time.Timer
	closed bool
}

type entry struct {
	id    string
	owner Owner
	size  int64
	raw   json.RawMessage // nil where it is on disk
	file  *os.File
	until time.Time
}

// NewStore makes a store; dir is where files go, "" for memory alone.
func NewStore(dir string) *Store { return &Store{dir: dir, byID: map[string]*entry{}} }

// Put keeps a result and returns its id; not ok means that it is too large to be kept.
func (s *Store) Put(owner Owner, raw json.RawMessage) (id string, ok bool) {
	e := &entry{id: strings.ToLower(rand.Text()), owner: owner, size: int64(len(raw))}
	if e.file = s.spill(raw); e.file == nil {
		if e.size > keepMemory {
			return "", false
		}
		e.raw = raw
	} else if e.size > keepDisk {
		_ = e.file.Close()
		return "", false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		e.drop()
		return "", false
	}
	e.until = time.Now().Add(keepFor) // compared by the monotonic clock
	s.byID[e.id] = e
	s.order = append(s.order, e)
	s.count(e, +1)
	for len(s.order) > keepCount {
		s.remove(s.victim(e, func(*entry) int64 { return 1 }))
	}
	for s.memory > keepMemory || s.disk > keepDisk {
		s.remove(s.victim(e, func(e *entry) int64 { return e.size }))
	}
	s.arm()
	return e.id, true
}

// spill writes the result to a file without a name; nil where that cannot be done.
func (s *Store) spill(raw json.RawMessage) *os.File {
	if s.dir == "" {
		return nil
	}
	f, err := os.CreateTemp(s.dir, ".result-*") // readable for its owner alone
	if err != nil {
		return nil
	}
	if os.Remove(f.Name()) != nil { // a system that keeps the name would keep the file too
		_ = f.Close()
		_ = os.Remove(f.Name())
		return nil
	}
	if _, err := f.Write(raw); err != nil {
		_ = f.Close()
		return nil
	}
	return f
}

// victim is who gives way to the newest: the oldest of the client that holds most, in
// whatever there is too much of.
func (s *Store) victim(newest *entry, weigh func(*entry) int64) *entry {
	holds := map[string]int64{}
	for _, e := range s.order {
		holds[e.owner.Client] += weigh(e)
	}
	var worst *entry
	for _, e := range s.order {
		if e != newest && (worst == nil || holds[e.owner.Client] > holds[worst.owner.Client]) {
			worst = e
		}
	}
	if worst == nil {
		return newest
	}
	return worst
}

// Get returns a result to whom it exists for. reader.Server narrows it to one server.
func (s *Store) Get(reader Owner, id string) (json.RawMessage, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.byID[id]
	if e == nil || !time.Now().Before(e.until) || e.owner.Client != reader.Client || e.owner.View != reader.View ||
		reader.Server != "" && reader.Server != e.owner.Server {
		return nil, false
	}
	if e.file == nil {
		return e.raw, true
	}
	raw := make([]byte, e.size)
	if _, err := e.file.ReadAt(raw, 0); err != nil {
		return nil, false
	}
	return raw, true
}

// Close lets everything go.
func (s *Store) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
	for len(s.order) > 0 {
		s.remove(s.order[0])
	}
}

func (e *entry) drop() {
	if e.file != nil {
		_ = e.file.Close()
	}
}

// count books an entry in or out; the lock is held, as for all that follows.
func (s *Store) count(e *entry, sign int64) {
	if e.file != nil {
		s.disk += sign * e.size
	} else {
		s.memory += sign * e.size
	}
}

func (s *Store) remove(e *entry) {
	delete(s.byID, e.id)
	for i, o := range s.order {
		if o == e {
			s.order = append(s.order[:i], s.order[i+1:]...)
			break
		}
	}
	s.count(e, -1)
	e.drop()
}

// arm sets the timer to when the oldest is due.
func (s *Store) arm() {
	if s.closed || len(s.order) == 0 {
		return
	}
	d := max(time.Until(s.order[0].until), 0)
	if s.timer == nil {
		s.timer = time.AfterFunc(d, s.expire)
		return
	}
	s.timer.Reset(d)
}

func (s *Store) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for now := time.Now(); len(s.order) > 0 && !now.Before(s.order[0].until); {
		s.remove(s.order[0])
	}
	s.arm()
}
