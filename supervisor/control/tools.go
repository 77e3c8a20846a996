package control

import (
	"fmt"
	"net/http"
	"path"
	"strings"

	"mcpbridge/messages"
)

// tools lists the catalogue. `all` includes the tools that are known and not on
// offer; `name` asks for exactly one, under any of its names.
func (s *Server) tools(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	server := q.Get("server")
	if e := s.known(q["server"]...); e != nil {
		fail(w, e)
		return
	}
	if name := q.Get("name"); name == "" {
		// The first list waits for servers that have never been seen (requirement C8).
		s.o.Bridge.WaitListed(r.Context(), server)
	} else if _, ok := s.o.Bridge.Catalogue().Lookup(name); !ok {
		// One tool wakes no server but the one that may have it.
		for _, n := range s.names() {
			if ownerOf(name, n) {
				s.o.Bridge.WaitListed(r.Context(), n)
			}
		}
	}
	cat, ok := s.o.Bridge.Catalogue().View(q.Get("view"))
	if !ok {
		fail(w, &Error{Code: CodeBadRequest, Message: fmt.Sprintf("no view is called %q", q.Get("view")), Hint: "views are defined under views: in the configuration"})
		return
	}
	var effect *messages.Effect
	if v := q.Get("effect"); v != "" {
		effect = new(messages.Effect)
		if err := effect.UnmarshalText([]byte(v)); err != nil {
			fail(w, &Error{Code: CodeBadRequest, Message: err.Error()})
			return
		}
	}
	list := cat.Tools()
	if q.Get("all") == "true" {
		list = cat.All()
	}
	out := Tools{Version: cat.Version, Tools: []messages.Tool{}}
	if name := q.Get("name"); name != "" {
		if t, ok := cat.Lookup(name); ok {
			out.Tools = append(out.Tools, s.judged(t, q.Get("view")))
		}
		reply(w, out)
		return
	}
	match := matcher(q.Get("pattern"))
	for _, t := range list {
		if (server == "" || t.Server == server) && (effect == nil || t.Effect == *effect) && match(t) {
			out.Tools = append(out.Tools, s.judged(t, q.Get("view")))
		}
	}
	reply(w, out)
}

// judged is the tool with the permission that a call over this socket gets.
func (s *Server) judged(t messages.Tool, view string) messages.Tool {
	t.Permission, t.Rule = s.o.Bridge.Permission(t, LocalClient, view)
	return t
}

// ownerOf tells whether a tool of that name may be the server's.
func ownerOf(tool, server string) bool {
	tool = strings.TrimPrefix(tool, "mcp__")
	return strings.HasPrefix(tool, server+"/") || strings.HasPrefix(tool, server+"__")
}

// matcher understands a glob (`fs__*`, `*_file`) where the pattern has a wildcard,
// and any part of a name otherwise; case is ignored.
func matcher(pattern string) func(messages.Tool) bool {
	p := strings.ToLower(pattern)
	if p == "" {
		return func(messages.Tool) bool { return true }
	}
	one := strings.Contains
	if strings.ContainsAny(p, "*?[") {
		one = func(name, p string) bool { ok, err := path.Match(p, name); return ok && err == nil }
	}
	return func(t messages.Tool) bool {
		for _, n := range []string{t.Name, t.EndpointName, t.Server + "/" + t.RemoteName, t.RemoteName} {
			if one(strings.ToLower(n), p) {
				return true
			}
		}
		return false
	}
}
