package policy

import (
	"testing"

	"pgregory.net/rapid"

	"mcpbridge/messages"
)

var anyRule = rapid.Custom(func(t *rapid.T) Rule {
	r := Rule{
		Server: rapid.SampledFrom([]string{"", "*", "a", "b", "a*"}).Draw(t, "server"),
		Tool:   rapid.SampledFrom([]string{"", "x*", "y", "?1"}).Draw(t, "tool"),
		Client: rapid.SampledFrom([]string{"", "c", "*"}).Draw(t, "client"),
		View:   rapid.SampledFrom([]string{"", "v", "*"}).Draw(t, "view"),
		Action: messages.Permission(rapid.IntRange(0, 4).Draw(t, "action")),
	}
	if rapid.Bool().Draw(t, "hasEffect") {
		e := messages.Effect(rapid.IntRange(0, 2).Draw(t, "effect"))
		r.Effect = &e
	}
	return r
})

var anySubject = rapid.Custom(func(t *rapid.T) Subject {
	return Subject{
		Server: rapid.SampledFrom([]string{"a", "b", "ab"}).Draw(t, "s"), Tool: rapid.SampledFrom([]string{"x1", "y", "z"}).Draw(t, "t"),
		Client: rapid.SampledFrom([]string{"", "c", "d"}).Draw(t, "c"), View: rapid.SampledFrom([]string{"", "v", "w"}).Draw(t, "v"),
		Effect: messages.Effect(rapid.IntRange(0, 3).Draw(t, "e")),
	}
})

// TestFirstMatchDecides: what stands after the first match changes nothing, and the
// decision is that rule's own.
func TestFirstMatchDecides(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := rapid.SliceOfN(anyRule, 0, 6).Draw(t, "rules")
		s := anySubject.Draw(t, "subject")
		got, name := Permissions{Rules: rules}.Decide(s)
		if s.Effect > messages.ReadOnly {
			if got != messages.Deny {
				t.Fatalf("an effect that does not exist is %v", got)
			}
			return
		}
		for i, r := range rules {
			if !r.matches(s) {
				continue
			}
			if got != known(r.Action) || name != r.name(i) {
				t.Fatalf("%v by %s; the first match is %d", got, name, i)
			}
			more := append(append([]Rule{}, rules[:i+1]...), rapid.SliceOfN(anyRule, 0, 6).Draw(t, "more")...)
			if after, by := (Permissions{Rules: more}).Decide(s); after != got || by != name {
				t.Fatalf("rules after the first match made it %v by %s", after, by)
			}
			return
		}
		if got != messages.Deny || name != DefaultRule {
			t.Fatalf("without a match: %v by %s", got, name)
		}
	})
}

// TestProjectOnlyTightens: more rules of a project never give more, and where none of
// them matches they say nothing.
func TestProjectOnlyTightens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Permissions{Rules: rapid.SliceOfN(anyRule, 0, 4).Draw(t, "rules"), Absent: rapid.Bool().Draw(t, "absent")}
		s := anySubject.Draw(t, "subject")
		alone, by := p.Decide(s)
		p.Project = rapid.SliceOfN(anyRule, 0, 4).Draw(t, "project")
		some, _ := p.Decide(s)
		p.Project = append(p.Project, rapid.SliceOfN(anyRule, 0, 4).Draw(t, "more")...)
		all, _ := p.Decide(s)
		if some > alone || all > some {
			t.Fatalf("%v became %v and then %v", alone, some, all)
		}
		silent := true
		for _, r := range p.Project {
			silent = silent && !r.matches(s)
		}
		if after, by2 := p.Decide(s); silent && (after != alone || by2 != by) {
			t.Fatalf("rules that do not match made %v by %s into %v by %s", alone, by, after, by2)
		}
	})
}

// TestUnknownIsSideEffect: without the operator's word or a trusted hint a tool is a
// side effect, and no hint of an untrusted server changes that.
func TestUnknownIsSideEffect(t *testing.T) {
	hint := rapid.Custom(func(t *rapid.T) *bool {
		if !rapid.Bool().Draw(t, "said") {
			return nil
		}
		b := rapid.Bool().Draw(t, "value")
		return &b
	})
	rapid.Check(t, func(t *rapid.T) {
		tool := rapid.String().Draw(t, "tool")
		h := messages.Hints{ReadOnly: hint.Draw(t, "ro"), Idempotent: hint.Draw(t, "idem"), Destructive: hint.Draw(t, "d"), OpenWorld: hint.Draw(t, "o")}
		if e, from := NewEffects(nil, TrustNone).Of(tool, h); e != messages.SideEffect || from != messages.FromDefault {
			t.Fatalf("%v from %v", e, from)
		}
		if e, _ := (Effects{}).Of(tool, h); e != messages.SideEffect {
			t.Fatalf("the zero value says %v", e)
		}
		if e, _ := NewEffects(nil, Trust(rapid.IntRange(3, 9).Draw(t, "trust"))).Of(tool, h); e != messages.SideEffect {
			t.Fatalf("a trust that does not exist says %v", e)
		}
		if e, _ := NewEffects(nil, TrustAnnotations).Of(tool, messages.Hints{Destructive: h.Destructive, OpenWorld: h.OpenWorld}); e != messages.SideEffect {
			t.Fatalf("silent hints say %v", e)
		}
	})
}

func TestHold(t *testing.T) {
	ro, se, id := messages.ReadOnly, messages.SideEffect, messages.Idempotent
	for _, c := range []struct {
		on          OnChange
		before, now messages.Effect
		want        bool
	}{
		{HoldBack, se, se, true}, {HoldBack, id, id, true}, {HoldBack, ro, ro, false},
		{HoldBack, se, ro, true}, // a hint that was flipped
		{HoldBack, ro, se, true}, {HoldBack, 9, ro, true},
		{Warn, se, se, false}, {TakeOver, se, ro, false}, {9, se, se, true},
	} {
		if got := Hold(c.on, c.before, c.now); got != c.want {
			t.Errorf("%d, %v to %v: %v", c.on, c.before, c.now, got)
		}
	}
}
