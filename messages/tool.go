package messages

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// Effect says what a tool may do to the world, and so which lane its calls take.
// The order is from harmless to harmful; the zero value is the safe assumption.
type Effect uint8

// The three effects of semantics section 2. Idempotent calls are scheduled like
// side effects; they differ only in that one retry is allowed.
const (
	SideEffect Effect = iota
	Idempotent
	ReadOnly
)

var effectNames = [...]string{SideEffect: "side_effect", Idempotent: "idempotent", ReadOnly: "read_only"}

// String returns the word used in configuration and JSON.
func (e Effect) String() string { return enumName(effectNames[:], int(e), "effect") }

// MarshalText implements encoding.TextMarshaler.
func (e Effect) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler; unknown words are an error.
func (e *Effect) UnmarshalText(b []byte) error {
	i, err := enumIndex(effectNames[:], string(b), "effect")
	*e = Effect(i)
	return err
}

// EffectSource says who decided a tool's effect.
type EffectSource uint8

// Where an effect came from. Only FromConfig (the operator's own word) lets the
// bridge repeat a call by itself.
const (
	FromDefault EffectSource = iota
	FromAnnotation
	FromConfig
)

var effectSourceNames = [...]string{FromDefault: "default", FromAnnotation: "annotation", FromConfig: "config"}

// String returns the word used in JSON.
func (s EffectSource) String() string { return enumName(effectSourceNames[:], int(s), "effect source") }

// MarshalText implements encoding.TextMarshaler.
func (s EffectSource) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *EffectSource) UnmarshalText(b []byte) error {
	i, err := enumIndex(effectSourceNames[:], string(b), "effect source")
	*s = EffectSource(i)
	return err
}

// Permission is the gate's answer for a tool: the zero value refuses.
type Permission uint8

// The three actions of a permission rule.
const (
	Deny Permission = iota
	Ask
	Allow
)

var permissionNames = [...]string{Deny: "deny", Ask: "ask", Allow: "allow"}

// String returns the word used in configuration and JSON.
func (p Permission) String() string { return enumName(permissionNames[:], int(p), "permission") }

// MarshalText implements encoding.TextMarshaler.
func (p Permission) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Permission) UnmarshalText(b []byte) error {
	i, err := enumIndex(permissionNames[:], string(b), "permission")
	*p = Permission(i)
	return err
}

// Hints are a server's own annotations, each nil where the server said nothing
// (or something that is not a boolean). They are hints only (requirement C5).
type Hints struct {
	ReadOnly    *bool
	Destructive *bool
	Idempotent  *bool
	OpenWorld   *bool
}

// ToolDef is one entry of a server's tools/list, adapted leniently (requirement
// C4): every field that the bridge does not need is left in Raw as it came.
type ToolDef struct {
	Name         string          // remote name, never empty
	Title        string          // "" where absent
	Description  string          // never blank: C4 fills it in
	InputSchema  json.RawMessage // a JSON object, never nil: C4 puts {"type":"object"}
	OutputSchema json.RawMessage // a JSON object, or nil
	Annotations  json.RawMessage // as the server wrote them, or nil
	Hints        Hints
	Raw          json.RawMessage // the whole entry, byte for byte
}

// Listing is the answer to one complete tools/list, all pages together.
type Listing struct {
	Tools      []ToolDef
	Discovered int     // raw entries seen, those that were dropped included
	Issues     []Issue // one for each difference between Discovered and len(Tools), and for each oddity
	Truncated  bool    // a cap or a repeated cursor ended the listing early (requirement B7)
	// StoredAt is set on what a server listed in an earlier run, at that time: it holds
	// until the server lists again (requirement C8).
	StoredAt time.Time
}

