package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
)

var typeWords = []string{"array", "boolean", "integer", "null", "number", "object", "string"}

// constraint copies a keyword that holds no subschema. One of the wrong type is
// left out: the rest still helps.
func (b *builder) constraint(n *node, key string, v any) error {
	s := n.schema
	switch key {
	case "type":
		return b.types(n, v)
	case "enum":
		values, ok := v.([]any)
		if !ok || len(values) == 0 {
			b.drop(n, "has an enum that is no list of values")
			return nil
		}
		s.Enum = make([]any, len(values))
		for i, e := range values {
			s.Enum[i] = instance(copyOf(e))
		}
		n.weight += size(v)
	case "const":
		c := instance(copyOf(v))
		s.Const = &c
		n.weight += size(v)
	case "multipleOf":
		m, ok := v.(json.Number)
		// 19.99 is a multiple of 0.01, but not in floats: fractions are the server's.
		if i, err := strconv.ParseInt(string(m), 10, 32); ok && err == nil && i > 0 {
			f := float64(i)
			s.MultipleOf = &f
			b.multiple = true
			return nil
		}
		b.dropSilently(n, "a multipleOf that is no small integer")
	case "minimum":
		s.Minimum = b.bound(n, key, v)
	case "maximum":
		s.Maximum = b.bound(n, key, v)
	case "exclusiveMinimum":
		if strict, ok := v.(bool); ok { // draft-04: a flag beside minimum
			if strict && n.raw["minimum"] != nil {
				s.ExclusiveMinimum = b.bound(n, key, n.raw["minimum"])
			}
			return nil
		}
		s.ExclusiveMinimum = b.bound(n, key, v)
	case "exclusiveMaximum":
		if strict, ok := v.(bool); ok {
			if strict && n.raw["maximum"] != nil {
				s.ExclusiveMaximum = b.bound(n, key, n.raw["maximum"])
			}
			return nil
		}
		s.ExclusiveMaximum = b.bound(n, key, v)
	case "minLength":
		s.MinLength = b.length(n, key, v)
		n.text++
	case "maxLength":
		s.MaxLength = b.length(n, key, v)
		n.text++
	case "minItems":
		s.MinItems = b.length(n, key, v)
	case "maxItems":
		s.MaxItems = b.length(n, key, v)
	case "minContains":
		if s.MinContains = b.length(n, key, v); s.MinContains == nil { // left out it would mean one
			return fmt.Errorf("%s has a minContains that is no usable count", at(n.path))
		}
	case "maxContains":
		s.MaxContains = b.length(n, key, v)
	case "minProperties":
		s.MinProperties = b.length(n, key, v)
	case "maxProperties":
		s.MaxProperties = b.length(n, key, v)
	case "uniqueItems":
		s.UniqueItems, _ = v.(bool)
		n.weight++
		n.text++
	case "pattern":
		return b.pattern(n, v)
	case "required":
		names, ok := stringList(v)
		if !ok {
			b.drop(n, "has a required that is no list of names")
			return nil
		}
		s.Required = names
		n.weight += len(names) / 8
	case "dependentRequired":
		m, ok := v.(map[string]any)
		if !ok {
			b.drop(n, "has a dependentRequired that is no object")
			return nil
		}
		s.DependentRequired = make(map[string][]string, len(m))
		for name, list := range m {
			names, ok := stringList(list)
			if !ok {
				b.drop(n, "has a dependentRequired that is no list of names")
				continue
			}
			s.DependentRequired[name] = names
			n.weight += 1 + len(names)/8
		}
	}
	return nil
}

// types refuses a schema with a type word that does not exist: whoever wrote it
// meant something that we do not know.
func (b *builder) types(n *node, v any) error {
	var words []string
	w, single := v.(string)
	if single {
		words = []string{w}
	} else if list, ok := stringList(v); ok {
		words = list
	} else {
		return fmt.Errorf("the type of %s is neither a word nor a list of words", at(n.path))
	}
	for _, w := range words {
		if !slices.Contains(typeWords, w) {
			return fmt.Errorf("%s has the unknown type %s", at(n.path), short(w))
		}
	}
	switch {
	case single:
		n.schema.Type = words[0]
	case len(words) == 0:
		b.drop(n, "has an empty list of types")
	default:
		n.schema.Types = words
	}
	return nil
}

