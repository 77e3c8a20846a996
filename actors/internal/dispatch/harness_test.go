package dispatch

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"mcpbridge/messages"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

var fs = messages.Key{Server: "fs"}

// tool makes a catalogue entry as the registry would.
func tool(server, name string, e messages.Effect, src messages.EffectSource) messages.Tool {
	return messages.Tool{Name: "mcp__" + server + "__" + name, EndpointName: server + "__" + name, Server: server, RemoteName: name,
		Effect: e, EffectSource: src, Listed: true}
}

// standard is what fs offers in most tests.
func standard() []messages.Tool {
	never := tool("fs", "long", messages.SideEffect, messages.FromConfig)
	never.Limits.AbandonNever = true
	return []messages.Tool{
		tool("fs", "hint", messages.ReadOnly, messages.FromAnnotation),
		never,
		tool("fs", "put", messages.Idempotent, messages.FromConfig),
		tool("fs", "read", messages.ReadOnly, messages.FromConfig),
		tool("fs", "write", messages.SideEffect, messages.FromDefault),
	}
}

func catalogue(version uint64, known map[string]bool, tools ...messages.Tool) *messages.Catalogue {
	slices.SortFunc(tools, func(a, b messages.Tool) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	views := map[string]func(messages.Tool) bool{"plan": func(t messages.Tool) bool { return t.Effect == messages.ReadOnly }}
	return messages.NewCatalogue(version, tools, views, known)
}

// harness drives a Core through virtual time and keeps what it said.
type harness struct {
	t        testing.TB
	core     *Core
	now      time.Time
	wake     time.Time
	ids      map[chan<- messages.Outcome]string
	settled  map[string]messages.Outcome
	execs    []messages.Exec
	cancels  []messages.CancelExec
	servers  []messages.Message
	events   []messages.Event
	drained  int
	records  []Record
	outcomes []messages.OutcomeRecord
	finds    []FindPrior
	decide   func(messages.Tool, string, string) (messages.Permission, string)
	checks   int // how often CheckArgs ran
	// onSettle and onExecute see each of them as it happens.
	onSettle  func(messages.Outcome)
	onExecute func(Execute)
	onCommand func(Command)
	onStep    func() // all commands of a step were seen
}

func newHarness(t testing.TB, edit func(*Config)) *harness {
	h := &harness{t: t, now: start, ids: map[chan<- messages.Outcome]string{}, settled: map[string]messages.Outcome{}}
	h.decide = func(messages.Tool, string, string) (messages.Permission, string) {
		return messages.Allow, "permissions[0]"
	}
	cfg := Config{
		Decide: func(t messages.Tool, client, view string) (messages.Permission, string) {
			return h.decide(t, client, view)
		},
		CheckArgs: func(_ messages.Tool, args json.RawMessage) (json.RawMessage, error) {
			h.checks++
			if string(args) == "bug" {
				panic("planted")
			}
			if len(args) == 0 {
				return json.RawMessage("{}"), nil
			}
			if args[0] != '{' {
				return nil, errors.New("not an object")
			}
			return args, nil
		},
		ListWait: 5 * time.Second,
	}
	if edit != nil {
		edit(&cfg)
	}
	h.core = New(cfg)
	return h
}

// handOut remembers an event as it was when it was handed out: others read it at any
// time, so that it must not change with the call that it is about.
func (h *harness) handOut(e messages.Event) {
	if e.Deadline == nil {
		return
	}
	at := *e.Deadline
	h.t.Cleanup(func() {
		if !e.Deadline.Equal(at) {
			h.t.Errorf("the deadline in %s changed from %s to %s after the event was handed out", e, at, *e.Deadline)
		}
	})
}

// limits are those of fs in most tests.
func limits() messages.ServerLimits {
	return messages.ServerLimits{MaxReads: 2, MaxSideEffects: 1, Queue: 4, QueueBytes: 1 << 20, CallTimeout: time.Minute, AbandonAfter: 30 * time.Second}
}

// ready has one server, fs, up in generation 1.
func ready(t testing.TB, edit func(*messages.ServerLimits)) *harness {
	h := newHarness(t, nil)
	l := limits()
	if edit != nil {
		edit(&l)
	}
	h.ready(l)
	return h
}

// ready brings fs up.
func (h *harness) ready(l messages.ServerLimits) {
	h.step(messages.ServerConfigured{Key: fs, Limits: l})
	h.step(messages.CatalogueChanged{Catalogue: catalogue(1, map[string]bool{"fs": true}, standard()...)})
	h.state(messages.StateStarting, "")
	h.up(1)
	h.state(messages.StateReady, "")
}

func (h *harness) step(m messages.Message) {
	h.t.Helper()
	h.take(h.core.Step(h.now, m, "session"))
}

func (h *harness) take(out []Command) {
	h.t.Helper()
	if h.onStep != nil {
		defer h.onStep()
	}
	for _, cmd := range out {
		if h.onCommand != nil {
			h.onCommand(cmd)
		}
		switch cmd := cmd.(type) {
		case Record:
			h.records = append(h.records, cmd)
		case RecordOutcome:
			h.outcomes = append(h.outcomes, cmd.Record)
		case FindPrior:
			h.finds = append(h.finds, cmd)
		case Settle:
			id := h.ids[cmd.Reply]
			if _, twice := h.settled[id]; twice || id == "" {
				h.t.Fatalf("call %q settled twice or unknown: %+v", id, cmd.Outcome)
			}
			h.settled[id] = cmd.Outcome
			if h.onSettle != nil {
				h.onSettle(cmd.Outcome)
			}
		case Execute:
			h.execs = append(h.execs, cmd.Exec)
			if h.onExecute != nil {
				h.onExecute(cmd)
			}
		case ToSession:
			h.cancels = append(h.cancels, cmd.Message.(messages.CancelExec))
		case ToServers:
			h.servers = append(h.servers, cmd.Message)
		case Emit:
			h.events = append(h.events, cmd.Event)
			h.handOut(cmd.Event)
		case WakeAt:
			h.wake = cmd.At
		case AnswerDrained:
			h.drained++
		case AnswerCalls:
			cmd.Reply <- cmd.Report
		case AnswerFound:
			cmd.Reply <- cmd.Found
		}
	}
}

// pass lets time go by, with a Tick whenever one was asked for.
func (h *harness) pass(d time.Duration) {
	h.t.Helper()
	end := h.now.Add(d)
	for !h.wake.IsZero() && !h.wake.After(end) {
		if h.wake.After(h.now) {
			h.now = h.wake
		}
		h.wake = time.Time{}
		h.step(messages.Tick{})
	}
	h.now = end
}

// call submits; the tool "read" means fs/read, and the id is the call's name from then on.
func (h *harness) call(id, tool string, edit ...func(*messages.Submit)) {
	h.t.Helper()
	h.step(h.makeCall(id, tool, edit...))
}

func (h *harness) makeCall(id, tool string, edit ...func(*messages.Submit)) messages.Submit {
	reply := make(chan messages.Outcome, 1)
	h.ids[reply] = id
	m := messages.Submit{Call: messages.CallTool{ID: id, Tool: "fs/" + tool, Client: "c"}, Accepted: h.now, Reply: reply}
	for _, f := range edit {
		f(&m)
	}
	return m
}

func timeout(d time.Duration) func(*messages.Submit) {
	return func(m *messages.Submit) { m.Call.Timeout = d }
}

// last is the newest attempt of a call.
func (h *harness) last(id string) messages.Exec {
	h.t.Helper()
	for _, e := range slices.Backward(h.execs) {
		if e.CallID == id {
			return e
		}
	}
	h.t.Fatalf("call %s was never handed out", id)
	return messages.Exec{}
}

func (h *harness) enter(id string) {
	h.t.Helper()
	if !h.last(id).Boundary.Enter() {
		h.t.Fatalf("call %s is void", id)
	}
}

func (h *harness) done(id string, r messages.Reply) {
	h.t.Helper()
	e := h.last(id)
	if r.Kind != messages.ReplyNotEntered {
		e.Boundary.Enter()
	}
	h.step(messages.CallDone{Key: e.Key, Gen: e.Gen, CallID: id, Attempt: e.Attempt, Reply: r})
}

var okReply = messages.Reply{Kind: messages.ReplyResult, Raw: json.RawMessage(`{"content":[]}`)}

func (h *harness) state(s messages.State, reason string) {
	h.t.Helper()
	h.step(messages.ServerStateChanged{Key: fs, State: s, Reason: reason})
}

func (h *harness) up(gen uint64) { h.t.Helper(); h.step(messages.SessionUp{Key: fs, Gen: gen}) }

func (h *harness) down(gen uint64, proven bool) {
	h.t.Helper()
	h.step(messages.SessionDown{Key: fs, Gen: gen, Proven: proven, Reason: "signal: killed"})
}

// want checks how a call ended.
func (h *harness) want(id string, kind messages.OutcomeKind, code messages.Code) messages.Outcome {
	h.t.Helper()
	o, ok := h.settled[id]
	if !ok {
		h.t.Fatalf("call %s has no outcome", id)
	}
	if o.Kind != kind || o.Code != code {
		h.t.Fatalf("call %s: %s/%s %q, want %s/%s", id, o.Kind, o.Code, o.Message, kind, code)
	}
	return o
}

func (h *harness) wantOpen(ids ...string) {
	h.t.Helper()
	for _, id := range ids {
		if o, ok := h.settled[id]; ok {
			h.t.Fatalf("call %s is settled: %s/%s %q", id, o.Kind, o.Code, o.Message)
		}
	}
}

// started lists the attempts so far as "id#attempt@generation".
func (h *harness) started() []string {
	var out []string
	for _, e := range h.execs {
		out = append(out, fmt.Sprintf("%s#%d@%d", e.CallID, e.Attempt, e.Gen))
	}
	return out
}

func (h *harness) wantStarted(want ...string) {
	h.t.Helper()
	if got := h.started(); !slices.Equal(got, want) {
		h.t.Fatalf("handed out %v, want %v", got, want)
	}
}

// saw counts the events of a type for a call ("" = any).
func (h *harness) saw(t messages.EventType, id string) (n int) {
	for _, e := range h.events {
		if e.Type == t && (id == "" || e.CallID == id) {
			n++
		}
	}
	return n
}

func (h *harness) calls() map[string]messages.CallInfo {
	ch := make(chan messages.CallsReport, 1)
	h.step(messages.QueryCalls{Reply: ch})
	out := map[string]messages.CallInfo{}
	for _, c := range (<-ch).Calls {
		out[c.CallID] = c
	}
	return out
}

// wantIdle checks that nothing is left in any structure.
func (h *harness) wantIdle() {
	h.t.Helper()
	c := h.core
	if len(c.calls) != 0 || len(c.timers) != 0 || len(c.waiting) != 0 || c.waitBytes != 0 || c.inFlight != 0 {
		h.t.Fatalf("left over: %d calls, %d timers, %d waiting (%d bytes), %d in flight", len(c.calls), len(c.timers), len(c.waiting), c.waitBytes, c.inFlight)
	}
	for _, s := range c.servers {
		if !s.lane.Empty() || s.inFlight != 0 || s.overdue != 0 {
			h.t.Fatalf("left over at %s: lane empty %v, %d in flight, %d overdue", s.key, s.lane.Empty(), s.inFlight, s.overdue)
		}
	}
	for n, cl := range c.clients {
		if cl.waits != 0 {
			h.t.Fatalf("client %s still has %d waiting", n, cl.waits)
		}
	}
}
