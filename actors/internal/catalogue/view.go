package catalogue

import (
	"slices"

	"mcpbridge/messages"
)

// View is one view of the configuration (requirement C9). Empty lists admit
// everything; a tool must pass all that are given. Tools are patterns over
// endpoint names, Servers over server names.
type View struct {
	Effects []messages.Effect
	Tools   []string
	Servers []string
}

// Admits builds the predicate that governs listing and calling alike. match is the
// policy's glob.
func (v View) Admits(match func(patterns []string, name string) bool) func(messages.Tool) bool {
	return func(t messages.Tool) bool {
		return (len(v.Effects) == 0 || slices.Contains(v.Effects, t.Effect)) &&
			(len(v.Tools) == 0 || match(v.Tools, t.EndpointName)) &&
			(len(v.Servers) == 0 || match(v.Servers, t.Server))
	}
}
