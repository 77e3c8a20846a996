package policy

import (
	"fmt"

	"mcpbridge/messages"
)

// DefaultRule is the name of the rule that decides where no written one does.
const DefaultRule = "default"

// Rule is one permission rule. Empty fields match everything, all given ones must
// match. Server, Tool (the server's own name), Client and View are globs.
type Rule struct {
	Server string
	Tool   string
	Effect *messages.Effect
	Client string
	View   string
	Action messages.Permission
	Name   string // what a refusal calls it; "" for its place in the list
}

// Subject is what a rule is asked about. Client and View are empty where the
// question is about the catalogue at large: then a rule that names a client or a
// view is about somebody else.
type Subject struct {
	Server string
	Tool   string
	Effect messages.Effect
	Client string
	View   string
}

func (r Rule) matches(s Subject) bool {
	given := func(pattern, value string) bool { return pattern == "" || Match(pattern, value) }
	return given(r.Server, s.Server) && given(r.Tool, s.Tool) &&
		(r.Effect == nil || *r.Effect == s.Effect) &&
		given(r.Client, s.Client) && given(r.View, s.View)
}

// Permissions are the rules of one bridge. The zero value denies everything: it is
// a written block without rules and nothing said by the project.
type Permissions struct {
	// Rules are the operator's, in order; the first match wins and no match is deny.
	Rules []Rule
	// Absent says that no block was written: then reading is allowed and
	// everything else is asked about.
	Absent bool
	// Project holds the rules of the workspace, which may only make things
	// stricter: they are judged apart, the strictest match counts.
	Project []Rule
}

// Decide gives the one answer for listing and calling, and the name of the rule
// that gave it: `permissions[2]`, `project permissions[0]` or `default`.
func (p Permissions) Decide(s Subject) (messages.Permission, string) {
	if s.Effect > messages.ReadOnly { // no effect that exists: a fault, so nothing is allowed
		return messages.Deny, DefaultRule
	}
	action, rule := p.operator(s)
	for i, r := range p.Project {
		// The values are ordered from strict to lenient, so the stricter is the smaller.
		if r.matches(s) && known(r.Action) < action {
			action, rule = known(r.Action), "project "+r.name(i)
		}
	}
	return action, rule
}

func (p Permissions) operator(s Subject) (messages.Permission, string) {
	if p.Absent {
		if s.Effect == messages.ReadOnly {
			return messages.Allow, DefaultRule
		}
		return messages.Ask, DefaultRule
	}
	for i, r := range p.Rules {
		if r.matches(s) {
			return known(r.Action), r.name(i)
		}
	}
	return messages.Deny, DefaultRule
}

func (r Rule) name(i int) string {
	if r.Name != "" {
		return r.Name
	}
	return fmt.Sprintf("permissions[%d]", i)
}

// known turns an action that does not exist into a refusal.
func known(a messages.Permission) messages.Permission {
	if a > messages.Allow {
		return messages.Deny
	}
	return a
}
