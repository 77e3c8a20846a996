package policy

import (
	"slices"
	"strings"

	"mcpbridge/messages"
)

// Trust says how far a server's own annotations are believed.
type Trust uint8

// TrustNone believes nothing, TrustAnnotations the hints; TrustReadOnly is the
// operator's word that every tool not named under effects only reads.
const (
	TrustNone Trust = iota
	TrustAnnotations
	TrustReadOnly
)

// Effects classifies the tools of one server (requirement C5). The zero value
// calls everything a side effect.
type Effects struct {
	exact map[string]messages.Effect
	globs []effectGlob // the one that counts first comes first
	trust Trust
}

type effectGlob struct {
	pattern string
	effect  messages.Effect
}

// NewEffects takes the operator's effects, by tool name or glob, and the trust.
func NewEffects(effects map[string]messages.Effect, trust Trust) Effects {
	e := Effects{exact: make(map[string]messages.Effect, len(effects)), trust: trust}
	for pattern, effect := range effects {
		e.exact[pattern] = effect
		if strings.ContainsAny(pattern, "*?") {
			e.globs = append(e.globs, effectGlob{pattern, effect})
		}
	}
	// The longest glob counts; between two of one length the more harmful effect,
	// so that the order of a map decides nothing.
	slices.SortFunc(e.globs, func(a, b effectGlob) int {
		if d := len(b.pattern) - len(a.pattern); d != 0 {
			return d
		}
		if d := int(a.effect) - int(b.effect); d != 0 {
			return d
		}
		return strings.Compare(a.pattern, b.pattern)
	})
	return e
}

// Of classifies one tool. The operator's word counts first: an exact name, then
// the longest glob, then `trust: read_only`. Next come the server's hints where it
// is trusted for them; what is left is a side effect. A destructive tool may be
// idempotent (deleting twice deletes once), so only idempotentHint speaks for that.
func (e Effects) Of(tool string, hints messages.Hints) (messages.Effect, messages.EffectSource) {
	if effect, ok := e.exact[tool]; ok {
		return effect, messages.FromConfig
	}
	for _, g := range e.globs {
		if Match(g.pattern, tool) {
			return g.effect, messages.FromConfig
		}
	}
	said := func(hint *bool) bool { return hint != nil && *hint }
	switch {
	case e.trust == TrustReadOnly:
		return messages.ReadOnly, messages.FromConfig
	case e.trust == TrustAnnotations && said(hints.ReadOnly):
		return messages.ReadOnly, messages.FromAnnotation
	case e.trust == TrustAnnotations && said(hints.Idempotent):
		return messages.Idempotent, messages.FromAnnotation
	default:
		return messages.SideEffect, messages.FromDefault
	}
}
