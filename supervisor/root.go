package supervisor

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"mcpbridge/actors"
	"mcpbridge/messages"
	"mcpbridge/supervisor/consent"
)

// root is the bridge's own supervisor, one-for-one. It never escalates: above it
// there is only protoactor's guardian, which ends the process.
type root struct {
	*shared
	gate       *actors.Gate
	journaling *journaling
	consent    *consent.Store
	approver   messages.Asker
	publish    func(*messages.Snapshot)
	fast       *ownGoroutine
	servers    *atomic.Pointer[actor.PID] // the router asks for it once it is there
	up         chan<- actors.Refs         // capacity one: the tree stands
	began      chan struct{}              // closed when every server has announced itself
	down       chan<- struct{}            // closed when nothing of the tree is left

	refs actors.Refs
}

// Receive implements actor.Actor.
func (r *root) Receive(c actor.Context) {
	defer func() {
		if p := recover(); p != nil {
			r.log.Error("bug in the root supervisor", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	switch c.Message().(type) {
	case *actor.Started:
		r.started(c)
	case *actor.Stopped:
		close(r.down)
	}
}

// started spawns router, registry and servers. Each has one name for the life of the
// bridge and is never spawned again under it.
func (r *root) started(c actor.Context) {
	cfg := r.cfg.Load()
	r.refs.Router = r.spawn(c, "router", actors.NewRouter(actors.RouterConfig{
		Gate: r.gate, Emit: r.emit, Logger: r.log, ListWait: cfg.ListWait, ClientQueue: cfg.Clients.Queue, Servers: r.servers.Load,
		Journal: r.journaling.journal, RunID: r.runID, Digest: r.journaling.digest,
		Approver: r.approver,
	}), actor.WithDispatcher(r.fast))
	if grants := r.consent.TakeGrants(time.Now()); len(grants) > 0 {
		c.Send(r.refs.Router, messages.RestoreGrants{Grants: grants})
	}
	for _, f := range r.journaling.fences(cfg, r.gate, time.Now()) { // before any server can take a call
		c.Send(r.refs.Router, f)
	}
	r.refs.Registry = r.spawn(c, "registry", actors.NewRegistry(actors.RegistryConfig{
		Config: cfg, Publish: r.publish, Emit: r.emit, Router: r.refs.Router, Logger: r.log, Gate: r.gate,
		Pins: r.consent.Pins(),
	}), actor.WithReceiverMiddleware(r.stacks))
	r.refs.Servers = r.spawn(c, "servers", newServers(r.shared, r.refs, r.began))
	r.servers.Store(r.refs.Servers)
	r.up <- r.refs
}

func (r *root) spawn(c actor.Context, name string, p *actor.Props, opts ...actor.PropsOption) *actor.PID {
	pid, err := c.SpawnNamed(p.Configure(opts...), name)
	if err != nil {
		panic(err) // the root itself is spawned once, so its names are free
	}
	return pid
}

// stacks keeps the stack of a panic, which protoactor throws away. The other actors
// recover for themselves.
func (r *root) stacks(next actor.ReceiverFunc) actor.ReceiverFunc {
	return func(c actor.ReceiverContext, e *actor.MessageEnvelope) {
		defer func() {
			if p := recover(); p != nil {
				r.log.Error("bug in an actor", "actor", c.Self().GetId(), "message", fmt.Sprintf("%T", e.Message), "panic", p, "stack", string(debug.Stack()))
				panic(p)
			}
		}()
		next(c, e)
	}
}

// HandleFailure implements actor.SupervisorStrategy. Router and registry restart in
// place and keep what they know; what a server has said in the message that they failed
// on, it says again.
func (r *root) HandleFailure(sys *actor.ActorSystem, sup actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics, reason, _ any) {
	r.log.Error("an actor failed", "actor", child.GetId(), "panic", fmt.Sprint(reason))
	if child.Equal(r.refs.Router) || child.Equal(r.refs.Registry) {
		sup.RestartChildren(child)
		sys.Root.Send(r.refs.Servers, messages.Retell{})
		return
	}
	// Its children's names must not be given twice: it stays down, its sessions end
	// with it, and the bridge goes on answering.
	sup.StopChildren(child)
}

// newSystem makes an actor system of the bridge's own. Nothing of it goes to stdout
// or to protoactor's own log, and the throttle of its dead letters leaves no
// goroutine behind.
func newSystem(log *slog.Logger) *actor.ActorSystem {
	quiet := slog.New(engineHandler{log.Handler()})
	return actor.NewActorSystem(
		actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return quiet }),
		actor.WithDeadLetterThrottleInterval(time.Microsecond),
		actor.WithDeadLetterRequestLogging(false),
	)
}

// engineHandler takes the engine's own log lines at debug level: a dead letter is
// ordinary here (a late timer of a session that is gone), and a failing session is
// reported by whom it concerns. The payload of a message is replaced by its type,
// since it may hold a caller's arguments.
type engineHandler struct{ slog.Handler }

func (h engineHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return h.Handler.Enabled(ctx, demoted(l))
}

func demoted(l slog.Level) slog.Level {
	if l < slog.LevelError {
		return slog.LevelDebug
	}
	return l
}

func (h engineHandler) Handle(ctx context.Context, r slog.Record) error {
	out := slog.NewRecord(r.Time, demoted(r.Level), r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "message" {
			a = slog.String("message", fmt.Sprintf("%T", a.Value.Any()))
		}
		out.AddAttrs(a)
		return true
	})
	return h.Handler.Handle(ctx, out)
}

func (h engineHandler) WithAttrs(as []slog.Attr) slog.Handler {
	return engineHandler{h.Handler.WithAttrs(as)}
}

func (h engineHandler) WithGroup(n string) slog.Handler { return engineHandler{h.Handler.WithGroup(n)} }
