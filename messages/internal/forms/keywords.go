package forms

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

var typeNames = []string{"string", "number", "integer", "boolean", "array", "object", "null"}

// schema tidies one schema, which may be of any kind of JSON.
func (t *tidier) schema(v any, path string) *obj {
	if t.nodes++; t.nodes > maxNodes {
		t.notes.add("the schema is too big with its references written out: the rest takes any value")
		return newObj()
	}
	s, ok := v.(*obj)
	switch {
	case v == false:
		return of("not", newObj())
	case v == true:
		return newObj()
	case !ok:
		t.notes.add("%s there is no schema: any value is taken", at(path))
		return newObj()
	case s.has("$ref") && (t.inline || !t.resolves(s)):
		return t.written(s, path)
	}
	out := newObj()
	for _, k := range s.keys {
		if kept := t.keyword(k, s.vals[k], path); kept != nil {
			out.set(k, kept)
		}
	}
	if t.items && !out.has("items") && mayBe(out, "array") {
		out.set("items", newObj())
	}
	return t.known(out)
}

// mayBe reports whether the type keyword names the type.
func mayBe(s *obj, name string) bool {
	return s.str("type") == name || slices.Contains(s.list("type"), any(name))
}

// keyword tidies the value of one keyword; nil leaves it out.
func (t *tidier) keyword(k string, v any, path string) any {
	odd := func() any {
		t.notes.add("%s %s is ill-formed and left out", at(path), clip(k, 40))
		return nil
	}
	switch k {
	case "type":
		return t.types(v, path)
	case "properties":
		return t.properties(v, path)
	case "patternProperties", "dependentSchemas":
		return t.schemas(k, v, path)
	case "$defs", "definitions":
		if t.inline {
			return nil // nobody refers to them any more
		}
		return t.schemas(k, v, path)
	case "items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedItems", "unevaluatedProperties":
		switch v.(type) {
		case *obj:
			return t.schema(v, path+"."+k)
		case bool:
			if k == "items" || k == "not" || k == "contains" {
				return t.schema(v, path+"."+k)
			}
			return v
		}
		return odd()
	case "anyOf", "oneOf", "allOf", "prefixItems":
		list, ok := v.([]any)
		if !ok || len(list) == 0 {
			return odd()
		}
		out := make([]any, len(list))
		for i, e := range list {
			out[i] = t.schema(e, path+"."+k)
		}
		return out
	case "required":
		list := anyList(v)
		if _, all := texts(list); all && list != nil {
			if len(list) == 0 {
				return nil
			}
			return dedupe(list)
		}
		if v == nil {
			return nil
		}
		return odd()
	case "enum":
		if list := anyList(v); len(list) > 0 {
			return v
		}
		return odd()
	case "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains":
		if n, ok := v.(json.Number); ok {
			if i, err := strconv.ParseInt(n.String(), 10, 64); err == nil && i >= 0 {
				return v
			}
		}
		return odd()
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf":
		if _, ok := v.(json.Number); ok {
			return v
		}
		return odd()
	case "uniqueItems", "deprecated", "readOnly", "writeOnly":
		if _, ok := v.(bool); ok {
			return v
		}
		return odd()
	case "title", "description", "pattern", "format", "contentEncoding", "contentMediaType", "$ref":
		if _, ok := v.(string); ok {
			return v
		}
		if v == nil {
			return nil
		}
		return odd()
	case "default", "const":
		return orNull(v)
	case "examples":
		if list := anyList(v); list != nil {
			return v
		}
		return nil
	case "dependentRequired":
		if _, ok := v.(*obj); ok {
			return v
		}
		return odd()
	case "$dynamicRef", "$recursiveRef", "dependencies":
		t.notes.add("%s %s is left out", at(path), k)
	}
	return nil // an annotation that no validator knows
}

// orNull tells a value that is null from none.
func orNull(v any) any {
	if v == nil {
		return json.RawMessage("null")
	}
	return v
}

func anyList(v any) []any { list, _ := v.([]any); return list }

