package journal

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"mcpbridge/internal/planted"
	"mcpbridge/messages"
)

// writer puts records on the disk. It belongs to the journal's goroutine.
//
//	     first record             segment full, or old
//	none ────────────► active ◄──────────────────────┐
//	                   │    └────────────────────────┘
//	write, sync or     │ ▲
//	create went wrong  ▼ │ a new segment took its head and what is owed
//	                 broken ──► tries again by itself every second
//
// After an error the file at hand is not written to again: what a failed sync left
// of it cannot be known. A new segment says which records of the old one count.
type writer struct {
	j  *Journal
	o  *Options
	fs FS

	file    File // nil: none, or broken
	num     uint64
	size    int64
	created time.Time
	until   time.Time
	headSeq uint64 // of the head and what was written with it
	seq     uint64 // last one given out
	broken  bool
	tried   time.Time // the last attempt to mend
	old     []segment // in order
	nextNum uint64
	total   int64 // of old

	// stood is the last record that counts, synced the last one that is also on the
	// disk. Both are unknown (nil in the next head) when replay had losses.
	stood, synced uint64
	unknown       bool
	dirty         bool      // something waits for a sync
	since         time.Time // since when
	owed          []record  // that count and may be on no disk: written again after an error
	dropped       dropped
	loose         []uint64  // segments of earlier lives that were read, and may be in memory only
	due1          time.Time // of the next maintenance
}

func newWriter(j *Journal, s state) *writer {
	w := &writer{j: j, o: &j.o, fs: j.o.FS, seq: s.topSeq, stood: s.lastSeq, synced: s.lastSeq, old: s.segments,
		nextNum: s.nextSeg, unknown: s.damaged, dropped: s.dropped, due1: time.Now().Add(maintain)}
	if s.unread {
		w.seq += 1 << 32 // what could not be read may be readable later, and must not be repeated
	}
	for _, f := range w.old {
		if f.last > s.certain {
			w.loose = append(w.loose, f.num)
		}
		w.total += w.weight(f.size)
	}
	return w
}

// weight is what a segment of that size counts as, so that small ones are bounded too.
func (w *writer) weight(size int64) int64 { return max(size, w.o.MaxSize/w.o.maxFiles) }

func (w *writer) path(num uint64) string { return filepath.Join(w.o.Dir, segmentName(num)) }

// due is how long the goroutine may sleep.
func (w *writer) due() time.Duration {
	d := time.Until(w.due1)
	if w.broken {
		d = min(d, time.Until(w.tried.Add(retryPause)))
	} else if w.dirty {
		d = min(d, time.Until(w.since.Add(w.o.Interval)))
	}
	return max(d, 0)
}

// tick does what has become due.
func (w *writer) tick() {
	now := time.Now()
	switch {
	case w.broken:
		if now.Sub(w.tried) >= retryPause {
			_ = w.mend(now)
		}
	case w.dirty && !now.Before(w.since.Add(w.o.Interval)):
		if err := w.sync(); err != nil {
			w.fail(err)
		}
	}
	if !now.Before(w.due1) {
		w.due1 = now.Add(maintain)
		w.retain()
	}
}

