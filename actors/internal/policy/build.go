package policy

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

const draft07 = "http://json-schema.org/draft-07/schema#"

// node is one subschema on its way through the screen.
type node struct {
	path   string // JSON pointer from the root, "" for the root
	schema *jsonschema.Schema
	raw    map[string]any // the keywords as written, for messages; nil for a boolean

	ref     string // an unresolved $ref or $dynamicRef, as written
	inPlace []*node
	below   []*node // look at the values inside the value
	weight  int     // cost of one look
	text    int     // cost of one look at one byte of text
}

// builder copies a schema, keyword by keyword.
type builder struct {
	nodes    map[string]*node
	anchors  map[string]*node
	rootID   string
	old      bool   // a draft before 2019-09: siblings of $ref are ignored, items may be a list
	multiple bool   // see Schema
	closed   string // a keyword beside which nothing may be left out
	dropped  string // what was left out
	notes    []string
}

func newBuilder(v any) *builder {
	b := &builder{nodes: map[string]*node{}, anchors: map[string]*node{}}
	root, _ := v.(map[string]any)
	b.rootID, _ = root["$id"].(string)
	b.rootID = strings.TrimSuffix(b.rootID, "#")
	draft, _ := root["$schema"].(string)
	for _, name := range []string{"draft-03", "draft-04", "draft-06", "draft-07"} {
		b.old = b.old || strings.Contains(draft, name)
	}
	return b
}

// drop leaves a keyword out, which is right wherever more lenient is harmless.
func (b *builder) drop(n *node, format string, args ...any) {
	b.dropped = at(n.path) + " " + fmt.Sprintf(format, args...)
	if len(b.notes) < 5 {
		b.notes = append(b.notes, b.dropped)
	}
}

// dropSilently is drop for what is fine as written and merely not for us to check.
func (b *builder) dropSilently(n *node, what string) { b.dropped = at(n.path) + " has " + what }

func at(path string) string {
	if path == "" {
		return "the root"
	}
	return short(path)
}

// short quotes foreign text for a message.
func short(s string) string {
	const limit = 80
	if r := []rune(s); len(s) > limit && len(r) > limit {
		s = string(r[:limit]) + "…"
	}
	return strconv.Quote(s)
}

var escapeSegment = strings.NewReplacer("~", "~0", "/", "~1")

// schema builds the subschema v at path.
func (b *builder) schema(v any, path string, depth int) (*node, error) {
	if depth > maxSchemaDepth {
		return nil, fmt.Errorf("%s nests deeper than %d subschemas", at(path), maxSchemaDepth)
	}
	if len(b.nodes) >= maxSubschemas {
		return nil, fmt.Errorf("it has more than %d subschemas", maxSubschemas)
	}
	n := &node{path: path, schema: &jsonschema.Schema{}, weight: 1}
	b.nodes[path] = n
	switch v := v.(type) {
	case bool:
		if !v {
			n.schema.Not = &jsonschema.Schema{}
			n.weight++
		}
		return n, nil
	case map[string]any:
		n.raw = v
		for _, key := range slices.Sorted(maps.Keys(v)) {
			// A null says nothing, whatever the keyword; except for const.
			if v[key] == nil && key != "const" {
				continue
			}
			if err := b.keyword(n, key, v[key], depth); err != nil {
				return nil, err
			}
		}
		if path == "" && b.old {
			n.schema.Schema = draft07
		}
		return n, nil
	default:
		return nil, fmt.Errorf("%s is neither an object nor a boolean", at(path))
	}
}

// keyword copies one keyword; unknown ones are annotations and stay behind.
func (b *builder) keyword(n *node, key string, v any, depth int) error {
	s := n.schema
	one := func(dst **jsonschema.Schema, edges *[]*node) error {
		child, err := b.schema(v, n.path+"/"+key, depth+1)
		if err != nil {
			return err
		}
		*dst = child.schema
		*edges = append(*edges, child)
		return nil
	}
	many := func(dst *[]*jsonschema.Schema, edges *[]*node) error {
		items, ok := v.([]any)
		if !ok {
			return fmt.Errorf("%s of %s is not a list", key, at(n.path))
		}
		if len(items) == 0 { // says nothing, though the engine would refuse everything
			b.drop(n, "has an empty %s", key)
			return nil
		}
		for i, item := range items {
			child, err := b.schema(item, n.path+"/"+key+"/"+strconv.Itoa(i), depth+1)
			if err != nil {
				return err
			}
			*dst = append(*dst, child.schema)
			*edges = append(*edges, child)
		}
		return nil
	}
	named := func(dst *map[string]*jsonschema.Schema, edges *[]*node) error {
		m, ok := v.(map[string]any)
		if !ok {
			return fmt.Errorf("%s of %s is not an object", key, at(n.path))
		}
		*dst = make(map[string]*jsonschema.Schema, len(m))
		for _, name := range slices.Sorted(maps.Keys(m)) {
			if m[name] == nil { // a property of which nothing is said
				m[name] = true
			}
			child, err := b.schema(m[name], n.path+"/"+key+"/"+escapeSegment.Replace(name), depth+1)
			if err != nil {
				return err
			}
			(*dst)[name] = child.schema
			if edges != nil {
				*edges = append(*edges, child)
			}
		}
		return nil
	}

	switch key {
	case "$ref", "$dynamicRef":
		return b.reference(n, key, v)
	case "$id":
		if n.path != "" {
			return fmt.Errorf("%s has an $id of its own, which moves the base of its references", at(n.path))
		}
	case "$anchor", "$dynamicAnchor":
		return b.anchor(n, key, v)
	case "$recursiveRef":
		return fmt.Errorf("%s uses $recursiveRef", at(n.path))
	case "$defs":
		return named(&s.Defs, nil)
	case "definitions":
		return named(&s.Definitions, nil)

	case "properties":
		return named(&s.Properties, &n.below)
	case "patternProperties":
		if err := b.patterns(n, v); err != nil {
			return err
		}
		return named(&s.PatternProperties, &n.below)
	case "additionalProperties":
		n.text++ // the names of what is too much are listed
		return one(&s.AdditionalProperties, &n.below)
	case "propertyNames":
		return one(&s.PropertyNames, &n.below)
	case "unevaluatedProperties":
		return one(&s.UnevaluatedProperties, &n.below)
	case "dependentSchemas":
		return named(&s.DependentSchemas, &n.inPlace)
	case "dependencies":
		return b.dependencies(n, v, depth)

	case "items":
		return b.items(n, v, one, many)
	case "prefixItems":
		return many(&s.PrefixItems, &n.below)
	case "additionalItems":
		if _, tuple := n.raw["items"].([]any); !tuple {
			return nil // says nothing without a list of items
		}
		if b.old {
			return one(&s.AdditionalItems, &n.below)
		}
		return one(&s.Items, &n.below)
	case "contains":
		if n.raw["maxContains"] != nil {
			b.closed = "maxContains"
		}
		return one(&s.Contains, &n.below)
	case "unevaluatedItems":
		return one(&s.UnevaluatedItems, &n.below)

	case "allOf":
		return many(&s.AllOf, &n.inPlace)
	case "anyOf":
		return many(&s.AnyOf, &n.inPlace)
	case "oneOf":
		b.closed = key
		return many(&s.OneOf, &n.inPlace)
	case "not":
		b.closed = key
		return one(&s.Not, &n.inPlace)
	case "if":
		b.closed = key
		return one(&s.If, &n.inPlace)
	case "then":
		return one(&s.Then, &n.inPlace)
	case "else":
		return one(&s.Else, &n.inPlace)

	default:
		return b.constraint(n, key, v)
	}
	return nil
}

