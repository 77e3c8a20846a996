package forms

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// geminiParam is what a parameter may be called.
var geminiParam = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)

var geminiRules = rules{inline: true, items: true, topBanned: []string{"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "enum", "const"}, property: geminiParam.MatchString}

// geminiFields are the keywords that each type keeps, beside title, description,
// nullable and default.
var geminiFields = map[string][]string{
	"string":  {"enum", "format", "minLength", "maxLength", "pattern"},
	"number":  {"format", "minimum", "maximum"},
	"integer": {"format", "minimum", "maximum"},
	"boolean": {},
	"array":   {"items", "minItems", "maxItems"},
	"object":  {"properties", "required", "minProperties", "maxProperties"},
}

// words are keywords that only explain: leaving them out changes nothing.
var words = []string{"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "contentEncoding", "contentMediaType", "type", "format"}

// geminiWriter turns tidied JSON Schema into Gemini's subset of OpenAPI.
type geminiWriter struct {
	*tidier
	made int
}

// object writes the parameters of a function; nil where it takes none.
func (g *geminiWriter) object(top *obj) *obj {
	out := g.write(top, "")
	if out.obj("properties") == nil {
		return nil
	}
	return out
}

func (g *geminiWriter) write(s *obj, path string) *obj {
	if g.made++; g.made > maxNodes {
		g.notes.add("the schema is too big once it is written out: the rest takes any value")
		return anyValue(nil, true)
	}
	for s.has("allOf") {
		list := s.list("allOf")
		s = s.without("allOf")
		for _, v := range list {
			s = g.conj(s, v.(*obj), path)
		}
	}
	s = g.one(s, path)
	s, nullable := notNull(s)
	for _, k := range []string{"anyOf", "oneOf"} {
		list := s.list(k)
		if len(list) == 0 {
			continue
		}
		rest := s.without(k)
		if k == "anyOf" && rest.has("oneOf") {
			g.note(path, "oneOf beside anyOf")
			rest = rest.without("oneOf")
		}
		return g.alternatives(rest, list, nullable, path)
	}
	types := typesOf(s)
	if t := meantType(s); len(types) == 0 && t != "" {
		g.notes.add("%s no type is said: taken for an %s", at(path), t)
		types = []string{t}
	}
	switch len(types) {
	case 0:
		if nullable {
			return anyValue(s, true)
		}
		g.notes.add("%s any value is taken, but for lists of lists, which Gemini's words for it do not reach", at(path))
		return anyValue(s, true)
	case 1:
		return g.typed(s, types[0], nullable, path)
	}
	var list []any
	for _, t := range types {
		branch := s.without("title", "description", "default")
		branch.set("type", t)
		for k := range keywordTypes {
			if branch.has(k) && !slices.Contains(keywordTypes[k], t) {
				branch.del(k)
			}
		}
		list = append(list, branch)
	}
	return g.alternatives(of("title", s.str("title"), "description", s.str("description")), list, nullable, path)
}

func (g *geminiWriter) note(path, what string) { g.notes.add("%s left out: %s", at(path), what) }

// one turns const into an enum of one.
func (g *geminiWriter) one(s *obj, path string) *obj {
	if !s.has("const") {
		return s
	}
	v := s.vals["const"]
	s = s.without("const")
	if raw, null := v.(json.RawMessage); null && string(raw) == "null" {
		v = nil
	}
	if !s.has("enum") {
		s.set("enum", []any{v})
	}
	return s
}

// notNull takes null out of type, enum and alternatives, and says whether it was there.
func notNull(s *obj) (*obj, bool) {
	nullable := false
	out := s.clone()
	if names := listOfTypes(s.vals["type"]); slices.Contains(names, "null") {
		nullable = true
		if names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == "null" }); len(names) > 0 {
			out.set("type", typeOf(names))
		} else {
			out.del("type")
		}
	}
	if list := s.list("enum"); slices.Contains(list, nil) {
		nullable = nullable || !s.has("type")
		if list = slices.DeleteFunc(slices.Clone(list), func(v any) bool { return v == nil }); len(list) > 0 {
			out.set("enum", list)
		} else {
			out.del("enum")
		}
	}
	for _, k := range []string{"anyOf", "oneOf"} {
		list := s.list(k)
		kept := slices.DeleteFunc(slices.Clone(list), func(v any) bool {
			b := v.(*obj)
			return b.str("type") == "null"
		})
		if len(kept) < len(list) {
			nullable = true
			if len(kept) > 0 {
				out.set(k, kept)
			} else {
				out.del(k)
			}
		}
	}
	return out, nullable
}

// alternatives distributes what stands beside them over the branches: Gemini takes no
// other constraint beside anyOf.
func (g *geminiWriter) alternatives(rest *obj, list []any, nullable bool, path string) *obj {
	base := rest.without("title", "description", "default", "examples")
	var branches []any
	for _, v := range list {
		b := g.write(g.conj(base, v.(*obj), path), path)
		if inner := b.list("anyOf"); inner != nil { // flat is easier to read
			nullable = nullable || b.vals["nullable"] == true
			branches = append(branches, inner...)
			continue
		}
		if b.vals["nullable"] == true {
			nullable = true
			b = b.without("nullable")
		}
		branches = append(branches, b)
	}
	var distinct []any
	for _, b := range branches {
		if !slices.ContainsFunc(distinct, func(o any) bool { return same(o, b) }) {
			distinct = append(distinct, b)
		}
	}
	out := newObj()
	if len(distinct) == 1 {
		out = distinct[0].(*obj).clone()
	} else {
		out.set("anyOf", distinct)
	}
	for _, k := range []string{"title", "description"} {
		if text := rest.str(k); text != "" {
			out.set(k, text)
		}
	}
	if nullable {
		out.set("nullable", true)
	}
	return out
}

// typesOf are the types that a value may have; none for any.
func typesOf(s *obj) []string {
	if names := listOfTypes(s.vals["type"]); len(names) > 0 {
		return names
	}
	var out []string
	for _, v := range s.list("enum") {
		name := "number"
		switch v.(type) {
		case string:
			name = "string"
		case bool:
			name = "boolean"
		case *obj:
			name = "object"
		case []any:
			name = "array"
		}
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	if len(out) > 0 {
		return out
	}
	return nil
}

// meantType: without a type these keywords bind values of their type alone, but whoever
// writes them means that type.
func meantType(s *obj) string {
	switch {
	case s.has("properties"):
		return "object"
	case s.has("items") || s.has("prefixItems"):
		return "array"
	}
	return ""
}

// keywordTypes are the types that a keyword is about.
var keywordTypes = func() map[string][]string {
	out := map[string][]string{}
	for t, ks := range geminiFields {
		for _, k := range ks {
			if k != "enum" && k != "format" {
				out[k] = append(out[k], t)
			}
		}
	}
	for k, t := range map[string]string{"additionalProperties": "object", "patternProperties": "object", "propertyNames": "object",
		"uniqueItems": "array", "prefixItems": "array", "contains": "array"} {
		out[k] = []string{t}
	}
	return out
}()

// typed writes a schema of one type.
func (g *geminiWriter) typed(s *obj, typ string, nullable bool, path string) *obj {
	out := of("type", strings.ToUpper(typ))
	for _, k := range []string{"title", "description"} {
		if text := s.str(k); text != "" {
			out.set(k, text)
		}
	}
	if nullable {
		out.set("nullable", true)
	}
	for _, k := range s.keys {
		v := s.vals[k]
		switch {
		case k == "enum":
			g.enum(out, typ, s.list(k), path)
		case k == "format":
			if f, _ := v.(string); geminiFormat(typ, f) && !out.has("format") {
				out.set("format", f)
			}
		case k == "items" && typ == "array":
			out.set(k, g.write(v.(*obj), path+"[]"))
		case k == "properties" && typ == "object":
			g.properties(out, s, path)
		case k == "required":
		case slices.Contains(geminiFields[typ], k):
			out.set(k, v)
		case k == "exclusiveMinimum" || k == "exclusiveMaximum":
			g.exclusive(out, s, k, typ)
		case !slices.Contains(words, k) && !(k == "additionalProperties" && v == false):
			g.note(path, k)
		}
	}
	if typ == "array" && !out.has("items") {
		out.set("items", g.write(newObj(), path+"[]"))
	}
	switch v := s.vals["default"].(type) {
	case string, bool, json.Number:
		out.set("default", v)
	}
	return out
}

// enum keeps what Gemini takes: strings, none of them empty.
func (g *geminiWriter) enum(out *obj, typ string, list []any, path string) {
	var kept []any
	for _, v := range list {
		if s, ok := v.(string); ok && typ == "string" {
			if s == "" {
				g.note(path, "the enum, because it has an empty text")
				return
			}
			kept = append(kept, s)
		}
	}
	if len(kept) == 0 {
		g.note(path, "an enum of values that are no texts")
		return
	}
	out.set("format", "enum")
	out.set("enum", dedupe(kept))
}

func geminiFormat(typ, format string) bool {
	return slices.Contains(map[string][]string{"string": {"date-time"}, "number": {"float", "double"}, "integer": {"int32", "int64"}}[typ], format)
}

func (g *geminiWriter) properties(out, s *obj, path string) {
	props, kept := newObj(), s.obj("properties")
	if kept == nil || len(kept.keys) == 0 {
		return
	}
	for _, name := range kept.keys {
		props.set(name, g.write(kept.vals[name].(*obj), path+"."+name))
	}
	out.set("properties", props)
	req, _ := texts(s.list("required"))
	if req = slices.DeleteFunc(slices.Clone(req), func(n string) bool { return !props.has(n) }); len(req) > 0 {
		out.set("required", anys(req))
	}
}

// exclusive writes an exclusive bound as an inclusive one: the next integer, or for
// other numbers the bound itself, which is a little wider.
func (g *geminiWriter) exclusive(out, s *obj, k, typ string) {
	name, step := "minimum", int64(1)
	if k == "exclusiveMaximum" {
		name, step = "maximum", -1
	}
	if s.has(name) {
		return // the inclusive one is there: leaving the other out is wider at most
	}
	n := s.vals[k].(json.Number)
	if i, err := strconv.ParseInt(n.String(), 10, 53); err == nil && typ == "integer" {
		n = json.Number(strconv.FormatInt(i+step, 10))
	}
	out.set(name, n)
}

// anyValue is Gemini's longest way to say anything: it knows no schema without a type.
func anyValue(s *obj, nullable bool) *obj {
	scalar := func() []any {
		return []any{of("type", "STRING"), of("type", "NUMBER"), of("type", "BOOLEAN"), of("type", "OBJECT")}
	}
	out := newObj()
	if s != nil {
		for _, k := range []string{"title", "description"} {
			if text := s.str(k); text != "" {
				out.set(k, text)
			}
		}
	}
	if nullable {
		out.set("nullable", true)
	}
	out.set("anyOf", append(scalar(), of("type", "ARRAY", "items", of("nullable", true, "anyOf", scalar()))))
	return out
}
