package history

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/google/go-cmp/cmp"

	"mcpbridge/messages"
	"mcpbridge/test/witness"
)

// tale tells a history by hand; times are milliseconds.
type tale struct {
	in   Input
	seq  uint64
	gen  uint64            // that takes calls
	sent map[string]uint64 // call → generation
}

func newTale(servers ...Server) *tale {
	t := &tale{in: Input{Servers: servers, Runs: []Run{{ID: "run1"}}}, gen: 1, sent: map[string]uint64{}}
	for i := range t.in.Servers {
		s := &t.in.Servers[i]
		s.MaxReads = max(s.MaxReads, 2)
		s.MaxSideEffects = max(s.MaxSideEffects, 1)
		s.AbandonAfter = time.Second
		s.Restart = Restart{Initial: 100 * time.Millisecond, Multiplier: 2, Max: time.Second, ResetAfter: time.Second, Cooldown: time.Minute}
	}
	return t
}

func (t *tale) event(at int64, e messages.Event) *tale {
	t.seq++
	e.Seq, e.Time = t.seq, time.Unix(0, at*ms)
	t.in.Runs[0].Events = append(t.in.Runs[0].Events, e)
	return t
}

// call tells of a call from its acceptance to its dispatch; settle ends it.
func (t *tale) call(at int64, id, server string, effect messages.Effect) *tale {
	return t.accept(at, id, server, effect).dispatch(at, id, server)
}

func (t *tale) accept(at int64, id, server string, effect messages.Effect) *tale {
	deadline := time.Unix(0, (at+10_000)*ms)
	t.in.Calls = append(t.in.Calls, Call{ID: id, Nonce: "n" + id, Server: server, Tool: "t", Effect: effect, Client: "c", Run: "run1", Invoked: at * ms, Timeout: 10 * time.Second})
	return t.event(at, messages.Event{Type: messages.EventCallAccepted, CallID: id, Server: server, Effect: effect.String(), Deadline: &deadline})
}

func (t *tale) dispatch(at int64, id, server string) *tale {
	t.sent[id] = t.gen
	return t.event(at, messages.Event{Type: messages.EventCallDispatched, CallID: id, Server: server, Attempt: 1, Generation: t.gen})
}

func (t *tale) settle(at int64, id string, kind messages.OutcomeKind, code messages.Code) *tale {
	for i := range t.in.Calls {
		if c := &t.in.Calls[i]; c.ID == id {
			c.Returned, c.Outcome, c.Code, c.Attempt, c.Generation = at*ms, kind.String(), code, 1, t.sent[id]
			c.Sent = kind != messages.NotSent && kind != messages.Rejected
			var waited, ran float64
			for _, e := range t.in.Runs[0].Events {
				switch {
				case e.CallID != id:
				case e.Type == messages.EventCallAccepted:
					waited = float64(at) - float64(e.Time.UnixNano()/ms)
				case e.Type == messages.EventCallDispatched:
					ran = float64(at) - float64(e.Time.UnixNano()/ms)
				}
			}
			t.event(at, messages.Event{QueuedMS: waited - ran, RanMS: ran, Type: messages.EventCallSettled, CallID: id, Server: c.Server, Outcome: kind.String(), Code: code, Attempt: 1, Generation: t.sent[id]})
		}
	}
	return t
}

// saw is the witness: an execution from begin to end, 0 for none.
func (t *tale) saw(id, server string, pid int, begin, end int64) *tale {
	t.in.Witness = append(t.in.Witness, witness.Record{Event: witness.Begin, Nonce: "n" + id, Tool: "t", Server: server, PID: pid, MonoNS: begin * ms})
	if end > 0 {
		t.in.Witness = append(t.in.Witness, witness.Record{Event: witness.End, Nonce: "n" + id, Tool: "t", Server: server, PID: pid, MonoNS: end * ms})
	}
	return t
}

