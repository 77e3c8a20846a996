package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
)

// Portable says why a schema that is shown to others would be refused by the
// engines that they compile it with, nil where nothing is seen. CompileSchema leaves
// out what it cannot use; these engines refuse the schema as a whole, and with it the
// list that it came in. It looks at the form of each keyword and at the regular
// expressions; that references lead somewhere is CompileSchema's to say.
func Portable(raw json.RawMessage) error {
	v, _, err := decode(raw, maxJSONDepth)
	if err != nil {
		return fmt.Errorf("it cannot be read: %w", err)
	}
	return new(former).schema(v, "")
}

// ErrBroken marks an error of Usable, and of CompileSchema where it says the same.
var ErrBroken = errors.New("it is no schema")

type broken struct{ error }

func (broken) Is(target error) bool { return target == ErrBroken }

// Usable says why an input schema is none that anybody could work with, nil where nothing
// is seen: those who offer a model its tools hand all their schemas over at once, and one
// that breaks the rules of JSON Schema makes them refuse the whole list. It is lenient
// where Portable is strict: what is null says nothing, and what a regular expression may
// hold is a matter of the engine.
func Usable(raw json.RawMessage) error {
	v, _, err := decode(raw, maxJSONDepth)
	switch {
	case errors.Is(err, errTooDeep):
		err = fmt.Errorf("it cannot be read: %w", err)
	case err != nil: // valid JSON, and odd in a way that others may not mind
		err = nil
	default:
		f := &former{lenient: true}
		if err = f.schema(v, ""); err == nil {
			err = f.references(v)
		}
	}
	if err != nil {
		return broken{err}
	}
	return nil
}

// references says which one leads nowhere, or away: nothing is fetched.
func (f *former) references(root any) error {
	m, _ := root.(map[string]any)
	base, _ := m["$id"].(string)
	base = strings.TrimSuffix(base, "#")
	for _, r := range f.refs {
		local, isLocal := strings.CutPrefix(strings.TrimPrefix(r.to, base), "#")
		switch {
		case f.bases: // a subschema has a name of its own, by which others may call it
		case r.to == "" || base != "" && r.to == base:
		case !isLocal:
			return fmt.Errorf("%s refers to %s, which is not part of it and is not fetched", at(r.path), short(r.to))
		case strings.HasPrefix(local, "/"):
			if text, err := url.PathUnescape(local); err != nil || !pointsTo(root, text) {
				return fmt.Errorf("%s refers to %s, which does not exist", at(r.path), short(r.to))
			}
		case local != "" && !f.anchors[local]:
			return fmt.Errorf("%s refers to %s, which does not exist", at(r.path), short(r.to))
		}
	}
	return nil
}

// pointsTo reports whether a JSON pointer leads somewhere.
func pointsTo(v any, pointer string) bool {
	for part := range strings.SplitSeq(pointer[1:], "/") {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		switch in := v.(type) {
		case map[string]any:
			next, ok := in[part]
			if !ok {
				return false
			}
			v = next
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(in) {
				return false
			}
			v = in[i]
		default:
			return false
		}
	}
	return true
}

// former looks at the form of a schema's keywords.
type former struct {
	lenient bool
	refs    []ref
	anchors map[string]bool
	bases   bool // some subschema has an $id
}

type ref struct{ path, to string }

// keywordForms tells of each keyword with a form of its own what it must be.
var keywordForms = map[string]string{
	"type": "types", "enum": "values", "required": "names", "pattern": "pattern", "format": "string",
	"$ref": "string", "$id": "string", "$schema": "string", "title": "string", "description": "string", "$comment": "string",
	"readOnly": "boolean", "writeOnly": "boolean", "deprecated": "boolean", "$anchor": "string", "nullable": "boolean", "uniqueItems": "boolean",
	"minimum": "number", "maximum": "number", "exclusiveMinimum": "number", "exclusiveMaximum": "number", "multipleOf": "number",
	"minLength": "number", "maxLength": "number", "minItems": "number", "maxItems": "number",
	"minProperties": "number", "maxProperties": "number", "minContains": "number", "maxContains": "number",
	"properties": "schemas by name", "$defs": "schemas by name", "definitions": "schemas by name", "dependentSchemas": "schemas by name",
	"patternProperties": "schemas by pattern", "dependencies": "dependencies", "dependentRequired": "dependencies",
	"additionalProperties": "schema", "propertyNames": "schema", "unevaluatedProperties": "schema", "unevaluatedItems": "schema",
	"additionalItems": "schema", "contains": "schema", "not": "schema", "if": "schema", "then": "schema", "else": "schema",
	"items": "schema or schemas", "prefixItems": "schemas", "allOf": "schemas", "anyOf": "schemas", "oneOf": "schemas",
}

