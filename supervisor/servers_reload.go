package supervisor

import (
	"fmt"
	"net/url"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"

	"mcpbridge/config"
)

// reloadServers is what a reload means for the servers; those that it does not name are
// not touched. Like approvedServer it is no part of the message set.
type reloadServers struct {
	off     bool // enabled: false of the whole bridge
	added   []serverEntry
	changed []serverEntry
	removed []string
	done    chan<- struct{} // closed when every server has taken it in
}

// serverEntry is one server of a reload.
type serverEntry struct {
	cfg     config.Server
	process bool
	known   known
}

func (e serverEntry) event(off bool) evReload {
	return evReload{cfg: e.cfg, off: off, process: e.process, stored: e.known.stored, issue: e.known.issue}
}

// reload passes a reload on. A bridge that closes has no use for it.
func (s *servers) reload(c actor.Context, m reloadServers) {
	if s.running != nil {
		close(m.done)
		return
	}
	var left atomic.Int64
	left.Store(int64(1 + len(m.added) + len(m.changed) + len(m.removed)))
	done := func() {
		if left.Add(-1) == 0 {
			close(m.done)
		}
	}
	tell := func(name string, e event) {
		if pid := s.children[name]; pid != nil {
			c.Send(pid, reloaded{e, done})
			return
		}
		s.log.Error("bug: a reload is about a server that is not there", "server", name)
		done()
	}
	for _, name := range m.removed {
		s.spawns++
		s.removed[name] = s.spawns
		tell(name, evRemove{s.spawns})
	}
	for _, e := range m.changed {
		tell(e.cfg.Name, e.event(m.off))
	}
	for _, e := range m.added {
		name := e.cfg.Name
		delete(s.removed, name)
		if s.children[name] != nil { // it was on its way out
			e.process = true
			tell(name, e.event(m.off))
			continue
		}
		// An actor's name is never given twice: somebody may still send to the one before.
		// No server's name holds a semicolon, once it is escaped.
		s.spawns++
		if !s.spawn(c, fmt.Sprintf("%s;%d", url.PathEscape(name), s.spawns), e.cfg, m.off, e.known) {
			done()
			continue
		}
		tell(name, nil)
	}
	done()
}

// gone ends the supervisor of a server that was removed, unless the server has come back
// meanwhile. While the bridge closes, everybody stays until it has said that it is down.
func (s *servers) gone(c actor.Context, m serverGone) {
	if s.running != nil || s.removed[m.name] != m.removal {
		return
	}
	delete(s.removed, m.name)
	c.Stop(s.children[m.name])
	delete(s.children, m.name)
}
