package journal

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"mcpbridge/messages"
)

// TestModel runs random operations with crashes, restarts and failing disks against
// the ledger, which is a map.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, c, l := newFaultFS(), &clock{t: epoch}, ledger{}
		run, calls := 1, 0
		opts := func() Options {
			o := options(d, c, fmt.Sprintf("r%d", run))
			o.segmentMax, o.MaxSize = int64(rapid.IntRange(200, 4000).Draw(t, "segment")), 8<<20
			return o
		}
		open := func() *Journal {
			j, err := Open(opts())
			if err != nil {
				t.Fatal(err)
			}
			return j
		}
		j := open()
		defer func() { _ = j.Close() }()
		var ids []string
		check := func(want demands) {
			want.now, want.keep = c.now(), 7*day
			if err := l.check(j, want); err != nil {
				t.Fatalf("%v\n%s", err, text(j))
			}
			if j.Damaged() {
				t.Fatalf("damaged: %s", text(j))
			}
		}
		do := func() {
			s := sample(fmt.Sprintf("r%d", run), calls, c.now())
			calls++
			ids = append(ids, s.CallID)
			l[s.CallID] = &told{d: s}
			if err := dispatch(j, s); err != nil {
				l[s.CallID].refused = true
			} else {
				l[s.CallID].acked = true
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"dispatch": func(*rapid.T) { do() },
			"outcome": func(t *rapid.T) {
				if len(ids) == 0 {
					t.Skip()
				}
				call := l[rapid.SampledFrom(ids).Draw(t, "call")]
				if call == nil || !call.acked || call.o != nil {
					t.Skip()
				}
				o := settle(call.d, int(call.d.Generation), c.now())
				call.o = &o
				j.Outcome(o)
			},
			"time": func(t *rapid.T) { c.add(time.Duration(rapid.IntRange(1, 72).Draw(t, "hours")) * time.Hour) },
			"fail": func(t *rapid.T) {
				// A disk that fails for a while; the life ends within it.
				from := rapid.IntRange(1, 6).Draw(t, "from")
				d.mu.Lock()
				from += d.ops
				d.hook = func(n int, _ string) error {
					if n >= from {
						return syscall.EIO
					}
					return nil
				}
				d.mu.Unlock()
				for range rapid.IntRange(1, 4).Draw(t, "calls") {
					do()
				}
			},
			"crash": func(t *rapid.T) {
				how := rapid.SampledFrom([]survival{lost, partly, all}).Draw(t, "how")
				d.mu.Lock()
				d.dead = true
				d.mu.Unlock()
				after := d.crash(how)
				_ = j.Close()
				d = after
				run++
				j = open()
				check(demands{})
				prune(j, l)
			},
			"restart": func(t *rapid.T) {
				err := j.Close()
				d.mu.Lock()
				d.hook = nil
				d.mu.Unlock()
				run++
				j = open()
				check(demands{outcomes: err == nil, refusals: err == nil})
				prune(j, l)
			},
		})
	})
}

// prune makes the ledger agree with what the journal shows after a start: what was
// lost or kept where both were right stays so.
func prune(j *Journal, l ledger) {
	rows := map[string]messages.JournalEntry{}
	j.mu.Lock()
	j.ix.newest(func(e *entry) bool { rows[e.id.call] = e.row(); return true })
	j.mu.Unlock()
	for id, c := range l {
		row, ok := rows[id]
		if !ok {
			delete(l, id)
			continue
		}
		c.acked, c.refused = true, false
		if row.Outcome == messages.OutcomeOpen {
			c.o = nil
		}
	}
}
