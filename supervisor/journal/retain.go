package journal

import (
	"errors"
	"io/fs"
)

// retain removes old segments whole: those in which nothing is younger than Keep,
// and the oldest ones as long as all together are over MaxSize. The open calls in
// them are written again first, and what goes is written down, both on the disk
// before a file is touched.
func (w *writer) retain() {
	now := w.o.Now()
	if w.broken {
		return
	}
	total := w.total
	if w.file != nil {
		total += w.size
	}
	n := 0
	for ; n < len(w.old); n++ {
		f := w.old[n]
		if now.Sub(f.until) <= w.o.Keep && total <= w.o.MaxSize {
			break
		}
		total -= w.weight(f.size)
	}
	// A quiet journal's segment must end one day, or it would keep its oldest calls.
	stale := w.file != nil && now.Sub(w.created) > w.o.Keep/8 && w.stood > w.headSeq
	if n == 0 && !stale {
		return
	}
	if stale || w.file == nil {
		if err := w.renew(); err != nil {
			w.fail(err)
			return
		}
	}
	if n == 0 {
		return
	}
	last := w.old[n-1]
	gone := dropped{Seq: last.last, Until: w.dropped.Until}
	for _, f := range w.old[:n] {
		gone.Until = later(gone.Until, f.until)
		if now.Sub(f.until) < KeyWindow {
			w.o.Logger.Warn("the journal is full: calls of the last day are dropped, and with them their idempotency keys; raise journal.max_size", "directory", w.o.Dir)
		}
	}
	if err := w.drop(gone, last.num); err != nil {
		w.fail(err)
		return
	}
	w.dropped = gone
	w.j.mu.Lock()
	w.j.ix.forget(last.num)
	w.j.since = gone.Until
	w.j.mu.Unlock()
	// One after the other: what is left is always the younger part.
	for _, f := range w.old[:n] {
		err := w.fs.Remove(w.path(f.num))
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			err = w.fs.SyncDir(w.o.Dir)
		}
		if err != nil { // it is tried again at the next occasion
			w.o.Logger.Warn("journal: remove an old segment", "file", w.path(f.num), "error", err)
			return
		}
		w.old = w.old[1:]
		w.total -= w.weight(f.size)
	}
}

// renew starts a segment without asking retention again.
func (w *writer) renew() error {
	if w.file != nil {
		if err := w.sync(); err != nil {
			return err
		}
		if err := w.file.Close(); err != nil {
			return err
		}
		w.retire()
	}
	return w.begin()
}

// drop writes the open calls of the segments up to num again, and then what goes.
func (w *writer) drop(gone dropped, num uint64) error {
	w.j.mu.Lock()
	open := w.j.ix.openUpTo(num)
	w.j.mu.Unlock()
	recs := make([]record, 0, len(open)+1)
	for _, d := range open {
		recs = append(recs, record{Dispatch: &d})
	}
	recs = append(recs, record{Dropped: &gone})
	var buf []byte
	for _, r := range recs {
		b, err := r.encode()
		if err != nil {
			return err
		}
		w.seq++
		buf = appendFrame(buf, w.num, w.seq, b)
		w.until = later(w.until, r.at())
	}
	if _, err := w.file.Write(buf); err != nil {
		return err
	}
	if err := w.file.Sync(); err != nil {
		return err
	}
	w.size, w.stood = w.size+int64(len(buf)), w.seq
	w.clean(w.seq)
	w.j.mu.Lock()
	for _, d := range open {
		w.j.ix.dispatch(d, w.num)
	}
	w.j.mu.Unlock()
	return nil
}
