package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpbridge/messages"
)

// TestGroupCommit: whatever waits while a sync runs shares the next one.
func TestGroupCommit(t *testing.T) {
	d, c := newFaultFS(), &clock{t: epoch}
	o := options(d, c, "r")
	o.segmentMax = 1 << 20
	j := mustOpen(t, o)
	defer j.Close()
	if err := dispatch(j, sample("r", 99, c.now())); err != nil { // makes the segment
		t.Fatal(err)
	}
	gate := make(chan struct{})
	d.mu.Lock()
	before := d.syncs
	d.gate = gate
	d.mu.Unlock()
	var wg sync.WaitGroup
	wg.Add(16)
	for n := range 16 {
		j.Dispatch(sample("r", n, c.now()), func(err error) {
			if err != nil {
				t.Error(err)
			}
			wg.Done()
		})
	}
	close(gate)
	wg.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := d.syncs - before; n > 2 {
		t.Errorf("%d syncs for 16 dispatches", n)
	}
}

func syncs(d *faultFS) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.syncs
}

// TestSyncs counts what each policy costs.
func TestSyncs(t *testing.T) {
	for policy, want := range map[Fsync]int{FsyncAlways: 2, FsyncInterval: 1, FsyncOff: 0} {
		synctest.Test(t, func(t *testing.T) {
			d, c := newFaultFS(), &clock{t: epoch}
			o := options(d, c, "r")
			o.Fsync = policy
			j := mustOpen(t, o)
			if err := dispatch(j, sample("r", 0, c.now())); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			before := syncs(d)
			s := sample("r", 1, c.now())
			if err := dispatch(j, s); err != nil {
				t.Fatal(err)
			}
			j.Outcome(settle(s, 1, c.now()))
			synctest.Wait()
			if got := syncs(d) - before; got != max(want-1, 0) {
				t.Errorf("%s: %d syncs before the interval is over", policy, got)
			}
			time.Sleep(time.Second)
			if got := syncs(d) - before; got != want {
				t.Errorf("%s: %d syncs, want %d", policy, got, want)
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestFind(t *testing.T) {
	d, c := newFaultFS(), &clock{t: epoch}
	j := mustOpen(t, options(d, c, "r"))
	s := sample("r", 0, c.now())
	s.IdempotencyKey = "k\xff" // no UTF-8: found all the same, also after a restart
	if err := dispatch(j, s); err != nil {
		t.Fatal(err)
	}
	big := json.RawMessage(`"` + strings.Repeat("x", messages.StoredResultMax) + `"`)
	check := func(j *Journal, outcome, result string, droppedResult bool) {
		t.Helper()
		e, ok := j.Find("local", "fs", "write_file", "k\xff")
		if !ok || e.Outcome != outcome || string(e.Result) != result || e.Dropped != droppedResult {
			t.Errorf("found %v %+v, want %s %s", ok, e, outcome, result)
		}
	}
	check(j, "open", "", false)
	o := messages.OutcomeRecord{CallID: s.CallID, RunID: "r", Outcome: messages.OK, Result: json.RawMessage("{ \"a\":\n1, \"b\": \"<\"}"), At: c.now()}
	j.Outcome(o)
	_ = dispatch(j, sample("r", 1, c.now())) // the outcome is written before it
	check(j, "ok", string(o.Result), false)
	for _, other := range [][4]string{{"x", "fs", "write_file", "k\xff"}, {"local", "x", "write_file", "k\xff"}, {"local", "fs", "x", "k\xff"}, {"local", "fs", "write_file", "x"}, {"local", "fs", "write_file", ""}} {
		if e, ok := j.Find(other[0], other[1], other[2], other[3]); ok {
			t.Errorf("%q found %+v", other, e)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = mustOpen(t, options(d, c, "r2"))
	defer j.Close()
	check(j, "ok", string(o.Result), false)
	// A later call of the same key takes its place.
	c.add(time.Hour)
	s2 := s
	s2.CallID, s2.RunID, s2.At = "again", "r2", c.now()
	if err := dispatch(j, s2); err != nil {
		t.Fatal(err)
	}
	check(j, "open", "", false)
	j.Outcome(messages.OutcomeRecord{CallID: "again", Outcome: messages.OK, Result: big, At: c.now()})
	_ = dispatch(j, sample("r2", 3, c.now()))
	check(j, "ok", "", true)
	if got := j.Entries(Filter{Key: "k\xff"}); len(got) != 2 || got[0].CallID != "again" || got[1].CallID != s.CallID {
		t.Errorf("entries of the key: %+v", got)
	}
	if got := j.Entries(Filter{CallID: "again"}); len(got) != 1 {
		t.Errorf("entries of the call: %+v", got)
	}
	if got := j.Entries(Filter{Limit: 1}); len(got) != 1 || got[0].CallID != "c-3" {
		t.Errorf("newest entry: %+v", got)
	}
	c.add(KeyWindow)
	if e, ok := j.Find("local", "fs", "write_file", "k\xff"); ok {
		t.Errorf("a day later: %+v", e)
	}
}

// TestAttempts: another attempt opens a call again; the same one written twice does not.
func TestAttempts(t *testing.T) {
	d, c := newFaultFS(), &clock{t: epoch}
	j := mustOpen(t, options(d, c, "r"))
	s := sample("r", 3, c.now())
	_ = dispatch(j, s)
	j.Outcome(settle(s, 3, c.now())) // not_sent
	_ = dispatch(j, s)
	if e := j.Entries(Filter{}); len(e) != 1 || e[0].Outcome != "not_sent" {
		t.Errorf("the same attempt: %+v", e)
	}
	s.Attempt, s.Generation = 2, 9
	_ = dispatch(j, s)
	if e := j.Entries(Filter{}); len(e) != 1 || e[0].Outcome != "open" || e[0].Generation != 9 {
		t.Errorf("the next attempt: %+v", e)
	}
	_ = j.Close()
	j = mustOpen(t, options(d, c, "r2"))
	defer j.Close()
	if e := j.OpenEntries(); len(e) != 1 || e[0].Generation != 9 {
		t.Errorf("after a restart: %+v", e)
	}
	j.Outcome(messages.OutcomeRecord{CallID: s.CallID, RunID: "r", Outcome: messages.OutcomeUnknown, At: c.now()})
	_ = dispatch(j, sample("r2", 1, c.now()))
	if e := j.OpenEntries(); len(e) != 0 {
		t.Errorf("after its outcome: %+v", e)
	}
}

// TestFullDisk: refused at once, healthy by itself, and no outcome is lost.
func TestFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, c := newFaultFS(), &clock{t: epoch}
		j := mustOpen(t, options(d, c, "r"))
		s := sample("r", 0, c.now())
		if err := dispatch(j, s); err != nil {
			t.Fatal(err)
		}
		full := func(_ int, op string) error {
			if op == "write" || op == "sync" {
				return syscall.ENOSPC
			}
			return nil
		}
		d.mu.Lock()
		d.hook = full
		d.mu.Unlock()
		if err := dispatch(j, sample("r", 1, c.now())); !errors.Is(err, syscall.ENOSPC) || !errors.Is(j.Health(), syscall.ENOSPC) {
			t.Fatalf("%v, health %v", err, j.Health())
		}
		j.Outcome(settle(s, 0, c.now()))
		time.Sleep(time.Minute)
		if err := dispatch(j, sample("r", 2, c.now())); !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		if e, _ := j.Find(s.Client, s.Server, s.Tool, s.IdempotencyKey); e.Outcome != "ok" || len(e.Result) == 0 {
			t.Errorf("the outcome that waits: %+v", e)
		}
		d.mu.Lock()
		d.hook = nil
		d.mu.Unlock()
		time.Sleep(2 * retryPause)
		if err := j.Health(); err != nil {
			t.Fatalf("not healthy by itself: %v", err)
		}
		after := d.crash(lost)
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		j = mustOpen(t, options(after, c, "r2"))
		defer j.Close()
		if e := j.Entries(Filter{}); len(e) != 1 || e[0].Outcome != "ok" || j.Damaged() {
			t.Errorf("after the next start: %+v\n%s", e, text(j))
		}
		if e, _ := j.Find(s.Client, s.Server, s.Tool, s.IdempotencyKey); len(e.Result) == 0 {
			t.Errorf("its result: %+v", e)
		}
	})
}

// TestHungDisk: callers wait for the answer; nobody else does.
func TestHungDisk(t *testing.T) {
	d, c := newFaultFS(), &clock{t: epoch}
	j := mustOpen(t, options(d, c, "r"))
	d.gate = make(chan struct{})
	got := make(chan error, 1)
	j.Dispatch(sample("r", 0, c.now()), func(err error) { got <- err })
	j.Entries(Filter{})
	j.Find("a", "b", "c", "d")
	if len(got) != 0 {
		t.Error("acknowledged before its sync")
	}
	close(d.gate)
	if err := <-got; err != nil {
		t.Error(err)
	}
	_ = j.Close()
}

// TestClose: what waits is written, what comes later is refused, and twice is fine.
func TestClose(t *testing.T) {
	d, c := newFaultFS(), &clock{t: epoch}
	j := mustOpen(t, options(d, c, "r"))
	got := make(chan error, 20)
	for n := range 20 {
		j.Dispatch(sample("r", n, c.now()), func(err error) { got <- err })
	}
	if err := errors.Join(j.Close(), j.Close()); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if err := <-got; err != nil {
			t.Error(err)
		}
	}
	if err := dispatch(j, sample("r", 30, c.now())); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	j.Outcome(settle(sample("r", 0, c.now()), 0, c.now()))
	d.hook = func(_ int, op string) error { return map[string]error{"write": syscall.EIO}[op] }
	j = mustOpen(t, options(d, c, "r2"))
	s := sample("r", 0, c.now())
	j.Outcome(settle(s, 0, c.now()))
	if err := j.Close(); err == nil || !strings.Contains(err.Error(), "1 outcomes") {
		t.Errorf("an outcome was lost without a word: %v", err)
	}
}

// TestUnreadableSegment: what cannot be read now is reported, and there again later.
func TestUnreadableSegment(t *testing.T) {
	d, c, l := sampleJournal(t)
	broken := d.crash(all)
	broken.hook = func(n int, op string) error {
		if op == "read" && strings.HasSuffix(broken.log[len(broken.log)-1], segmentName(2)) {
			return syscall.EIO
		}
		return nil
	}
	j := mustOpen(t, options(broken, c, "z"))
	s := sample("z", 0, c.now())
	l[s.CallID] = &told{d: s, acked: true}
	if err := dispatch(j, s); err != nil || !j.Damaged() || !strings.Contains(text(j), "could not be read") {
		t.Fatalf("%v\n%s", err, text(j))
	}
	_ = j.Close()
	j = mustOpen(t, options(broken.crash(lost), c, "z2"))
	defer j.Close()
	if err := l.check(j, demands{now: c.now(), outcomes: true}); err != nil || j.Damaged() {
		t.Fatalf("%v\n%s", err, text(j))
	}
}

func TestDigest(t *testing.T) {
	d, c := newFaultFS(), &clock{t: epoch}
	j := mustOpen(t, options(d, c, "r"))
	key := j.Key()
	_ = j.Close()
	j = mustOpen(t, options(d, c, "r"))
	defer j.Close()
	if !cmp.Equal(key, j.Key()) || len(key) != 32 {
		t.Fatal("the key is another one after a restart")
	}
	sum := func(s string) string { return Digest(key, json.RawMessage(s)) }
	for _, same := range [][2]string{{`{"a":1,"b":[1,2]}`, "{ \"b\":[1, 2],\n\"a\":1}"}, {`{}`, ` {} `}, {`{"a":"<&>"}`, `{ "a":"<&>"}`}} {
		if sum(same[0]) != sum(same[1]) {
			t.Errorf("%s and %s differ", same[0], same[1])
		}
	}
	for _, other := range [][2]string{{`{"a":1}`, `{"a":1.0}`}, {`{"a":[1,2]}`, `{"a":[2,1]}`}, {`{"a":1,"a":2}`, `{"a":2}`}, {`{"a":1,"a":2}`, `{"a":2,"a":1}`}, {`{"a":1}`, `{"a":12345678901234567890}`}, {`not`, `json`}} {
		if sum(other[0]) == sum(other[1]) {
			t.Errorf("%s and %s are the same", other[0], other[1])
		}
	}
	if Digest(make([]byte, 32), json.RawMessage(`{}`)) == sum(`{}`) || strings.Contains(sum(`{"a":"secret"}`), "secret") {
		t.Error("the digest is not keyed")
	}
}

func TestOptions(t *testing.T) {
	for name, o := range map[string]Options{
		"directory": {RunID: "r"},
		"run id":    {Dir: "/j"},
		"fsync":     {Dir: "/j", RunID: "r", Fsync: "sometimes"},
	} {
		if _, err := Open(o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n, ok := segmentNumber(segmentName(77)); !ok || n != 77 {
		t.Error("segment names")
	}
	for _, bad := range []string{"", "key", "lock", fmt.Sprintf("%016X.journal", 171), "1.journal"} {
		if _, ok := segmentNumber(bad); ok {
			t.Errorf("%q passes as a segment", bad)
		}
	}
}
