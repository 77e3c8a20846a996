package catalogue

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"mcpbridge/messages"
)

// Source is one server's part and whether its tools are on offer now. Why says
// why not ("quarantined").
type Source struct {
	Part   Part
	Listed bool
	Why    string
}

// Merged is the whole catalogue.
type Merged struct {
	Tools      []messages.Tool // sorted by Name
	Registered map[string]int  // tools on offer, by server
	// Issues that only the merge can see, by server.
	Issues map[string][]messages.Issue
}

// Merge puts the parts together, in an order that depends on names alone. Of two
// tools whose names collide (which takes a broken hash) the first is kept.
func Merge(sources []Source) Merged {
	sources = slices.Clone(sources)
	slices.SortFunc(sources, func(a, b Source) int { return cmp.Compare(a.Part.Server, b.Part.Server) })
	m := Merged{Registered: map[string]int{}, Issues: map[string][]messages.Issue{}}
	names := map[string]string{} // local name, full or endpoint → server/tool
	for _, src := range sources {
		server := src.Part.Server
		issue := func(tool, format string, args ...any) {
			m.Issues[server] = append(m.Issues[server], messages.Issue{Stage: messages.StageRegister,
				Severity: messages.SeverityWarning, Server: server, Tool: tool, Message: fmt.Sprintf(format, args...)})
		}
		kept := 0
		for _, t := range src.Part.Tools {
			owner, clash := names[t.Name]
			if !clash {
				owner, clash = names[t.EndpointName]
			}
			if clash {
				issue(t.RemoteName, "not offered: its name %s belongs to %s already", t.Name, owner)
				continue
			}
			id := t.Server + "/" + t.RemoteName
			names[t.Name], names[t.EndpointName] = id, id
			t.Listed = src.Listed && !t.Held
			m.Tools = append(m.Tools, t)
			if !t.Held { // who held it back has said so
				kept++
			}
		}
		if src.Listed {
			m.Registered[server] = kept
		} else if kept > 0 {
			issue("", "%s not on offer while the server is %s", Count(kept, "tool"), src.Why)
		}
	}
	slices.SortFunc(m.Tools, func(a, b messages.Tool) int { return cmp.Compare(a.Name, b.Name) })
	return m
}

// Same reports whether two tools are the same to everybody who looks at the catalogue.
func Same(a, b messages.Tool) bool {
	return a.Name == b.Name && a.EndpointName == b.EndpointName && a.Server == b.Server && a.RemoteName == b.RemoteName &&
		a.Digest == b.Digest && a.Change == b.Change && a.Held == b.Held && a.Effect == b.Effect && a.EffectSource == b.EffectSource &&
		a.Permission == b.Permission && a.Rule == b.Rule && a.Listed == b.Listed && a.Limits == b.Limits &&
		bytes.Equal(a.Def.Raw, b.Def.Raw)
}

// Offered reports whether two catalogues offer the same tools.
func Offered(a, b []messages.Tool) bool {
	listed := func(t messages.Tool) bool { return !t.Listed }
	return slices.EqualFunc(slices.DeleteFunc(slices.Clone(a), listed), slices.DeleteFunc(slices.Clone(b), listed), Same)
}
