package supervisor

import (
	"fmt"
	"net/url"
	"runtime/debug"
	"sort"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"mcpbridge/actors"
	"mcpbridge/internal/planted"
	"mcpbridge/messages"
)

// servers is the parent of every server/<name>: it finds them by name, hands out
// spawn slots, and knows when all of them are down.
type servers struct {
	*shared
	refs     actors.Refs
	children map[string]*actor.PID
	unheard  int           // children that have not announced themselves
	up       chan struct{} // closed when all have
	slots    *limiter
	timer    *time.Timer
	running  map[string]bool   // not yet over, once StopAll has come
	done     []chan<- struct{} // who waits for that
}

// slotTick asks the limiter again.
type slotTick struct{}

func newServers(sh *shared, refs actors.Refs, up chan struct{}) *actor.Props {
	return actor.PropsFromProducer(func() actor.Actor {
		return &servers{shared: sh, refs: refs, children: map[string]*actor.PID{}, up: up, slots: newLimiter()}
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
	case announced:
		if s.unheard--; s.unheard == 0 {
			close(s.up)
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
	case messages.Operate:
		s.operate(c, m)
	case approvedServer:
		if pid := s.children[m.cfg.Name]; pid != nil {
			c.Send(pid, m)
		}
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
	s.unheard = len(s.cfg.Servers)
	if s.unheard == 0 {
		close(s.up)
		return
	}
	for _, cfg := range s.cfg.Servers {
		// Escaped, so that no server's name can be the path of another's session.
		pid, err := c.SpawnNamed(newServer(s.shared, cfg, s.refs), url.PathEscape(cfg.Name))
		if err != nil { // two servers of one name: Open refuses that
			s.log.Error("bug: a server could not be spawned", "server", cfg.Name, "err", err)
			s.unheard--
			continue
		}
		s.children[cfg.Name] = pid
	}
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
// are not down yet.
func (s *servers) stopAll(c actor.Context, m messages.StopAll) {
	if s.running == nil {
		s.running = make(map[string]bool, len(s.children))
		for name := range s.children {
			s.running[name] = true
		}
	}
	if m.Done != nil {
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
