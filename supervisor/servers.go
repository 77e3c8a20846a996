package supervisor

import (
	"fmt"
	"net/url"
	"runtime/debug"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"mcpbridge/actors"
	"mcpbridge/config"
	"mcpbridge/internal/planted"
	"mcpbridge/messages"
)

// servers is the parent of every server/<name>: it finds them by name, hands out
// spawn slots, and knows when all of them are down.
type servers struct {
	*shared
	refs        actors.Refs
	children    map[string]*actor.PID
	removed     map[string]uint64 // by name: the newest removal of servers that are on their way out
	spawns      uint64            // servers that reloads have added, and removals: each has a number of its own
	unheard     int               // children that have not announced themselves
	up          chan struct{}     // closed when all have
	slots       *limiter
	timer       *time.Timer
	retellAsked time.Time
	retellTimer *time.Timer
	running     map[string]bool   // not yet over, once StopAll has come
	done        []chan<- struct{} // who waits for that
}

// slotTick asks the limiter again.
type slotTick struct{}

func newServers(sh *shared, refs actors.Refs, up chan struct{}) *actor.Props {
	return actor.PropsFromProducer(func() actor.Actor {
		return &servers{shared: sh, refs: refs, children: map[string]*actor.PID{}, removed: map[string]uint64{}, up: up, slots: newLimiter()}
	})
}

// Receive implements actor.Actor. Like its children it survives a bug in a handler.
func (s *servers) Receive(c actor.Context) {
	defer func() {
		if r := recover(); r != nil {
			s.log.Error("bug in the servers' supervisor", "panic", r, "message", fmt.Sprintf("%T", c.Message()), "stack", string(debug.Stack()))
		}
	}()
	planted.Meet("servers", c.Message())
	switch m := c.Message().(type) {
	case *actor.Started:
		s.started(c)
	case *actor.Stopping:
		if s.timer != nil {
			s.timer.Stop()
		}
		if s.retellTimer != nil {
			s.retellTimer.Stop()
		}
	case announced:
		if s.unheard > 0 { // later ones are added by a reload, which waits for them itself
			if s.unheard--; s.unheard == 0 {
				close(s.up)
			}
		}
	case messages.SlotRequest:
		s.slots.request(slotID{m.Key, m.Gen})
		s.grant(c)
	case messages.SlotRelease:
		s.slots.release(slotID{m.Key, m.Gen})
		s.grant(c)
	case slotTick:
		s.grant(c)
	case messages.RecycleServer:
		s.forward(c, m.Key, m)
	case messages.ServerDrained:
		s.forward(c, m.Key, m)
	case messages.WakeServer:
		s.forward(c, m.Key, m)
	case messages.Retell:
		s.retell(c)
	case retellDue:
		s.retellNow(c)
	case messages.Operate:
		s.operate(c, m)
	case approvedServer:
		if pid := s.children[m.cfg.Name]; pid != nil {
			c.Send(pid, m)
		}
	case reloadServers:
		s.reload(c, m)
	case serverGone:
		s.gone(c, m)
	case messages.StopAll:
		s.stopAll(c, m)
	case serverOver:
		delete(s.running, m.name)
		s.tellDone()
	}
}

// HandleFailure implements actor.SupervisorStrategy. A server recovers from its own
// bugs, so this is a bug of the bug handling: the server is stopped for good, and its
// session with it, rather than brought back in a state that nobody knows.
func (s *servers) HandleFailure(_ *actor.ActorSystem, sup actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics, reason, _ any) {
	s.log.Error("bug: a server's supervisor died", "actor", child.GetId(), "panic", fmt.Sprint(reason))
	sup.StopChildren(child)
}

func (s *servers) started(c actor.Context) {
	cfg := s.cfg.Load()
	s.unheard = len(cfg.Servers)
	if s.unheard == 0 {
		close(s.up)
		return
	}
	for _, srv := range cfg.Servers {
		if !s.spawn(c, url.PathEscape(srv.Name), srv, !cfg.Enabled, s.known[srv.Name]) {
			s.unheard--
		}
	}
}

// spawn starts the supervisor of a server. actorName is escaped, so that no server's name
// can be the path of another's session.
func (s *servers) spawn(c actor.Context, actorName string, cfg config.Server, off bool, k known) bool {
	pid, err := c.SpawnNamed(newServer(s.shared, cfg, off, k, s.refs), actorName)
	if err != nil { // two servers of one name: Open and Reload refuse that
		s.log.Error("bug: a server could not be spawned", "server", cfg.Name, "err", err)
		return false
	}
	s.children[cfg.Name] = pid
	return true
}

func (s *servers) forward(c actor.Context, key messages.Key, m messages.Message) {
	if pid := s.children[key.Server]; pid != nil {
		c.Send(pid, m)
	}
}

// grant hands out the slots that are free.
func (s *servers) grant(c actor.Context) {
	granted, again := s.slots.next(time.Now())
	for _, id := range granted {
		s.forward(c, id.key, messages.SlotGrant{Key: id.key, Gen: id.gen})
	}
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	if !again.IsZero() {
		root, self := c.ActorSystem().Root, c.Self()
		s.timer = time.AfterFunc(time.Until(again), func() { root.Send(self, slotTick{}) })
	}
}

func (s *servers) operate(c actor.Context, m messages.Operate) {
	if pid := s.children[m.Name]; pid != nil {
		c.Send(pid, m)
		return
	}
	if m.Reply != nil {
		select {
		case m.Reply <- s.unknown(m.Name):
		default:
		}
	}
}

// unknown is the answer to a name that nobody has.
func (s *servers) unknown(name string) error {
	if len(s.children) == 0 {
		return fmt.Errorf("no server is named %q: none is configured", name)
	}
	names := make([]string, 0, len(s.children))
	for n := range s.children {
		names = append(names, n)
	}
	sort.Strings(names)
	return fmt.Errorf("no server is named %q: there are %s", name, strings.Join(names, ", "))
}

// stopAll ends every server. A later one, with a shorter ladder, hurries those that
// are not down yet, and one that says the same reaches whom the first was lost on.
func (s *servers) stopAll(c actor.Context, m messages.StopAll) {
	if s.running == nil {
		s.running = make(map[string]bool, len(s.children))
		for name := range s.children {
			s.running[name] = true
		}
	}
	if m.Done != nil && !slices.Contains(s.done, m.Done) {
		s.done = append(s.done, m.Done)
	}
	for name := range s.running {
		c.Send(s.children[name], messages.StopAll{Ladder: m.Ladder})
	}
	s.tellDone()
}

// tellDone answers every StopAll when nothing runs.
func (s *servers) tellDone() {
	if s.running == nil || len(s.running) > 0 {
		return
	}
	for _, d := range s.done {
		select {
		case d <- struct{}{}:
		default:
		}
	}
	s.done = nil
}
