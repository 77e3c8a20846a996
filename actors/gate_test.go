package actors

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"mcpbridge/config"
	"mcpbridge/messages"
)

func gateTool(server, remote string, effect messages.Effect, schema string) messages.Tool {
	return messages.Tool{Server: server, RemoteName: remote, Effect: effect,
		Def: messages.ToolDef{Name: remote, InputSchema: json.RawMessage(schema)}}
}

func TestGateDecide(t *testing.T) {
	read, write := gateTool("fs", "read", messages.ReadOnly, `{}`), gateTool("fs", "write", messages.SideEffect, `{}`)
	rule := config.Rule{Server: "fs", Tool: "wr*", Client: "ci", Action: messages.Allow, Source: "permissions[0]"}
	for _, c := range []struct {
		name         string
		cfg          *config.Config
		tool         messages.Tool
		client, view string
		want         messages.Permission
		rule         string
	}{
		{"no configuration", nil, read, "", "", messages.Deny, "default"},
		{"no block", &config.Config{}, read, "", "", messages.Allow, "default"},
		{"no block, writing", &config.Config{}, write, "", "", messages.Ask, "default"},
		{"an empty block", &config.Config{HasPermissions: true}, read, "", "", messages.Deny, "default"},
		{"a rule", &config.Config{HasPermissions: true, Permissions: []config.Rule{rule}}, write, "ci", "", messages.Allow, "permissions[0]"},
		{"a rule for another", &config.Config{HasPermissions: true, Permissions: []config.Rule{rule}}, write, "local", "", messages.Deny, "default"},
		{"rules built in code", &config.Config{Permissions: []config.Rule{rule}}, write, "ci", "", messages.Allow, "permissions[0]"},
		{"the project's", &config.Config{ProjectRules: []config.Rule{{Action: messages.Deny}}}, read, "", "", messages.Deny, "project permissions[0]"},
		{"a tool without a name", &config.Config{}, gateTool("fs", "", messages.ReadOnly, `{}`), "", "", messages.Deny, "default"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, by := NewGate(c.cfg).Decide(c.tool, c.client, c.view)
			if got != c.want || by != c.rule {
				t.Errorf("got %v by %s, want %v by %s", got, by, c.want, c.rule)
			}
		})
	}
}

func TestGateCheckArgs(t *testing.T) {
	small := config.Server{Name: "small", Limits: config.Limits{FrameBytes: 100}}
	g := NewGate(&config.Config{Servers: []config.Server{small}})
	schema := `{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`
	for _, c := range []struct{ server, schema, args, want, err string }{
		{"fs", schema, `{"a":"x"}`, `{"a":"x"}`, ""},
		{"fs", schema, ``, ``, `missing argument "a"`},
		{"fs", schema, `[]`, ``, "must be a JSON object"},
		{"fs", `{"type":"object"}`, `null`, `{}`, ""},
		{"fs", `{"$ref":"#"}`, `{"b":1}`, `{"b":1}`, ""}, // the screen refuses the schema, the tool works on
		{"fs", `{"type":"int"}`, `{"b":1}`, `{"b":1}`, ""},
		{"fs", ``, `{"b":1}`, `{"b":1}`, ""},
		{"fs", `{"description":"` + strings.Repeat("x", 70_000) + `","required":["a"]}`, `{}`, `{}`, ""},
		{"small", schema, `{"a":"` + strings.Repeat("x", 100) + `"}`, ``, "one call may carry 100"},
	} {
		for range 2 { // the second time from the cache
			got, err := g.CheckArgs(gateTool(c.server, "t", messages.ReadOnly, c.schema), json.RawMessage(c.args))
			if string(got) != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%.60s with %.60s: %s, %v", c.schema, c.args, got, err)
			}
		}
	}
}

func TestGateServerRules(t *testing.T) {
	yes := true
	g := NewGate(&config.Config{Servers: []config.Server{
		{Name: "fs", Trust: config.TrustAnnotations, Effects: map[string]messages.Effect{"put": messages.Idempotent},
			Allow: []string{"read*", "put"}, Deny: []string{"*_secret"}, Abandon: map[string]string{"long_*": "never", "other": "30s"}},
		{Name: "ro", Trust: config.TrustReadOnly},
		{Name: "no", Trust: config.TrustNone},
	}})
	hint := messages.ToolDef{Name: "x", Hints: messages.Hints{ReadOnly: &yes}}
	for server, want := range map[string]string{"fs": "read_only annotation", "ro": "read_only config", "no": "side_effect default", "unknown": "side_effect default"} {
		effect, source := g.effect(server, hint)
		if got := fmt.Sprint(effect, " ", source); got != want {
			t.Errorf("%s: %s, want %s", server, got, want)
		}
	}
	for name, want := range map[string]bool{"read_file": true, "put": true, "write": false, "read_secret": false} {
		if got := g.visible("fs", name); got != want {
			t.Errorf("visible %s: %v", name, got)
		}
	}
	if !g.visible("ro", "anything") {
		t.Error("no filter hides nothing")
	}
	if !g.limits("fs", "long_job").AbandonNever || g.limits("fs", "other").AbandonNever || g.limits("ro", "long_job").AbandonNever {
		t.Error("abandon")
	}
}

func TestGateIsSafeForConcurrentUse(t *testing.T) {
	g := NewGate(&config.Config{})
	g.schemas.maxBytes = 500 // turn the cache over all the time
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 100 {
				schema := fmt.Sprintf(`{"type":"object","required":["p%d"]}`, (i+worker)%20)
				good := json.RawMessage(fmt.Sprintf(`{"p%d":1}`, (i+worker)%20))
				if _, err := g.CheckArgs(gateTool("fs", "t", messages.ReadOnly, schema), good); err != nil {
					t.Errorf("%s: %v", schema, err)
				}
				if _, err := g.CheckArgs(gateTool("fs", "t", messages.ReadOnly, schema), nil); err == nil {
					t.Errorf("%s: {} passed", schema)
				}
			}
		})
	}
	wg.Wait()
	if n := len(g.schemas.newer) + len(g.schemas.older); n > 40 || g.schemas.bytes > 500 {
		t.Errorf("the cache holds %d schemas, %d bytes in its newer half", n, g.schemas.bytes)
	}
}