func (f *former) schema(v any, path string) error {
	schema, ok := v.(map[string]any)
	if !ok {
		if _, ok := v.(bool); ok {
			return nil
		}
		return fmt.Errorf("%s is neither an object nor a boolean", at(path))
	}
	for _, key := range slices.Sorted(maps.Keys(schema)) {
		if f.lenient && schema[key] == nil {
			continue
		}
		if err := f.keyword(key, schema[key], path); err != nil {
			return err
		}
	}
	if f.lenient {
		return nil
	}
	if _, old := schema["id"]; old {
		return fmt.Errorf("%s has an id, which newer drafts call $id", at(path))
	}
	if schema["nullable"] != nil && schema["type"] == nil {
		return fmt.Errorf("%s is nullable and has no type", at(path))
	}
	return nil
}

func (f *former) keyword(key string, v any, path string) error {
	form := keywordForms[key]
	path += "/" + escapeSegment.Replace(key)
	ok := true
	switch form {
	case "string":
		var text string
		text, ok = v.(string)
		f.note(key, text, path)
	case "boolean":
		_, ok = v.(bool)
	case "number":
		_, ok = v.(json.Number)
	case "names":
		_, ok = stringList(v)
	case "values":
		list, isList := v.([]any)
		ok = isList && (len(list) > 0 || f.lenient)
	case "types":
		words, isList := stringList(v)
		if w, single := v.(string); single {
			words, isList = []string{w}, true
		}
		ok = isList && !slices.ContainsFunc(words, func(w string) bool { return !slices.Contains(typeWords, w) })
	case "pattern":
		p, isString := v.(string)
		if !isString {
			ok = false
		} else if err := ecmaPattern(p); err != nil && !f.lenient {
			return fmt.Errorf("%s: %w", at(path), err)
		}
	case "schema":
		return f.schema(v, path)
	case "schemas", "schema or schemas":
		list, isList := v.([]any)
		if !isList && form == "schema or schemas" {
			return f.schema(v, path)
		}
		ok = isList
		for i, s := range list {
			if err := f.schema(s, fmt.Sprintf("%s/%d", path, i)); err != nil {
				return err
			}
		}
	case "schemas by name", "schemas by pattern", "dependencies":
		m, isMap := v.(map[string]any)
		ok = isMap
		for _, name := range slices.Sorted(maps.Keys(m)) {
			if f.lenient && m[name] == nil {
				continue
			}
			if form == "schemas by pattern" && !f.lenient {
				if err := ecmaPattern(name); err != nil {
					return fmt.Errorf("%s: %w", at(path), err)
				}
			}
			if _, isList := stringList(m[name]); isList && form == "dependencies" {
				continue
			}
			if err := f.schema(m[name], path+"/"+escapeSegment.Replace(name)); err != nil {
				return err
			}
		}
	}
	if !ok {
		return fmt.Errorf("%s is not what it must be", at(path))
	}
	return nil
}

// note keeps what references are about.
func (f *former) note(key, text, path string) {
	switch key {
	case "$ref":
		f.refs = append(f.refs, ref{path, text})
	case "$id":
		f.bases = f.bases || path != "/$id"
	case "$anchor":
		if f.anchors == nil {
			f.anchors = map[string]bool{}
		}
		f.anchors[text] = true
	}
}

