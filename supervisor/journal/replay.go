package journal

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"mcpbridge/messages"
)

// segment is a file of the journal that is no longer written to.
type segment struct {
	num   uint64
	size  int64
	last  uint64    // its highest sequence number
	until time.Time // the latest time that a record in it speaks of
}

// state is what the files say.
type state struct {
	ix       *index
	segments []segment // in order
	issues   []messages.Issue
	damaged  bool // something that was acknowledged may be unreadable
	unread   bool // a file could not be read at all, which may pass
	lastSeq  uint64
	topSeq   uint64 // lastSeq, or higher where records were void
	nextSeg  uint64
	certain  uint64 // known to be on the disk, and not only read from memory
	dropped  dropped
}

// bounds are what later segments say about earlier ones.
type bounds struct {
	prev, void *uint64
	next       time.Time // when the next one was begun; zero: there is none
}

// replayer reads a directory from the oldest segment to the newest.
type replayer struct {
	state
	fs      FS
	dir     string
	now     time.Time
	missing []missing
	gone    []string // empty files, and files of which only the torn beginning of a head is there
	torn    []cut
	ended   bool // the newest record is an end
	policy  Fsync
	newest  string
	quick   *quick
	buf     []byte // one file after the other; nothing of it is kept
}

// missing is a range of sequence numbers that should be there.
type missing struct {
	file     string
	from, to uint64
}

// cut is a torn tail that can be cut off.
type cut struct {
	file string
	size int64
}

// replay reads everything. It changes nothing.
func replay(fsys FS, dir string, limit int, now time.Time) (*replayer, error) {
	r := &replayer{fs: fsys, dir: dir, now: now, ended: true, quick: newQuick()}
	r.ix, r.nextSeg = newIndex(limit), 1
	list, err := fsys.List(dir)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	slices.SortFunc(list, func(a, b Stat) int { return strings.Compare(a.Name, b.Name) })
	var files []segment
	for _, f := range list {
		n, ok := segmentNumber(f.Name)
		if !ok {
			continue
		}
		r.nextSeg = max(r.nextSeg, n+1)
		if !f.Regular {
			r.damage(f.Name, "is no regular file and was not read: put the journal's file back, or remove this one")
			continue
		}
		files = append(files, segment{num: n, size: f.Size})
	}
	heads := r.heads(files)
	for i, f := range files {
		if h := heads[i]; h != nil && h.Prev != nil {
			r.certain = max(r.certain, *h.Prev)
		}
		b := bounds{}
		for _, h := range heads[i+1:] {
			if h != nil {
				b = bounds{lower(b.prev, h.Prev), lower(b.void, h.Void), cmp.Or(b.next, h.Created)}
			}
		}
		r.segment(f, b)
	}
	for _, m := range r.missing {
		if m.to > r.dropped.Seq { // what retention took is not lost
			r.damage(m.file, "records %d to %d, which came before it, are missing", max(m.from, r.dropped.Seq+1), m.to)
		}
	}
	if !r.ended {
		r.unclean()
	}
	return r, nil
}

func lower(a, b *uint64) *uint64 {
	if a == nil || b != nil && *b < *a {
		return b
	}
	return a
}

// heads reads the first record of every segment; nil where it is not readable.
func (r *replayer) heads(files []segment) []*segmentHead {
	out := make([]*segmentHead, len(files))
	buf := make([]byte, 4<<10)
	for i, f := range files {
		n, err := r.fs.ReadAt(r.path(segmentName(f.num)), buf[:min(f.size, int64(len(buf)))], 0)
		if err != nil && !errors.Is(err, io.EOF) {
			continue // reported when the whole file is read
		}
		out[i] = headOf(buf[:n], f.num)
	}
	return out
}

func headOf(b []byte, num uint64) *segmentHead {
	f, v := parseFrame(b, num)
	if v != frameGood {
		return nil
	}
	rec, err := decodeRecord(f.payload)
	if err != nil || rec.Segment == nil || rec.Segment.Version > formatVersion {
		return nil
	}
	return rec.Segment
}

func (r *replayer) path(name string) string { return filepath.Join(r.dir, name) }

func (r *replayer) note(sev messages.Severity, name, format string, args ...any) {
	r.issues = append(r.issues, messages.Issue{File: r.path(name), Path: "journal", Stage: messages.StageRunning, Severity: sev, Message: fmt.Sprintf(format, args...)})
}

func (r *replayer) damage(name, format string, args ...any) {
	r.damaged = true
	r.note(messages.SeverityError, name, format, args...)
}

// read is ReadFile into a buffer that is used again. What it returns is valid until the
// next file.
func (r *replayer) read(path string, size int64) ([]byte, error) {
	if size < 0 || size > maxSegment+maxPayload { // none of ours is
		return r.fs.ReadFile(path)
	}
	if int64(len(r.buf)) <= size {
		r.buf = make([]byte, max(size+1, 1<<16))
	}
	n, err := r.fs.ReadAt(path, r.buf, 0)
	switch {
	case errors.Is(err, io.EOF):
		return r.buf[:n], nil
	case err != nil:
		return nil, err
	}
	return r.fs.ReadFile(path) // it is longer than it was
}

