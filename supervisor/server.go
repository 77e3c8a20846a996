package supervisor

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"mcpbridge/actors"
	"mcpbridge/actors/upstream"
	"mcpbridge/config"
	"mcpbridge/internal/planted"
	"mcpbridge/messages"
)

// shared is what every actor of one bridge's tree is built with.
type shared struct {
	cfg      *atomic.Pointer[config.Config] // the newest one
	runID    string
	version  string
	stateDir string
	dial     upstream.DialFunc
	spawner  *upstream.Spawner
	starts   *startMemory
	defs     *definitions
	known    map[string]known // by server: what the start found of earlier runs
	emit     actors.Emit
	logs     *logbook
	log      *slog.Logger
	nextGen  func() uint64
	ends     *ends
}

// ends collects how the servers ended, for the last word of Close.
type ends struct {
	mu     sync.Mutex
	proven map[string]bool
}

func (e *ends) note(server string, proven bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.proven[server] = proven
}

func (e *ends) forget(server string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.proven, server)
}

// left names the servers that are not proven to have ended.
func (e *ends) left(servers []config.Server) (names []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range servers {
		if _, heard := e.proven[s.Name]; !heard {
			names = append(names, s.Name)
		}
	}
	for name, proven := range e.proven { // also those that a reload has removed
		if !proven {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// server is the shell around one machine: it carries the machine's commands out,
// and turns messages, timers and the end of its child into the machine's events. It
// does no I/O and lives as long as the bridge.
type server struct {
	*shared
	cfg  config.Server
	refs actors.Refs
	m    *machine
	rng  *rand.Rand

	child     *actor.PID // the live session
	childGen  uint64
	report    *atomic.Pointer[messages.Exit] // of the live session: how it ended
	looked    int                            // how often that was looked for, after a bug
	exits     map[uint64]messages.Exit       // how sessions ended, until they are down
	timers    map[timerKind]*time.Timer
	skipProbe bool
	told      map[messages.Issue]bool // listing issues that were told
	words     string                  // the live server's instructions
	reply     chan<- error            // of the Operate that is being handled
}

// known is what earlier runs left of a server.
type known struct {
	stored *stored
	issue  *messages.Issue // of what could not be read
}

func newServer(sh *shared, cfg config.Server, off bool, k known, refs actors.Refs) *actor.Props {
	return actor.PropsFromProducer(func() actor.Actor {
		m := newMachine(cfg, sh.nextGen)
		m.bridgeOff, m.stored = off, k.stored
		if k.issue != nil {
			m.row.Issues = []messages.Issue{*k.issue}
		}
		return &server{
			shared: sh, cfg: cfg, refs: refs, m: m, rng: seeded(sh.runID, cfg.Name),
			exits: map[uint64]messages.Exit{}, timers: map[timerKind]*time.Timer{}, told: map[messages.Issue]bool{},
		}
	})
}

// seeded makes the jitter of a server reproducible from the run's name.
func seeded(runID, name string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(runID))
	a := h.Sum64()
	_, _ = h.Write([]byte(name))
	return rand.New(rand.NewPCG(a, h.Sum64()))
}

// What servers and its children say to each other beside the public messages.
type (
	// announced says that router and registry have been told about a server.
	announced struct{ name string }
	// sessionGone is a session's Terminated, in line.
	sessionGone struct{ gen uint64 }
	// serverOver says that a server is down for good.
	serverOver struct{ name string }
	// serverGone says that nothing is left of a server that was removed.
	serverGone struct {
		name    string
		removal uint64
	}
	// reloaded brings a server what a reload means for it; nil for one that begins with
	// it. done is called once it is taken in.
	reloaded struct {
		event event
		done  func()
	}
)

// Receive implements actor.Actor. This is the error kernel: a bug in here is logged
// and costs one message, never the machine.
func (s *server) Receive(c actor.Context) {
	defer func() {
		if r := recover(); r != nil {
			s.log.Error("bug in a server's supervisor", "server", s.cfg.Name, "panic", r, "message", fmt.Sprintf("%T", c.Message()), "stack", string(debug.Stack()))
			s.answer(fmt.Errorf("bug in the bridge: %v", r))
			s.lookAgain(c)
		}
	}()
	planted.Meet("server", c.Message())
	switch m := c.Message().(type) {
	case *actor.Started:
		s.step(c, evBoot{})
		c.Send(c.Parent(), announced{s.cfg.Name})
	case *actor.Terminated:
		// A system message overtakes ordinary ones: by taking its place in the line,
		// the end comes after the session's own last words.
		if s.child != nil && s.child.Equal(m.Who) {
			c.Send(c.Self(), sessionGone{s.childGen})
		}
	case sessionGone:
		s.gone(c, m.gen)
	case *actor.Stopping:
		for _, t := range s.timers {
			t.Stop()
		}
	case messages.SlotGrant:
		s.step(c, evSlot{m.Gen})
	case messages.SessionSpawned:
		s.step(c, evSpawned{m.Gen, m.PID})
	case messages.SessionReady:
		s.starts.succeeded(s.cfg)
		s.skipProbe = m.Info.SkipProbe
		s.words = clipWords(m.Info.Instructions)
		m.Info.Instructions = s.words
		s.step(c, evReady{m.Gen, m.Info, m.Listing})
		s.defs.save(s.cfg, m.Listing, s.words)
		s.tellIssues(m.Gen, m.Listing)
	case messages.ToolsListed:
		s.step(c, evListed{m.Gen, m.Listing})
		if !m.Failed {
			s.defs.save(s.cfg, m.Listing, s.words)
		}
		s.tellIssues(m.Gen, m.Listing)
	case messages.SessionLost:
		s.step(c, evLost{m.Gen})
	case messages.SessionNoise:
		s.step(c, evNoise{m.Gen, m.Lines, m.Degraded})
	case messages.SessionEnded:
		s.exits[m.Gen] = m.Exit
	case messages.ServerTimer:
		s.step(c, evTimer{timerKind(m.Kind), m.Token})
	case messages.RecycleServer:
		s.step(c, evRecycle{m.Gen, m.Reason})
	case messages.ServerDrained:
		s.step(c, evDrained{})
	case messages.WakeServer:
		s.step(c, evWake{})
	case messages.Retell:
		s.step(c, evRetell{})
	case messages.Operate:
		s.reply = m.Reply
		s.step(c, evOperate{m.Verb})
	case approvedServer:
		s.step(c, evApproved{m.cfg})
		close(m.done)
	case reloaded:
		switch m.event.(type) {
		case evRemove: // no configuration names it any more, should it be left over
			s.ends.note(s.cfg.Name, false)
		case evReload:
			s.ends.forget(s.cfg.Name)
		}
		if m.event != nil {
			s.step(c, m.event)
		}
		m.done()
	case messages.StopAll:
		s.step(c, evStopAll{m.Ladder})
	}
}

// HandleFailure implements actor.SupervisorStrategy: whatever a session dies of, it
// is stopped, never restarted in place. The one Terminated that follows goes to the
// machine.
func (s *server) HandleFailure(_ *actor.ActorSystem, sup actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics, reason, _ any) {
	if f, ok := reason.(*actors.SessionFailure); ok {
		s.exits[f.Gen] = f.Exit
	} else {
		s.log.Error("bug: a session died of something that is no failure of its server", "server", s.cfg.Name, "panic", fmt.Sprint(reason))
	}
	sup.StopChildren(child)
}

// gone is the one end of every session, however it came.
func (s *server) gone(c actor.Context, gen uint64) {
	if s.child == nil || s.childGen != gen {
		return
	}
	s.child = nil
	exit, ok := s.exits[gen]
	if said := s.report.Load(); !ok && said != nil {
		exit, ok = *said, true
	}
	if !ok { // it ended without a word: nobody has proven anything
		exit = messages.Exit{Reason: "the session ended without a report", Stage: messages.StageRunning, At: time.Now(), TreeAlive: !s.cfg.Remote()}
	}
	clear(s.exits)
	if exit.Stage == messages.StageHandshake || exit.SkipProbe {
		s.skipProbe = exit.SkipProbe
	}
	s.step(c, evDown{gen, exit})
}

// step feeds the machine and carries out what it says.
func (s *server) step(c actor.Context, e event) {
	commands := s.m.step(time.Now(), s.rng.Float64(), e)
	s.cfg = s.m.cfg // the entry that counts
	for _, cmd := range commands {
		s.carryOut(c, cmd)
	}
}

func (s *server) carryOut(c actor.Context, cmd command) {
	key := s.cfg.Key()
	switch cmd := cmd.(type) {
	case cmdRequestSlot:
		c.Send(c.Parent(), messages.SlotRequest{Key: key, Gen: cmd.Gen})
	case cmdReleaseSlot:
		c.Send(c.Parent(), messages.SlotRelease{Key: key, Gen: cmd.Gen})
	case cmdSpawn:
		s.spawn(c, cmd.Gen)
	case cmdStopSession:
		if s.child != nil && s.childGen == cmd.Gen {
			c.Send(s.child, messages.StopSession{Gen: cmd.Gen, Ladder: cmd.Ladder, Reason: cmd.Reason})
		}
	case cmdAbandon:
		if s.child != nil && s.childGen == cmd.Gen {
			s.log.Error("a session did not end and is given up", "server", s.cfg.Name, "generation", cmd.Gen)
			c.Stop(s.child)
		}
	case cmdSetTimer:
		s.setTimer(c, cmd)
	case cmdCancelTimer:
		if t := s.timers[cmd.Kind]; t != nil {
			t.Stop()
			delete(s.timers, cmd.Kind)
		}
	case cmdRouter:
		c.Send(s.refs.Router, cmd.Message)
	case cmdSessionUp:
		if s.child != nil { // the router answers the sender
			c.RequestWithCustomSender(s.refs.Registry, messages.SessionUp{Key: key, Gen: cmd.Gen}, s.child)
		}
	case cmdRegistry:
		c.Send(s.refs.Registry, cmd.Message)
	case cmdEmit:
		s.emit(cmd.Event)
	case cmdSay:
		s.logs.add(s.cfg.Name, sourceBridge, cmd.Text)
		level := slog.LevelInfo
		if cmd.Bad {
			level = slog.LevelWarn
		}
		s.log.Log(context.Background(), level, cmd.Text, "server", s.cfg.Name)
	case cmdAnswer:
		s.answer(cmd.Err)
	case cmdOver:
		s.ends.note(s.cfg.Name, !s.m.treeAlive)
		c.Send(c.Parent(), serverOver{s.cfg.Name})
	case cmdGone:
		s.ends.forget(s.cfg.Name)
		c.Send(c.Parent(), serverGone{s.cfg.Name, cmd.removal})
	}
}

// answer answers the Operate that is being handled, once.
func (s *server) answer(err error) {
	if s.reply != nil {
		select {
		case s.reply <- err:
		default:
		}
		s.reply = nil
	}
}

// setTimer starts a timer whose message carries the machine's token.
func (s *server) setTimer(c actor.Context, t cmdSetTimer) {
	if old := s.timers[t.Kind]; old != nil {
		old.Stop()
	}
	root, self := c.ActorSystem().Root, c.Self()
	m := messages.ServerTimer{Key: s.cfg.Key(), Kind: string(t.Kind), Token: t.Token}
	s.timers[t.Kind] = time.AfterFunc(t.After, func() { root.Send(self, m) })
}

// spawn starts the session of one generation. Its name holds the generation, which
// is never used twice: an actor's name must not be given again while somebody may
// still send to it.
func (s *server) spawn(c actor.Context, gen uint64) {
	name := s.cfg.Name
	s.report, s.looked = new(atomic.Pointer[messages.Exit]), 0
	props := actors.NewSession(actors.SessionConfig{
		Key: s.cfg.Key(), Gen: gen, Dial: s.dial, Router: s.refs.Router, Logger: s.log, Report: s.report,
		Options: upstream.Options{
			Server: s.cfg, Gen: gen, RunID: s.runID, ClientInfo: s.shared.cfg.Load().ClientInfo, Version: s.version,
			StateDir: s.stateDir, Spawner: s.spawner, Logger: s.log, Budget: s.starts.budget(s.cfg), SkipProbe: s.skipProbe,
			OnStderr: func(line string) { s.logs.add(name, sourceStderr, line) },
		},
	})
	child, err := c.SpawnNamed(props, strconv.FormatUint(gen, 10))
	if err != nil { // a generation was used twice
		s.log.Error("bug: a session could not be spawned", "server", name, "generation", gen, "err", err)
		s.step(c, evDown{gen, messages.Exit{Reason: "bug in the bridge: " + err.Error(), Stage: messages.StageSpawn, At: time.Now()}})
		return
	}
	s.child, s.childGen = child, gen
}

// tellIssues puts each new issue of a listing into the history, once.
func (s *server) tellIssues(gen uint64, l messages.Listing) {
	for _, i := range l.Issues {
		if s.told[i] || len(s.told) >= issuesTold {
			continue
		}
		s.told[i] = true
		s.emit(messages.Event{Type: messages.EventServerIssue, Server: s.cfg.Name, Generation: gen, Stage: i.Stage, Tool: i.Tool, Message: i.Message})
		s.logs.add(s.cfg.Name, sourceBridge, "issue: "+i.String())
	}
}

// issuesTold bounds what one server can write into the history by listing nonsense.
const issuesTold = 1000
