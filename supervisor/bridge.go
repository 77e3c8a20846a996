package supervisor

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"mcpbridge/actors"
	"mcpbridge/actors/upstream"
	"mcpbridge/actors/upstream/own"
	"mcpbridge/config"
	"mcpbridge/messages"
	"mcpbridge/supervisor/consent"
	"mcpbridge/supervisor/gateway"
	"mcpbridge/supervisor/internal/results"
)

// Bridge is a running bridge. Make it with Open, end it with Close. It implements
// messages.Backend, and all of its methods may be called from any goroutine,
// callbacks of its own included.
type Bridge struct {
	cfg     atomic.Pointer[config.Config] // the newest one
	given   options                       // what Open was told
	runID   string
	version string
	began   time.Time
	wait    atomic.Int64 // list_wait, or what WithStartupWait says
	log     *slog.Logger

	system  *actor.ActorSystem
	rootPID *actor.PID
	refs    actors.Refs
	fast    *ownGoroutine // the router's
	spawner *upstream.Spawner
	owner   *own.Owner
	starts  *startMemory
	defs    *definitions
	gate    *actors.Gate
	gateway *gateway.Gateway
	hub     *hub
	logs    *logbook
	ends    *ends

	journaling journaling
	results    *results.Store
	limits     atomic.Pointer[map[string]int64] // result_bytes by server
	consent    *consent.Store

	shownConfig    atomic.Pointer[config.Config] // cfg with the servers that were approved since
	refusedServers nameSet                       // ids of entries of projects that a person said no to
	turn           chan struct{}                 // capacity one: held by who changes the configuration
	refused        atomic.Pointer[refusedReload] // the last reload, where it did not happen

	url         atomic.Pointer[string]
	snapshot    atomic.Pointer[messages.Snapshot]
	changed     changes       // of the snapshot
	published   chan struct{} // closed with the first one of the registry
	publishOnce sync.Once
	lastCall    atomic.Uint64

	// door keeps Submits from passing a bridge that has begun to drain: a call that
	// is sent while it is held for reading is in the router's mailbox before DrainAll.
	door     sync.RWMutex
	shut     bool
	down     chan struct{} // closed when the tree is gone
	draining atomic.Bool
	closing  closing
}

// nameSet is a set of names that may be used from any goroutine.
type nameSet struct {
	mu    sync.Mutex
	names map[string]bool
}

func (s *nameSet) add(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names == nil {
		s.names = map[string]bool{}
	}
	s.names[name] = true
}

func (s *nameSet) has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names[name]
}

// changes wakes whoever waits for a next snapshot.
type changes struct {
	mu   sync.Mutex
	next chan struct{}
}

// after returns a channel that is closed by the next tell.
func (c *changes) after() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil {
		c.next = make(chan struct{})
	}
	return c.next
}

func (c *changes) tell() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next != nil {
		close(c.next)
		c.next = nil
	}
}

