package policy

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// chain builds n definitions, each of which uses the next one as link says, where
// %[2]s is the reference to it.
func chain(n int, link string) string {
	var b strings.Builder
	b.WriteString(`{"$ref":"#/$defs/d0","$defs":{`)
	for i := range n {
		fmt.Fprintf(&b, `"d%d":`+link+`,`, i, fmt.Sprintf(`{"$ref":"#/$defs/d%d"}`, i+1))
	}
	fmt.Fprintf(&b, `"d%d":{"type":"object"}}}`, n)
	return b.String()
}

func nest(n int, open, inner, end string) string {
	return strings.Repeat(open, n) + inner + strings.Repeat(end, n)
}

func many(n int, item string) string {
	return strings.TrimSuffix(strings.Repeat(item+",", n), ",")
}

// hostileSchemas must all be refused, and refusing them must take no time to speak
// of, no stack and no network.
func hostileSchemas() map[string]string {
	properties := make([]string, 2500)
	for i := range properties {
		properties[i] = fmt.Sprintf(`"p%d":{}`, i)
	}
	return map[string]string{
		"itself":                             `{"$ref":"#"}`,
		"itself by an empty fragment":        `{"allOf":[{"$ref":"#"}]}`,
		"itself in anyOf":                    `{"anyOf":[{"$ref":"#"},{"type":"object"}]}`,
		"itself in oneOf":                    `{"oneOf":[{"$ref":"#"}]}`,
		"itself in not":                      `{"not":{"$ref":"#"}}`,
		"itself in if":                       `{"if":{"$ref":"#"},"then":{}}`,
		"itself in then":                     `{"if":{},"then":{"$ref":"#"}}`,
		"itself in else":                     `{"if":{},"else":{"$ref":"#"}}`,
		"itself by dependentSchemas":         `{"dependentSchemas":{"a":{"$ref":"#"}}}`,
		"itself by a property":               `{"properties":{"a":{"$ref":"#"}}}`,
		"itself by items":                    `{"properties":{"a":{"items":{"$ref":"#/properties/a"}}}}`,
		"itself by pattern properties":       `{"patternProperties":{".*":{"$ref":"#"}}}`,
		"itself by additional properties":    `{"additionalProperties":{"$ref":"#"}}`,
		"itself by unevaluated properties":   `{"unevaluatedProperties":{"$ref":"#"}}`,
		"itself by property names":           `{"propertyNames":{"$ref":"#"}}`,
		"itself by contains":                 `{"contains":{"$ref":"#"}}`,
		"itself by prefix items":             `{"prefixItems":[{"$ref":"#"}]}`,
		"itself by an anchor":                `{"$anchor":"me","allOf":[{"$ref":"#me"}]}`,
		"itself by a dynamic anchor":         `{"$dynamicAnchor":"me","allOf":[{"$dynamicRef":"#me"}]}`,
		"itself by a dynamic pointer":        `{"allOf":[{"$dynamicRef":"#"}]}`,
		"itself by its id":                   `{"$id":"https://a.example/s","allOf":[{"$ref":"https://a.example/s#"}]}`,
		"a pair":                             `{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}`,
		"a pair of old":                      `{"$schema":"http://json-schema.org/draft-07/schema#","allOf":[{"$ref":"#/definitions/a"}],"definitions":{"a":{"$ref":"#/definitions/b"},"b":{"$ref":"#/definitions/a"}}}`,
		"old dependencies":                   `{"$schema":"http://json-schema.org/draft-07/schema#","dependencies":{"a":{"$ref":"#"}}}`,
		"a ring of 500":                      strings.Replace(chain(500, `%[2]s`), `{"type":"object"}`, `{"$ref":"#/$defs/d0"}`, 1),
		"doubled allOf":                      chain(24, `{"allOf":[%[2]s,%[2]s]}`),
		"doubled anyOf":                      chain(40, `{"anyOf":[%[2]s,%[2]s]}`),
		"doubled oneOf":                      chain(64, `{"oneOf":[%[2]s,%[2]s]}`),
		"doubled if":                         chain(30, `{"if":%[2]s,"then":%[2]s}`),
		"doubled properties":                 chain(30, `{"allOf":[{"properties":{"a":%[2]s}},{"properties":{"a":%[2]s}}]}`),
		"tripled items":                      chain(20, `{"prefixItems":[%[2]s,%[2]s,%[2]s]}`),
		"a long chain of properties":         chain(200, `{"properties":{"a":%[2]s}}`),
		"nested deep":                        nest(40, `{"not":`, `{}`, `}`),
		"nested deeper than JSON may":        nest(300, `{"allOf":[`, `{}`, `]}`),
		"nested in an annotation":            `{"x":` + nest(5000, `[`, ``, `]`) + `}`,
		"nested without end":                 strings.Repeat(`{"not":`, 9000),
		"too many properties":                `{"properties":{` + strings.Join(properties, ",") + `}}`,
		"too many alternatives":              `{"anyOf":[` + many(2100, `{}`) + `]}`,
		"too large":                          `{"description":"` + strings.Repeat("x", 70_000) + `"}`,
		"a large enum many times":            `{"allOf":[` + many(300, `{"$ref":"#/$defs/e"}`) + `],"$defs":{"e":{"enum":["` + strings.Repeat("x", 40_000) + `"]}}}`,
		"remote":                             `{"$ref":"https://evil.example/s.json"}`,
		"remote with a fragment":             `{"properties":{"a":{"$ref":"http://169.254.169.254/latest#/x"}}}`,
		"a file":                             `{"properties":{"a":{"$ref":"file:///etc/passwd"}}}`,
		"a relative reference":               `{"$ref":"other.json"}`,
		"a query":                            `{"$ref":"?x#"}`,
		"a reference to nothing":             `{"$ref":"#/$defs/none"}`,
		"a reference to an annotation":       `{"allOf":[{"$ref":"#/x-schemas/a"}],"x-schemas":{"a":{"$ref":"#"}}}`,
		"a reference that is no string":      `{"$ref":{"a":1}}`,
		"an id below":                        `{"properties":{"a":{"$id":"https://b.example/x","$ref":"#"}}}`,
		"recursiveRef":                       `{"items":{"$recursiveRef":"#"}}`,
		"an anchor twice":                    `{"$defs":{"a":{"$anchor":"x"},"b":{"$anchor":"x"}}}`,
		"an unknown type":                    `{"properties":{"n":{"type":"int"}}}`,
		"an unknown type among others":       `{"properties":{"n":{"type":["string","any"]}}}`,
		"a type that is no word":             `{"type":{"$ref":"#"}}`,
		"properties that are a list":         `{"properties":[{"$ref":"#"}]}`,
		"allOf that is an object":            `{"allOf":{"$ref":"#"}}`,
		"a subschema that is a number":       `{"properties":{"a":1}}`,
		"no schema at all":                   `[]`,
		"not JSON":                           `{"a":`,
		"a key twice":                        `{"properties":{},"properties":{"a":{"$ref":"#"}}}`,
		"a pattern property for look-around": `{"patternProperties":{"(?=a)":{}}}`,
		"a long pattern property":            `{"patternProperties":{"` + strings.Repeat("a", 2000) + `":{}}}`,
		"a swelling pattern property":        `{"patternProperties":{"` + strings.Repeat("[a-c]{900}", 20) + `":{}}}`,
		"a dropped keyword under not":        `{"properties":{"a":{"not":{"pattern":"(?=x)"}}}}`,
		"a dropped bound under oneOf":        `{"properties":{"a":{"oneOf":[{"maximum":9007199254740993},{"type":"string"}]}}}`,
	}
}

