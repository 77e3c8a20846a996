package actors

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"mcpbridge/actors/internal/lane"
	"mcpbridge/actors/internal/policy"
	"mcpbridge/config"
	"mcpbridge/messages"
)

// Gate says what a caller may do: the permissions, the effects and the argument
// check of one configuration. It is safe for concurrent use and never blocks.
type Gate struct {
	rules   atomic.Pointer[gateRules]
	schemas schemaCache
}

// gateRules are what one configuration says; they never change.
type gateRules struct {
	permissions policy.Permissions
	servers     map[string]serverGate
}

// serverGate is what the configuration says about one server's tools.
type serverGate struct {
	effects  policy.Effects
	allow    []string // empty = all
	deny     []string
	never    []string // abandon: never, by tool name or glob
	laneKey  []laneKey
	maxBytes int64
	onChange policy.OnChange
}

// laneKey is one line of a server's lane_key.
type laneKey struct{ tool, path string }

// laneKeys sorts them as effects are: an exact name first, then the longest glob.
func laneKeys(written map[string]string) (out []laneKey) {
	for tool, path := range written {
		out = append(out, laneKey{tool, strings.TrimPrefix(path, "args.")})
	}
	slices.SortFunc(out, func(a, b laneKey) int {
		return cmp.Or(cmp.Compare(len(b.tool), len(a.tool)), cmp.Compare(a.tool, b.tool))
	})
	return out
}

// pathOf is the path for a tool; "" for none.
func pathOf(keys []laneKey, tool string) string {
	for _, k := range keys {
		if k.tool == tool {
			return k.path
		}
	}
	for _, k := range keys {
		if policy.Match(k.tool, tool) {
			return k.path
		}
	}
	return ""
}

// defaultMaxArgs bounds the arguments of a call whose server has no frame limit.
const defaultMaxArgs = 32 << 20

// NewGate builds the gate of a configuration. Without one it denies everything.
func NewGate(cfg *config.Config) *Gate {
	g := &Gate{}
	g.Replace(cfg)
	return g
}

// Replace puts another configuration in place of the one before, for every question
// from now on. What waits in the router is judged again once it hears PolicyChanged.
func (g *Gate) Replace(cfg *config.Config) { g.rules.Store(rulesOf(cfg)) }

func rulesOf(cfg *config.Config) *gateRules {
	g := &gateRules{servers: map[string]serverGate{}}
	if cfg == nil {
		return g
	}
	g.permissions = policy.Permissions{Rules: policyRules(cfg.Permissions), Absent: !cfg.HasPermissions && len(cfg.Permissions) == 0,
		Project: policyRules(cfg.ProjectRules)}
	for _, s := range cfg.Servers {
		trust := policy.TrustNone
		switch s.Trust {
		case config.TrustAnnotations:
			trust = policy.TrustAnnotations
		case config.TrustReadOnly:
			trust = policy.TrustReadOnly
		}
		sg := serverGate{effects: policy.NewEffects(s.Effects, trust), allow: s.Allow, deny: s.Deny, maxBytes: s.Limits.FrameBytes}
		for tool, word := range s.Abandon {
			if word == "never" {
				sg.never = append(sg.never, tool)
			}
		}
		sg.laneKey = laneKeys(s.LaneKey)
		switch s.PinChange {
		case "warn":
			sg.onChange = policy.Warn
		case "allow":
			sg.onChange = policy.TakeOver
		}
		g.servers[s.Name] = sg
	}
	return g
}

func policyRules(in []config.Rule) []policy.Rule {
	out := make([]policy.Rule, len(in))
	for i, r := range in {
		out[i] = policy.Rule{Server: r.Server, Tool: r.Tool, Effect: r.Effect, Client: r.Client, View: r.View, Action: r.Action, Name: r.Source}
	}
	return out
}

// Decide gives the permission of a tool for a client in a view, and the name of
// the rule that gave it: `permissions[2]`, `project permissions[0]` or `default`.
// An empty client and view ask for the catalogue at large.
func (g *Gate) Decide(t messages.Tool, client, view string) (messages.Permission, string) {
	if t.Server == "" || t.RemoteName == "" {
		return messages.Deny, policy.DefaultRule
	}
	return g.rules.Load().permissions.Decide(policy.Subject{Server: t.Server, Tool: t.RemoteName, Effect: t.Effect, Client: client, View: view})
}

// CheckArgs checks a call's arguments and returns them as the object that is sent
// (requirement D1): absent and null become {}, everything else keeps its bytes.
// The error is meant for the caller: it names the argument and no values.
func (g *Gate) CheckArgs(t messages.Tool, args json.RawMessage) (json.RawMessage, error) {
	limit := g.rules.Load().servers[t.Server].maxBytes
	if limit <= 0 {
		limit = defaultMaxArgs
	}
	parsed, err := policy.ParseArgs(args, limit)
	if err != nil {
		return nil, err
	}
	if schema, err := g.schemas.get(t.Def.InputSchema); err == nil {
		if err := schema.Validate(parsed); err != nil {
			return nil, err
		}
	}
	return parsed.Raw, nil
}

// effect classifies a tool of a server (requirement C5).
func (g *Gate) effect(server string, def messages.ToolDef) (messages.Effect, messages.EffectSource) {
	return g.rules.Load().servers[server].effects.Of(def.Name, def.Hints)
}