// Open starts a bridge: every enabled server whose connect mode says so is started
// side by side, and Open does not wait for them unless WithStartupWait asks it to. A
// configuration with Enabled false gives an empty bridge that starts nothing. ctx
// bounds Open itself and nothing after it. The configuration is not changed and must
// not be changed afterwards; one that was built in code gets its defaults.
//
// A broken server is no error: it is shown with its issue and costs nobody else.
func Open(ctx context.Context, cfg *config.Config, opts ...Option) (*Bridge, error) {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	cfg, err := prepare(cfg, o)
	if err != nil {
		return nil, err
	}
	if o.handler == nil {
		o.handler = slog.DiscardHandler
	}
	b := &Bridge{
		given: o, turn: make(chan struct{}, 1), runID: newRunID(), version: o.version, began: time.Now(), log: slog.New(o.handler),
		gate: actors.NewGate(cfg), hub: newHub(), logs: newLogbook(), ends: &ends{proven: map[string]bool{}}, published: make(chan struct{}), down: make(chan struct{}),
		closing: closing{hurry: make(chan struct{}), done: make(chan struct{})},
	}
	b.cfg.Store(cfg)
	b.wait.Store(int64(cfg.ListWait))
	if o.startupWait != nil {
		b.wait.Store(int64(*o.startupWait))
	}
	b.results = results.NewStore(o.stateDir)
	b.noteLimits(cfg)
	for _, f := range o.hooks {
		b.hub.subscribe(f)
	}
	// Before the journal is read: what an earlier life left running ends first.
	if err := b.openOwner(o); err != nil {
		b.hub.close()
		b.logs.close()
		return nil, fmt.Errorf("open a bridge: %w", err)
	}
	b.journaling = o.journaling
	b.journaling.openIn(o.stateDir, b.runID, cfg, b.log)
	b.journaling.complete()
	b.openConsent(o.stateDir)
	b.url.Store(&o.url)
	b.snapshot.Store(&messages.Snapshot{Catalogue: messages.NewCatalogue(0, nil, nil, nil), Issues: cfg.Issues})
	if err := b.start(ctx, o); err != nil {
		return nil, err
	}
	o.gateway.Version = cmp.Or(o.gateway.Version, o.version)
	o.gateway.Discovery, o.gateway.AskClient = b.discovery(cfg)
	b.gateway = gateway.New(b, o.gateway)
	if o.startupWait != nil {
		b.waitListed(ctx, "", true)
	}
	return b, nil
}

// prepare copies the configuration, as far as it is changed here, and refuses what
// cannot be run at all.
func prepare(given *config.Config, o options) (*config.Config, error) {
	if given == nil {
		return nil, errors.New("open a bridge: no configuration: use config.Load, or &config.Config{} with Normalize")
	}
	c := *given
	c.Servers, c.Permissions, c.ProjectRules = slices.Clone(c.Servers), slices.Clone(c.Permissions), slices.Clone(c.ProjectRules)
	c.ReservedNames = append(slices.Clone(c.ReservedNames), o.reserved...)
	c.Normalize() // what Load returned stays as it is
	seen := map[string]bool{}
	for _, s := range c.Servers {
		switch {
		case s.Name == "":
			return nil, errors.New("open a bridge: a server without a name")
		case seen[s.Name]:
			return nil, fmt.Errorf("open a bridge: two servers are named %q", s.Name)
		}
		seen[s.Name] = true
	}
	return &c, nil
}

// newRunID names this life of the bridge: time first, so that runs sort, and enough
// randomness that two never meet.
func newRunID() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	word := strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:]))
	return time.Now().UTC().Format("20060102t150405") + "-" + word
}

// start builds the actor tree and waits until every server is known to the router and
// stands in the first snapshot.
func (b *Bridge) start(ctx context.Context, o options) error {
	b.spawner, b.fast = upstream.NewOwningSpawner(b.owner), newOwnGoroutine()
	b.starts, b.defs = newStartMemory(o.stateDir, b.log), openDefinitions(o.stateDir, b.log)
	known := b.recall()
	dial := o.dial
	if dial == nil {
		dial = upstream.Dial
	}
	var gen atomic.Uint64
	up, began := make(chan actors.Refs, 1), make(chan struct{})
	r := &root{
		shared: &shared{
			cfg: &b.cfg, runID: b.runID, version: o.version, stateDir: o.stateDir, dial: dial, spawner: b.spawner,
			starts: b.starts, defs: b.defs, known: known, ends: b.ends, emit: b.hub.emit, logs: b.logs, log: b.log, nextGen: func() uint64 { return gen.Add(1) },
		},
		gate: b.gate, journaling: &b.journaling, consent: b.consent, approver: o.approver, publish: b.publish, fast: b.fast, servers: &atomic.Pointer[actor.PID]{},
		up: up, began: began, down: b.down,
	}
	b.system = newSystem(b.log)
	pid, err := b.system.Root.SpawnNamed(actor.PropsFromProducer(func() actor.Actor { return r }), "bridge")
	if err != nil {
		return fmt.Errorf("open a bridge: %w", err)
	}
	b.rootPID = pid
	select {
	case b.refs = <-up:
	case <-ctx.Done():
		return b.abandon(ctx)
	}
	for _, stands := range []<-chan struct{}{began, b.published} {
		select {
		case <-stands:
		case <-ctx.Done():
			return b.abandon(ctx)
		}
	}
	return nil
}

