package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// explain turns the engine's error into a sentence for the caller. The engine
// wraps one "validating <path of the subschema>" around another, outermost first;
// from one path to the next one can tell which argument it went into, and the
// innermost subschema and keyword say what is wrong there.
func (s *Schema) explain(err error) string {
	path, argument := "root", ""
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			break
		}
		next, ok := strings.CutPrefix(strings.TrimSuffix(err.Error(), ": "+inner.Error()), "validating ")
		if !ok {
			break
		}
		argument += step(path, next)
		path, err = next, inner
	}
	leaf := err.Error()
	keyword, rest, _ := strings.Cut(leaf, ":")
	if names, ok := strings.CutPrefix(leaf, "unexpected additional properties "); ok {
		return subject(argument, "unknown argument", "unknown property", quotedList(names))
	}
	if names, ok := strings.CutPrefix(rest, " missing properties: "); ok && keyword == "required" {
		return subject(argument, "missing argument", "missing property", quotedList(names))
	}
	what := s.complaint(s.nodes[path], keyword, rest)
	if argument == "" {
		return "arguments: " + what
	}
	return "argument " + short(strings.TrimPrefix(argument, ".")) + ": " + what
}

// subject says it in the words of the top level, or of a nested object.
func subject(argument, top, nested, names string) string {
	if argument == "" {
		return top + " " + names
	}
	return "argument " + short(strings.TrimPrefix(argument, ".")) + ": " + nested + " " + names
}

// step says which argument lies between two paths of the schema; "" when the
// second looks at the same value as the first.
func step(from, to string) string {
	if from == "root" {
		from = ""
	}
	rest, ok := strings.CutPrefix(to, from+"/")
	if !ok {
		return "" // a reference: the same value
	}
	keyword, name, _ := strings.Cut(rest, "/")
	switch keyword {
	case "properties":
		return "." + strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
	case "patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames":
		return ".*"
	case "items", "prefixItems", "additionalItems", "unevaluatedItems", "contains":
		return "[]"
	default:
		return ""
	}
}

// complaint words one failed keyword. It may quote the schema, never the value.
func (s *Schema) complaint(n *node, keyword, rest string) string {
	var raw map[string]any
	if n != nil {
		raw = n.raw
	}
	limit := func(format string, key string) string {
		if v, ok := raw[key].(json.Number); ok && len(v) < 40 {
			return fmt.Sprintf(format, v)
		}
		return "does not satisfy " + key
	}
	switch keyword {
	case "type":
		return typeComplaint(rest)
	case "enum":
		return "must be one of " + values(raw["enum"])
	case "const":
		return "must be " + values([]any{raw["const"]})
	case "multipleOf":
		return limit("must be a multiple of %s", keyword)
	case "minimum":
		return limit("must be at least %s", keyword)
	case "maximum":
		return limit("must be at most %s", keyword)
	case "exclusiveMinimum", "exclusiveMaximum":
		word, bound := "more", "minimum"
		if keyword == "exclusiveMaximum" {
			word, bound = "less", "maximum"
		}
		if _, flag := raw[keyword].(bool); flag {
			return limit("must be "+word+" than %s", bound)
		}
		return limit("must be "+word+" than %s", keyword)
	case "minLength":
		return limit("must have at least %s characters", keyword)
	case "maxLength":
		return limit("must have at most %s characters", keyword)
	case "minItems":
		return limit("must have at least %s items", keyword)
	case "maxItems":
		return limit("must have at most %s items", keyword)
	case "minProperties":
		return limit("must have at least %s properties", keyword)
	case "maxProperties":
		return limit("must have at most %s properties", keyword)
	case "uniqueItems":
		return "has items that are equal"
	case "pattern":
		p, _ := raw[keyword].(string)
		return "must match the pattern " + short(p)
	case "anyOf", "oneOf":
		if strings.HasPrefix(rest, " validated against both") {
			return "fits more than one of the forms that exclude each other"
		}
		return "has none of the allowed forms"
	case "not":
		return "is not allowed"
	case "contains", "minContains", "maxContains":
		return "does not have the items that it must have"
	}
	if strings.HasPrefix(keyword, "dependentRequired") {
		return "needs other properties beside it"
	}
	return "does not fit the schema"
}

// typeComplaint reads `… has type "integer", want "string"`. The value itself is
// in front of it, so the end is what counts.
func typeComplaint(rest string) string {
	i := strings.LastIndex(rest, ` has type "`)
	if i < 0 {
		return "has the wrong type"
	}
	got, want, ok := strings.Cut(rest[i+len(` has type "`):], `", want `)
	if !ok {
		return "has the wrong type"
	}
	if list, several := strings.CutPrefix(want, "one of "); several {
		return "must be one of " + strings.Trim(list, `"`) + ", not " + got
	}
	return "must be " + strings.Trim(want, `"`) + ", not " + got
}

// quotedList reads a list as %q prints it and sorts it; a long one is cut.
func quotedList(s string) string {
	const limit = 10
	s = strings.TrimPrefix(s, "[")
	var names []string
	for {
		q, err := strconv.QuotedPrefix(s)
		if err != nil {
			break
		}
		s = strings.TrimPrefix(s[len(q):], " ")
		if name, err := strconv.Unquote(q); err == nil {
			names = append(names, short(name))
		}
	}
	slices.Sort(names)
	if len(names) > limit {
		return strings.Join(names[:limit], ", ") + fmt.Sprintf(" and %d more", len(names)-limit)
	}
	return strings.Join(names, ", ")
}

// values lists what the schema allows, if that is short enough to help.
func values(v any) string {
	const limit = 200
	items, _ := v.([]any)
	parts := make([]string, len(items))
	for i, item := range items {
		b, err := json.Marshal(item)
		if err != nil {
			return "the allowed values"
		}
		parts[i] = string(b)
	}
	out := strings.Join(parts, ", ")
	if len(out) > limit || out == "" {
		return "the allowed values"
	}
	return out
}