// visible reports whether tools.allow and tools.deny let the tool into the catalogue.
func (g *Gate) visible(server, tool string) bool {
	s := g.rules.Load().servers[server]
	return (len(s.allow) == 0 || policy.MatchAny(s.allow, tool)) && !policy.MatchAny(s.deny, tool)
}

// limits are the scheduling facts that the configuration gives a tool.
func (g *Gate) limits(server, tool string) messages.ToolLimits {
	s := g.rules.Load().servers[server]
	return messages.ToolLimits{AbandonNever: policy.MatchAny(s.never, tool), LaneKey: pathOf(s.laneKey, tool),
		AnyDefinition: s.onChange == policy.TakeOver}
}

// onChange is what becomes of a server's tools whose definitions change.
func (g *Gate) onChange(server string) policy.OnChange {
	return g.rules.Load().servers[server].onChange
}

// AbandonNever reports whether a fenced call of the tool is never to be abandoned.
func (g *Gate) AbandonNever(server, tool string) bool { return g.limits(server, tool).AbandonNever }

// LaneKey is the value that splits the lane of a tool's side effects; "" where the
// tool has none, is read_only, or the arguments lack it. args is what CheckArgs
// returned.
func (g *Gate) LaneKey(t messages.Tool, args json.RawMessage) string {
	if t.Limits.LaneKey == "" || t.Effect == messages.ReadOnly || len(args) == 0 {
		return ""
	}
	return lane.KeyOf(t.Limits.LaneKey, args)
}

// schemaProblems says what of a tool's input schema is not used for the check.
func (g *Gate) schemaProblems(def messages.ToolDef) []string {
	schema, err := g.schemas.get(def.InputSchema)
	if err != nil {
		return []string{fmt.Sprintf("its input schema is not used to check arguments: %v; the server checks them alone", err)}
	}
	if notes := schema.Notes(); len(notes) > 0 {
		return []string{"its input schema is used in part to check arguments: " + strings.Join(notes, "; ")}
	}
	return nil
}

// inputProblem says why a tool's input schema is not passed on, "" where it is. A schema
// that nobody can use would cost strict clients the whole list; without it the tool can
// still be called, and its server checks the arguments (requirement C4).
func (g *Gate) inputProblem(def messages.ToolDef) string {
	err := policy.Usable(def.InputSchema)
	if err == nil {
		if _, err = g.schemas.get(def.InputSchema); !errors.Is(err, policy.ErrBroken) {
			return ""
		}
	}
	return `its input schema is quarantined, and {"type":"object"} is listed in its place: ` + err.Error() + "; the server checks the arguments alone"
}

// outputProblem says why a tool's output schema is not passed on, "" where it is or
// there is none.
// Typed clients compile every output schema of a list at once, so that a broken one
// costs them all the tools of all the servers; it is optional, and without it the
// results are the same. One that is merely too much for the bridge is theirs to judge.
func (g *Gate) outputProblem(def messages.ToolDef) string {
	if len(def.OutputSchema) == 0 {
		return ""
	}
	err := policy.Portable(def.OutputSchema)
	if err == nil {
		_, err = g.schemas.get(def.OutputSchema)
	}
	if err == nil || errors.Is(err, policy.ErrBeyond) {
		return ""
	}
	return "its output schema is not passed on: " + err.Error() + "; the results are"
}

// schemaCache keeps compiled schemas, by their text: equal schemas are common, and
// a text never compares equal to another by accident. When the newer half is full
// the older one is forgotten, so a server that lists ever new schemas costs a
// bounded amount; what is used comes back into the newer half.
type schemaCache struct {
	mu       sync.Mutex
	newer    map[string]compiledSchema
	older    map[string]compiledSchema
	bytes    int // of the newer half
	maxBytes int // 0 = the default
}

type compiledSchema struct {
	schema *policy.Schema
	err    error
}

// defaultCacheBytes is the size of the schema texts in one half of the cache.
const defaultCacheBytes = 16 << 20

var errNoSchema = errors.New("there is none")

func (c *schemaCache) get(raw json.RawMessage) (*policy.Schema, error) {
	if len(raw) == 0 {
		return nil, errNoSchema
	}
	if len(raw) > policy.MaxSchemaBytes { // refused at a glance, and nothing to keep
		return policy.CompileSchema(raw)
	}
	if found, ok := c.lookup(raw); ok {
		return found.schema, found.err
	}
	var made compiledSchema
	made.schema, made.err = policy.CompileSchema(raw) // outside the lock: two may do the same work once
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(string(raw), made)
	return made.schema, made.err
}

func (c *schemaCache) lookup(raw json.RawMessage) (compiledSchema, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found, ok := c.newer[string(raw)]; ok {
		return found, true
	}
	found, ok := c.older[string(raw)]
	if ok {
		c.put(string(raw), found)
	}
	return found, ok
}

// put adds to the newer half; the lock is held.
func (c *schemaCache) put(text string, made compiledSchema) {
	limit := c.maxBytes
	if limit == 0 {
		limit = defaultCacheBytes
	}
	if _, ok := c.newer[text]; ok {
		return
	}
	if c.newer == nil || c.bytes+len(text) > limit {
		c.older, c.newer, c.bytes = c.newer, map[string]compiledSchema{}, 0
	}
	c.newer[text] = made
	c.bytes += len(text)
}
