package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"mcpbridge/messages"
)

// Approval is what a person is asked about an entry of a project layer (requirement
// A12): the whole of it, as it is written, references not expanded.
type Approval struct {
	// Place names where the entry stands: the workspace and the name. An entry says
	// something else in another workspace, where its relative paths lead elsewhere.
	Place string
	// Text is everything that the entry says, in one spelling. It may hold secrets: it
	// is for digests, and never shown.
	Text []byte
	// Shown is the entry as JSON with evident secrets masked, for people.
	Shown json.RawMessage
	// References are the ${…} that the entry reads, in order.
	References []string
	// Replaces is where the operator's own entry of that name stands (file:line:col), ""
	// where there is none.
	Replaces string

	resolve func() Server
}

// Resolve gives the server as it runs once it is approved, its references expanded
// in the environment that it was loaded in. It may have an Err.
func (a *Approval) Resolve() Server { return a.resolve() }

// String says that there is something and not what: the text may hold secrets.
func (a *Approval) String() string { return "an entry that waits for approval, not shown" }

// Format prints the same for every verb.
func (a *Approval) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, a.String()) }

// MarshalJSON gives what may be shown.
func (a *Approval) MarshalJSON() ([]byte, error) { return a.Shown, nil }

// Equal compares what is asked; it serves tests.
func (a *Approval) Equal(b *Approval) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Place == b.Place && bytes.Equal(a.Text, b.Text) && slices.Equal(a.References, b.References)
}

// approvalText begins the warning about an entry that waits; see AwaitsApproval.
const approvalText = "blocked: this server comes from the workspace and nobody has approved it; "

// AwaitsApproval reports whether an issue of Load says that a server waits for
// approval, which is no longer true once somebody has approved it.
func AwaitsApproval(i messages.Issue) bool { return strings.HasPrefix(i.Message, approvalText) }

// ask makes the question about a blocked entry.
func (l *loader) ask(e *entry) *Approval {
	said := map[string]any{}
	for _, f := range e.own {
		said[f.key] = plainValue(f.node)
	}
	a := &Approval{Place: strings.Join([]string{e.doc.base, e.Name}, "\n"), Replaces: e.replaces}
	asked := map[string]any{"entry": said, "layer": e.doc.layer}
	if e.replaces != "" { // it comes under rules that were written for another server
		asked["replaces"] = true
	}
	a.Text, _ = json.Marshal(asked) // of maps, lists and texts
	mask := secretsOf(e.Written)
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(hideSecrets(said, mask))
	a.Shown = bytes.TrimSpace(b.Bytes())
	e.Written.texts(func(_, text string) {
		segs, err := split(text)
		if err != nil {
			return
		}
		for _, g := range segs {
			if g.ref != nil && !slices.Contains(a.References, g.ref.raw) {
				a.References = append(a.References, g.ref.raw)
			}
		}
	})
	waiting := *e // what is found out below belongs to the approved server alone
	waiting.issues = nil
	waiting.Approval, waiting.Blocked, waiting.approved = nil, "", true
	a.resolve = func() Server {
		approved := waiting
		l.resolveEntry(&approved)
		return approved.Server
	}
	return a
}

// secretsOf are the literal values of an entry that are secrets by their name or shape.
func secretsOf(w *Written) map[string]bool {
	out := map[string]bool{}
	for _, values := range []map[string]string{w.Env, w.Headers} {
		for k, v := range values {
			if looksSecret(k, v) && !hasReference(v) {
				out[v] = true
			}
		}
	}
	for i := range w.Args {
		if s := argSecret(w.Args, i); s != "" && !hasReference(s) {
			out[s] = true
		}
	}
	for _, s := range urlSecrets(w.URL) {
		if !trivial(s) && !hasReference(s) {
			out[s] = true
		}
	}
	return out
}

// hideSecrets replaces secrets wherever they stand in a value.
func hideSecrets(v any, secrets map[string]bool) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = hideSecrets(e, secrets)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = hideSecrets(e, secrets)
		}
		return out
	case string:
		for s := range secrets {
			v = strings.ReplaceAll(v, s, mask)
		}
		return v
	default:
		return v
	}
}

// plainValue is a node's value with aliases and merge keys followed: what it says,
// however it is written. Scalars keep their spelling, with the type that they have.
func plainValue(n *yaml.Node) any {
	n = resolveAlias(n)
	switch n.Kind {
	case yaml.MappingNode:
		out := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if k := resolveAlias(n.Content[i]); k.ShortTag() == "!!merge" {
				base := resolveAlias(n.Content[i+1])
				bases := []*yaml.Node{base}
				if base.Kind == yaml.SequenceNode {
					bases = base.Content
				}
				for _, b := range bases {
					inherited, _ := plainValue(b).(map[string]any)
					for key, v := range inherited {
						if _, own := out[key]; !own {
							out[key] = v
						}
					}
				}
			}
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if k := resolveAlias(n.Content[i]); k.ShortTag() != "!!merge" {
				out[k.Value] = plainValue(n.Content[i+1])
			}
		}
		return out
	case yaml.SequenceNode:
		out := make([]any, len(n.Content))
		for i, c := range n.Content {
			out[i] = plainValue(c)
		}
		return out
	}
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool":
		return n.Value == "true" || n.Value == "True" || n.Value == "TRUE"
	case "!!int", "!!float":
		if json.Valid([]byte(n.Value)) {
			return json.Number(n.Value)
		}
	}
	return n.Value
}
