package forms

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// maxNodes bounds the subschemas of one result: references that are written out could
// multiply without end.
const maxNodes = 5000

// maxSchema bounds the text of a schema that is looked at.
const maxSchema = 1 << 20

// rules are where providers differ in their JSON Schema.
type rules struct {
	inline    bool              // $ref is written out; otherwise those that resolve stay
	items     bool              // an array must have items
	topBanned []string          // may not stand at the top
	property  func(string) bool // which names of properties are taken; nil = all
}

// tidier makes a schema one that every validator of JSON Schema can read, by the
// rules of one provider.
type tidier struct {
	rules
	root  *obj
	nodes int
	chain []string // the references that are being written out
	notes *notes
}

// notes are what was changed, each once, in order.
type notes struct {
	list []string
	seen map[string]bool
}

const maxNotes = 20

func (n *notes) add(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	if n.seen == nil {
		n.seen = map[string]bool{}
	}
	if n.seen[s] || len(n.list) > maxNotes {
		return
	}
	n.seen[s] = true
	if len(n.list) == maxNotes {
		s = "and more"
	}
	n.list = append(n.list, s)
}

// tidy reads an input schema and returns it tidied, its top an object with
// `type: object` and properties.
func tidy(raw json.RawMessage, r rules, n *notes) *obj {
	t := &tidier{rules: r, notes: n}
	v, ok := any(nil), false
	if len(raw) <= maxSchema {
		v, ok = decode(raw)
	}
	root, isObj := v.(*obj)
	if !ok || !isObj {
		n.add("the schema is too big, too deep or no object: any arguments are taken")
		root = newObj()
	}
	t.root = root
	top := t.schema(root, "")
	if top.has("$ref") {
		top = t.written(root, "") // at the top it is written out for all
	}
	top = t.lift(top)
	top.set("type", "object")
	if top.obj("properties") == nil {
		top.set("properties", newObj())
	}
	return t.known(top)
}

// known drops from required what properties no longer have.
func (t *tidier) known(s *obj) *obj {
	req, _ := texts(s.list("required"))
	props := s.obj("properties")
	if props == nil || len(req) == 0 || t.property == nil {
		return s
	}
	kept := slices.DeleteFunc(slices.Clone(req), func(name string) bool { return !t.property(name) })
	if len(kept) < len(req) {
		s = s.clone()
		s.set("required", anys(kept))
		if len(kept) == 0 {
			s.del("required")
		}
	}
	return s
}

// lift takes apart what may not stand at the top: allOf is merged in, and of anyOf and
// oneOf the properties of all branches are offered, required where each branch does.
func (t *tidier) lift(top *obj) *obj {
	for _, k := range t.topBanned {
		list := top.list(k)
		if !top.has(k) {
			continue
		}
		top = top.without(k)
		switch k {
		case "allOf":
			for _, v := range list {
				top = t.conj(top, t.meant(v.(*obj)), "")
			}
			top = t.lift(top)
		case "anyOf", "oneOf":
			t.notes.add("the alternatives at the top (%s) are offered together", k)
			top = t.union(top, list)
		default:
			t.notes.add("%s at the top is left out", k)
		}
	}
	return top
}

func (t *tidier) union(top *obj, branches []any) *obj {
	props := newObj()
	if p := top.obj("properties"); p != nil {
		props = p.clone()
	}
	variants, order, named := map[string][]any{}, []string{}, map[string]int{}
	var common []string
	var closed []*obj
	for i, v := range branches {
		b := t.lift(t.meant(v.(*obj)))
		if p := b.obj("properties"); p != nil {
			for _, name := range p.keys {
				if props.has(name) {
					continue
				}
				if variants[name] == nil {
					order = append(order, name)
				}
				named[name]++
				if !slices.ContainsFunc(variants[name], func(o any) bool { return same(o, p.vals[name]) }) {
					variants[name] = append(variants[name], p.vals[name])
				}
			}
		}
		if b.vals["additionalProperties"] == false {
			closed = append(closed, b)
		}
		req, _ := texts(b.list("required"))
		if i == 0 {
			common = req
		}
		common = slices.DeleteFunc(slices.Clone(common), func(name string) bool { return !slices.Contains(req, name) })
	}
	for _, name := range order {
		count := named[name]
		for _, b := range closed { // a closed one that does not name it has no say either
			if p := b.obj("properties"); p == nil || !p.has(name) {
				count++
			}
		}
		if count < len(branches) {
			t.notes.add("a property that only some alternatives name is offered as they say it")
		}
		if vs := variants[name]; len(vs) == 1 {
			props.set(name, vs[0])
		} else {
			props.set(name, of("anyOf", vs))
		}
	}
	top = top.clone()
	top.set("properties", props)
	req, _ := texts(top.list("required"))
	for _, name := range common {
		if !slices.Contains(req, name) {
			req = append(req, name)
		}
	}
	if len(req) > 0 {
		top.set("required", anys(req))
	}
	return top
}

// meant is what a branch at the top says, its reference written out.
func (t *tidier) meant(s *obj) *obj {
	if s.has("$ref") {
		return t.written(s, "")
	}
	return s
}

// at names a place for a note.
func at(path string) string {
	if path == "" {
		return "at the top"
	}
	return "at " + clip(strings.TrimPrefix(path, "."), 80)
}

func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
