package journal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"mcpbridge/internal/planted"
	"mcpbridge/messages"
)

// ErrClosed is what a dispatch gets after Close.
var ErrClosed = errors.New("the journal is closed")

// Journal is an open journal. Its methods may be called from anywhere.
type Journal struct {
	o    Options
	key  []byte
	lock io.Closer
	w    *writer // belongs to the goroutine of run
	wake chan struct{}
	done chan struct{} // closed when run is over
	end  error         // of the last commit; read it after done

	mu      sync.Mutex
	queue   []item
	closing bool
	ix      *index
	health  error
	issues  []messages.Issue
	damaged bool
	since   time.Time
}

// item is a record on its way. done is set for a dispatch.
type item struct {
	rec  record
	done func(error)
}

// Open reads the journal in o.Dir, or makes one, and starts its goroutine. An
// unreadable record is no error but an issue; an error says that the directory or
// the key cannot be used at all.
func Open(o Options) (*Journal, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	if err := o.FS.Private(o.Dir); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	lock, err := o.FS.Lock(filepath.Join(o.Dir, "lock"))
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	j, err := open(o)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	j.lock = lock
	go j.run()
	return j, nil
}

func open(o Options) (*Journal, error) {
	files, err := o.FS.List(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	key, note, err := loadKey(o.FS, o.Dir, files)
	if err != nil {
		return nil, fmt.Errorf("journal: key: %w", err)
	}
	r, err := replay(o.FS, o.Dir, o.maxEntries, o.Now())
	if err != nil {
		return nil, err
	}
	j := &Journal{o: o, key: key, wake: make(chan struct{}, 1), done: make(chan struct{}),
		ix: r.ix, issues: r.issues, damaged: r.damaged, since: r.dropped.Until}
	if note != "" {
		j.issues = append(j.issues, keyIssue(o.Dir, note))
	}
	for _, i := range j.issues {
		level := slog.LevelWarn
		if i.Severity == messages.SeverityError {
			level = slog.LevelError
		}
		o.Logger.Log(context.Background(), level, "journal: "+i.Message, "file", i.File)
	}
	// What never counted goes, so that it is told of once.
	for _, c := range r.torn {
		if planted.Is(planted.TornTailKept) {
			break
		}
		if err := o.FS.Truncate(r.path(c.file), c.size); err != nil {
			o.Logger.Warn("journal: cut off a torn record", "file", c.file, "error", err)
		}
	}
	for _, name := range r.gone {
		if err := o.FS.Remove(r.path(name)); err != nil {
			o.Logger.Warn("journal: remove an empty file", "file", name, "error", err)
		}
	}
	j.w = newWriter(j, r.state)
	// What is shown from now on shall be there after the next crash too.
	if err := j.w.fasten(); err != nil {
		o.Logger.Warn("journal: sync what the last run wrote", "error", err)
	}
	return j, nil
}

// Dispatch records that a side effect is about to be sent. done is called once, by
// the journal's goroutine, which it must not hold up: with nil when the record is
// durable as the policy wants it, and with an error when it is not and never will be:
// the call must not be sent then. It may come late, as late as the disk is slow.
func (j *Journal) Dispatch(rec messages.DispatchRecord, done func(error)) {
	if !j.put(item{dispatchRecord(rec, j.o.RunID), done}) {
		go done(ErrClosed) // whoever calls may hold a lock that done wants
	}
}

// Outcome records how a dispatched call ended. While the disk does not take it, it
// is kept and written when the disk does.
func (j *Journal) Outcome(rec messages.OutcomeRecord) {
	j.put(item{rec: outcomeRecord(rec, j.o.RunID)})
}

func (j *Journal) put(it item) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closing {
		return false
	}
	j.queue = append(j.queue, it)
	select {
	case j.wake <- struct{}{}:
	default:
	}
	return true
}

// take returns everything that waits.
func (j *Journal) take() (items []item, closing bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	items, j.queue = j.queue, nil
	return items, j.closing
}

// run is the journal's goroutine: whatever waits when a commit ends shares the next.
func (j *Journal) run() {
	defer close(j.done)
	j.w.retain()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(j.w.due())
		select {
		case <-j.wake:
		case <-timer.C:
		}
		items, closing := j.take()
		if len(items) > 0 {
			j.w.commit(items)
		}
		if closing {
			j.end = j.w.close()
			return
		}
		j.w.tick()
	}
}

// Close writes what waits and closes the files. Its error tells of what could not
// be saved.
func (j *Journal) Close() error {
	j.mu.Lock()
	first := !j.closing
	j.closing = true
	j.mu.Unlock()
	if !first {
		<-j.done
		return j.end
	}
	select {
	case j.wake <- struct{}{}:
	default:
	}
	<-j.done
	return errors.Join(j.end, j.lock.Close())
}

