package policy

import (
	"testing"

	"pgregory.net/rapid"

	"mcpbridge/messages"
)

func effectIs(e messages.Effect) *messages.Effect { return &e }

func TestPermissions(t *testing.T) {
	read := Subject{Server: "fs", Tool: "read_file", Effect: messages.ReadOnly, Client: "default"}
	write := Subject{Server: "fs", Tool: "write_file", Effect: messages.SideEffect, Client: "default"}
	block := []Rule{
		{Effect: effectIs(messages.ReadOnly), Action: messages.Allow},
		{Server: "f?", Tool: "write_*", Client: "ci*", Action: messages.Allow},
		{Tool: "write_*", View: "plan", Action: messages.Deny},
		{Server: "fs", Tool: "write_*", Action: messages.Ask},
	}
	with := func(s Subject, f func(*Subject)) Subject { f(&s); return s }
	for _, c := range []struct {
		name string
		p    Permissions
		s    Subject
		want messages.Permission
		rule string
	}{
		{"no block, reading", Permissions{Absent: true}, read, messages.Allow, "default"},
		{"no block, idempotent", Permissions{Absent: true}, with(write, func(s *Subject) { s.Effect = messages.Idempotent }), messages.Ask, "default"},
		{"no block, side effect", Permissions{Absent: true}, write, messages.Ask, "default"},
		{"empty block", Permissions{}, read, messages.Deny, "default"},
		{"first match", Permissions{Rules: block}, read, messages.Allow, "permissions[0]"},
		{"another client", Permissions{Rules: block}, write, messages.Ask, "permissions[3]"},
		{"the client named", Permissions{Rules: block}, with(write, func(s *Subject) { s.Client = "ci-1" }), messages.Allow, "permissions[1]"},
		{"the view named", Permissions{Rules: block}, with(write, func(s *Subject) { s.View = "plan" }), messages.Deny, "permissions[2]"},
		{"nobody in particular", Permissions{Rules: block}, with(write, func(s *Subject) { s.Client = "" }), messages.Ask, "permissions[3]"},
		{"no match", Permissions{Rules: block}, with(write, func(s *Subject) { s.Tool = "delete" }), messages.Deny, "default"},
		{"an action that does not exist", Permissions{Rules: []Rule{{Action: 9}}}, read, messages.Deny, "permissions[0]"},
		{"an effect that does not exist", Permissions{Rules: []Rule{{Action: messages.Allow}}}, with(read, func(s *Subject) { s.Effect = 9 }), messages.Deny, "default"},
		{"the project is stricter", Permissions{Rules: block, Project: []Rule{{Tool: "x"}, {Tool: "read_*", Action: messages.Ask}}},
			read, messages.Ask, "project permissions[1]"},
		{"the project's strictest", Permissions{Rules: block, Project: []Rule{{Action: messages.Ask}, {Action: messages.Deny}}},
			read, messages.Deny, "project permissions[1]"},
		{"the project cannot loosen", Permissions{Rules: block, Project: []Rule{{Action: messages.Allow}}}, write, messages.Ask, "permissions[3]"},
		{"the project is silent", Permissions{Rules: block, Project: []Rule{{Tool: "x", Action: messages.Deny}}}, read, messages.Allow, "permissions[0]"},
		{"as strict as the operator", Permissions{Rules: block, Project: []Rule{{Action: messages.Ask}}}, write, messages.Ask, "permissions[3]"},
		{"the project without a block", Permissions{Absent: true, Project: []Rule{{Server: "fs", Action: messages.Deny}}}, read, messages.Deny, "project permissions[0]"},
		{"a project action that does not exist", Permissions{Absent: true, Project: []Rule{{Action: 9}}}, read, messages.Deny, "project permissions[0]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, rule := c.p.Decide(c.s)
			if got != c.want || rule != c.rule {
				t.Errorf("got %v by %s, want %v by %s", got, rule, c.want, c.rule)
			}
		})
	}
}

// TestProjectNeverLoosens: whatever a workspace writes, the result is never more
// lenient than the operator's word.
func TestProjectNeverLoosens(t *testing.T) {
	rule := rapid.Custom(func(t *rapid.T) Rule {
		return Rule{
			Server: rapid.SampledFrom([]string{"", "*", "a", "b"}).Draw(t, "server"),
			Tool:   rapid.SampledFrom([]string{"", "x*", "y"}).Draw(t, "tool"),
			Client: rapid.SampledFrom([]string{"", "c"}).Draw(t, "client"),
			Action: messages.Permission(rapid.IntRange(0, 4).Draw(t, "action")),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		p := Permissions{Rules: rapid.SliceOfN(rule, 0, 4).Draw(t, "rules"), Absent: rapid.Bool().Draw(t, "absent")}
		s := Subject{Server: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "s"), Tool: rapid.SampledFrom([]string{"x1", "y", "z"}).Draw(t, "t"),
			Client: rapid.SampledFrom([]string{"", "c", "d"}).Draw(t, "c"), Effect: messages.Effect(rapid.IntRange(0, 3).Draw(t, "e"))}
		alone, _ := p.Decide(s)
		p.Project = rapid.SliceOfN(rule, 0, 4).Draw(t, "project")
		both, name := p.Decide(s)
		if both > alone || both > messages.Allow || name == "" {
			t.Fatalf("the project turned %v into %v by %q", alone, both, name)
		}
	})
}
