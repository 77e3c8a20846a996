package actors

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"mcpbridge/actors/internal/dispatch"
	"mcpbridge/internal/planted"
	"mcpbridge/messages"
)

// RouterConfig is what the router needs.
type RouterConfig struct {
	Gate        *Gate // nil denies everything
	Emit        Emit  // nil for no history
	Logger      *slog.Logger
	ListWait    time.Duration     // patience with a server that has not listed its tools yet
	ClientQueue int               // what one client may have waiting; 0 = the default
	Servers     func() *actor.PID // who hears RecycleServer, ServerDrained and WakeServer
	// Journal records side effects before they are sent; nil for no journal.
	Journal messages.Journal
	// RunID names this life of the bridge in the journal.
	RunID string
	// Approver is asked about every call that needs approval, on a goroutine of its own;
	// nil leaves them to the queue and to whoever calls.
	Approver messages.Asker
	// Digest is the keyed digest of arguments that the journal's entries carry. It
	// must be the one that the callers use. nil makes one for this run alone.
	Digest Digest
}

// NewRouter returns the properties of the router: gate, lanes, the table of calls
// and the one place where a call ends. All decisions are package dispatch's; this
// actor brings it time and messages and carries out what it says.
//
// When the actor is stopped, every call that is still open gets its outcome.
func NewRouter(cfg RouterConfig) *actor.Props {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Emit == nil {
		cfg.Emit = func(messages.Event) {}
	}
	if cfg.Gate == nil {
		cfg.Gate = NewGate(nil)
	}
	// One core for the life of the actor, whatever becomes of the instance: the
	// calls in it outlive a restart.
	core := dispatch.New(dispatch.Config{
		Decide: cfg.Gate.Decide, CheckArgs: cfg.Gate.CheckArgs, ListWait: cfg.ListWait, ClientQueue: cfg.ClientQueue,
		Journal: cfg.Journal != nil, RunID: cfg.RunID, Digest: cfg.Digest,
		Approver: cfg.Approver != nil,
	})
	return actor.PropsFromProducer(func() actor.Actor { return &router{cfg: cfg, core: core} })
}

type router struct {
	cfg   RouterConfig
	core  *dispatch.Core
	timer *time.Timer
	asked map[uint64]context.CancelFunc // questions that are open
}

// Receive implements actor.Actor.
func (r *router) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case messages.SessionUp:
		// A session that cannot be addressed would swallow every call.
		if ctx.Sender() == nil {
			r.cfg.Logger.Error("bug: a session came up without an address", "server", m.Key.String(), "generation", m.Gen)
			return
		}
		r.step(ctx, m, ctx.Sender())
	case messages.Message:
		r.step(ctx, m, nil)
	case *actor.Stopping:
		if r.timer != nil {
			r.timer.Stop()
		}
		for _, cancel := range r.asked {
			cancel()
		}
		r.guard("stopping", func() { r.carryOut(ctx, r.core.Close(time.Now())) })
	}
}

// step brings one message to the core. A bug in there costs the call that it hit,
// not the others.
func (r *router) step(ctx actor.Context, m messages.Message, from dispatch.SessionRef) {
	out, lost := r.decide(m, from)
	r.carryOut(ctx, out)
	if lost { // it may have been a server's word
		r.guard("retelling", func() { r.tellServers(ctx, messages.Retell{}) })
	}
}

func (r *router) decide(m messages.Message, from dispatch.SessionRef) (out []dispatch.Command, lost bool) {
	if a, ok := m.(messages.Answered); ok {
		r.stopAsking(a.Token)
	}
	defer func() {
		if p := recover(); p != nil {
			r.cfg.Logger.Error("bug in the router", "panic", p, "message", messageName(m), "stack", string(debug.Stack()))
			out, lost = r.core.Abort(time.Now(), m), true
		}
	}()
	planted.Meet("router", m)
	return r.core.Step(time.Now(), m, from), false
}

func (r *router) carryOut(ctx actor.Context, commands []dispatch.Command) {
	for _, cmd := range commands {
		r.guard("command", func() { r.do(ctx, cmd) })
	}
}

