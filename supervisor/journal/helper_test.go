package journal

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"mcpbridge/messages"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const day = 24 * time.Hour

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// clock is a clock that a test moves.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.t }

func (c *clock) add(d time.Duration) { c.mu.Lock(); defer c.mu.Unlock(); c.t = c.t.Add(d) }

func options(d FS, c *clock, run string) Options {
	return Options{Dir: "/j", RunID: run, FS: d, Now: c.now, segmentMax: 2 << 10, MaxSize: 64 << 20}
}

func mustOpen(t testing.TB, o Options) *Journal {
	t.Helper()
	j, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// dispatch waits until the record is durable or refused.
func dispatch(j *Journal, d messages.DispatchRecord) error {
	ch := make(chan error, 1)
	j.Dispatch(d, func(err error) { ch <- err })
	return <-ch
}

func sample(run string, n int, at time.Time) messages.DispatchRecord {
	d := messages.DispatchRecord{CallID: fmt.Sprintf("c-%d", n), RunID: run, Generation: uint64(n), Attempt: 1,
		Client: "local", Server: "fs", Tool: "write_file", ArgsDigest: fmt.Sprintf("%032d", n), Remote: n%5 == 0, At: at}
	if n%2 == 0 {
		d.IdempotencyKey = fmt.Sprintf("key-%d", n)
	}
	return d
}

func settle(d messages.DispatchRecord, n int, at time.Time) messages.OutcomeRecord {
	o := messages.OutcomeRecord{CallID: d.CallID, RunID: d.RunID, At: at}
	switch n % 4 {
	case 0:
		o.Outcome, o.Result = messages.OK, json.RawMessage(fmt.Sprintf(`{"content": [{"type":"text","text":"<%d>"}]}`, n))
	case 1:
		o.Outcome, o.Code = messages.OutcomeUnknown, messages.CodeTimeout
	case 2:
		o.Outcome, o.Code, o.RPCError = messages.ToolError, messages.CodeToolError, json.RawMessage(`{"code":-1}`)
	case 3:
		o.Outcome, o.Code = messages.NotSent, messages.CodeExpired
	}
	return o
}

// told is what a test told the journal of a call, and what it heard.
type told struct {
	d       messages.DispatchRecord
	acked   bool
	refused bool
	o       *messages.OutcomeRecord
}

func (c told) row(settled bool) messages.JournalEntry {
	r := messages.JournalEntry{CallID: c.d.CallID, RunID: c.d.RunID, Generation: c.d.Generation, Client: c.d.Client, Server: c.d.Server,
		Tool: c.d.Tool, IdempotencyKey: c.d.IdempotencyKey, Outcome: messages.OutcomeOpen, DispatchedAt: c.d.At, ArgsDigest: c.d.ArgsDigest, Remote: c.d.Remote}
	if settled {
		r.Outcome, r.Code, r.SettledAt = c.o.Outcome.String(), c.o.Code, &c.o.At
	}
	return r
}

// ledger is the naive model: every call by its id.
type ledger map[string]*told

// demands says how much of the ledger a journal must show.
type demands struct {
	now      time.Time
	outcomes bool // every outcome too
	refusals bool // nothing that was refused
	keep     time.Duration
}

// check compares a journal with the ledger.
func (l ledger) check(j *Journal, want demands) error {
	found := map[string]messages.JournalEntry{}
	j.mu.Lock()
	j.ix.newest(func(e *entry) bool { found[e.id.call] = e.row(); return true })
	n := len(j.ix.calls)
	j.mu.Unlock()
	if n != len(found) {
		return fmt.Errorf("%d entries, %d call ids", n, len(found))
	}
	for id, row := range found {
		c := l[id]
		switch {
		case c == nil:
			return fmt.Errorf("a phantom: %+v", row)
		case c.refused && want.refusals:
			return fmt.Errorf("%s was refused and is there", id)
		case cmp.Equal(row, c.row(false)):
			if want.outcomes && c.o != nil {
				return fmt.Errorf("%s lost its outcome", id)
			}
		case c.o == nil || !cmp.Equal(row, c.row(true)):
			return fmt.Errorf("a wrong record: %+v", row)
		}
	}
	for id, c := range l {
		_, ok := found[id]
		if recent := want.keep == 0 || want.now.Sub(c.d.At) <= want.keep; c.acked && !ok && (c.o == nil || recent) {
			return fmt.Errorf("%s was acknowledged and is gone", id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(l)) {
		c := l[id]
		row, ok := j.Find(c.d.Client, c.d.Server, c.d.Tool, c.d.IdempotencyKey)
		if ok && row.CallID == id && row.Outcome != messages.OutcomeOpen {
			if row.Dropped || string(row.Result) != string(c.o.Result) || string(row.RPCError) != string(c.o.RPCError) {
				return fmt.Errorf("%s: another stored result: %+v", id, row)
			}
		}
	}
	return nil
}

// text is everything that a journal reports.
func text(j *Journal) string {
	var b strings.Builder
	for _, i := range j.Issues() {
		fmt.Fprintf(&b, "%s %s\n", i.Severity, i)
	}
	return b.String()
}

// script is a workload over several segments: calls that are settled and calls that
// are not, with two days between them, so that retention has work too.
func script(j *Journal, c *clock, run string, l ledger, heal func()) {
	for n := range 14 {
		c.add(2 * day)
		d := sample(run, n, c.now())
		d.CallID = run + "-" + d.CallID
		call := &told{d: d}
		l[d.CallID] = call
		if err := dispatch(j, d); err != nil {
			call.refused = true
			heal()
			continue
		}
		call.acked = true
		if n%3 != 2 {
			o := settle(d, n, c.now())
			call.o = &o
			j.Outcome(o)
		}
	}
}