func TestHostileSchemas(t *testing.T) {
	schemas := hostileSchemas()
	if len(schemas) < 30 {
		t.Fatalf("only %d", len(schemas))
	}
	for name, schema := range schemas {
		if s, err := CompileSchema(json.RawMessage(schema)); err == nil {
			t.Errorf("%s: not refused: %.200s (%d evaluations)", name, schema, s.perDepth)
		} else if len(err.Error()) > 400 {
			t.Errorf("%s: the reason is %d bytes long", name, len(err.Error()))
		}
	}
}

// TestOtherSpellings: encoding/json matches keys without regard to case, so a
// schema that is decoded straight into the engine's struct could say $REF.
func TestOtherSpellings(t *testing.T) {
	for _, schema := range []string{
		`{"$REF":"#"}`, `{"$Ref":"#"}`, `{"ALLOF":[{"$ref":"#"}]}`, `{"$dynamicref":"#"}`, `{"Properties":{"a":{"$ref":"#"}}}`,
		`{"TYPE":"null"}`, `{"Enum":[]}`, `{"NOT":{}}`, `{"$ſchema":"x"}`, `{"Ref":"#"}`,
	} {
		if got := check(t, compile(t, schema), `{"a":{"a":1}}`); got != "" {
			t.Errorf("%s: %s", schema, got)
		}
	}
}

// TestAnySchema: whatever the schema and the arguments are, compiling and
// validating end, and do not panic.
func TestAnySchema(t *testing.T) {
	var schema func(depth int) *rapid.Generator[any]
	leaf := rapid.SampledFrom([]any{"#", "#/$defs/a", "#/properties/a", "object", "string", "integer", 1.0, -1.0, 0.5, true, false, nil,
		[]any{}, []any{"a"}, []any{"object", "null"}, map[string]any{}, "x*"})
	words := rapid.SampledFrom([]string{"$ref", "$dynamicRef", "$defs", "definitions", "properties", "patternProperties", "additionalProperties",
		"items", "prefixItems", "additionalItems", "contains", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "type", "enum", "const",
		"minimum", "maxLength", "minItems", "uniqueItems", "required", "pattern", "dependentSchemas", "dependencies", "propertyNames",
		"unevaluatedProperties", "unevaluatedItems", "multipleOf", "minContains", "maxContains", "$anchor", "$id", "a", "b"})
	schema = func(depth int) *rapid.Generator[any] {
		if depth == 0 {
			return leaf
		}
		return rapid.OneOf(leaf,
			rapid.Map(rapid.MapOfN(words, rapid.Deferred(func() *rapid.Generator[any] { return schema(depth - 1) }), 0, 4), func(m map[string]any) any { return m }),
			rapid.Map(rapid.SliceOfN(rapid.Deferred(func() *rapid.Generator[any] { return schema(depth - 1) }), 0, 3), func(l []any) any { return l }))
	}
	rapid.Check(t, func(t *rapid.T) {
		raw, err := json.Marshal(map[string]any{
			"allOf": []any{schema(4).Draw(t, "schema")}, "properties": map[string]any{"a": schema(4).Draw(t, "a"), "b": schema(3).Draw(t, "b")},
			"$defs": map[string]any{"a": schema(4).Draw(t, "def")}})
		if err != nil {
			t.Fatal(err)
		}
		s, err := CompileSchema(raw)
		if err != nil {
			return
		}
		args, err := json.Marshal(map[string]any{"a": schema(3).Draw(t, "args"), "b": schema(2).Draw(t, "args b")})
		if err != nil {
			t.Fatal(err)
		}
		a, err := ParseArgs(args, 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = s.Validate(a)
	})
}