// recall reads what servers listed in earlier runs.
func (b *Bridge) recall() map[string]known {
	cfg, out := b.cfg.Load(), map[string]known{}
	for _, s := range cfg.Servers {
		out[s.Name] = b.recallOne(cfg, s)
	}
	b.defs.prune(cfg.Servers, time.Now())
	return out
}

// recallOne reads what a server listed in an earlier run, if it is to be started.
func (b *Bridge) recallOne(cfg *config.Config, s config.Server) (k known) {
	if s.Startable() && cfg.Enabled {
		k.stored, k.issue = b.defs.load(s)
	}
	return k
}

// abandon undoes a start that the caller no longer wants.
func (b *Bridge) abandon(ctx context.Context) error {
	b.system.Root.Stop(b.rootPID)
	<-b.down
	b.end()
	return fmt.Errorf("open a bridge: %w", ctx.Err())
}

// publish takes the registry's newest snapshot. The first one comes as soon as the
// registry runs and holds every configured server.
func (b *Bridge) publish(s *messages.Snapshot) {
	b.snapshot.Store(s)
	b.publishOnce.Do(func() { close(b.published) })
	b.changed.tell()
}

// send gives a message to an actor of the tree.
func (b *Bridge) send(to *actor.PID, m messages.Message) { b.system.Root.Send(to, m) }

// Catalogue returns the newest snapshot of every tool; never nil.
func (b *Bridge) Catalogue() *messages.Catalogue { return b.snapshot.Load().Catalogue }

// Subscribe calls f for every event from now on, in order, from one goroutine, until
// stop is called or the bridge is closed. f may call back into the bridge; one that
// is too slow loses events and hears an EventGap instead.
func (b *Bridge) Subscribe(f func(messages.Event)) (stop func()) { return b.hub.subscribe(f) }

// Events returns the remembered events after number since, oldest first; an EventGap
// comes first where some of them are forgotten.
func (b *Bridge) Events(since uint64) []messages.Event { return b.hub.since(since) }

// Logs returns the last n lines (0 = all that are remembered) of a server's stderr
// and of what the bridge says about it; "" means all servers.
func (b *Bridge) Logs(server string, n int) []messages.LogLine { return b.logs.last(server, n) }

// SubscribeLogs follows the lines of all servers, as Subscribe follows events.
func (b *Bridge) SubscribeLogs(f func(messages.LogLine)) (stop func()) { return b.logs.subscribe(f) }

// Logger is where the bridge logs; never nil.
func (b *Bridge) Logger() *slog.Logger { return b.log }

// Handler serves /mcp and /servers/{name}/mcp, to mount in a server of one's own.
// Unless WithGatewayOptions brings an authenticator everybody may call: the host
// decides who gets through to it.
func (b *Bridge) Handler() http.Handler { return b.gateway.Handler() }

// Gateway is the endpoint itself.
func (b *Bridge) Gateway() *gateway.Gateway { return b.gateway }

// Config is what the bridge runs with; it must not be changed.
func (b *Bridge) Config() *config.Config { return b.shownConfig.Load() }

// RunID names this life of the bridge; every process it starts is marked with it.
func (b *Bridge) RunID() string { return b.runID }

// SetURL changes the address that Status shows, once a listener has one.
func (b *Bridge) SetURL(u string) { b.url.Store(&u) }