// boot is a process's first line at the witness.
func (t *tale) boot(server string, pid int, at int64) *tale {
	t.in.Witness = append(t.in.Witness, witness.Record{Event: witness.Start, Server: server, PID: pid, MonoNS: at * ms})
	return t
}

func (t *tale) state(at int64, server string, state messages.State) *tale {
	return t.event(at, messages.Event{Type: messages.EventServerState, Server: server, State: state.String()})
}

// wakes is a start for a call.
func (t *tale) wakes(at int64, server string) *tale {
	return t.event(at, messages.Event{Type: messages.EventServerState, Server: server, State: messages.StateStarting.String(), Reason: "a call waits"})
}

// patient makes the backoff ten seconds.
func (t *tale) patient() *tale {
	r := &t.in.Servers[0].Restart
	r.Initial, r.Max = 10*time.Second, 10*time.Second
	return t
}

func (t *tale) up(at int64, server string, gen uint64) *tale {
	t.event(at, messages.Event{Type: messages.EventServerSpawned, Server: server, Generation: gen})
	t.state(at, server, messages.StateReady)
	return t.event(at, messages.Event{Type: messages.EventServerReady, Server: server, Generation: gen})
}

func (t *tale) down(at int64, server string, gen uint64) *tale {
	t.gen = gen + 1
	return t.event(at, messages.Event{Type: messages.EventServerExited, Server: server, Generation: gen, Reason: "signal: killed"})
}

const (
	effect = messages.SideEffect
	read   = messages.ReadOnly
)

