package dispatch

import (
	"slices"
	"strings"

	"mcpbridge/messages"
)

// unknownTool refuses a name that nobody has, with the nearest names that the
// caller may see.
func (c *Core) unknownTool(cl *call) verdict {
	asked := cl.req.Tool
	if cl.req.Server != "" {
		asked = toolName(cl.req.Server, cl.req.Tool)
	}
	v := rejected(messages.CodeUnknownTool, "unknown tool "+quote(asked), "")
	if c.catalogue != nil && !c.catalogue.HasView(cl.req.View) {
		v.hint = "no view is called " + quote(cl.req.View) + ": `views` of the configuration has them"
		return v
	}
	if named := c.meanings(cl); len(named) > 0 {
		v.message = quote(asked) + " can mean more than one tool, so none was called"
		v.hint = "call it by its full name: " + strings.Join(named, " or ")
		return v
	}
	hope, down := c.candidates(cl)
	switch near := c.nearest(cl); {
	case len(near) > 0:
		v.hint = "did you mean " + strings.Join(near, ", ") + "? "
	case len(hope) > 0:
		s := hope[0]
		v.hint = "server " + quote(s.key.String()) + " has not listed its tools yet (" + s.state.String() + because(s.reason) + "): try again later. "
	case down != nil:
		r := down.refusal(true)
		v.hint = r.message + "; " + r.hint + ". "
	case cl.req.Server != "" && c.servers[messages.Key{Server: cl.req.Server}] == nil:
		v.hint = "no server is called " + quote(cl.req.Server) + c.serverNames() + ". "
	}
	v.hint += "`bridgectl tools` lists what there is"
	return v
}

// meanings are the full names of what an ambiguous server/tool form stands for, as far as
// the call's view shows them.
func (c *Core) meanings(cl *call) (names []string) {
	if c.catalogue == nil || cl.req.Server != "" {
		return nil
	}
	for _, t := range c.catalogue.Meanings(cl.req.Tool) {
		if c.catalogue.InView(cl.req.View, t) {
			names = append(names, quote(t.Name))
		}
	}
	return names
}

func (c *Core) serverNames() string {
	const most = 8
	var names []string
	for _, s := range c.order {
		if !s.removed && s.key.Instance == "" {
			names = append(names, s.key.Server)
		}
	}
	switch {
	case len(names) == 0:
		return ": none is configured"
	case len(names) > most:
		names = append(names[:most], "…")
	}
	return "; there are " + strings.Join(names, ", ")
}

// nearest finds up to three names that look like what was asked for. It looks at a
// bounded number of tools, because it runs on the router's own time.
func (c *Core) nearest(cl *call) []string {
	const most, look, compare, longest = 3, 2000, 300, 128
	if c.catalogue == nil || len(cl.req.Tool) > longest {
		return nil
	}
	type hit struct {
		name string
		far  int
	}
	var hits []hit
	want, looked, compared := plain(cl.req.Tool), 0, 0
	limit := max(2, len(want)/4)
	var row [longest + 1]int
	c.catalogue.Walk(func(t *messages.Tool) bool {
		looked++
		name := t.EndpointName
		if cl.req.Server != "" {
			name = t.RemoteName
		}
		bare := len(t.RemoteName) == len(cl.req.Tool) && t.RemoteName == cl.req.Tool // the right tool without its server
		near := len(name) <= longest && len(name)-len(want) <= limit+2 && len(want)-len(name) <= limit
		if bare || near {
			if t.Listed && (cl.req.Server == "" || t.Server == cl.req.Server) && c.catalogue.InView(cl.req.View, *t) {
				compared++
				far, ok := distance(want, plain(name), limit, row[:])
				if bare {
					far, ok = 0, true
				}
				if ok {
					hits = append(hits, hit{name, far})
				}
			}
		}
		return looked < look && compared < compare
	})
	slices.SortStableFunc(hits, func(a, b hit) int { return a.far - b.far })
	var names []string
	for _, h := range hits[:min(most, len(hits))] {
		names = append(names, h.name)
	}
	return names
}

var level = strings.NewReplacer("__", "_", "/", "_", "-", "_", ".", "_")

// plain levels what people mix up in names.
func plain(s string) string {
	s = strings.TrimPrefix(strings.ToLower(s), "mcp__")
	return level.Replace(s)
}

// distance is the edit distance of a and b as far as it is at most limit. row has
// room for one more than b is long.
func distance(a, b string, limit int, row []int) (int, bool) {
	if d := len(a) - len(b); d > limit || -d > limit {
		return 0, false
	}
	row = row[:len(b)+1]
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal, least := row[0], i
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diagonal
			if a[i-1] != b[j-1] {
				cost++
			}
			diagonal = row[j]
			row[j] = min(cost, row[j]+1, row[j-1]+1)
			least = min(least, row[j])
		}
		if least > limit {
			return 0, false
		}
	}
	return row[len(b)], row[len(b)] <= limit
}