// segment reads one file; b is what later segments say of it.
func (r *replayer) segment(f segment, b bounds) {
	name := segmentName(f.num)
	data, err := r.read(r.path(name), f.size)
	if err != nil {
		r.unread = true
		r.ended = true
		r.damage(name, "could not be read (%v): calls in it are not known", err)
		r.segments = append(r.segments, segment{num: f.num, size: f.size, last: r.topSeq, until: cmp.Or(b.next, r.now)})
		return
	}
	f.size, f.last = int64(len(data)), r.topSeq
	r.ended, r.newest = len(data) == 0 && r.ended, name
	frames, holes := scan(data, f.num)
	for i, fr := range frames {
		for len(holes) > 0 && holes[0].off < fr.off {
			r.hole(name, holes[0], b)
			holes = holes[1:]
		}
		afterHole := i > 0 && frames[i-1].end != fr.off
		if i == 0 {
			afterHole = fr.off != 0
		}
		r.frame(&f, name, fr, b, i == 0, afterHole)
	}
	for _, h := range holes { // at most one: the tail
		r.hole(name, h, b)
	}
	if len(frames) == 0 && (len(holes) == 0 || holes[0].torn) {
		r.gone = append(r.gone, name) // it never held a record
		r.torn = slices.DeleteFunc(r.torn, func(c cut) bool { return c.file == name })
		return
	}
	if r.damaged { // nobody knows of what time the unreadable part is, but it is before the next
		f.until = later(f.until, cmp.Or(b.next, r.now))
	}
	r.segments = append(r.segments, f)
}

// frame takes one record that verified.
func (r *replayer) frame(f *segment, name string, fr frame, b bounds, head, afterHole bool) {
	r.topSeq = max(r.topSeq, fr.seq)
	f.last = max(f.last, fr.seq)
	if b.void != nil && fr.seq > *b.void {
		return // it was refused to its caller
	}
	rec, ok := r.quick.decode(fr.payload)
	var err error
	if !ok {
		rec, err = decodeRecord(fr.payload)
	}
	if err == nil && (rec.Segment != nil) != (fr.off == 0) {
		err = errors.New("a segment's head in the wrong place, or none")
	}
	if err == nil && rec.Segment != nil && rec.Segment.Version > formatVersion {
		err = fmt.Errorf("written in format %d by a newer version of the bridge", rec.Segment.Version)
	}
	if err != nil {
		r.damage(name, "bytes %d to %d: the checksum is right and the record is not understood: %v", fr.off, fr.end, err)
	}
	switch {
	case fr.seq <= r.lastSeq:
		r.damage(name, "bytes %d to %d: record %d comes after record %d and was left out", fr.off, fr.end, fr.seq, r.lastSeq)
		return
	case head && err == nil && rec.Segment != nil:
		if p := rec.Segment.Prev; p != nil && *p > r.lastSeq {
			r.missing = append(r.missing, missing{name, r.lastSeq + 1, *p})
		}
	case head || afterHole: // reported already
	case fr.seq != r.lastSeq+1:
		r.damage(name, "offset %d: records %d to %d are missing", fr.off, r.lastSeq+1, fr.seq-1)
	}
	r.lastSeq = fr.seq
	if err != nil {
		return
	}
	r.apply(rec, f, fr)
}

func (r *replayer) apply(rec record, f *segment, fr frame) {
	if at := rec.at(); at.After(f.until) {
		f.until = at
	}
	r.ended = false
	switch {
	case rec.Segment != nil:
		r.policy = rec.Segment.Fsync
	case rec.Dispatch != nil:
		r.ix.dispatch(*rec.Dispatch, f.num)
	case rec.Outcome != nil:
		r.ix.outcome(*rec.Outcome, rec.Raw, place{f.num, fr.off, int(fr.end - fr.off)})
	case rec.Dropped != nil:
		r.dropped = dropped{max(r.dropped.Seq, rec.Dropped.Seq), later(r.dropped.Until, rec.Dropped.Until)}
	case rec.End != nil:
		r.ended = true
	}
	r.ix.trim(r.now)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// hole judges a place where nothing verifies.
func (r *replayer) hole(name string, h hole, b bounds) {
	switch {
	case b.prev != nil && r.lastSeq >= *b.prev:
		// All that was acknowledged comes before it.
	case h.torn && b.prev == nil:
		r.torn = append(r.torn, cut{name, h.off})
		r.note(messages.SeverityWarning, name, "bytes %d to %d are a record that was not written to its end and never counted; they were cut off", h.off, h.end)
	default:
		r.damage(name, "bytes %d to %d are unreadable: calls of that time may be missing or shown as open", h.off, h.end)
	}
}

// unclean says that the last run did not close its journal.
func (r *replayer) unclean() {
	text := "the bridge that wrote it ended without closing it (crash or kill)"
	if r.policy != FsyncAlways {
		text += fmt.Sprintf("; with fsync %s its last records are missing if the machine itself went down", r.policy)
	}
	if r.newest != "" {
		r.note(messages.SeverityWarning, r.newest, "%s", text)
	}
}