func dedupe(list []any) []any {
	var out []any
	for _, v := range list {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

func (t *tidier) types(v any, path string) any {
	names, ok := []string{}, true
	switch v := v.(type) {
	case string:
		names = []string{v}
	case []any:
		names, ok = texts(dedupeTexts(v))
	default:
		ok = false
	}
	for _, n := range names {
		ok = ok && slices.Contains(typeNames, n)
	}
	switch {
	case !ok || len(names) == 0:
		t.notes.add("%s the type is none of JSON Schema's: any value is taken", at(path))
		return nil
	case len(names) == 1:
		return names[0]
	}
	return anys(names)
}

func dedupeTexts(list []any) []any {
	if _, all := texts(list); !all {
		return list
	}
	return dedupe(list)
}

func (t *tidier) properties(v any, path string) any {
	props, ok := v.(*obj)
	if !ok {
		if v != nil {
			t.notes.add("%s properties is ill-formed and left out", at(path))
		}
		return nil
	}
	out := newObj()
	for _, name := range props.keys {
		if t.property != nil && !t.property(name) {
			t.notes.add("%s the property %q cannot be offered: its name is not taken", at(path), clip(name, 70))
			continue
		}
		out.set(name, t.schema(props.vals[name], path+"."+name))
	}
	return out
}

func (t *tidier) schemas(k string, v any, path string) any {
	m, ok := v.(*obj)
	if !ok {
		t.notes.add("%s %s is ill-formed and left out", at(path), k)
		return nil
	}
	out := newObj()
	for _, name := range m.keys {
		out.set(name, t.schema(m.vals[name], path+"."+name))
	}
	return out
}

// resolve finds what a reference means: a pointer into the same schema. Nothing is
// ever fetched.
func (t *tidier) resolve(s *obj) (target any, ref string, ok bool) {
	ref, _ = s.vals["$ref"].(string)
	pointer, local := strings.CutPrefix(ref, "#")
	if !local || pointer != "" && !strings.HasPrefix(pointer, "/") {
		return nil, ref, false
	}
	target = t.root
	for _, part := range strings.Split(pointer, "/")[1:] {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		switch v := target.(type) {
		case *obj:
			if target, ok = v.vals[part]; !ok {
				return nil, ref, false
			}
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(v) {
				return nil, ref, false
			}
			target = v[i]
		default:
			return nil, ref, false
		}
	}
	return target, ref, true
}

// resolves reports whether a reference may stay: it leads to a definition that is kept.
func (t *tidier) resolves(s *obj) bool {
	target, ref, ok := t.resolve(s)
	_, isObj := target.(*obj)
	return ok && isObj && (strings.HasPrefix(ref, "#/$defs/") || strings.HasPrefix(ref, "#/definitions/")) && strings.Count(ref, "/") == 2
}

// written puts what a reference means in its place, with what stands beside it.
func (t *tidier) written(s *obj, path string) *obj {
	rest := t.schema(s.without("$ref"), path)
	target, ref, ok := t.resolve(s)
	switch {
	case !ok:
		t.notes.add("%s the reference %q leads nowhere here: any value is taken", at(path), clip(ref, 60))
		return rest
	case slices.Contains(t.chain, ref) || len(t.chain) > maxDepth:
		t.notes.add("%s the schema contains itself: from there on any value is taken", at(path))
		return rest
	}
	t.chain = append(t.chain, ref)
	defer func() { t.chain = t.chain[:len(t.chain)-1] }()
	meant := target
	if o, isObj := target.(*obj); isObj && o == t.root {
		meant = o.without("$defs", "definitions")
	}
	return t.conj(rest, t.schema(meant, path), path)
}

// conj is a schema for what satisfies both, or for more where that cannot be said
// simply. What a says of itself in words counts.
func (t *tidier) conj(a, b *obj, path string) *obj {
	if len(a.keys) == 0 {
		return b
	}
	out := a.clone()
	for _, k := range b.keys {
		va, both := a.vals[k]
		vb := b.vals[k]
		switch {
		case !both:
			out.set(k, vb)
		case same(va, vb), k == "title", k == "description", k == "default", k == "examples":
		case k == "properties":
			props := a.obj(k).clone()
			for _, name := range b.obj(k).keys {
				pb := b.obj(k).vals[name].(*obj)
				if pa := props.obj(name); pa != nil {
					pb = t.conj(pa, pb, path+"."+name)
				}
				props.set(name, pb)
			}
			out.set(k, props)
		case k == "required":
			out.set(k, dedupe(slices.Concat(a.list(k), b.list(k))))
		case k == "type":
			if both := meet(va, vb); len(both) > 0 {
				out.set(k, typeOf(both))
				break
			}
			t.notes.add("%s two types exclude each other: the first counts", at(path))
		case k == "allOf":
			out.set(k, slices.Concat(a.list(k), b.list(k)))
		default:
			t.notes.add("%s of two %s only the first counts", at(path), k)
		}
	}
	return out
}

// listOfTypes reads a tidied type keyword.
func listOfTypes(v any) []string {
	if s, ok := v.(string); ok {
		return []string{s}
	}
	names, _ := texts(anyList(v))
	return names
}

func typeOf(names []string) any {
	if len(names) == 1 {
		return names[0]
	}
	return anys(names)
}

// meet is what two type keywords have in common; an integer is a number.
func meet(a, b any) (out []string) {
	la, lb := listOfTypes(a), listOfTypes(b)
	for _, n := range la {
		switch {
		case slices.Contains(lb, n), n == "integer" && slices.Contains(lb, "number"):
			out = append(out, n)
		case n == "number" && slices.Contains(lb, "integer"):
			out = append(out, "integer")
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
