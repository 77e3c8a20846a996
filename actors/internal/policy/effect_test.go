package policy

import (
	"testing"

	"mcpbridge/messages"
)

func TestEffects(t *testing.T) {
	yes, no := true, false
	words := map[string]messages.Effect{
		"read_file": messages.ReadOnly, "read_*": messages.Idempotent, "*": messages.SideEffect,
		"aa*": messages.ReadOnly, "*aa": messages.SideEffect, "star*": messages.ReadOnly, "star?": messages.Idempotent,
	}
	for _, c := range []struct {
		name   string
		words  map[string]messages.Effect
		trust  Trust
		tool   string
		hints  messages.Hints
		effect messages.Effect
		source messages.EffectSource
	}{
		{"nothing said", nil, TrustNone, "x", messages.Hints{}, messages.SideEffect, messages.FromDefault},
		{"a hint of a server that is not trusted", nil, TrustNone, "x", messages.Hints{ReadOnly: &yes}, messages.SideEffect, messages.FromDefault},
		{"a hint of a trusted one", nil, TrustAnnotations, "x", messages.Hints{ReadOnly: &yes}, messages.ReadOnly, messages.FromAnnotation},
		{"idempotent", nil, TrustAnnotations, "x", messages.Hints{Idempotent: &yes}, messages.Idempotent, messages.FromAnnotation},
		{"destructive and idempotent", nil, TrustAnnotations, "x", messages.Hints{Idempotent: &yes, Destructive: &yes}, messages.Idempotent, messages.FromAnnotation},
		{"not destructive says nothing of idempotence", nil, TrustAnnotations, "x", messages.Hints{Destructive: &no}, messages.SideEffect, messages.FromDefault},
		{"hints that deny", nil, TrustAnnotations, "x", messages.Hints{ReadOnly: &no, Idempotent: &no}, messages.SideEffect, messages.FromDefault},
		{"read_only trust", nil, TrustReadOnly, "x", messages.Hints{ReadOnly: &no}, messages.ReadOnly, messages.FromConfig},
		{"effects before read_only trust", words, TrustReadOnly, "other", messages.Hints{}, messages.SideEffect, messages.FromConfig},
		{"exact before glob", words, TrustNone, "read_file", messages.Hints{}, messages.ReadOnly, messages.FromConfig},
		{"longest glob", words, TrustNone, "read_dir", messages.Hints{}, messages.Idempotent, messages.FromConfig},
		{"last glob", words, TrustNone, "write", messages.Hints{ReadOnly: &yes}, messages.SideEffect, messages.FromConfig},
		{"equal length: the harmful one", words, TrustNone, "aaa", messages.Hints{}, messages.SideEffect, messages.FromConfig},
		{"equal length again", words, TrustNone, "star1", messages.Hints{}, messages.Idempotent, messages.FromConfig},
		{"a name with a star, exactly", words, TrustNone, "star*", messages.Hints{}, messages.ReadOnly, messages.FromConfig},
		{"no such trust", nil, Trust(9), "x", messages.Hints{ReadOnly: &yes}, messages.SideEffect, messages.FromDefault},
	} {
		t.Run(c.name, func(t *testing.T) {
			effect, source := NewEffects(c.words, c.trust).Of(c.tool, c.hints)
			if effect != c.effect || source != c.source {
				t.Errorf("got %v from %v, want %v from %v", effect, source, c.effect, c.source)
			}
		})
	}
	if effect, source := (Effects{}).Of("x", messages.Hints{ReadOnly: &yes}); effect != messages.SideEffect || source != messages.FromDefault {
		t.Errorf("zero value: %v from %v", effect, source)
	}
}