// TestCases tells good and bad histories by hand, those at the edges above all: what
// only looks wrong must not be called so.
func TestCases(t *testing.T) {
	ex, se := Server{Name: "s"}, Server{Name: "s", Serial: true}
	remote, keyed := Server{Name: "s", Remote: true}, Server{Name: "s", Keyed: true}
	timeout := messages.CodeTimeout
	for _, tt := range []struct {
		name string
		tale *tale
		want string // the properties that are broken
	}{
		{"one after the other", newTale(ex).call(1, "a", "s", effect).settle(5, "a", messages.OK, "").call(6, "b", "s", effect).settle(9, "b", messages.OK, "").
			saw("a", "s", 1, 2, 4).saw("b", "s", 1, 7, 8), ""},
		{"two at once", newTale(ex).call(1, "a", "s", effect).call(1, "b", "s", effect).settle(9, "b", messages.OK, "").settle(9, "a", messages.OK, "").
			saw("a", "s", 1, 2, 8).saw("b", "s", 1, 3, 7), "P4"},
		{"two at once, where two are allowed", newTale(Server{Name: "s", MaxSideEffects: 2}).call(1, "a", "s", effect).call(1, "b", "s", effect).settle(9, "b", messages.OK, "").settle(9, "a", messages.OK, "").
			saw("a", "s", 1, 2, 8).saw("b", "s", 1, 3, 7), ""},
		{"a begin without an end ends with its process", newTale(ex).up(0, "s", 1).call(1, "a", "s", effect).down(5, "s", 1).settle(5, "a", messages.OutcomeUnknown, messages.CodeConnectionLost).
			call(6, "b", "s", effect).settle(9, "b", messages.OK, "").boot("s", 1, 1).saw("a", "s", 1, 2, 0).boot("s", 2, 6).saw("b", "s", 2, 7, 8), ""},
		{"the same, and the process was seen alive afterwards", func() *tale {
			x := newTale(ex).up(0, "s", 1).call(1, "a", "s", effect).down(5, "s", 1).settle(5, "a", messages.OutcomeUnknown, messages.CodeConnectionLost).
				call(6, "b", "s", effect).settle(9, "b", messages.OK, "").boot("s", 1, 1).saw("a", "s", 1, 2, 0).boot("s", 2, 6).saw("b", "s", 2, 7, 8)
			x.in.Lives = []Life{{PID: 1, First: 2 * ms, Last: 7*ms + 1}}
			return x
		}(), "P4 P9"},
		{"a process id is used again", func() *tale {
			x := newTale(ex).up(0, "s", 1).call(1, "a", "s", effect).down(5, "s", 1).settle(5, "a", messages.OutcomeUnknown, messages.CodeConnectionLost).
				call(6, "b", "s", effect).settle(9, "b", messages.OK, "").boot("s", 1, 1).saw("a", "s", 1, 2, 0).boot("s", 1, 6).saw("b", "s", 1, 7, 8)
			x.in.Lives = []Life{{PID: 1, First: 6*ms + 1, Last: 20 * ms}}
			return x
		}(), ""},
		{"refused at the door of a daemon that drains", func() *tale {
			x := newTale(ex).event(5, messages.Event{Type: messages.EventDraining}).event(3000, messages.Event{Type: messages.EventCatalogue})
			x.in.Calls = append(x.in.Calls, Call{ID: "a", Nonce: "na", Server: "s", Tool: "t", Client: "c", Run: "run1", Invoked: 6 * ms, Returned: 7 * ms,
				Timeout: time.Second, Outcome: messages.Rejected.String(), Code: messages.CodeDraining})
			return x
		}(), ""},
		{"a drain that gives its time", newTale(Server{Name: "s", Drain: time.Second}).up(0, "s", 1).call(1, "a", "s", effect).state(2, "s", messages.StateDraining).
			state(1002, "s", messages.StateStopping).down(1003, "s", 1).settle(1003, "a", messages.OutcomeUnknown, messages.CodeConnectionLost).
			boot("s", 1, 1).saw("a", "s", 1, 2, 0), ""},
		{"a drain that does not", newTale(Server{Name: "s", Drain: time.Second}).up(0, "s", 1).call(1, "a", "s", effect).state(2, "s", messages.StateDraining).
			state(502, "s", messages.StateStopping).down(503, "s", 1).settle(503, "a", messages.OutcomeUnknown, messages.CodeConnectionLost).
			boot("s", 1, 1).saw("a", "s", 1, 2, 0), "P12"},
		{"a drain that an operator cuts short", func() *tale {
			x := newTale(Server{Name: "s", Drain: time.Second}).up(0, "s", 1).call(1, "a", "s", effect).state(2, "s", messages.StateDraining).
				state(502, "s", messages.StateStopping).down(503, "s", 1).settle(503, "a", messages.OutcomeUnknown, messages.CodeConnectionLost).
				boot("s", 1, 1).saw("a", "s", 1, 2, 0)
			x.in.Operations = []Operation{{Verb: messages.VerbStop, Server: "s", At: 400 * ms, Done: 600 * ms}}
			return x
		}(), ""},
		{"an error is an error", func() *tale {
			x := newTale(ex).call(1, "a", "s", effect).settle(9, "a", messages.ToolError, messages.CodeToolError).saw("a", "s", 1, 2, 3)
			x.in.Calls[0].Errs = true
			return x
		}(), ""},
		{"an error is taken for ok", func() *tale {
			x := newTale(ex).call(1, "a", "s", effect).settle(9, "a", messages.OK, "").saw("a", "s", 1, 2, 3)
			x.in.Calls[0].Errs = true
			return x
		}(), "P2"},
		{"different keys side by side", func() *tale {
			x := newTale(keyed).call(1, "a", "s", effect).call(1, "b", "s", effect).settle(9, "b", messages.OK, "").settle(9, "a", messages.OK, "").saw("a", "s", 1, 2, 8).saw("b", "s", 1, 3, 7)
			x.in.Calls[0].LaneKey, x.in.Calls[1].LaneKey = "x", "y"
			return x
		}(), ""},
		{"one key twice", func() *tale {
			x := newTale(keyed).call(1, "a", "s", effect).call(1, "b", "s", effect).settle(9, "b", messages.OK, "").settle(9, "a", messages.OK, "").saw("a", "s", 1, 2, 8).saw("b", "s", 1, 3, 7)
			x.in.Calls[0].LaneKey, x.in.Calls[1].LaneKey = "x", "x"
			return x
		}(), "P4"},
		{"a missing key beside another", func() *tale {
			x := newTale(keyed).call(1, "a", "s", effect).call(1, "b", "s", effect).settle(9, "b", messages.OK, "").settle(9, "a", messages.OK, "").saw("a", "s", 1, 2, 8).saw("b", "s", 1, 3, 7)
			x.in.Calls[0].LaneKey = "x"
			return x
		}(), "P4"},
		{"two servers of one group", newTale(Server{Name: "s", Group: "g"}, Server{Name: "o", Group: "g"}).call(1, "a", "s", effect).call(1, "b", "o", effect).
			settle(9, "b", messages.OK, "").settle(9, "a", messages.OK, "").saw("a", "s", 1, 2, 8).saw("b", "o", 2, 3, 7), "P4"},
		{"two servers of no group", newTale(Server{Name: "s"}, Server{Name: "o"}).call(1, "a", "s", effect).call(1, "b", "o", effect).
			settle(9, "b", messages.OK, "").settle(9, "a", messages.OK, "").saw("a", "s", 1, 2, 8).saw("b", "o", 2, 3, 7), ""},
		{"a remote lane, told", newTale(remote).call(1, "a", "s", effect).settle(10_001, "a", messages.OutcomeUnknown, timeout).
			event(10_001, messages.Event{Type: messages.EventLaneHeld, CallID: "a", Server: "s"}).event(11_001, messages.Event{Type: messages.EventPossibleOverlap, CallID: "a", Server: "s"}).
			event(11_001, messages.Event{Type: messages.EventLaneReleased, CallID: "a", Server: "s"}).call(11_001, "b", "s", effect).settle(11_009, "b", messages.OK, "").
			saw("a", "s", 1, 2, 20_000).saw("b", "s", 1, 11_003, 11_007), ""},
		{"a remote lane, not told", newTale(remote).call(1, "a", "s", effect).settle(10_001, "a", messages.OutcomeUnknown, timeout).
			call(11_001, "b", "s", effect).settle(11_009, "b", messages.OK, "").saw("a", "s", 1, 2, 20_000).saw("b", "s", 1, 11_003, 11_007), "P4"},
		{"a remote lane, told, and not at work any more", newTale(remote).call(1, "a", "s", effect).settle(10_001, "a", messages.OutcomeUnknown, timeout).
			event(10_001, messages.Event{Type: messages.EventLaneHeld, CallID: "a", Server: "s"}).event(11_001, messages.Event{Type: messages.EventLaneReleased, CallID: "a", Server: "s"}).
			call(11_001, "b", "s", effect).settle(11_009, "b", messages.OK, "").saw("a", "s", 1, 2, 5).saw("b", "s", 1, 11_003, 11_007), "P4"},
		{"a fence is opened by the answer", newTale(ex).call(1, "a", "s", effect).settle(10_001, "a", messages.OutcomeUnknown, timeout).
			event(10_001, messages.Event{Type: messages.EventLaneHeld, CallID: "a", Server: "s", Generation: 1}).event(10_500, messages.Event{Type: messages.EventReplyLate, CallID: "a", Server: "s"}).
			event(10_500, messages.Event{Type: messages.EventLaneReleased, CallID: "a", Server: "s"}).call(10_501, "b", "s", effect).settle(10_509, "b", messages.OK, "").
			saw("a", "s", 1, 2, 10_499).saw("b", "s", 1, 10_503, 10_507), ""},
		{"a fence is passed, and nobody sees it at the witness", newTale(ex).call(1, "a", "s", effect).settle(10_001, "a", messages.OutcomeUnknown, timeout).
			event(10_001, messages.Event{Type: messages.EventLaneHeld, CallID: "a", Server: "s", Generation: 1}).call(10_501, "b", "s", effect).settle(10_509, "b", messages.OK, "").
			saw("a", "s", 1, 2, 4).saw("b", "s", 1, 10_503, 10_507), "P4"},
		{"no fence at all", newTale(ex).call(1, "a", "s", effect).settle(10_001, "a", messages.OutcomeUnknown, timeout).call(10_501, "b", "s", effect).settle(10_509, "b", messages.OK, "").
			saw("a", "s", 1, 2, 4).saw("b", "s", 1, 10_503, 10_507), "P4"},
		{"a side effect passes a read that was abandoned", newTale(ex).call(1, "a", "s", read).settle(10_001, "a", messages.OutcomeUnknown, timeout).
			call(11_002, "b", "s", effect).settle(11_009, "b", messages.OK, "").saw("a", "s", 1, 2, 20_000).saw("b", "s", 1, 11_003, 11_007), ""},
		{"a side effect passes a read too soon", newTale(ex).call(1, "a", "s", read).settle(10_001, "a", messages.OutcomeUnknown, timeout).
			call(10_102, "b", "s", effect).settle(10_109, "b", messages.OK, "").saw("a", "s", 1, 2, 20_000).saw("b", "s", 1, 10_103, 10_107), "P4"},
		{"a read beside a side effect under serial", newTale(se).call(1, "a", "s", effect).call(2, "b", "s", read).settle(9, "b", messages.OK, "").settle(9, "a", messages.OK, "").
			saw("a", "s", 1, 2, 8).saw("b", "s", 1, 3, 7), ""},
		{"a read waits under serial", newTale(se).call(1, "a", "s", effect).accept(2, "b", "s", read).call(3, "c", "s", read).dispatch(4, "b", "s").
			settle(9, "b", messages.OK, "").settle(9, "a", messages.OK, "").settle(9, "c", messages.OK, "").
			saw("a", "s", 1, 2, 8).saw("b", "s", 1, 5, 7).saw("c", "s", 1, 5, 7), "P5"},
		{"a read waits for a slot", newTale(Server{Name: "s", Serial: true, MaxReads: 2}).call(1, "a", "s", effect).call(2, "b", "s", read).call(2, "c", "s", read).accept(3, "d", "s", read).
			settle(9, "b", messages.OK, "").dispatch(9, "d", "s").settle(12, "a", messages.OK, "").settle(12, "c", messages.OK, "").settle(12, "d", messages.OK, "").
			saw("a", "s", 1, 2, 8).saw("b", "s", 1, 3, 7).saw("c", "s", 1, 3, 7).saw("d", "s", 1, 10, 11), ""},
		{"a read waits because the session is going down", newTale(se).up(0, "s", 1).call(1, "a", "s", effect).accept(2, "b", "s", read).
			settle(3, "a", messages.OutcomeUnknown, messages.CodeConnectionLost).down(3, "s", 1).
			dispatch(4, "b", "s").settle(9, "b", messages.OK, "").
			saw("a", "s", 1, 2, 0).saw("b", "s", 2, 5, 7), ""},
		{"one client, out of turn", newTale(se).accept(1, "a", "s", effect).accept(2, "b", "s", effect).dispatch(3, "b", "s").settle(5, "b", messages.OK, "").dispatch(6, "a", "s").settle(9, "a", messages.OK, "").
			saw("b", "s", 1, 4, 5).saw("a", "s", 1, 7, 8), "P6"},
		{"two clients, out of turn", func() *tale {
			x := newTale(se).accept(1, "a", "s", effect).accept(2, "b", "s", effect).dispatch(3, "b", "s").settle(5, "b", messages.OK, "").dispatch(6, "a", "s").settle(9, "a", messages.OK, "").
				saw("b", "s", 1, 4, 5).saw("a", "s", 1, 7, 8)
			x.in.Calls[1].Client = "another"
			return x
		}(), ""},
		{"the first failure restarts at once, the second later", newTale(ex).state(0, "s", messages.StateStarting).up(1, "s", 1).down(100, "s", 1).state(101, "s", messages.StateStarting).up(102, "s", 2).
			down(200, "s", 2).state(201, "s", messages.StateBackoff).state(302, "s", messages.StateStarting).up(303, "s", 3), ""},
		{"the second at once", newTale(ex).state(0, "s", messages.StateStarting).up(1, "s", 1).down(100, "s", 1).state(101, "s", messages.StateStarting).up(102, "s", 2).
			down(200, "s", 2).state(201, "s", messages.StateStarting).up(202, "s", 3), "P11"},
		{"the second at once, after long readiness", newTale(ex).state(0, "s", messages.StateStarting).up(1, "s", 1).down(100, "s", 1).state(101, "s", messages.StateStarting).up(102, "s", 2).
			down(1200, "s", 2).state(1201, "s", messages.StateStarting).up(1202, "s", 3), ""},
		{"the second at once, recycled", newTale(ex).state(0, "s", messages.StateStarting).up(1, "s", 1).down(100, "s", 1).state(101, "s", messages.StateStarting).up(102, "s", 2).
			event(150, messages.Event{Type: messages.EventServerRecycled, Server: "s"}).state(150, "s", messages.StateStarting).down(200, "s", 2).state(201, "s", messages.StateStarting).up(202, "s", 3), ""},
		{"the third delay is longer than the second", newTale(ex).state(0, "s", messages.StateBackoff).state(100, "s", messages.StateStarting).state(101, "s", messages.StateBackoff).state(202, "s", messages.StateStarting), "P11"},
		{"a call tries early, in vain, and the schedule goes on", newTale(remote).patient().state(1, "s", messages.StateBackoff).wakes(2000, "s").state(2010, "s", messages.StateBackoff).
			wakes(4500, "s").state(4510, "s", messages.StateBackoff).state(10_001, "s", messages.StateStarting), ""},
		{"a call tries too early", newTale(remote).patient().state(1, "s", messages.StateBackoff).wakes(1900, "s"), "P11"},
		{"a call shortens the schedule", newTale(remote).patient().state(1, "s", messages.StateBackoff).wakes(2000, "s").state(2010, "s", messages.StateBackoff).state(5000, "s", messages.StateStarting), "P11"},
		{"a call starts a process early", newTale(ex).patient().state(1, "s", messages.StateBackoff).wakes(2000, "s"), "P11"},
		{"out of quarantine too soon", newTale(ex).state(0, "s", messages.StateQuarantined).state(1000, "s", messages.StateStarting), "P11"},
		{"a disabled server is started", newTale(ex).state(0, "s", messages.StateDisabled).state(1000, "s", messages.StateStarting), "P11"},
		{"generations run backwards", newTale(ex).up(0, "s", 5).state(10, "s", messages.StateStarting).up(11, "s", 4), "P11"},
		{"an idempotent call began twice", func() *tale {
			x := newTale(ex).up(0, "s", 1).accept(1, "a", "s", messages.Idempotent).dispatch(1, "a", "s").
				event(3, messages.Event{Type: messages.EventCallRequeued, CallID: "a", Server: "s", Attempt: 1, Reason: "connection lost: EOF"}).
				event(4, messages.Event{Type: messages.EventCallDispatched, CallID: "a", Server: "s", Attempt: 2, Generation: 2}).settle(9, "a", messages.OK, "").
				boot("s", 1, 1).saw("a", "s", 1, 2, 0).boot("s", 2, 4).saw("a", "s", 2, 5, 6)
			x.in.Calls[0].Attempt, x.in.Runs[0].Events[len(x.in.Runs[0].Events)-1].Attempt = 2, 2
			return x
		}(), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := Check(&tt.tale.in)
			got := []string{}
			for _, p := range properties {
				if len(r.Of(p.name)) > 0 {
					got = append(got, p.name)
				}
			}
			if got := strings.Join(got, " "); got != tt.want {
				t.Errorf("broken: %q, want %q\n%s", got, tt.want, r)
			}
		})
	}
}

