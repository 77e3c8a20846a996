package journal

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpbridge/messages"
)

func segments(d *faultFS) (n int, size int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, f := range d.files {
		if strings.HasSuffix(name, suffix) {
			n, size = n+1, size+int64(len(f.data))
		}
	}
	return n, size
}

// TestRetentionBySize fills a small journal many times over. It stays small, and
// the calls that were never settled are there to the end.
func TestRetentionBySize(t *testing.T) {
	d, c := newFaultFS(), &clock{t: epoch}
	o := options(d, c, "r")
	o.MaxSize, o.segmentMax = minSize, 8<<10
	j := mustOpen(t, o)
	open := map[string]bool{}
	for n := range 2000 {
		c.add(time.Second)
		s := sample("r", n, c.now())
		if err := dispatch(j, s); err != nil {
			t.Fatal(err)
		}
		if n%100 == 50 {
			open[s.CallID] = true
		} else {
			j.Outcome(settle(s, n, c.now()))
		}
	}
	if _, size := segments(d); size > minSize+16<<10 {
		t.Errorf("%d bytes", size)
	}
	if j.Since().IsZero() {
		t.Error("nothing says that calls were dropped")
	}
	since := j.Since()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	o.RunID = "r2"
	j = mustOpen(t, o)
	defer j.Close()
	if j.Damaged() || j.Since().Before(since) { // the start may have dropped more
		t.Errorf("since %v, was %v; %s", j.Since(), since, text(j))
	}
	for _, e := range j.OpenEntries() {
		if !open[e.CallID] {
			t.Errorf("%s is open", e.CallID)
		}
		delete(open, e.CallID)
	}
	if len(open) > 0 {
		t.Errorf("dropped while open: %v", open)
	}
}

// TestRetentionByAge: a quiet journal drops its old calls too, and keeps open ones.
func TestRetentionByAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFaultFS()
		o := Options{Dir: "/j", RunID: "r", FS: d}
		j := mustOpen(t, o)
		s := sample("r", 0, time.Now())
		open := sample("r", 1, time.Now())
		_, _ = dispatch(j, s), dispatch(j, open)
		j.Outcome(settle(s, 0, time.Now()))
		time.Sleep(6 * day)
		if len(j.Entries(Filter{})) != 2 {
			t.Error("dropped too early")
		}
		time.Sleep(3 * day)
		if e := j.Entries(Filter{}); len(e) != 1 || e[0].CallID != open.CallID {
			t.Errorf("after nine days: %+v", e)
		}
		time.Sleep(90 * day)
		if n, size := segments(d); n > 12 || size > 16<<10 {
			t.Errorf("%d segments, %d bytes after three quiet months", n, size)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		o.RunID = "r2"
		j = mustOpen(t, o)
		if e := j.OpenEntries(); len(e) != 1 || j.Damaged() {
			t.Errorf("after the restart: %+v %s", e, text(j))
		}
		_ = j.Close()
	})
}

// TestManyStarts: starts without a side effect leave no file, those with one are bounded.
func TestManyStarts(t *testing.T) {
	d, c := newFaultFS(), &clock{t: epoch}
	o := options(d, c, "r")
	o.maxFiles = 40
	for n := range 160 {
		o.RunID = fmt.Sprintf("r%d", n)
		j := mustOpen(t, o)
		if n%2 == 0 {
			if err := dispatch(j, sample(o.RunID, n, c.now())); err != nil {
				t.Fatal(err)
			}
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if n, _ := segments(d); n > 42 {
		t.Errorf("%d segments", n)
	}
	j := mustOpen(t, o)
	defer j.Close()
	if n := len(j.OpenEntries()); n == 0 || len(j.Issues()) > 0 {
		t.Errorf("%d open entries, %s", n, text(j))
	}
}

// TestIndexBound: the index is bounded, keys of the last day stay in it, and what it
// had no room for is found on the disk.
func TestIndexBound(t *testing.T) {
	d, c := newFaultFS(), &clock{t: epoch}
	o := options(d, c, "r")
	o.segmentMax, o.maxEntries = 64<<10, 100
	j := mustOpen(t, o)
	defer j.Close()
	for n := range 400 {
		s := sample("r", n, c.now())
		if s.IdempotencyKey = ""; n < 20 {
			s.IdempotencyKey = fmt.Sprint("k", n)
		}
		if err := dispatch(j, s); err != nil {
			t.Fatal(err)
		}
		if n != 25 {
			j.Outcome(settle(s, n, c.now()))
		}
	}
	_ = dispatch(j, sample("r", 400, c.now())) // the last outcome is written before it
	if n := len(j.Entries(Filter{Limit: 1000})); n > 110 {
		t.Errorf("%d entries", n)
	}
	for n := range 20 {
		if _, ok := j.Find("local", "fs", "write_file", fmt.Sprint("k", n)); !ok {
			t.Errorf("key %d is forgotten", n)
		}
	}
	for _, n := range []int{25, 40, 399} {
		e := j.Entries(Filter{CallID: fmt.Sprintf("c-%d", n)})
		if len(e) != 1 || (e[0].Outcome == messages.OutcomeOpen) != (n == 25) {
			t.Errorf("call %d: %+v", n, e)
		}
	}
	if e := j.Entries(Filter{CallID: "c-4000"}); len(e) != 0 {
		t.Errorf("a call that never was: %+v", e)
	}
}

// S09: with a clock that jumps by an hour, within a life or between two, nothing is lost,
// keys hold, and what comes next is written; retention goes on by the new time.
func TestRetentionUnderAClockThatJumps(t *testing.T) {
	for _, jump := range []time.Duration{-time.Hour, time.Hour} {
		for _, between := range []bool{false, true} {
			d, c := newFaultFS(), &clock{t: epoch}
			j := mustOpen(t, options(d, c, "r"))
			s := sample("r", 0, c.now())
			s.IdempotencyKey = "k"
			open := sample("r", 1, c.now())
			_, _ = dispatch(j, s), dispatch(j, open)
			if between {
				_ = j.Close()
				c.add(jump)
				j = mustOpen(t, options(d, c, "r2"))
			} else {
				c.add(jump)
			}
			if e, ok := j.Find(s.Client, s.Server, s.Tool, "k"); !ok || e.CallID != s.CallID {
				t.Errorf("%s: the key is forgotten", jump)
			}
			next := sample("r2", 2, c.now())
			if err := dispatch(j, next); err != nil {
				t.Errorf("%s: %v", jump, err)
			}
			if n := len(j.Entries(Filter{})); n != 3 {
				t.Errorf("%s: %d entries of 3", jump, n)
			}
			if n := len(j.OpenEntries()); between && n != 2 {
				t.Errorf("%s: %d calls of the earlier life are open", jump, n)
			}
			c.add(KeyWindow + max(-jump, 0))
			if _, ok := j.Find(s.Client, s.Server, s.Tool, "k"); ok {
				t.Errorf("%s: the key holds for ever", jump)
			}
			_ = j.Close()
		}
	}
}