// guard keeps a panic of a hook from costing the commands that follow.
func (r *router) guard(what string, f func()) {
	defer func() {
		if p := recover(); p != nil {
			r.cfg.Logger.Error("bug in the router's shell", "at", what, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	f()
}

func (r *router) do(ctx actor.Context, cmd dispatch.Command) {
	switch cmd := cmd.(type) {
	case dispatch.Execute:
		p := &progress{root: ctx.ActorSystem().Root, router: ctx.Self(), logger: r.cfg.Logger, told: cmd.OnProgress, born: time.Now(),
			alive: messages.CallProgress{Key: cmd.Exec.Key, Gen: cmd.Exec.Gen, CallID: cmd.Exec.CallID}}
		cmd.Exec.Progress = p.report
		ctx.Send(address(cmd.Session), messages.Execute{Exec: cmd.Exec})
	case dispatch.Record:
		r.record(ctx, cmd)
	case dispatch.FindPrior:
		r.find(ctx, cmd)
	case dispatch.RecordOutcome:
		r.cfg.Journal.Outcome(cmd.Record)
	case dispatch.Ask:
		r.ask(ctx, cmd)
	case dispatch.StopAsking:
		r.stopAsking(cmd.Token)
	case dispatch.AnswerApprovals:
		offer(cmd.Reply, cmd.Approvals)
	case dispatch.AnswerGrants:
		offer(cmd.Reply, cmd.Grants)
	case dispatch.AnswerDecided:
		offer(cmd.Reply, cmd.Approval)
	case dispatch.ToSession:
		ctx.Send(address(cmd.Session), cmd.Message)
	case dispatch.ToServers:
		r.tellServers(ctx, cmd.Message)
	case dispatch.Settle:
		select {
		case cmd.Reply <- cmd.Outcome:
		default:
			r.cfg.Logger.Error("bug: nobody can take the outcome of a call", "call", cmd.Outcome.CallID, "outcome", cmd.Outcome.Kind.String())
		}
	case dispatch.Emit:
		r.cfg.Emit(cmd.Event)
	case dispatch.WakeAt:
		r.wakeAt(ctx, cmd.At)
	case dispatch.AnswerCalls:
		offer(cmd.Reply, cmd.Report)
	case dispatch.AnswerFound:
		offer(cmd.Reply, cmd.Found)
	case dispatch.AnswerDrained:
		offer(cmd.Done, struct{}{})
	}
}

// record asks the journal, and brings its answer back as a message. A journal with
// a bug says no: what it cannot promise is not sent.
func (r *router) record(ctx actor.Context, cmd dispatch.Record) {
	root, self := ctx.ActorSystem().Root, ctx.Self()
	answer := messages.Recorded{CallID: cmd.Record.CallID, Attempt: cmd.Record.Attempt, Token: cmd.Token}
	defer func() {
		if p := recover(); p != nil {
			r.cfg.Logger.Error("bug in the journal", "panic", p, "stack", string(debug.Stack()))
			answer.Err = "bug in the bridge; its log has the details"
			root.Send(self, answer)
		}
	}()
	said := answer
	r.cfg.Journal.Dispatch(cmd.Record, func(err error) {
		answer := said
		if err != nil {
			answer.Err = err.Error()
		}
		root.Send(self, answer)
	})
}

// find asks the journal about a key, which may take a while.
func (r *router) find(ctx actor.Context, cmd dispatch.FindPrior) {
	root, self, journal, logger := ctx.ActorSystem().Root, ctx.Self(), r.cfg.Journal, r.cfg.Logger
	go func() {
		m := messages.PriorFound{CallID: cmd.CallID, Token: cmd.Token}
		defer func() {
			if p := recover(); p != nil { // the call ends at its deadline: nobody can say what was sent before
				logger.Error("bug in the journal", "panic", p, "stack", string(debug.Stack()))
				return
			}
			root.Send(self, m)
		}()
		if e, ok := journal.Find(cmd.Client, cmd.Server, cmd.Tool, cmd.Key); ok {
			m.Entry = &e
		}
	}()
}

// address is the session behind a handle: SessionUp brought it.
func address(ref dispatch.SessionRef) *actor.PID {
	pid, _ := ref.(*actor.PID)
	return pid
}

func (r *router) tellServers(ctx actor.Context, m messages.Message) {
	var to *actor.PID
	if r.cfg.Servers != nil {
		to = r.cfg.Servers()
	}
	if to == nil {
		r.cfg.Logger.Warn("no server supervisor to tell", "message", messageName(m))
		return
	}
	ctx.Send(to, m)
}

// wakeAt arms the one timer.
func (r *router) wakeAt(ctx actor.Context, at time.Time) {
	d := max(time.Until(at), 0)
	if r.timer != nil {
		r.timer.Reset(d)
		return
	}
	root, self := ctx.ActorSystem().Root, ctx.Self()
	r.timer = time.AfterFunc(d, func() { root.Send(self, messages.Tick{}) })
}

// offer answers without waiting: the channel has room, or nobody listens.
func offer[T any](to chan<- T, v T) {
	select {
	case to <- v:
	default:
	}
}

// messageName names a message for the log; its content may hold arguments.
func messageName(m messages.Message) string {
	switch m := m.(type) {
	case messages.Submit:
		return "submit " + m.Call.ID
	case messages.CallDone:
		return "call_done " + m.CallID
	default:
		return fmt.Sprintf("%T", m)
	}
}

// progress passes a server's progress on, and tells the router now and then that
// the call is alive.
type progress struct {
	root   *actor.RootContext
	router *actor.PID
	logger *slog.Logger
	told   func(json.RawMessage)
	alive  messages.CallProgress
	born   time.Time
	last   atomic.Int64 // when the router heard last, counted from born; 0 for never
}

// aliveEvery is how often the router hears of one call's progress: what it restarts
// is counted in seconds, and a server may send thousands.
const aliveEvery = time.Second

func (p *progress) report(params json.RawMessage) {
	if p.told != nil {
		p.tell(params)
	}
	now, last := max(int64(time.Since(p.born)), 1), p.last.Load() // no wall clock: it may be set back
	if (last == 0 || now-last >= int64(aliveEvery)) && p.last.CompareAndSwap(last, now) {
		p.root.Send(p.router, p.alive)
	}
}

// tell calls the caller's hook, which runs on the goroutine that reads the
// server's answers: its panic must not end them all.
func (p *progress) tell(params json.RawMessage) {
	defer func() {
		if bug := recover(); bug != nil {
			p.logger.Error("bug in a progress hook", "call", p.alive.CallID, "panic", bug, "stack", string(debug.Stack()))
		}
	}()
	p.told(params)
}
