package config

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/google/jsonschema-go/jsonschema"
)

// SchemaFile is the name under which the schema is kept in the repository and written
// beside a new configuration.
const SchemaFile = "mcpbridge.schema.json"

// Schema is the JSON Schema (2020-12) of a configuration file, for editors. It knows keys,
// words and the form of values; what hangs together is for Load to say.
func Schema() ([]byte, error) {
	s, err := jsonschema.For[fileShape](&jsonschema.ForOptions{TypeSchemas: typeSchemas()})
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	s.Schema = "https://json-schema.org/draft/2020-12/schema"
	s.Title = "mcpbridge configuration"
	one := any(1)
	s.Properties["version"] = &jsonschema.Schema{Const: &one, Description: s.Properties["version"].Description}
	allowNull(s)
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	return append(b, '\n'), nil
}

// allowNull lets a block be empty: `mcp_servers:` without a value says nothing.
func allowNull(s *jsonschema.Schema) {
	for name, p := range s.Properties {
		if p.Type == "object" {
			p.Type, p.Types = "", []string{"null", "object"}
		}
		if name != "permissions" {
			allowNull(p)
		}
	}
	if s.AdditionalProperties != nil {
		allowNull(s.AdditionalProperties)
	}
}

// typeSchemas are the forms that Go's own types do not tell.
func typeSchemas() map[reflect.Type]*jsonschema.Schema {
	const durations, sizes = `^\s*([0-9.]+ *(ns|us|µs|μs|ms|s|m|h|d) *)+$`, `^\s*[0-9.]+ *[KMGkmg]?[Ii]?[Bb] *$`
	text := func(pattern string) *jsonschema.Schema { return &jsonschema.Schema{Type: "string", Pattern: pattern} }
	zero := any(0)
	orZero := func(s ...*jsonschema.Schema) *jsonschema.Schema {
		return &jsonschema.Schema{AnyOf: append(s, &jsonschema.Schema{Const: &zero})}
	}
	words := func(list ...any) *jsonschema.Schema { return &jsonschema.Schema{Type: "string", Enum: list} }
	from := func(n float64) *jsonschema.Schema { return &jsonschema.Schema{Type: "integer", Minimum: &n} }
	scalar := &jsonschema.Schema{Types: []string{"string", "number", "boolean"}}
	list := &jsonschema.Schema{Type: "array", Items: scalar}
	return map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[durationText]():  orZero(text(durations)),
		reflect.TypeFor[abandonAfter]():  {AnyOf: []*jsonschema.Schema{text(durations), words("never")}},
		reflect.TypeFor[sizeText]():      orZero(text(sizes)),
		reflect.TypeFor[onOff]():         {Type: "boolean"},
		reflect.TypeFor[textList]():      list,
		reflect.TypeFor[textMap]():       {Type: "object", AdditionalProperties: scalar},
		reflect.TypeFor[nonNegative]():   from(0),
		reflect.TypeFor[positive]():      from(1),
		reflect.TypeFor[abandonText]():   words("never"),
		reflect.TypeFor[inheritChoice](): {AnyOf: []*jsonschema.Schema{list, words("all")}},
		reflect.TypeFor[effectName]():    words("read_only", "idempotent", "side_effect"),
		reflect.TypeFor[transportWord](): words(string(Stdio), string(HTTP), string(SSE)),
		reflect.TypeFor[trustWord]():     words(string(TrustNone), string(TrustAnnotations), string(TrustReadOnly)),
		reflect.TypeFor[connectWord]():   words(string(ConnectStartup), string(ConnectLazy), string(ConnectDisabled)),
		reflect.TypeFor[sessionsWord]():  words("shared", "per_client"),
		reflect.TypeFor[isolationWord](): words("exclusive", "serial"),
		reflect.TypeFor[restartWord]():   words(string(RestartAlways), string(RestartOnFailure), string(RestartNever)),
		reflect.TypeFor[pinWord]():       words("block", "warn", "allow"),
		reflect.TypeFor[actionWord]():    words("allow", "ask", "deny"),
		reflect.TypeFor[askViaWord]():    words("none", "client"),
		reflect.TypeFor[metaWord]():      words("auto", "always", "never"),
		reflect.TypeFor[fsyncWord]():     words("always", "interval", "off"),
	}
}
