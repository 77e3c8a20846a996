package catalogue

import (
	"encoding/json"
	"fmt"

	"mcpbridge/messages"
)

// plainSchema stands in for an input schema that cannot be passed on.
var plainSchema = json.RawMessage(`{"type":"object"}`)

// Rules are the decisions that the catalogue asks for. All must be set.
type Rules struct {
	Effect   func(messages.ToolDef) (messages.Effect, messages.EffectSource)
	Decide   func(messages.Tool) (messages.Permission, string)
	Visible  func(remote string) bool // tools.allow and tools.deny
	Limits   func(remote string) messages.ToolLimits
	Problems func(messages.ToolDef) []string // with the input schema
	// Input says why the input schema cannot be passed on, "" where it can.
	Input func(messages.ToolDef) string
	// Output says whether the output schema is passed on, and why not where that is
	// worth an issue.
	Output   func(messages.ToolDef) (pass bool, why string)
	Reserved func(name string) bool
}

// Part is what one server brings to the catalogue. It depends on that server's
// listing and configuration alone, so it is built once per listing.
type Part struct {
	Server     string
	Discovered int // raw list entries
	Adapted    int // given a local definition
	Tools      []messages.Tool
	Issues     []messages.Issue
}

// NewPart names, classifies and judges the tools of one listing.
func NewPart(server string, listing messages.Listing, rules Rules) Part {
	p := Part{Server: server, Discovered: listing.Discovered, Adapted: len(listing.Tools)}
	for _, i := range listing.Issues {
		i.Server = server
		p.Issues = append(p.Issues, i)
	}
	issue := func(stage messages.Stage, tool, format string, args ...any) {
		p.Issues = append(p.Issues, messages.Issue{Stage: stage, Severity: messages.SeverityWarning,
			Server: server, Tool: tool, Message: fmt.Sprintf(format, args...)})
	}
	if listing.Discovered < len(listing.Tools) { // a listing that forgot to count
		p.Discovered = len(listing.Tools)
	}
	if at := listing.StoredAt; !at.IsZero() && len(listing.Tools) > 0 {
		issue(messages.StageListTools, "", "offered as it listed them on %s: it lists again when it starts", at.Format("2006-01-02 15:04 MST"))
	}
	hidden := 0
	for _, def := range listing.Tools {
		if !rules.Visible(def.Name) {
			hidden++
			continue
		}
		t := messages.Tool{Server: server, RemoteName: def.Name, Def: def, Digest: Digest(def), Limits: rules.Limits(def.Name)}
		var reserved bool
		t.Name, t.EndpointName, reserved = Names(server, def.Name, rules.Reserved)
		t.Effect, t.EffectSource = rules.Effect(def)
		t.Permission, t.Rule = rules.Decide(t)
		if reserved {
			issue(messages.StageRegister, def.Name, "its name is reserved; it is offered as %s", t.Name)
		}
		if why := rules.Input(def); why != "" {
			t.Def.InputSchema = plainSchema
			issue(messages.StageAdaptTool, def.Name, "%s", why)
		} else {
			for _, problem := range rules.Problems(def) {
				issue(messages.StageAdaptTool, def.Name, "%s", problem)
			}
		}
		if pass, why := rules.Output(def); !pass {
			t.Def.OutputSchema = nil
			if why != "" {
				issue(messages.StageAdaptTool, def.Name, "%s", why)
			}
		}
		p.Tools = append(p.Tools, t)
	}
	if hidden > 0 {
		issue(messages.StageRegister, "", "%s hidden by tools.allow and tools.deny", Count(hidden, "tool"))
	}
	return p
}

// Count says "1 tool" or "3 tools".
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