// commit writes everything that waits with one write and at most one sync.
func (w *writer) commit(items []item) {
	var payloads [][]byte
	var kept []item
	total, dispatches := 0, 0
	for _, it := range items {
		b, err := it.rec.encode()
		if err != nil { // it can be written never
			w.o.Logger.Error("journal: a record cannot be written", "error", err)
			w.refuse([]item{it}, fmt.Errorf("journal: %w", err))
			w.owed = slices.DeleteFunc(w.owed, func(r record) bool { return r.Outcome != nil && r.Outcome == it.rec.Outcome })
			continue
		}
		payloads, kept, total = append(payloads, b), append(kept, it), total+frameHead+len(b)
		if it.done != nil {
			dispatches++
		}
	}
	if len(kept) == 0 {
		return
	}
	if err := w.ready(total); err != nil {
		w.refuse(kept, err)
		return
	}
	buf := make([]byte, 0, total)
	at := make([]int64, len(kept)+1)
	for i, p := range payloads {
		at[i] = w.size + int64(len(buf))
		w.seq++
		buf = appendFrame(buf, w.num, w.seq, p)
	}
	at[len(kept)] = w.size + int64(len(buf))
	_, err := w.file.Write(buf)
	if err == nil && dispatches > 0 && w.o.Fsync == FsyncAlways {
		if !planted.Is(planted.DispatchNotSynced) {
			err = w.file.Sync()
		}
		if err == nil {
			w.clean(w.seq)
		}
	}
	if err != nil {
		w.fail(err)
		w.refuse(kept, w.j.Health())
		return
	}
	w.size, w.stood = w.size+int64(len(buf)), w.seq
	w.note(kept)
	if w.o.Fsync != FsyncOff && w.synced != w.stood {
		for _, it := range kept {
			w.owed = append(w.owed, it.rec)
		}
		if !w.dirty {
			w.dirty, w.since = true, time.Now()
		}
	}
	w.j.mu.Lock()
	for i, it := range kept {
		w.applyLocked(it.rec, at[i], at[i+1])
	}
	w.j.ix.trim(w.o.Now())
	w.j.mu.Unlock()
	for _, it := range kept {
		if it.done != nil {
			it.done(nil)
		}
	}
}

// applyLocked brings a record that was written into the index.
func (w *writer) applyLocked(r record, from, to int64) {
	switch {
	case r.Dispatch != nil:
		w.j.ix.dispatch(*r.Dispatch, w.num)
	case r.Outcome != nil:
		w.j.ix.outcome(*r.Outcome, r.Raw, place{w.num, from, int(to - from)})
	}
}

func (w *writer) note(items []item) {
	for _, it := range items {
		w.until = later(w.until, it.rec.at())
	}
}

// refuse tells every dispatch that it is not recorded, and keeps the outcomes: they
// are known in memory at once and written when that is possible.
func (w *writer) refuse(items []item, err error) {
	w.j.mu.Lock()
	for _, it := range items {
		if it.rec.Outcome != nil {
			if !planted.Is(planted.OutcomesNotOwed) {
				w.owed = append(w.owed, it.rec)
			}
			w.j.ix.outcome(*it.rec.Outcome, it.rec.Raw, place{})
		}
	}
	w.j.mu.Unlock()
	for _, it := range items {
		if it.done != nil {
			it.done(err)
		}
	}
}

// clean notes that everything up to seq is on the disk.
func (w *writer) clean(seq uint64) {
	w.synced, w.dirty = seq, false
	clear(w.owed)
	w.owed = w.owed[:0]
}

// sync brings to the disk what waits for it.
func (w *writer) sync() error {
	if w.file == nil || w.synced == w.stood {
		return nil
	}
	if err := w.file.Sync(); err != nil {
		return err
	}
	w.clean(w.stood)
	return nil
}

// close writes the end. After it, no outcome is owed, or the error says how many are.
func (w *writer) close() error {
	if w.broken && len(w.owed) > 0 {
		_ = w.mend(time.Now())
	}
	if w.broken {
		return errors.Join(w.j.Health(), w.lost())
	}
	if w.file == nil {
		return nil
	}
	now := w.o.Now().UTC().Round(0)
	b, err := record{End: &now}.encode()
	if err == nil {
		w.seq++
		_, err = w.file.Write(appendFrame(nil, w.num, w.seq, b))
	}
	if err == nil && w.o.Fsync != FsyncOff {
		err = w.file.Sync()
	}
	if err == nil {
		w.owed = nil
	}
	return errors.Join(err, w.file.Close(), w.lost())
}

func (w *writer) lost() error {
	n := 0
	for _, r := range w.owed {
		if r.Outcome != nil {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return fmt.Errorf("journal: %d outcomes may not be on the disk: their calls are shown as %s at the next start", n, messages.OutcomeUnknown)
}