// Tool is one entry of the catalogue: a definition with its local name, its
// effect and the gate's word on it. Values are immutable once published.
type Tool struct {
	Name         string // mcp__<server>__<tool>, at most 64 of [A-Za-z0-9_-]
	EndpointName string // <server>__<tool>, at most 48
	Server       string
	RemoteName   string
	Def          ToolDef
	Effect       Effect
	EffectSource EffectSource
	Permission   Permission
	Rule         string // the permission rule that decided, for people: `permissions[2]` or `default`
	Digest       string // "sha256:<hex>" over name, title, description, schemas and annotations
	Listed       bool   // false: known but not offered (held, or its server is quarantined or stopped)
	// Change is set while the definition is not the one that was seen first and nobody
	// has approved it; Held says that it is neither offered nor called until then.
	Change ChangeKind
	Held   bool
	Limits ToolLimits
}

// ToolLimits are the scheduling facts of one tool that configuration gives.
type ToolLimits struct {
	AbandonNever bool // a fenced call of this tool is never abandoned
	// LaneKey is the path of the argument that splits the lane of the tool's side
	// effects, names joined with dots: "path", "target.id"; "" for none.
	LaneKey string
	// AnyDefinition says that the operator takes changed definitions over as they come
	// (pins: {on_change: allow}).
	AnyDefinition bool
}

// toolJSON is the row of `tools -o json` (contract, section JSON).
type toolJSON struct {
	Name         string          `json:"name"`
	EndpointName string          `json:"endpoint_name"`
	Server       string          `json:"server"`
	RemoteName   string          `json:"remote_name"`
	Title        string          `json:"title,omitempty"`
	Description  string          `json:"description"`
	InputSchema  json.RawMessage `json:"inputSchema"`
	OutputSchema json.RawMessage `json:"outputSchema"`
	Annotations  json.RawMessage `json:"annotations"`
	Effect       Effect          `json:"effect"`
	EffectSource EffectSource    `json:"effect_source"`
	Permission   Permission      `json:"permission"`
	Rule         string          `json:"rule,omitempty"`
	Digest       string          `json:"digest"`
	Listed       bool            `json:"listed"`
	Change       ChangeKind      `json:"change,omitempty"`
	Held         bool            `json:"held,omitempty"`
}

// MarshalJSON renders the tool as `tools -o json` shows it.
func (t Tool) MarshalJSON() ([]byte, error) {
	return marshalRaw(toolJSON{t.Name, t.EndpointName, t.Server, t.RemoteName, t.Def.Title, t.Def.Description,
		orNull(t.Def.InputSchema), orNull(t.Def.OutputSchema), orNull(t.Def.Annotations),
		t.Effect, t.EffectSource, t.Permission, t.Rule, t.Digest, t.Listed, t.Change, t.Held})
}

// UnmarshalJSON reads what MarshalJSON wrote (used by the control client).
func (t *Tool) UnmarshalJSON(b []byte) error {
	var j toolJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	*t = Tool{Name: j.Name, EndpointName: j.EndpointName, Server: j.Server, RemoteName: j.RemoteName,
		Def: ToolDef{Name: j.RemoteName, Title: j.Title, Description: j.Description, InputSchema: j.InputSchema,
			OutputSchema: fromNull(j.OutputSchema), Annotations: fromNull(j.Annotations)},
		Effect: j.Effect, EffectSource: j.EffectSource, Permission: j.Permission, Rule: j.Rule, Digest: j.Digest, Listed: j.Listed,
		Change: j.Change, Held: j.Held}
	return nil
}

func orNull(r json.RawMessage) json.RawMessage {
	if len(r) == 0 {
		return json.RawMessage("null")
	}
	return r
}

func fromNull(r json.RawMessage) json.RawMessage {
	if string(r) == "null" {
		return nil
	}
	return r
}

// marshalRaw is json.Marshal without the HTML escapes, which would change the bytes
// of what a server wrote; an encoder with SetEscapeHTML(false) then keeps them.
func marshalRaw(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// enumName and enumIndex serve every enum of this package: one table, both ways.
func enumName(names []string, i int, kind string) string {
	if i < 0 || i >= len(names) {
		return fmt.Sprintf("bug: unknown %s %d", kind, i)
	}
	return names[i]
}

func enumIndex(names []string, s, kind string) (int, error) {
	for i, n := range names {
		if n == s {
			return i, nil
		}
	}
	return 0, fmt.Errorf("unknown %s %q: one of %q", kind, s, names)
}
