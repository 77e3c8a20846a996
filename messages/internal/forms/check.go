package forms

import (
	"fmt"
	"slices"
	"strings"
)

// This file holds the providers' published rules once more, as checks of what is
// handed out: doc.go says where they are published.

// maxOut bounds the text of what is handed out.
const maxOut = 1 << 20

func checkTop(s *obj, banned []string) string {
	switch {
	case len(encode(s)) > maxOut:
		return "it is too big once its references are written out"
	case s.str("type") != "object":
		return "its type is not object"
	case s.obj("properties") == nil:
		return "it has no properties"
	}
	for _, k := range banned {
		if s.has(k) {
			return k + " at the top"
		}
	}
	return ""
}

func checkOpenAI(s *obj) string {
	if why := checkTop(s, []string{"oneOf", "anyOf", "allOf", "enum", "not", "$ref"}); why != "" {
		return why
	}
	return walk(s, func(o *obj) string {
		if why := checkTypes(o); why != "" {
			return why
		}
		if ref := o.str("$ref"); o.has("$ref") {
			for _, k := range []string{"$defs", "definitions"} {
				if name, ok := strings.CutPrefix(ref, "#/"+k+"/"); ok && s.obj(k) != nil && s.obj(k).has(strings.NewReplacer("~1", "/", "~0", "~").Replace(name)) {
					return ""
				}
			}
			return "a reference that leads nowhere"
		}
		if mayBe(o, "array") && !o.has("items") {
			return "an array without items"
		}
		return ""
	})
}

func checkAnthropic(s *obj) string {
	if why := checkTop(s, []string{"oneOf", "anyOf", "allOf"}); why != "" {
		return why
	}
	if strings.Contains(string(encode(s)), `"$ref":`) { // anywhere, examples too
		return "a reference"
	}
	return walk(s, func(o *obj) string {
		if p := o.obj("properties"); p != nil {
			for _, name := range p.keys {
				if !anthropicParam.MatchString(name) {
					return fmt.Sprintf("a property named %q", clip(name, 70))
				}
			}
		}
		return checkTypes(o)
	})
}

func checkTypes(o *obj) string {
	if !o.has("type") {
		return ""
	}
	names := listOfTypes(o.vals["type"])
	for _, n := range names {
		if !slices.Contains(typeNames, n) {
			return "an unknown type"
		}
	}
	if len(names) == 0 {
		return "an unknown type"
	}
	return ""
}

// walk visits every subschema of JSON Schema until one fails.
func walk(s *obj, visit func(*obj) string) string {
	if why := visit(s); why != "" {
		return why
	}
	for _, k := range s.keys {
		var below []any
		switch k {
		case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas":
			if m := s.obj(k); m != nil {
				for _, name := range m.keys {
					below = append(below, m.vals[name])
				}
			}
		case "items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedItems", "unevaluatedProperties":
			below = []any{s.vals[k]}
		case "anyOf", "oneOf", "allOf", "prefixItems":
			below = s.list(k)
		}
		for _, v := range below {
			switch v := v.(type) {
			case *obj:
				if why := walk(v, visit); why != "" {
					return why
				}
			case bool:
			default:
				return k + " holds no schema"
			}
		}
	}
	return ""
}

var geminiTypes = map[string]string{"STRING": "string", "NUMBER": "number", "INTEGER": "integer", "BOOLEAN": "boolean", "ARRAY": "array", "OBJECT": "object"}

func checkGemini(s *obj) string {
	if len(encode(s)) > maxOut {
		return "it is too big once its references are written out"
	}
	if s.str("type") != "OBJECT" {
		return "its type is not OBJECT"
	}
	return checkGeminiSchema(s, 0)
}

func checkGeminiSchema(s *obj, depth int) string {
	if depth > maxDepth {
		return "it nests too deep"
	}
	typ, known := geminiTypes[s.str("type")]
	alternatives := s.list("anyOf")
	if known == (alternatives != nil) {
		return "a schema with neither type nor anyOf, or both"
	}
	for _, k := range s.keys {
		switch {
		case slices.Contains([]string{"title", "description"}, k):
			if s.str(k) == "" {
				return "an empty " + k
			}
		case k == "nullable", k == "type", k == "anyOf":
		case alternatives != nil:
			return k + " beside anyOf"
		case k == "default":
		case !slices.Contains(geminiFields[typ], k):
			return k + " for " + typ
		}
	}
	for _, v := range s.list("enum") {
		if text, ok := v.(string); !ok || text == "" {
			return "an enum value that is no text"
		}
	}
	if f := s.str("format"); s.has("format") && f != "enum" && !geminiFormat(typ, f) {
		return "format " + f
	}
	below := slices.Clone(alternatives)
	if typ == "array" {
		below = append(below, s.vals["items"])
	}
	props := s.obj("properties")
	if s.has("properties") && (props == nil || len(props.keys) == 0) {
		return "properties that are none"
	}
	for _, v := range s.list("required") {
		if name, ok := v.(string); !ok || props == nil || !props.has(name) {
			return "a required name without a property"
		}
	}
	if props != nil {
		for _, name := range props.keys {
			if !geminiParam.MatchString(name) {
				return fmt.Sprintf("a parameter named %q", clip(name, 70))
			}
			below = append(below, props.vals[name])
		}
	}
	for _, v := range below {
		o, ok := v.(*obj)
		if !ok {
			return "something that is no schema"
		}
		if why := checkGeminiSchema(o, depth+1); why != "" {
			return why
		}
	}
	return ""
}
