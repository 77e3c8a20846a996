package forms

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"pgregory.net/rapid"
)

var propNames = []string{"a", "b", "c"}

// value draws a JSON value, without lists in lists: Gemini's words for "any value" do
// not reach that far, and say so.
func value(t *rapid.T, depth int) any {
	kinds := 5
	if depth > 0 {
		kinds = 7
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return rapid.SampledFrom([]string{"", "x", "red", "2020-01-01T00:00:00Z"}).Draw(t, "s")
	case 1:
		return rapid.IntRange(-2, 4).Draw(t, "i")
	case 2:
		return float64(rapid.IntRange(-4, 8).Draw(t, "f")) / 2
	case 3:
		return rapid.Bool().Draw(t, "b")
	case 4:
		return nil
	case 5:
		list := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "n") {
			list = append(list, value(t, 0))
		}
		return list
	}
	return object(t, depth-1)
}

func object(t *rapid.T, depth int) map[string]any {
	m := map[string]any{}
	for _, n := range propNames {
		if rapid.Bool().Draw(t, n) {
			m[n] = value(t, depth)
		}
	}
	return m
}

// drawSchema draws a schema of the keywords that servers use, valid in itself. refs are
// where it may refer to: never back to where the same value is looked at again, for
// which the library has no end.
func drawSchema(t *rapid.T, depth int, refs ...string) map[string]any {
	s := map[string]any{}
	some := func(label string) bool { return rapid.IntRange(0, 3).Draw(t, label) == 0 }
	if !some("untyped") {
		if some("several") {
			s["type"] = rapid.SliceOfNDistinct(rapid.SampledFrom(typeNames), 1, 3, rapid.ID[string]).Draw(t, "types")
		} else {
			s["type"] = rapid.SampledFrom(typeNames).Draw(t, "type")
		}
	}
	if some("enum") {
		s["enum"] = []any{"red", "x", 1, nil, true}[:rapid.IntRange(1, 5).Draw(t, "enum size")]
	}
	if some("const") {
		s["const"] = value(t, 0)
	}
	for _, k := range []string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"} {
		if some(k) {
			s[k] = rapid.IntRange(-2, 3).Draw(t, k)
		}
	}
	for _, k := range []string{"minLength", "maxItems", "minProperties"} {
		if some(k) {
			s[k] = rapid.IntRange(0, 2).Draw(t, k)
		}
	}
	if len(refs) > 0 && some("ref") {
		s["$ref"] = rapid.SampledFrom(refs).Draw(t, "$ref")
	}
	inner := refs
	if slices.Contains(refs, "#/$defs/one") {
		inner = []string{"#/$defs/one", "#/$defs/two", "#"} // a part of the value
	}
	if depth == 0 {
		return s
	}
	if some("items") {
		s["items"] = drawSchema(t, depth-1, inner...)
	}
	if some("properties") {
		s["properties"] = drawProperties(t, depth-1, inner...)
	}
	if some("required") {
		s["required"] = rapid.SliceOfNDistinct(rapid.SampledFrom(propNames), 1, 2, rapid.ID[string]).Draw(t, "req")
	}
	if some("additional") {
		s["additionalProperties"] = false
	}
	for _, k := range []string{"anyOf", "oneOf", "allOf"} {
		if some(k) {
			var list []any
			for range rapid.IntRange(1, 3).Draw(t, k) {
				list = append(list, drawSchema(t, depth-1, refs...))
			}
			s[k] = list
		}
	}
	if some("not") {
		s["not"] = drawSchema(t, 0)
	}
	return s
}

func drawProperties(t *rapid.T, depth int, refs ...string) map[string]any {
	props := map[string]any{}
	for _, n := range propNames {
		if rapid.Bool().Draw(t, "has "+n) {
			props[n] = drawSchema(t, depth, refs...)
		}
	}
	return props
}

// plainJSON turns Gemini's words back into JSON Schema.
func plainJSON(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			switch k {
			case "type":
				out[k] = strings.ToLower(e.(string))
			case "nullable", "format", "default":
			case "properties":
				props := map[string]any{}
				for n, p := range e.(map[string]any) {
					props[n] = plainJSON(p)
				}
				out[k] = props
			default:
				out[k] = plainJSON(e)
			}
		}
		if v["nullable"] == true {
			return map[string]any{"anyOf": []any{map[string]any{"type": "null"}, out}}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = plainJSON(e)
		}
		return out
	}
	return v
}

func compile(raw any) (*jsonschema.Resolved, error) {
	b, err := json.Marshal(raw)
	if err != nil {
		return nil, err
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, err
	}
	return s.Resolve(nil)
}

// TestWidened: what a tool takes, the form lets a model say. The judge is the JSON
// Schema library, on schemas of every keyword that is touched.
func TestWidened(t *testing.T) {
	agreed := 0
	rapid.Check(t, func(t *rapid.T) {
		schema := drawSchema(t, 2, "#/$defs/one", "#/$defs/two")
		delete(schema, "enum")
		delete(schema, "const")
		schema["type"] = "object"
		schema["$defs"] = map[string]any{"one": drawSchema(t, 1, "#/$defs/two"), "two": drawSchema(t, 0)}
		raw, _ := json.Marshal(schema)
		judge, err := compile(schema)
		if err != nil {
			t.Skip("the schema itself is none")
		}
		forms := map[string]any{}
		for name, f := range map[string]func(Tool) (json.RawMessage, []string){"openai": OpenAI, "anthropic": Anthropic, "gemini": Gemini} {
			out, notes := f(Tool{"t", "d", raw})
			if said := strings.Join(notes, " "); strings.Contains(said, "taken for an") || strings.Contains(said, "as they say it") {
				continue // the two guesses, which are told
			}
			var m map[string]any
			if err := json.Unmarshal(out, &m); err != nil {
				t.Fatal(err)
			}
			switch name {
			case "openai":
				forms[name] = m["function"].(map[string]any)["parameters"]
			case "anthropic":
				forms[name] = m["input_schema"]
			case "gemini":
				if p, ok := m["parameters"]; ok {
					forms[name] = plainJSON(p)
				}
			}
		}
		for range 10 {
			args := object(t, 2)
			if !valid(judge, args) {
				continue
			}
			agreed++
			for _, name := range slices.Sorted(keys(forms)) {
				other, err := compile(forms[name])
				if err != nil {
					t.Fatalf("%s is no schema: %v\n%s\nof %s", name, err, mustJSON(forms[name]), raw)
				}
				if !valid(other, args) {
					t.Fatalf("%s is narrower: it refuses %s\n%s\nof %s", name, mustJSON(args), mustJSON(forms[name]), raw)
				}
			}
		}
	})
	if agreed == 0 {
		t.Error("no arguments were ever valid: nothing was tested")
	}
}

func valid(s *jsonschema.Resolved, v any) bool {
	var plain any
	return json.Unmarshal(mustJSON(v), &plain) == nil && s.Validate(plain) == nil
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprint(err))
	}
	return b
}

func keys(m map[string]any) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}
