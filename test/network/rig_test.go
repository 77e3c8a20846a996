package network

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mcpbridge/messages"
	"mcpbridge/supervisor"
	"mcpbridge/test/harness"
	"mcpbridge/test/witness"
)

// rig is a bridge inside the test's process with the server that is to be hurt
// (`web`) and a neighbour on stdio (`near`).
type rig struct {
	t   testing.TB
	lab *harness.Lab
	o   *origin
	w   *wire
	b   *supervisor.Bridge

	mu    sync.Mutex
	calls []asked
	n     atomic.Int64
}

// asked is one call and what became of it.
type asked struct {
	tool, nonce string
	out         messages.Outcome
	late        time.Duration // after its deadline
}

// quickly is a policy for tests that must not wait for a backoff.
var quickly = harness.M{"backoff": harness.M{"initial": "50ms", "max": "500ms"}, "burst": 0}

// newRig makes the servers. The bridge is opened by open, after the origin was told
// what to be.
func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{t: t, lab: harness.NewLab(t)}
	r.o = newOrigin(t, r.lab, "web")
	r.w = newWire(t, r.o.Listener.Addr().String())
	return r
}

func (r *rig) url() string { return "http://" + r.w.addr + "/mcp" }

// entry is the configuration of the web server; more is merged into it.
func (r *rig) entry(more harness.M) harness.M {
	e := harness.M{"url": r.url(), "type": "http", "headers": harness.M{"Authorization": "Bearer s3cret-token"},
		"effects":  harness.M{"read": "read_only", "put": "idempotent"},
		"restart":  quickly,
		"timeouts": harness.M{"abandon_after": "200ms", "call": "20s"},
		"limits":   harness.M{"max_side_effects": 1}}
	for k, v := range more {
		e[k] = v
	}
	return e
}

// open opens the bridge and waits until both servers are ready.
func (r *rig) open(more harness.M) *rig {
	r.t.Helper()
	r.openOnly(more)
	r.await(messages.StateReady)
	return r
}

func (r *rig) openOnly(more harness.M) *rig {
	r.t.Helper()
	r.b = harness.Library(r.t, harness.Config(harness.M{"web": r.entry(more), "near": r.lab.Server(r.t, "near")}))
	harness.Neighbour(r.t, r.b, "near/read")
	r.t.Cleanup(r.judge)
	return r
}

// await waits for a state of the web server.
func (r *rig) await(s messages.State) messages.ServerStatus {
	r.t.Helper()
	var row messages.ServerStatus
	harness.Eventually(r.t, "the server is "+s.String(), func() bool {
		row, _ = r.b.Status().Server("web")
		return row.State == s
	})
	return row
}

func (r *rig) status() messages.ServerStatus {
	row, _ := r.b.Status().Server("web")
	return row
}

// call makes one call with a nonce of its own and remembers it for the judge.
func (r *rig) call(tool string, timeout time.Duration) messages.Outcome {
	r.t.Helper()
	return r.callWith(tool, timeout, nil)
}

func (r *rig) callWith(tool string, timeout time.Duration, args harness.M) messages.Outcome {
	r.t.Helper()
	a := harness.M{"nonce": fmt.Sprintf("%s-%d", tool, r.n.Add(1))}
	for k, v := range args {
		a[k] = v
	}
	raw, err := json.Marshal(a)
	if err != nil {
		r.t.Fatal(err)
	}
	began := time.Now()
	out := r.b.Call(harness.Context(r.t), messages.CallTool{Tool: "web/" + tool, Args: raw, Timeout: timeout})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, asked{tool, a["nonce"].(string), out, time.Since(began) - timeout})
	return out
}

// begun reports whether the web server has begun a call of that tool: the neighbour's calls
// stand in the same log.
func (r *rig) begun(tool string) bool {
	return slices.ContainsFunc(r.lab.History(r.t).Spans, func(s witness.Span) bool { return strings.HasPrefix(s.Nonce, tool+"-") })
}

// many makes n calls at once.
func (r *rig) many(n int, tool string, timeout time.Duration) []messages.Outcome {
	out := make([]messages.Outcome, n)
	var wg sync.WaitGroup
	for i := range out {
		wg.Go(func() { out[i] = r.call(tool, timeout) })
	}
	wg.Wait()
	return out
}

// want fails the test when an outcome is another one.
func (r *rig) want(out messages.Outcome, kind messages.OutcomeKind, code messages.Code, words ...string) {
	r.t.Helper()
	if out.Kind != kind || out.Code != code {
		r.t.Errorf("%s: %s %s: %s; want %s %s", out.RemoteTool, out.Kind, out.Code, out.ErrorText(), kind, code)
		return
	}
	for _, w := range words {
		if !strings.Contains(out.ErrorText(), w) {
			r.t.Errorf("%s: %q does not say %q", out.RemoteTool, out.ErrorText(), w)
		}
	}
}

func (r *rig) ok(out messages.Outcome) {
	r.t.Helper()
	r.want(out, messages.OK, "")
}

// begins is how often the last call of a tool was begun by the server.
func (r *rig) begins() int {
	r.mu.Lock()
	nonce := r.calls[len(r.calls)-1].nonce
	r.mu.Unlock()
	return r.lab.History(r.t).Begins(nonce)
}

// judge joins what the bridge said with what the server did: no side effect twice, no
// claim that is not true, each outcome in time.
func (r *rig) judge() {
	h := r.lab.History(r.t)
	for _, s := range h.Twice() {
		if !strings.HasPrefix(s, "put-") { // the operator said that it may be repeated
			r.t.Errorf("P1: %s", s)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.calls {
		begins, ends := h.Begins(c.nonce), h.Ends(c.nonce)
		bad := ""
		switch c.out.Kind {
		case messages.OK:
			if ends == 0 {
				bad = "ok, and it never ended"
			}
		case messages.Rejected, messages.NotSent:
			if begins > 0 {
				bad = "not sent, and it began"
			}
		case messages.OutcomeUnknown:
			if c.out.Attempt == 0 {
				bad = "unknown, and it was never dispatched"
			}
		case messages.ToolError:
		}
		if bad != "" {
			r.t.Errorf("P2: %s (%s %s): %s", c.nonce, c.out.Kind, c.out.Code, bad)
		}
		if c.late > 2*time.Second {
			r.t.Errorf("P3: %s came %s after its deadline", c.nonce, c.late)
		}
		if strings.Contains(c.out.ErrorText()+c.out.Hint, "s3cret") {
			r.t.Errorf("P14: %s tells a secret: %s", c.nonce, c.out.ErrorText())
		}
	}
}
