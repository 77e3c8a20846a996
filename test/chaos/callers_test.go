//go:build linux

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcpbridge/messages"
	"mcpbridge/supervisor/control"
	"mcpbridge/test/history"
	"mcpbridge/test/witness"
)

// crowd is everybody who calls.
type crowd struct {
	realm     *realm
	residents []*resident
	stop      chan struct{}
	wg        sync.WaitGroup
	next      atomic.Int64

	mu         sync.Mutex
	calls      []history.Call
	kills      []history.Kill
	operations []history.Operation
}

// begin starts n callers that go on until stop is closed.
func (c *crowd) begin(n int, seed uint64) {
	for i := range n {
		c.wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			for {
				select {
				case <-c.stop:
					return
				default:
				}
				n := c.realm.current(c.stop)
				if n == nil {
					return
				}
				if call := c.call(n, c.wish(rng)); call.Outcome == history.NoDaemon || call.Code == messages.CodeDraining {
					select { // it is on its way down, and nobody said so yet
					case <-n.Gone():
					case <-time.After(50 * time.Millisecond):
					}
				}
			}
		})
	}
}

// wish is what a caller wants, and how it will behave.
type wish struct {
	server  *resident
	tool    string
	effect  messages.Effect
	args    map[string]any
	timeout time.Duration
	fault   string
	cancel  time.Duration // asks for the end after that long; 0 = never
	leave   time.Duration // hangs up after that long
}

// faults of single calls. Those that end the server are rare enough for others to
// get through between them.
var (
	fatal    = []string{"crash-before-begin", "crash-after-begin", "crash-after-end", "half-frame"}
	harmless = []string{"noise", "dup-reply", "late-reply", "wrong-id", "string-id", "no-body"}
)

func (c *crowd) wish(rng *rand.Rand) wish {
	w := wish{server: c.residents[rng.IntN(len(c.residents))], tool: "read", effect: messages.ReadOnly, timeout: 4 * time.Second}
	switch p := rng.IntN(100); {
	case p < 32:
		w.tool, w.effect = "write", messages.SideEffect
	case p < 40:
		w.tool, w.effect = "put", messages.Idempotent
	case p < 42: // fails politely
		w.tool = "fail"
	case p < 44: // fails in JSON-RPC
		w.tool = "rpc_error"
	}
	w.args = map[string]any{"sleep_ms": rng.IntN(12)}
	switch p := rng.IntN(1000); {
	case p < 8:
		w.fault = fatal[rng.IntN(len(fatal))]
	case p < 40:
		w.fault = harmless[rng.IntN(len(harmless))]
	case p < 46: // the reply is lost
		w.fault, w.timeout = "never", time.Duration(100+rng.IntN(300))*time.Millisecond
	case p < 60: // the reply is slow
		w.args["sleep_ms"] = 200 + rng.IntN(600)
	case p < 72: // … slower than its caller
		w.args["sleep_ms"], w.timeout = 150+rng.IntN(700), time.Duration(40+rng.IntN(200))*time.Millisecond
	case p < 130:
		w.timeout = time.Duration(1+rng.IntN(60)) * time.Millisecond
	case p < 160:
		w.args["sleep_ms"], w.cancel = rng.IntN(200), time.Duration(1+rng.IntN(150))*time.Millisecond
	case p < 180:
		w.args["sleep_ms"], w.leave = rng.IntN(200), time.Duration(1+rng.IntN(150))*time.Millisecond
	case p < 185 && w.effect != messages.ReadOnly: // more than a pipe holds
		w.args["text"] = strings.Repeat("x", 300<<10)
	}
	if w.fault != "" {
		w.args["fault"] = w.fault
	}
	return w
}

// patience is how long after its deadline a caller still waits; then it never came back.
const patience = 10 * time.Second

// call makes one call and writes it down.
func (c *crowd) call(n *reign, w wish) history.Call { return c.callAs(c.id(), n, w) }

func (c *crowd) id() string { return fmt.Sprintf("storm-%d", c.next.Add(1)) }