// bound reads a numeric limit. The engine keeps it as a float; an integer that a
// float cannot hold would shift the limit and refuse what is right.
func (b *builder) bound(n *node, key string, v any) *float64 {
	num, ok := v.(json.Number)
	f, err := strconv.ParseFloat(string(num), 64)
	if !ok || err != nil {
		b.drop(n, "has a %s that is no usable number", key)
		return nil
	}
	if i, isInt := new(big.Int).SetString(string(num), 10); isInt {
		if r, _ := new(big.Float).SetFloat64(f).Int(nil); r.Cmp(i) != 0 {
			b.dropSilently(n, "a "+key+" beyond what floats hold exactly")
			return nil
		}
	}
	return &f
}

func (b *builder) length(n *node, key string, v any) *int {
	num, _ := v.(json.Number)
	f, err := strconv.ParseFloat(string(num), 64)
	if err != nil || f < 0 || f > 1<<31-1 || f != float64(int(f)) {
		b.drop(n, "has a %s that is no usable count", key)
		return nil
	}
	i := int(f)
	return &i
}

// pattern leaves out what Go's engine does not know (look-around, \u escapes): it
// is linear, the price of which is a smaller language than JavaScript's.
func (b *builder) pattern(n *node, v any) error {
	p, ok := v.(string)
	if !ok {
		b.drop(n, "has a pattern that is no string")
		return nil
	}
	size, err := program(p)
	if err != nil {
		b.drop(n, "has a pattern that is not used: %v", err)
		return nil
	}
	n.schema.Pattern = p
	n.weight++
	n.text += size
	return nil
}

// patterns checks the names of patternProperties. They cannot be left out: what
// they match would then fall under additionalProperties.
func (b *builder) patterns(n *node, v any) error {
	m, _ := v.(map[string]any)
	for _, p := range slices.Sorted(maps.Keys(m)) {
		size, err := program(p)
		if err != nil {
			return fmt.Errorf("%s has patternProperties that cannot be used: %w", at(n.path), err)
		}
		n.weight++
		n.text += size
	}
	return nil
}

// program returns the number of instructions of a regular expression.
func program(pattern string) (int, error) {
	if len(pattern) > maxPattern {
		return 0, fmt.Errorf("it has %d bytes, more than %d", len(pattern), maxPattern)
	}
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0, fmt.Errorf("not a regular expression for Go: %s", short(strings.TrimPrefix(err.Error(), "error parsing regexp: ")))
	}
	prog, err := syntax.Compile(re.Simplify())
	if err != nil {
		return 0, fmt.Errorf("not a regular expression for Go: %s", short(err.Error()))
	}
	if len(prog.Inst) > maxProgram {
		return 0, fmt.Errorf("it compiles to %d instructions, more than %d", len(prog.Inst), maxProgram)
	}
	return len(prog.Inst), nil
}

func stringList(v any) ([]string, bool) {
	items, ok := v.([]any)
	if !ok {
		return nil, false
	}
	out := make([]string, len(items))
	for i, item := range items {
		if out[i], ok = item.(string); !ok {
			return nil, false
		}
	}
	return out, true
}

// size weighs a value that is compared whole.
func size(v any) int {
	switch v := v.(type) {
	case map[string]any:
		n := 1
		for k, e := range v {
			n += 1 + len(k)/32 + size(e)
		}
		return n
	case []any:
		n := 1
		for _, e := range v {
			n += size(e)
		}
		return n
	case string:
		return 1 + len(v)/32
	default:
		return 1
	}
}

// copyOf makes a value that instance may change in place.
func copyOf(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, e := range v {
			m[k] = copyOf(e)
		}
		return m
	case []any:
		l := make([]any, len(v))
		for i, e := range v {
			l[i] = copyOf(e)
		}
		return l
	default:
		return v
	}
}