// items is one schema for all, or (before 2020-12) a list of schemas by position.
func (b *builder) items(n *node, v any,
	one func(**jsonschema.Schema, *[]*node) error, many func(*[]*jsonschema.Schema, *[]*node) error) error {
	if _, tuple := v.([]any); !tuple {
		return one(&n.schema.Items, &n.below)
	}
	if b.old {
		return many(&n.schema.ItemsArray, &n.below)
	}
	// No draft, or 2019-09: the same thing under its newer name.
	if n.raw["prefixItems"] != nil {
		return fmt.Errorf("%s has prefixItems and a list of items", at(n.path))
	}
	return many(&n.schema.PrefixItems, &n.below)
}

// dependencies was split in two after draft-07; the engine wants them apart.
func (b *builder) dependencies(n *node, v any, depth int) error {
	m, ok := v.(map[string]any)
	if !ok || !b.old {
		return nil // no keyword of newer drafts
	}
	n.schema.DependencySchemas = map[string]*jsonschema.Schema{}
	n.schema.DependencyStrings = map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if names, ok := stringList(m[name]); ok {
			n.schema.DependencyStrings[name] = names
			continue
		}
		child, err := b.schema(m[name], n.path+"/dependencies/"+escapeSegment.Replace(name), depth+1)
		if err != nil {
			return err
		}
		n.schema.DependencySchemas[name] = child.schema
		n.inPlace = append(n.inPlace, child)
	}
	return nil
}

func (b *builder) anchor(n *node, key string, v any) error {
	name, ok := v.(string)
	if !ok || name == "" || b.old {
		return nil
	}
	if other, twice := b.anchors[name]; twice && other != n {
		return fmt.Errorf("anchor %s occurs twice", short(name))
	}
	b.anchors[name] = n
	if key == "$anchor" {
		n.schema.Anchor = name
	} else {
		n.schema.DynamicAnchor = name
	}
	return nil
}

// reference takes local references only. A dynamic one is local too: without $id
// there is one scope, so it means what a static one means.
func (b *builder) reference(n *node, key string, v any) error {
	ref, ok := v.(string)
	if !ok {
		return fmt.Errorf("%s of %s is not a string", key, at(n.path))
	}
	if b.rootID != "" && strings.HasPrefix(ref, b.rootID+"#") {
		ref = ref[len(b.rootID):]
	}
	u, err := url.Parse(ref)
	if err != nil || (*u != url.URL{Fragment: u.Fragment, RawFragment: u.RawFragment}) {
		return fmt.Errorf("%s refers to %s, which is not inside the schema", at(n.path), short(ref))
	}
	if n.ref != "" {
		return fmt.Errorf("%s has both $ref and $dynamicRef", at(n.path))
	}
	n.ref = ref
	if key == "$ref" {
		n.schema.Ref = ref
	} else {
		n.schema.DynamicRef = ref
	}
	return nil
}

// link turns the references into edges of the graph.
func (b *builder) link() error {
	for _, path := range slices.Sorted(maps.Keys(b.nodes)) {
		n := b.nodes[path]
		if n.ref == "" {
			continue
		}
		u, err := url.Parse(n.ref)
		if err != nil {
			return fmt.Errorf("%s refers to %s, which is no reference", at(n.path), short(n.ref))
		}
		target, ok := b.nodes[u.Fragment]
		if u.Fragment != "" && !strings.HasPrefix(u.Fragment, "/") {
			target, ok = b.anchors[u.Fragment]
		}
		if !ok {
			return fmt.Errorf("%s refers to %s, which does not exist", at(n.path), short(n.ref))
		}
		n.inPlace = append(n.inPlace, target)
	}
	return nil
}