// Filter says which entries are wanted. The zero value wants the newest hundred.
type Filter struct {
	CallID string
	Key    string // an idempotency key, of any scope
	Limit  int    // default 100, at most 1000
}

// Entries returns calls, latest dispatch first, without their stored results.
func (j *Journal) Entries(f Filter) []messages.JournalEntry {
	if f.Limit <= 0 {
		f.Limit = 100
	}
	f.Limit = min(f.Limit, 1000)
	f.Key = clean(f.Key)
	j.mu.Lock()
	var out []messages.JournalEntry
	j.ix.newest(func(e *entry) bool {
		if (f.CallID == "" || e.id.call == f.CallID) && (f.Key == "" || e.scope.key == f.Key) {
			out = append(out, e.row())
		}
		return len(out) < f.Limit
	})
	evicted := j.ix.evicted
	j.mu.Unlock()
	if len(out) == 0 && evicted && (f.CallID != "" || f.Key != "") {
		return j.search(f)
	}
	return out
}

// search looks for calls that the index had no room for, on the disk.
func (j *Journal) search(f Filter) []messages.JournalEntry {
	r, err := replay(j.o.FS, j.o.Dir, 1<<62, j.o.Now())
	if err != nil {
		return nil
	}
	var out []messages.JournalEntry
	r.ix.newest(func(e *entry) bool {
		if (f.CallID == "" || e.id.call == f.CallID) && (f.Key == "" || e.scope.key == f.Key) {
			out = append(out, e.row())
		}
		return len(out) < f.Limit
	})
	return out
}

// Find returns the latest call of an idempotency key that was dispatched within
// KeyWindow, with its stored result; Dropped says that there was one and it cannot
// be given. A call that is on its way to the disk is not found yet.
func (j *Journal) Find(client, server, tool, key string) (messages.JournalEntry, bool) {
	j.mu.Lock()
	e := j.ix.keys[scope{clean(client), clean(server), clean(tool), clean(key)}]
	if e == nil || key == "" || j.o.Now().Sub(e.dispatched) >= KeyWindow {
		j.mu.Unlock()
		return messages.JournalEntry{}, false
	}
	row, raw, held, p, id := e.row(), e.raw, e.held, e.place, e.id
	j.mu.Unlock()
	if raw == rawNone {
		return row, true
	}
	if held == nil {
		var err error
		if held, err = j.stored(p, id); err != nil {
			row.Dropped = true
			j.o.Logger.Warn("journal: read a stored result", "call", id.call, "error", err)
			return row, true
		}
	}
	if raw == rawError {
		row.RPCError = slices.Clone(held)
	} else {
		row.Result = slices.Clone(held)
	}
	return row, true
}

// stored reads a result back and makes sure that it is the one.
func (j *Journal) stored(p place, id callID) ([]byte, error) {
	b := make([]byte, p.n)
	n, err := j.o.FS.ReadAt(filepath.Join(j.o.Dir, segmentName(p.segment)), b, p.off)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	f, v := parseFrame(b[:n], p.segment)
	if v != frameGood {
		return nil, fmt.Errorf("%s, offset %d: the record is damaged", segmentName(p.segment), p.off)
	}
	rec, err := decodeRecord(f.payload)
	if err != nil || rec.Outcome == nil || rec.Outcome.CallID != id.call || rec.Outcome.RunID != id.run {
		return nil, fmt.Errorf("%s, offset %d: another record stands there", segmentName(p.segment), p.off)
	}
	if rec.Raw == rawError {
		return rec.Outcome.RPCError, nil
	}
	return rec.Outcome.Result, nil
}

// OpenEntries returns the calls of earlier runs that were dispatched and never
// settled, oldest first: their outcome is unknown. Each stays until an Outcome with
// its run id closes it.
func (j *Journal) OpenEntries() []messages.JournalEntry {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []messages.JournalEntry
	j.ix.newest(func(e *entry) bool {
		if e.open() && e.id.run != j.o.RunID {
			out = append(out, e.row())
		}
		return true
	})
	slices.Reverse(out)
	return out
}

// Health is nil, or why no dispatch can be recorded now.
func (j *Journal) Health() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.health
}

// Issues tells of everything that could not be read at Open.
func (j *Journal) Issues() []messages.Issue {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.issues)
}

// Damaged reports whether a record that was acknowledged may be unreadable. As long
// as it is, "no entry" does not prove "not dispatched".
func (j *Journal) Damaged() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.damaged
}

// Since is the time up to which retention has removed settled calls; zero as long
// as it has removed none. "No entry" proves nothing about calls before it.
func (j *Journal) Since() time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.since
}

// Key is the secret key for Digest.
func (j *Journal) Key() []byte { return slices.Clone(j.key) }