func (c *crowd) callAs(id string, n *reign, w wish) history.Call {
	call := history.Call{ID: id, Nonce: "n" + strings.TrimPrefix(id, "storm-"), Server: w.server.Name, Tool: w.tool, Effect: w.effect,
		Client: "local", Run: n.RunID, Timeout: w.timeout}
	w.args["nonce"] = call.Nonce
	args, _ := json.Marshal(w.args)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var never atomic.Bool
	defer time.AfterFunc(w.timeout+patience, func() { never.Store(true); cancel() }).Stop()
	if w.leave > 0 {
		defer time.AfterFunc(w.leave, cancel).Stop()
	}
	if w.cancel > 0 {
		defer time.AfterFunc(w.cancel, func() { _ = n.client.Cancel(ctx, call.ID) }).Stop()
	}
	call.Errs = w.tool == "fail" || w.tool == "rpc_error"
	call.Invoked = witness.Now()
	o, err := n.client.Call(ctx, control.CallRequest{ID: call.ID, Tool: w.server.Name + "/" + w.tool, Args: string(args), Timeout: control.Duration(w.timeout)}, nil)
	call.Returned = witness.Now()
	var none *control.NoDaemonError
	var refused *control.Error
	switch {
	case err == nil:
		call.Outcome, call.Code, call.Sent, call.Attempt, call.Generation = o.Kind.String(), o.Code, o.Sent(), o.Attempt, o.Generation
		call.Answer = spokenOf(o.Result)
	case errors.As(err, &none):
		call.Outcome = history.NoDaemon
	case errors.As(err, &refused):
		call.Outcome, call.Code = history.NoDaemon, messages.Code(refused.Code)
	case never.Load():
		call.Outcome, call.Returned = history.NoAnswer, 0
	case ctx.Err() != nil:
		call.Outcome = history.Left
	default:
		call.Outcome = history.NoAnswer
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, call)
	switch {
	case w.fault != "":
		c.note("call: "+w.fault, w.server.Name, 0, call.Invoked)
	case w.cancel > 0:
		c.note("call: cancelled", w.server.Name, 0, call.Invoked)
	case w.leave > 0:
		c.note("call: caller hangs up", w.server.Name, 0, call.Invoked)
	case w.timeout < 100*time.Millisecond:
		c.note("call: short deadline", w.server.Name, 0, call.Invoked)
	case w.args["text"] != nil:
		c.note("call: 300 KiB of arguments", w.server.Name, 0, call.Invoked)
	}
	return call
}

// spokenOf is the nonce that an answer of the fixture's read, write or put speaks of.
func spokenOf(result json.RawMessage) string {
	var r struct {
		Content []struct{ Text string }
	}
	if json.Unmarshal(result, &r) != nil || len(r.Content) != 1 {
		return ""
	}
	for _, did := range []string{"read ", "wrote "} {
		if nonce, ok := strings.CutPrefix(r.Content[0].Text, did); ok {
			return nonce
		}
	}
	return ""
}

// lastWords asks each remote server for a side effect that outlasts the daemon, and waits
// until it has been sent: the next daemon must know that somebody may still be at work.
func (c *crowd) lastWords() {
	n := c.realm.now
	var ids []string
	for _, r := range c.residents {
		if !r.Remote {
			continue
		}
		w := wish{server: r, tool: "write", effect: messages.SideEffect, args: map[string]any{"sleep_ms": 3000}, timeout: 4 * time.Second}
		id := c.id()
		ids = append(ids, id)
		c.wg.Go(func() { c.callAs(id, n, w) })
	}
	for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if !slices.ContainsFunc(ids, func(id string) bool { return !n.dispatched(id) }) {
			return
		}
	}
}

// note writes a fault down; mu must be held.
func (c *crowd) note(what, name string, pid int, at int64) {
	c.kills = append(c.kills, history.Kill{What: what, Name: name, PID: pid, At: at})
}

func (c *crowd) did(what, name string, pid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note(what, name, pid, witness.Now())
}
