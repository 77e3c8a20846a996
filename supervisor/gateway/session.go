package gateway

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpbridge/internal/rawjson"
)

// session is one HTTP session of the legacy era. The SDK owns its handshake and
// its streams; this is what the gateway must know besides: whose it is, which
// calls run in it, and when it was last used.
type session struct {
	id     string
	client string
	scope  *scope
	ss     *mcp.ServerSession
	ctx    context.Context // ends with the session
	end    context.CancelFunc
	calls  inflight
	shown  shown

	mu      sync.Mutex
	streams int // requests that are open, of any method
	last    time.Time
}

// version is the protocol revision that the session agreed on, "" before it has.
func (s *session) version() string {
	ip := s.ss.InitializeParams()
	if ip == nil {
		return ""
	}
	return negotiated(ip)
}

// negotiated is what the SDK answers initialize with: the revision that was asked for, or
// the newest that has sessions.
func negotiated(ip *mcp.InitializeParams) string {
	if v := ip.ProtocolVersion; slices.Contains(mcp.SupportedProtocolVersions(), v) && !isModern(v) {
		return v
	}
	return newestSession
}

// newestSession is the newest protocol revision that has sessions.
const newestSession = "2025-11-25"

// touch counts a request in; the result counts it out.
func (s *session) touch() (done func()) {
	s.mu.Lock()
	s.streams++
	s.last = time.Now()
	s.mu.Unlock()
	return func() {
		s.mu.Lock()
		s.streams--
		s.last = time.Now()
		s.mu.Unlock()
	}
}

// idleSince tells when the session was last used; busy while a request is open.
func (s *session) idleSince() (last time.Time, busy bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last, s.streams > 0
}

// sessionTable holds the live sessions of all clients.
type sessionTable struct {
	base  context.Context
	limit int // of one client

	mu     sync.Mutex
	byID   map[string]*session
	closed bool
	waits  sync.WaitGroup // one goroutine a session, until the SDK is done with it
}

func newSessionTable(base context.Context, limit int) *sessionTable {
	return &sessionTable{base: base, limit: limit, byID: make(map[string]*session)}
}

// add takes a fresh session in. A client that is at its limit loses the session
// that it has not used for longest; false means that all of them have calls in
// flight, or that the table is closed.
func (t *sessionTable) add(id, client string, sc *scope, ss *mcp.ServerSession) bool {
	s := &session{id: id, client: client, scope: sc, ss: ss, last: time.Now()}
	s.ctx, s.end = context.WithCancel(t.base)
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		s.end()
		return false
	}
	if t.byID[id] != nil { // a second initialize, which the SDK refuses
		t.mu.Unlock()
		s.end()
		return true
	}
	victim, full := t.victim(client)
	if full && victim == nil {
		t.mu.Unlock()
		s.end()
		return false
	}
	if victim != nil {
		delete(t.byID, victim.id)
	}
	t.byID[id] = s
	t.waits.Add(1)
	t.mu.Unlock()
	if victim != nil {
		t.close(victim)
	}
	go func() {
		defer t.waits.Done()
		_ = ss.Wait() // says how the peer went, which does not matter
		t.mu.Lock()
		delete(t.byID, id)
		t.mu.Unlock()
		s.end() // its calls have nobody left to answer
	}()
	return true
}

// victim picks the session to end for a client that is at its limit: the one that
// is unused for longest, those with an open stream last, those with calls never.
func (t *sessionTable) victim(client string) (victim *session, full bool) {
	n := 0
	var oldest time.Time
	var streaming bool
	for _, s := range t.byID {
		if s.client != client {
			continue
		}
		n++
		last, busy := s.idleSince()
		if s.calls.len() > 0 {
			continue
		}
		if victim == nil || (streaming && !busy) || (streaming == busy && last.Before(oldest)) {
			victim, oldest, streaming = s, last, busy
		}
	}
	if n < t.limit {
		return nil, false
	}
	return victim, true
}

// get finds a session that belongs to the client and to the scope.
func (t *sessionTable) get(id, client string, sc *scope) *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.byID[id]
	if s == nil || s.client != client || s.scope != sc {
		return nil
	}
	return s
}

// reap ends the sessions that nobody has used since the given time.
func (t *sessionTable) reap(before time.Time) (n int) {
	t.mu.Lock()
	var old []*session
	for id, s := range t.byID {
		if last, busy := s.idleSince(); !busy && s.calls.len() == 0 && last.Before(before) {
			delete(t.byID, id)
			old = append(old, s)
		}
	}
	t.mu.Unlock()
	for _, s := range old {
		t.close(s)
	}
	return len(old)
}

// close ends one session without waiting for requests that it still serves.
func (t *sessionTable) close(s *session) {
	s.end()
	go func() { _ = s.ss.Close() }() // the waiting goroutine of add sees it through
}

// closeAll ends every session, lets no new one in, and waits until all are gone.
func (t *sessionTable) closeAll() {
	t.mu.Lock()
	t.closed = true
	all := make([]*session, 0, len(t.byID))
	for _, s := range t.byID {
		all = append(all, s)
	}
	t.mu.Unlock()
	for _, s := range all {
		t.close(s)
	}
	t.waits.Wait()
}

func (t *sessionTable) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byID)
}

// reapLoop ends sessions whose clients went away without a word.
func (g *Gateway) reapLoop() {
	tick := time.NewTicker(reapEvery)
	defer tick.Stop()
	for {
		select {
		case <-g.base.Done():
			return
		case now := <-tick.C:
			if n := g.sessions.reap(now.Add(-sessionIdle)); n > 0 {
				g.log.Debug("ended idle sessions", "count", n)
			}
		}
	}
}

// inflight is the calls of one session or stream by the client's request id.
type inflight struct {
	mu sync.Mutex
	m  map[string]*flight
}

// flight is one running call.
type flight struct {
	callID string
	leave  context.CancelFunc // tells the backend that the caller is gone
}

// add enters a call; false means that the id is taken.
func (f *inflight) add(key string, fl *flight) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.m[key]; ok {
		return false
	}
	if f.m == nil {
		f.m = make(map[string]*flight)
	}
	f.m[key] = fl
	return true
}

func (f *inflight) remove(key string) {
	f.mu.Lock()
	delete(f.m, key)
	f.mu.Unlock()
}

func (f *inflight) get(key string) *flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.m[key]
}

func (f *inflight) len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.m)
}

// cancelled handles a notifications/cancelled; it reports whether the request was
// one of these calls.
func (g *Gateway) cancelled(f *inflight, params []byte) bool {
	raw, _ := rawjson.Lookup(params, "requestId")
	key, ok := idKey(raw)
	if !ok {
		return false
	}
	fl := f.get(key)
	if fl == nil {
		return false
	}
	if !g.backend.CancelCall(fl.callID) {
		fl.leave() // so early that the backend does not know it yet, or settled just now
	}
	return true
}
