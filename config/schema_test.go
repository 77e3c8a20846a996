package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"
	"gopkg.in/yaml.v3"

	"mcpbridge/messages"
)

func schemaOf(t *testing.T) (*jsonschema.Schema, *jsonschema.Resolved) {
	t.Helper()
	b, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	s := new(jsonschema.Schema)
	if err := json.Unmarshal(b, s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return s, r
}

// TestSchemaIsFresh compares with the copy in the repository; rewrite it with -update.
func TestSchemaIsFresh(t *testing.T) {
	got, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		write(t, SchemaFile, string(got))
	}
	want, err := os.ReadFile(SchemaFile)
	if err != nil {
		t.Fatal(err)
	}
	if d := gocmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("the kept schema is stale; rewrite it with go test ./config -run TestSchemaIsFresh -update:\n%s", d)
	}
}

// TestSchemaKnowsTheKeys asks the loader at every place what it knows there, by a key
// that it cannot know, and holds the schema to the answer.
func TestSchemaKnowsTheKeys(t *testing.T) {
	s, _ := schemaOf(t)
	const odd = "zzzzzzzzzzzzzzzz"
	checked := 0
	var walk func(s *jsonschema.Schema, path []string)
	walk = func(s *jsonschema.Schema, path []string) {
		if len(s.Properties) > 0 {
			text := odd + ": 1"
			for _, k := range slices.Backward(path) {
				if k == "[]" {
					text = "[{" + text + "}]"
				} else {
					text = k + ": {" + text + "}"
				}
				text = strings.ReplaceAll(text, ": {[", ": [")
				text = strings.ReplaceAll(text, "]}", "]")
			}
			known := ""
			c := newWorld(t).user(text).load()
			for _, i := range c.Issues {
				if _, list, ok := strings.Cut(i.Message, "known here: "); ok {
					known = list
				}
			}
			var want []string
			for k := range s.Properties {
				want = append(want, k)
			}
			slices.Sort(want)
			if d := gocmp.Diff(strings.Join(want, ", "), known); d != "" && strings.Join(path, ".") != "defaults" {
				t.Errorf("at %v (-schema +loader): %s\n%s", path, d, text)
			}
			checked++
		}
		for k, p := range s.Properties {
			walk(p, append(slices.Clone(path), k))
		}
		if s.Items != nil {
			walk(s.Items, append(slices.Clone(path), "[]"))
		}
		if s.AdditionalProperties != nil {
			walk(s.AdditionalProperties, append(slices.Clone(path), "x"))
		}
	}
	walk(s, nil)
	if checked < 25 {
		t.Errorf("only %d objects were compared", checked)
	}
}

// TestSchemaAcceptsExamples: what loads without an error is valid by the schema, and what
// it forbids is an error of the loader.
func TestSchemaAcceptsExamples(t *testing.T) {
	_, r := schemaOf(t)
	validate := func(text string) error {
		var v any
		if err := yaml.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var plain any
		if err := json.Unmarshal(b, &plain); err != nil {
			t.Fatal(err)
		}
		return r.Validate(plain)
	}
	files, _ := filepath.Glob("testdata/examples/*.yaml")
	if len(files) == 0 {
		t.Fatal("no examples")
	}
	texts := []string{Starter(), "mcp_servers:\n", "mcp_servers: {a: {command: x, env: {A: 1, B: true}, timeouts: {call: 0, abandon_after: never}, limits: {memory: 1.5GB}, inherit_env: all}}"}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(b))
	}
	for _, text := range texts {
		if err := validate(text); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
	}
	for _, text := range []string{
		"comand: x", "mcp_servers: {a: {comand: x}}", "mcp_servers: {a: {timeouts: {call: 5}}}", "mcp_servers: {a: {type: tcp}}",
		"version: 2", "permissions: [{effect: read_only}]", "limits: 1", "mcp_servers: {a: {limits: {queue: 0}}}", "mcp_servers: {a: {enabled: 'yes'}}",
		"defaults: {command: x}", "mcp_servers: {a: {limits: {memory: 12}}}", "mcp_servers: {a: {restart: {mode: sometimes}}}",
	} {
		if validate(text) == nil {
			t.Errorf("the schema accepts %s", text)
		}
		if !slices.ContainsFunc(newWorld(t).user(text).load().Issues, func(i messages.Issue) bool { return i.Severity == "error" }) {
			t.Errorf("the loader accepts %s", text)
		}
	}
}
