package messages

import "strings"

// Catalogue is one immutable, versioned snapshot of every tool that the bridge
// knows. It is published by the registry and read by anybody without locks.
type Catalogue struct {
	Version uint64 // grows by one with each published change
	all     []Tool // sorted by Name; unlisted ones too
	byName  map[string]int
	twice   map[string]bool // server/tool forms that more than one tool goes by: no name at all
	views   map[string]func(Tool) bool
	known   map[string]bool
}

// NewCatalogue builds a snapshot. tools must be sorted by Name and not be changed
// afterwards; views maps each view's name to its rule (nil for no views); known
// holds the servers whose definitions have been seen, tools or none.
func NewCatalogue(version uint64, tools []Tool, views map[string]func(Tool) bool, known map[string]bool) *Catalogue {
	c := &Catalogue{Version: version, all: tools, byName: make(map[string]int, 3*len(tools)), views: views, known: known}
	// Both parts of the convenience form "server/tool" may hold a slash: what two tools
	// go by is neither's name. Local names hold none, so they are never touched by this.
	for i, t := range tools {
		form := t.Server + "/" + t.RemoteName
		if _, ok := c.byName[form]; ok {
			c.unname(form)
		}
		c.byName[form] = i
	}
	for form := range c.twice {
		delete(c.byName, form)
	}
	for i, t := range tools {
		c.byName[t.EndpointName] = i
	}
	for i, t := range tools {
		c.byName[t.Name] = i
	}
	return c
}

// unname takes a server/tool form away from everybody.
func (c *Catalogue) unname(form string) {
	if c.twice == nil {
		c.twice = map[string]bool{}
	}
	c.twice[form] = true
	delete(c.byName, form)
}

// Tools returns the tools that are on offer, sorted by name. The slice is the caller's.
func (c *Catalogue) Tools() []Tool {
	out := make([]Tool, 0, len(c.all))
	for _, t := range c.all {
		if t.Listed {
			out = append(out, t)
		}
	}
	return out
}

// All returns every known tool, those of quarantined and stopped servers too.
func (c *Catalogue) All() []Tool { return append([]Tool(nil), c.all...) }

// Walk visits every known tool, sorted by name, on offer or not, until f returns
// false. f must not change or keep the tool.
func (c *Catalogue) Walk(f func(*Tool) bool) {
	for i := range c.all {
		if !f(&c.all[i]) {
			return
		}
	}
}

// Lookup finds a tool by its full name (mcp__fs__read_file), its endpoint name
// (fs__read_file) or server/tool (fs/read_file), on offer or not. A server/tool form
// that more than one tool goes by ("a/b/c" of server "a" and of server "a/b") finds
// none of them; Meanings tells which they are.
func (c *Catalogue) Lookup(name string) (Tool, bool) {
	i, ok := c.byName[name]
	if !ok {
		return Tool{}, false
	}
	return c.all[i], true
}

// Meanings are the tools that an ambiguous server/tool form may stand for, sorted by
// name; none where Lookup decides. In a view it may be one: a form that is ambiguous in
// the whole catalogue is ambiguous in all of its views, so that it means the same, or
// nothing, to everybody.
func (c *Catalogue) Meanings(form string) []Tool {
	if !c.twice[form] {
		return nil
	}
	var out []Tool
	for _, t := range c.all {
		if t.Server+"/"+t.RemoteName == form {
			out = append(out, t)
		}
	}
	return out
}

// LookupRemote finds a tool of one server by the name that the server itself uses.
func (c *Catalogue) LookupRemote(server, remote string) (Tool, bool) {
	i, ok := c.byName[server+"/"+remote]
	if !ok || c.all[i].Server != server || c.all[i].RemoteName != remote {
		// "a/b" may also be the server "a" with tool "b" or the tool of an odder
		// pair: fall back to a scan, which is exact.
		for _, t := range c.all {
			if t.Server == server && t.RemoteName == remote {
				return t, true
			}
		}
		return Tool{}, false
	}
	return c.all[i], true
}

// InView reports whether the view admits the tool. The empty view admits all; an
// unknown view admits none (the gate fails closed).
func (c *Catalogue) InView(view string, t Tool) bool {
	if view == "" {
		return true
	}
	rule, ok := c.views[view]
	return ok && rule(t)
}

// HasView reports whether a view of that name is configured.
func (c *Catalogue) HasView(view string) bool {
	_, ok := c.views[view]
	return view == "" || ok
}

// Knows reports whether the server's definitions have been seen at least once.
func (c *Catalogue) Knows(server string) bool { return c.known[server] }

// View returns a snapshot that holds only what the view admits; ok is false for
// an unknown view, and the snapshot is then empty.
func (c *Catalogue) View(view string) (snapshot *Catalogue, ok bool) {
	if view == "" {
		return c, true
	}
	var kept []Tool
	for _, t := range c.all {
		if c.InView(view, t) {
			kept = append(kept, t)
		}
	}
	v := NewCatalogue(c.Version, kept, c.views, c.known)
	for form := range c.twice {
		v.unname(form)
	}
	return v, c.HasView(view)
}

// Server returns what the one server offers, sorted by local name.
func (c *Catalogue) Server(name string) []Tool {
	var out []Tool
	for _, t := range c.all {
		if t.Server == name && t.Listed {
			out = append(out, t)
		}
	}
	return out
}

// Filter returns the tools on offer whose full, endpoint or remote name contains
// pattern (case ignored; empty matches all).
func (c *Catalogue) Filter(pattern string) []Tool {
	p := strings.ToLower(pattern)
	var out []Tool
	for _, t := range c.Tools() {
		if p == "" || strings.Contains(strings.ToLower(t.Name), p) || strings.Contains(strings.ToLower(t.Server+"/"+t.RemoteName), p) {
			out = append(out, t)
		}
	}
	return out
}
