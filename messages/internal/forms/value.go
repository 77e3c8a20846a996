package forms

import (
	"bytes"
	"encoding/json"
	"slices"
)

// obj is a JSON object that keeps the order of its members: the order of a schema's
// properties is how a model reads them. Values are nil, bool, json.Number, string,
// []any and *obj.
type obj struct {
	keys []string
	vals map[string]any
}

func newObj() *obj { return &obj{vals: map[string]any{}} }

// of makes an object of key, value, key, value, …
func of(pairs ...any) *obj {
	o := newObj()
	for i := 0; i+1 < len(pairs); i += 2 {
		o.set(pairs[i].(string), pairs[i+1])
	}
	return o
}

func (o *obj) set(key string, v any) {
	if _, ok := o.vals[key]; !ok {
		o.keys = append(o.keys, key)
	}
	o.vals[key] = v
}

func (o *obj) has(key string) bool { _, ok := o.vals[key]; return ok }

func (o *obj) del(key string) {
	if !o.has(key) {
		return
	}
	delete(o.vals, key)
	o.keys = slices.DeleteFunc(o.keys, func(k string) bool { return k == key })
}

// obj returns a member that is an object, nil otherwise.
func (o *obj) obj(key string) *obj { v, _ := o.vals[key].(*obj); return v }

func (o *obj) list(key string) []any { v, _ := o.vals[key].([]any); return v }

func (o *obj) str(key string) string { v, _ := o.vals[key].(string); return v }

// clone copies the object and not what is in it.
func (o *obj) clone() *obj {
	c := &obj{keys: slices.Clone(o.keys), vals: make(map[string]any, len(o.vals))}
	for k, v := range o.vals {
		c.vals[k] = v
	}
	return c
}

// without is a copy that lacks the keys.
func (o *obj) without(keys ...string) *obj {
	c := o.clone()
	for _, k := range keys {
		c.del(k)
	}
	return c
}

// MarshalJSON keeps the order, and writes <, > and & as they are.
func (o *obj) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, k := range o.keys {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(encode(k))
		b.WriteByte(':')
		b.Write(encode(o.vals[k]))
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil { // cannot happen: it came from JSON
		return []byte("null")
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// maxDepth bounds how deep a schema may nest; beyond, nothing reads it anyway.
const maxDepth = 100

// decode reads a schema; ok is false for what is no JSON or nests too deep.
func decode(raw json.RawMessage) (v any, ok bool) {
	if !json.Valid(raw) {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return decodeValue(d, 0)
}

func decodeValue(d *json.Decoder, depth int) (any, bool) {
	if depth > maxDepth {
		return nil, false
	}
	t, err := d.Token()
	if err != nil {
		return nil, false
	}
	delim, is := t.(json.Delim)
	switch {
	case !is:
		return t, true
	case delim == '[':
		list := []any{}
		for d.More() {
			v, ok := decodeValue(d, depth+1)
			if !ok {
				return nil, false
			}
			list = append(list, v)
		}
		_, err = d.Token()
		return list, err == nil
	}
	o := newObj()
	for d.More() {
		k, err := d.Token()
		key, isKey := k.(string)
		if err != nil || !isKey {
			return nil, false
		}
		v, ok := decodeValue(d, depth+1)
		if !ok {
			return nil, false
		}
		o.set(key, v)
	}
	_, err = d.Token()
	return o, err == nil
}

// same compares two values by their JSON.
func same(a, b any) bool { return bytes.Equal(encode(a), encode(b)) }

// texts returns the strings of a list, and whether there was nothing else in it.
func texts(list []any) (out []string, all bool) {
	all = true
	for _, v := range list {
		if s, ok := v.(string); ok {
			out = append(out, s)
		} else {
			all = false
		}
	}
	return out, all
}

func anys(list []string) []any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}
