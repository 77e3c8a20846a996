package network

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"mcpbridge/messages"
	"mcpbridge/test/harness"
)

// TestN04BlackHole: nothing comes through any more, and nobody says so. The deadline
// holds; what was under way is not used again; when the network is back, so are we.
func TestN04BlackHole(t *testing.T) {
	for _, tc := range []struct {
		name    string
		fault   fault
		started bool // the answer has begun
	}{
		{"before the request", fault{hole: true}, false},
		{"in the answer", fault{}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			begun := make(chan struct{}, 100)
			r.o.on("tools/call", func(x *exchange) bool {
				if !tc.started || !contains(x.msg.Params.Arguments, `"hole"`) {
					return false
				}
				result := x.act()
				x.w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(x.w, "data: "+x.message(result)[:20])
				x.flush()
				begun <- struct{}{}
				<-x.r.Context().Done()
				return true
			})
			r.open(harness.M{"health": harness.M{"probe_every": "0s"}})
			for _, out := range r.many(5, "read", harness.Patience) { // connections to be poisoned
				r.ok(out)
			}
			r.w.set(tc.fault)
			for _, tool := range []string{"write", "put", "read"} {
				out := r.callWith(tool, time.Second, harness.M{"hole": true})
				if out.Kind != messages.OutcomeUnknown || out.Code != messages.CodeTimeout {
					t.Errorf("%s: %s %s: %s", tool, out.Kind, out.Code, out.ErrorText())
				}
			}
			for range len(begun) {
				<-begun
			}
			healed := time.Now()
			r.w.set(fault{}) // the connections that went into the hole stay there
			out := r.call("write", 30*time.Second)
			r.ok(out)
			for _, out := range r.many(8, "read", 30*time.Second) {
				r.ok(out)
			}
			if took := time.Since(healed); took > 30*time.Second {
				t.Errorf("it took %s to come back", took)
			}
		})
	}
}

// TestN04SilentAtTheStart: the server takes the connection and says nothing.
func TestN04SilentAtTheStart(t *testing.T) {
	r := newRig(t)
	r.w.set(fault{hole: true})
	r.openOnly(harness.M{"timeouts": harness.M{"start": "1s", "first_start": "1s"}})
	harness.Eventually(t, "the start has failed", func() bool { e := r.status().LastExit; return e != nil })
	if e := r.status().LastExit; !strings.Contains(e.Reason, "start budget") {
		t.Errorf("%+v", e)
	}
	r.want(r.call("write", time.Second), messages.NotSent, messages.CodeExpired)
	r.w.set(fault{})
	r.await(messages.StateReady)
	r.ok(r.call("write", harness.Patience))
}

// TestN05SlowIsNotDead: two seconds of latency, or a thin wire. Everything takes its
// time, and nothing is given up.
func TestN05SlowIsNotDead(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fault fault
		bytes int
	}{
		{"2 s latency with jitter", fault{latency: time.Second, jitter: 300 * time.Millisecond}, 0}, // each way
		{"1 KB a second", fault{perSecond: 1 << 10}, 6000},
	} {
		for _, sse := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,sse=%t", tc.name, sse), func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				r.o.sse = sse
				r.w.set(tc.fault)
				r.open(harness.M{"health": harness.M{"probe_every": "300ms", "failures": 1}})
				for _, tool := range []string{"read", "write"} {
					out := r.callWith(tool, harness.Patience, harness.M{"bytes": tc.bytes})
					r.ok(out)
					if out.Attempt != 1 {
						t.Errorf("%s took %d attempts", tool, out.Attempt)
					}
				}
				time.Sleep(3 * time.Second) // probes go on
				if s := r.status(); s.Restarts != 0 || s.State != messages.StateReady {
					t.Errorf("%s, %d restarts, %+v", s.State, s.Restarts, s.LastExit)
				}
			})
		}
	}
}
