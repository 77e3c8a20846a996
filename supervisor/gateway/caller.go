package gateway

import (
	"context"
	"slices"
	"sync"

	"mcpbridge/messages"
)

// caller is who lists and calls: a client, what it was shown last, and how it can be
// asked.
type caller struct {
	client string
	shown  *shown
	ask    messages.Asker // nil where it cannot be asked
}

// shown is what one session (or one client of the stateless era in one scope) was
// told of the tools last: a call is for the definition that its caller has seen, and
// for no later one.
type shown struct {
	mu    sync.Mutex
	pages []shownPage
}

// shownPage is a piece of a listing; the slices are the listing's own.
type shownPage struct{ names, digests []string }

// maxShownPages bounds what a client can have remembered by walking on and on.
const maxShownPages = 64

// record notes one page; the first page of a list makes everything before it past.
func (s *shown) record(l *listing, from, to int) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if from == 0 {
		s.pages = nil
	}
	if len(s.pages) == maxShownPages {
		s.pages = slices.Delete(s.pages, 0, 1)
	}
	s.pages = append(s.pages, shownPage{l.names[from:to], l.digests[from:to]})
}

// describe notes one definition that was shown by itself.
func (s *shown) describe(name, digest string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pages) == maxShownPages {
		s.pages = slices.Delete(s.pages, 0, 1)
	}
	s.pages = append(s.pages, shownPage{[]string{name}, []string{digest}})
}

// digest is the definition that was shown under a name; "" for none.
func (s *shown) digest(name string) string {
	if s == nil {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.pages) - 1; i >= 0; i-- {
		if at, ok := slices.BinarySearch(s.pages[i].names, name); ok {
			return s.pages[i].digests[at]
		}
	}
	return ""
}

// seen is the digest of what the caller was shown of a tool that it calls by any of
// its names.
func (sc *scope) seen(s *shown, name string) string {
	if d := s.digest(name); d != "" {
		return d
	}
	if sc.key.server != "" {
		return ""
	}
	if t, ok := sc.g.backend.Catalogue().Lookup(name); ok {
		return s.digest(sc.wireName(t))
	}
	return ""
}

// statelessKey names what a client of the stateless era was shown.
type statelessKey struct {
	client string
	scope  scopeKey
}

// maxStateless bounds them: names of clients may come from the host program.
const maxStateless = 1024

func (g *Gateway) shownTo(client string, sc *scope) *shown {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := statelessKey{client, sc.key}
	s := g.shownStateless[key]
	if s == nil {
		if len(g.shownStateless) >= maxStateless || g.shownStateless == nil {
			g.shownStateless = map[statelessKey]*shown{}
		}
		s = &shown{}
		g.shownStateless[key] = s
	}
	return s
}

// callerOf is the caller of a request that reached the SDK, or came over HTTP.
func (sc *scope) callerOf(ctx context.Context, sess *session) caller {
	rq := requestOf(ctx)
	who := caller{client: rq.client}
	switch {
	case sess != nil:
		who.shown = &sess.shown
	case rq.shown != nil:
		who.shown = rq.shown
	default:
		who.shown = sc.g.shownTo(rq.client, sc)
	}
	return who
}

// judge is implemented by a backend whose permissions depend on who calls.
type judge interface {
	Permission(t messages.Tool, client, view string) (messages.Permission, string)
}

// permission is what a call of the tool by the client would get.
func (sc *scope) permission(t messages.Tool, client string) messages.Permission {
	if j, ok := sc.g.backend.(judge); ok {
		p, _ := j.Permission(t, client, sc.key.view)
		return p
	}
	return t.Permission
}
