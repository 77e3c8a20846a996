package actors

import (
	"encoding/json"
	"fmt"
	"time"

	"mcpbridge/actors/internal/catalogue"
	"mcpbridge/actors/internal/policy"
	"mcpbridge/messages"
)

// Pins remembers definitions of tools. Its methods do not block.
type Pins interface {
	// Observe holds a listing against what was seen before, pins what is new (with
	// takeOver also what is changed), and returns the rest by tool.
	Observe(server string, listing []messages.Definition, takeOver bool, now time.Time) map[string]messages.DefinitionChange
	// Hold notes which of them are held back, and the local names of all.
	Hold(server string, held map[string]bool, names map[string]string)
}

// definitions are a listing's definitions for comparing.
func definitions(listing messages.Listing) []messages.Definition {
	out := make([]messages.Definition, len(listing.Tools))
	for i, d := range listing.Tools {
		text := catalogue.Canonical(d)
		out[i] = messages.Definition{Tool: d.Name, Digest: catalogue.DigestOf(text), Text: text}
	}
	return out
}

// pin holds what a server lists against what was seen before, and marks the tools of
// its part that nobody has approved.
func (r *registry) pin(part *catalogue.Part, listing []messages.Definition) {
	if r.cfg.Pins == nil {
		return
	}
	onChange := r.cfg.Gate.onChange(part.Server)
	changes := r.cfg.Pins.Observe(part.Server, listing, onChange == policy.TakeOver, time.Now())
	held, names := map[string]bool{}, map[string]string{}
	for i := range part.Tools {
		t := &part.Tools[i]
		c, changed := changes[t.RemoteName]
		if !changed {
			continue
		}
		names[t.RemoteName] = t.Name
		t.Change = c.Kind
		t.Held = policy.Hold(onChange, r.effectBefore(*t, c), t.Effect)
		held[t.RemoteName] = t.Held
		part.Issues = append(part.Issues, changeIssue(*t))
	}
	r.cfg.Pins.Hold(part.Server, held, names)
}

// effectBefore is how the tool was classified under its earlier definition: hints that
// are trusted may be what has changed.
func (r *registry) effectBefore(t messages.Tool, c messages.DefinitionChange) messages.Effect {
	if c.Kind == messages.Unverified && t.EffectSource == messages.FromConfig {
		return t.Effect // the operator's word, whatever the definition was
	}
	var text struct {
		Annotations map[string]json.RawMessage `json:"annotations"`
	}
	if len(c.Before.Text) == 0 || json.Unmarshal(c.Before.Text, &text) != nil {
		return messages.SideEffect // not known: the worst
	}
	hint := func(name string) *bool {
		var b bool
		if json.Unmarshal(text.Annotations[name], &b) != nil {
			return nil
		}
		return &b
	}
	e, _ := r.cfg.Gate.effect(t.Server, messages.ToolDef{Name: c.Before.Tool, Hints: messages.Hints{
		ReadOnly: hint("readOnlyHint"), Idempotent: hint("idempotentHint")}})
	return e
}

// changeIssue tells a person what to look at.
func changeIssue(t messages.Tool) messages.Issue {
	what := map[messages.ChangeKind]string{
		messages.Changed:    "its definition is not the one that was seen first",
		messages.Renamed:    "it says what a tool of another name said, which is gone",
		messages.Unverified: "nobody can say whether its definition has changed",
	}[t.Change]
	then := "it is offered all the same"
	if t.Held {
		then = "it is not offered, and not called"
	}
	return messages.Issue{Stage: messages.StageRegister, Severity: messages.SeverityWarning, Server: t.Server, Tool: t.RemoteName,
		Message: fmt.Sprintf("%s; %s until it is approved: `bridgectl tools diff %s`, `bridgectl tools approve %s`", what, then, t.EndpointName, t.EndpointName)}
}

// pinsChanged judges a server's listing again.
func (r *registry) pinsChanged(server string) (rebuild bool) {
	listing, ok := r.listings[server]
	if !ok {
		return false
	}
	return r.listingChanged(server, listing)
}
