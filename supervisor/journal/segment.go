package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"mcpbridge/internal/planted"
)

// fail gives the segment up. What was refused is cut off as well as that can be
// done; the head of the next segment says so again.
func (w *writer) fail(err error) {
	err = fmt.Errorf("journal: %w", err)
	w.tried = time.Now()
	if w.file != nil {
		_ = w.file.Close()
		_ = w.fs.Truncate(w.path(w.num), w.size)
		w.retire()
	}
	first := !w.broken
	w.broken, w.dirty = true, false
	w.j.mu.Lock()
	w.j.health = err
	w.j.mu.Unlock()
	if first {
		w.o.Logger.Error("side effects are refused until the journal can be written again: "+err.Error(), "directory", w.o.Dir)
	}
}

// retire puts the active segment among the old ones.
func (w *writer) retire() {
	w.old = append(w.old, segment{w.num, w.size, w.seq, w.until})
	w.total += w.weight(w.size)
	w.file = nil
}

// ready makes sure that there is a segment with room for n bytes.
func (w *writer) ready(n int) error {
	now := time.Now()
	switch {
	case w.broken:
		if now.Sub(w.tried) < retryPause {
			return w.j.Health()
		}
		return w.mend(now)
	case w.file == nil:
		if err := w.begin(); err != nil {
			w.fail(err)
			return w.j.Health()
		}
	case w.size+int64(n) > w.o.segmentMax && w.size > 0:
		return w.rotate()
	}
	return nil
}

// mend tries whether the disk takes records again.
func (w *writer) mend(now time.Time) error {
	w.tried = now
	if err := w.begin(); err != nil {
		w.fail(err)
		return w.j.Health()
	}
	w.broken = false
	w.j.mu.Lock()
	w.j.health = nil
	w.j.mu.Unlock()
	w.o.Logger.Info("the journal can be written again", "directory", w.o.Dir)
	return nil
}

// rotate goes on in a new segment, and lets retention look at the old ones.
func (w *writer) rotate() error {
	err := w.sync()
	if err == nil {
		err = w.file.Close()
	}
	if err != nil {
		w.fail(err)
		return w.j.Health()
	}
	w.retire()
	if err := w.begin(); err != nil {
		w.fail(err)
		return w.j.Health()
	}
	w.retain()
	if w.broken {
		return w.j.Health()
	}
	return nil
}

// fasten brings to the disk what earlier lives wrote, and was only read from memory.
func (w *writer) fasten() error {
	if len(w.loose) == 0 {
		return nil
	}
	for _, num := range w.loose {
		if err := w.fs.SyncFile(w.path(num)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := w.fs.SyncDir(w.o.Dir); err != nil {
		return err
	}
	w.loose = nil
	return nil
}

// begin makes a segment with its head and everything that is owed, durable before
// it is used.
func (w *writer) begin() error {
	if err := w.fasten(); err != nil { // the head vouches for what stands there
		return err
	}
	num := w.nextNum
	w.nextNum++
	f, err := w.fs.Create(w.path(num))
	if err != nil {
		return err
	}
	head := segmentHead{Version: formatVersion, Run: w.o.RunID, Created: w.o.Now().UTC().Round(0), Fsync: w.o.Fsync}
	if !w.unknown {
		prev, void := w.synced, w.stood
		head.Prev, head.Void = &prev, &void
	}
	recs := append([]record{{Segment: &head}}, w.owed...)
	var buf []byte
	at := make([]int64, 0, len(recs)+1)
	seq := w.seq
	until := head.Created
	for _, r := range recs {
		b, err2 := r.encode()
		if err2 != nil {
			err = errors.Join(err, err2)
			break
		}
		at = append(at, int64(len(buf)))
		seq++
		buf = appendFrame(buf, num, seq, b)
		until = later(until, r.at())
	}
	w.seq = seq // even if this fails: a number is never given out twice
	if err == nil {
		_, err = f.Write(buf)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil && !planted.Is(planted.DirectoryNotSynced) {
		err = w.fs.SyncDir(w.o.Dir)
	}
	if err != nil {
		_ = f.Close()
		if w.fs.Remove(w.path(num)) != nil { // then retention removes it in its turn
			w.old = append(w.old, segment{num, int64(len(buf)), seq, until})
			w.total += w.weight(int64(len(buf)))
		}
		return err
	}
	at = append(at, int64(len(buf)))
	w.file, w.num, w.size, w.created, w.until = f, num, int64(len(buf)), w.o.Now(), until
	w.stood, w.headSeq, w.unknown = seq, seq, false
	w.j.mu.Lock()
	for i, r := range recs {
		w.applyLocked(r, at[i], at[i+1])
	}
	w.j.mu.Unlock()
	w.clean(seq)
	return nil
}