// TestTextsName: a violation is of use only when it says whose.
func TestTextsName(t *testing.T) {
	x := newTale(Server{Name: "s"}).call(1, "a", "s", effect).call(1, "b", "s", effect).settle(9, "b", messages.OK, "").settle(9, "a", messages.OK, "").
		saw("a", "s", 1, 2, 8).saw("b", "s", 1, 3, 7)
	text := Check(&x.in).String()
	for _, want := range []string{"VIOLATION P4: lane of s", "call a (nonce na", "call b (nonce nb", "pid 1", "2 violations", "P13", "NOT CHECKED"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report does not say %q:\n%s", want, text)
		}
	}
}

// TestOrderIsPorcupines compares the one pass of P6 with a search over all orders, on
// small random ledgers of which many are wrong.
func TestOrderIsPorcupines(t *testing.T) {
	type input struct{ id, place int } // place in the ledger that the witness saw
	model := porcupine.Model{
		Init: func() any { return 0 },
		Step: func(state, in, _ any) (bool, any) { // the ledger grows by exactly the next entry
			n := state.(int)
			return in.(input).place == n, n + 1
		},
	}
	good, bad := 0, 0
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 5))
		n := 2 + rng.IntN(5)
		x := newTale(Server{Name: "s"})
		var ops []porcupine.Operation
		for place, id := range rng.Perm(n) {
			call, took := int64(rng.IntN(40)), int64(1+rng.IntN(20))
			c := Call{ID: string(rune('a' + id)), Nonce: string(rune('a' + id)), Server: "s", Effect: effect, Invoked: call * ms, Returned: (call + took) * ms, Outcome: messages.OK.String()}
			x.in.Calls = append(x.in.Calls, c)
			x.in.Witness = append(x.in.Witness, witness.Record{Event: witness.Begin, Nonce: c.Nonce, Server: "s", PID: 1, MonoNS: int64(1000+2*place) * ms},
				witness.Record{Event: witness.End, Nonce: c.Nonce, Server: "s", PID: 1, MonoNS: int64(1001+2*place) * ms})
			ops = append(ops, porcupine.Operation{ClientId: id, Input: input{id, place}, Call: call, Return: call + took})
		}
		r := newReport()
		checkOrder(newIndex(&x.in, newReport()), r)
		want := porcupine.CheckOperations(model, ops)
		if got := len(r.Of("P6")) == 0; got != want {
			t.Fatalf("seed %d: in order %t, and porcupine says %t: %v\n%s", seed, got, want, ops, r)
		}
		if want {
			good++
		} else {
			bad++
		}
	}
	if good < 100 || bad < 100 {
		t.Errorf("%d good and %d bad ledgers prove little", good, bad)
	}
}

func TestSaveAndLoad(t *testing.T) {
	in := story(seeded(3), 100)
	path := filepath.Join(t.TempDir(), "history.json")
	if err := in.Save(path); err != nil {
		t.Fatal(err)
	}
	back, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Check(in).String(), Check(back).String()); diff != "" {
		t.Errorf("the report of what was saved (-before +after):\n%s", diff)
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a history that is not there was loaded")
	}
}

// TestSaved checks a history that a storm has saved: MCPBRIDGE_HISTORY=FILE.
func TestSaved(t *testing.T) {
	path := os.Getenv("MCPBRIDGE_HISTORY")
	if path == "" {
		t.Skip("MCPBRIDGE_HISTORY names no saved history")
	}
	in, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	r := Check(in)
	t.Logf("\n%s", r)
	if len(r.Violations) > 0 {
		t.Fail()
	}
}