// ecmaPattern says why p is no regular expression in JavaScript's Unicode mode, which
// is what schemas are read with. It is on the careful side: what neither Go nor this
// translation knows is refused.
func ecmaPattern(p string) error {
	if len(p) > maxPattern {
		return fmt.Errorf("a regular expression of %d bytes", len(p))
	}
	var out strings.Builder // for Go's parser, which sees to structure and ranges
	bad := func(i int) error {
		return fmt.Errorf("%s is no regular expression in JavaScript, at byte %d", short(p), i)
	}
	class, anchored := false, false // anchored: what stands before takes no repetition
	looks := []bool{}               // of the open groups: it looks around
	for i := 0; i < len(p); {
		rest := p[i:]
		if anchored && strings.IndexByte("*+?{", p[i]) >= 0 {
			return bad(i)
		}
		anchored = !class && (p[i] == '^' || p[i] == '$' || strings.HasPrefix(rest, `\b`) || strings.HasPrefix(rest, `\B`))
		switch c := p[i]; {
		case c == '\\':
			n, text := ecmaEscape(rest, class)
			if n == 0 {
				return bad(i)
			}
			out.WriteString(text)
			i += n
			if class && strings.IndexByte("dDwWsSpP", rest[1]) >= 0 && strings.HasPrefix(p[i:], "-") && !strings.HasPrefix(p[i:], "-]") {
				return bad(i) // a range that begins with a set
			}
			continue
		case class:
			if c == ']' {
				class = false
			}
			if c == '[' { // Go would see a named class or a set operation in it
				out.WriteByte('\\')
			}
		case c == '[':
			class = true
			if strings.HasPrefix(rest, "[^") {
				out.WriteByte('[')
				i++
			}
		case c == ']', c == '}':
			return bad(i)
		case c == '{':
			end := strings.IndexByte(rest, '}')
			if end < 0 {
				return bad(i)
			}
			from, to, _ := strings.Cut(rest[1:end], ",")
			if from == "" || strings.Trim(from+to, "0123456789") != "" {
				return bad(i)
			}
			out.WriteString(rest[:end+1])
			i += end + 1
			continue
		case c == '(':
			look, n := false, 1
			for _, open := range []string{"(?=", "(?!", "(?<=", "(?<!"} {
				if strings.HasPrefix(rest, open) {
					look, n = true, len(open)
				}
			}
			switch {
			case look, strings.HasPrefix(rest, "(?:"):
				out.WriteString("(?:")
				n = max(n, 3)
			case strings.HasPrefix(rest, "(?<") && len(rest) > 3 && (rest[3] < '0' || rest[3] > '9'):
				out.WriteString("(?P<")
				n = 3
			case strings.HasPrefix(rest, "(?"):
				return bad(i)
			default:
				out.WriteByte('(')
			}
			looks = append(looks, look)
			i += n
			continue
		case c == ')' && len(looks) > 0:
			anchored = looks[len(looks)-1]
			looks = looks[:len(looks)-1]
		}
		out.WriteByte(p[i])
		i++
	}
	if _, err := syntax.Parse(out.String(), syntax.Perl); err != nil {
		return bad(0)
	}
	return nil
}

// ecmaEscape reads the escape that s begins with: its length, 0 where it is none,
// and how Go writes it.
func ecmaEscape(s string, class bool) (n int, text string) {
	if len(s) < 2 {
		return 0, ""
	}
	hex := func(from, digits int) bool {
		return len(s) >= from+digits && strings.Trim(s[from:from+digits], "0123456789abcdefABCDEF") == ""
	}
	switch c := s[1]; {
	case strings.IndexByte(`^$\.*+?()[]{}|/`, c) >= 0, class && c == '-':
		return 2, s[:2]
	case strings.IndexByte("dDwWsStnvfr", c) >= 0:
		return 2, s[:2]
	case class && c == 'b':
		return 2, `\x08`
	case !class && (c == 'b' || c == 'B'):
		return 2, s[:2]
	case c == '0' && (len(s) == 2 || s[2] < '0' || s[2] > '9'):
		return 2, `\x00`
	case c == 'c' && len(s) > 2 && (s[2]|0x20 >= 'a' && s[2]|0x20 <= 'z'):
		return 3, fmt.Sprintf(`\x%02x`, s[2]&31)
	case c == 'x' && hex(2, 2):
		return 4, s[:4]
	case c == 'u' && hex(2, 4):
		return 6, `\x{` + s[2:6] + `}`
	case c == 'u' && strings.HasPrefix(s, `\u{`):
		if end := strings.IndexByte(s, '}'); end > 3 && hex(3, end-3) {
			return end + 1, `\x{` + s[3:end] + `}`
		}
	case (c == 'p' || c == 'P') && strings.HasPrefix(s[2:], "{"):
		// The general categories are called the same in both; scripts are not.
		if end := strings.IndexByte(s, '}'); end > 3 && end <= 5 {
			return end + 1, s[:end+1]
		}
	}
	return 0, ""
}
