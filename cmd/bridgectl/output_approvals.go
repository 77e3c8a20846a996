package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"mcpbridge/messages"
)

// isPattern tells a glob from a name.
func isPattern(s string) bool { return strings.ContainsAny(s, "*?[") }

// approvalWords says in a line what was judged.
func approvalWords(q messages.Approval) string {
	switch q.Kind {
	case messages.ApproveServer:
		return fmt.Sprintf("server %s (%s)", q.Server, q.Source)
	case messages.ApproveDefinition:
		return "the definition of " + q.Tool
	default:
		return fmt.Sprintf("a call of %s by %s", orElse(q.Tool, q.Server+"/"+q.RemoteTool), q.Client)
	}
}

// approvals shows each question as a block: its one line, and what it is about.
func (p printer) approvals(list []messages.Approval) {
	for i, q := range list {
		if i > 0 {
			p.line("")
		}
		switch q.Kind {
		case messages.ApproveCall:
			left := ""
			if q.ExpiresAt != nil {
				left = ", forgotten in " + short(time.Until(*q.ExpiresAt))
			}
			p.line("%s  call  %s (%s) by client %s%s", q.ID, q.Tool, q.Effect, q.Client, left)
			p.line("  asked by  %s", q.Rule)
			p.line("  args      %s", string(q.Args))
		case messages.ApproveDefinition:
			if q.Change == nil {
				p.line("%s  definition  %s", q.ID, q.Tool)
				continue
			}
			p.line("%s  definition  %s  %s, %s", q.ID, q.Tool, q.Change.Kind, heldWords(*q.Change))
			p.changed(*q.Change)
		default:
			p.line("%s  %s  %s  %s", q.ID, q.Kind, q.Server, q.Source)
			for _, f := range flat("", q.Entry) {
				p.line("  %s: %s", f.path, f.value)
			}
			p.line("  reads: %s", orElse(strings.Join(q.References, " "), "no variable and no file"))
			if q.Replaces != "" {
				p.line("  replaces your own server at %s, and comes under the rules that you wrote for that", q.Replaces)
			}
		}
	}
}

// change shows one definition that nobody has approved.
func (p printer) change(c messages.DefinitionChange) {
	p.line("%s  %s, %s  (approve: bridgectl tools approve %s, or bridgectl approve %s)", c.Name, c.Kind, heldWords(c), orElse(c.EndpointName, c.Name), c.ID)
	p.changed(c)
}

func heldWords(c messages.DefinitionChange) string {
	if c.Held {
		return "held back"
	}
	return "offered all the same"
}

// changed shows the fields that differ, old and new.
func (p printer) changed(c messages.DefinitionChange) {
	if c.Kind == messages.Unverified {
		p.line("  there is no record to hold it against; this is what it says:")
	}
	if len(c.Before.Text) == 0 && c.Kind != messages.Unverified || len(c.After.Text) == 0 {
		p.line("  - %s", orDash(c.Before.Digest))
		p.line("  + %s", c.After.Digest)
		p.line("  (one of the two was too large to be kept)")
		return
	}
	before, after := flat("", c.Before.Text), flat("", c.After.Text)
	was, is := map[string]string{}, map[string]string{}
	var paths []string
	for _, f := range before {
		was[f.path] = f.value
		paths = append(paths, f.path)
	}
	for _, f := range after {
		is[f.path] = f.value
		if _, ok := was[f.path]; !ok {
			paths = append(paths, f.path)
		}
	}
	slices.Sort(paths)
	for _, path := range paths {
		old, had := was[path]
		now, has := is[path]
		if had && has && old == now {
			continue
		}
		p.line("  %s", path)
		if had {
			p.line("    - %s", old)
		}
		if has {
			p.line("    + %s", now)
		}
	}
}

// leaf is one value of a JSON document with the way to it.
type leaf struct{ path, value string }

// flat lists the leaves of a document, sorted by path. Empty lists and objects are
// leaves, null is not: it is how a definition says nothing.
func flat(path string, raw json.RawMessage) []leaf {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) == nil && len(members) > 0 {
		keys := make([]string, 0, len(members))
		for k := range members {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		var out []leaf
		for _, k := range keys {
			step := k
			if strings.ContainsAny(k, ".[] ") || k == "" {
				step = strconv.Quote(k)
			}
			out = append(out, flat(strings.TrimPrefix(path+"."+step, "."), members[k])...)
		}
		return out
	}
	var items []json.RawMessage
	if json.Unmarshal(raw, &items) == nil && len(items) > 0 {
		var out []leaf
		for i, v := range items {
			out = append(out, flat(path+"["+strconv.Itoa(i)+"]", v)...)
		}
		return out
	}
	var text string
	switch {
	case string(raw) == "null" || len(raw) == 0:
		return nil
	case json.Unmarshal(raw, &text) == nil:
		return []leaf{{path, text}}
	}
	return []leaf{{path, string(raw)}}
}
