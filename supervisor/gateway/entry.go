package gateway

import (
	"bytes"
	"encoding/json"

	"mcpbridge/internal/rawjson"
	"mcpbridge/messages"
)

// This file and sane.go keep one odd server from being everybody's problem: typed
// clients read a list as a whole and end their session over a message that they
// cannot read, so what would make them do that never leaves the bridge.

// emptySchema stands in for an input schema that no client can read.
var emptySchema = []byte(`{"type":"object"}`)

// entryFields are the members of one definition, in the server's order. A member
// whose value is nil is left out.
type entryFields struct {
	list []entryField
	at   map[string]int
}

type entryField struct{ key, val []byte }

func (f *entryFields) put(name string, key, val []byte) {
	if i, ok := f.at[name]; ok {
		f.list[i].val = val
		return
	}
	f.at[name] = len(f.list)
	f.list = append(f.list, entryField{key, val})
}

func (f *entryFields) set(name string, val []byte) { f.put(name, rawjson.AppendString(nil, name), val) }

// get returns nil for what is not there.
func (f *entryFields) get(name string) []byte {
	if i, ok := f.at[name]; ok {
		return f.list[i].val
	}
	return nil
}

// repair replaces a member that is there by what fix makes of it; nil drops it.
func (f *entryFields) repair(name string, fix func([]byte) []byte) {
	if i, ok := f.at[name]; ok && f.list[i].val != nil {
		f.list[i].val = fix(f.list[i].val)
	}
}

// toolEntry is the tool's definition as the server wrote it, byte for byte but for
// the name and for what would make a strict client refuse the whole list: the
// adapted description and schemas stand in for odd ones, what is null, of the wrong
// type or nested too deep is left out, and of a repeated key the last counts.
// Tools that the gate refuses are marked in _meta.
func toolEntry(t messages.Tool, name string) []byte {
	f := entryFields{at: map[string]int{}}
	raw := t.Def.Raw
	if json.Valid(raw) {
		rawjson.Object(raw, func(m rawjson.Member) bool {
			if val := raw[m.ValStart:m.ValEnd]; !deeperThan(val, maxWireDepth) {
				f.put(m.Key, raw[m.KeyStart:rawjson.SkipString(raw, m.KeyStart)], val)
			}
			return true
		})
	}
	f.set("name", rawjson.AppendString(nil, name))
	if unquoteIf(f.get("description")) != t.Def.Description || f.get("description") == nil {
		f.set("description", rawjson.AppendString(nil, t.Def.Description))
	}
	input, output := saneSchema(t.Def.InputSchema), saneSchema(t.Def.OutputSchema)
	if input == nil {
		input = emptySchema
	}
	f.set("inputSchema", input)
	if output != nil && !hasObjectType(output) {
		output = nil // what revisions before 2026-07-28 allow, and their clients insist on
	}
	if output != nil || f.get("outputSchema") != nil {
		f.set("outputSchema", output)
	}
	if f.get("title") == nil && t.Def.Title != "" {
		f.set("title", rawjson.AppendString(nil, t.Def.Title))
	}
	if f.get("title") == nil && t.RemoteName != "" && name != t.RemoteName && name != t.Server+"__"+t.RemoteName {
		f.set("title", rawjson.AppendString(nil, t.RemoteName)) // the name cannot say it (B49)
	}
	f.repair("title", onlyIf(rawjson.IsString))
	if a := saneAnnotations(t.Def.Annotations); a != nil || f.get("annotations") != nil {
		f.set("annotations", a)
	}
	f.repair("icons", saneIcons)
	f.repair("execution", saneExecution)
	f.repair("_meta", onlyIf(rawjson.IsObject))
	if t.Permission != messages.Allow {
		meta := f.get("_meta")
		if meta == nil {
			meta = []byte("{}")
		}
		f.set("_meta", rawjson.SetMember(meta, "mcpbridge/permission", rawjson.AppendString(nil, t.Permission.String())))
	}
	out := make([]byte, 0, len(raw)+len(name)+64)
	out = append(out, '{')
	for _, field := range f.list {
		if field.val == nil {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, field.key...)
		out = append(out, ':')
		out = append(out, field.val...)
	}
	return append(out, '}')
}

// onlyIf keeps a value that is of the right type.
func onlyIf(ok func([]byte) bool) func([]byte) []byte {
	return func(val []byte) []byte {
		if ok(val) {
			return val
		}
		return nil
	}
}

// remake returns obj with each member's value as fix gives it (nil leaves the
// member out), and obj itself, byte for byte, where fix changes nothing. What is no
// object becomes nil.
func remake(obj []byte, fix func(key string, val []byte) []byte) []byte {
	if !rawjson.IsObject(obj) {
		return nil
	}
	out, changed := []byte{'{'}, false
	rawjson.Object(obj, func(m rawjson.Member) bool {
		val := obj[m.ValStart:m.ValEnd]
		fixed := fix(m.Key, val)
		changed = changed || !bytes.Equal(fixed, val)
		if fixed == nil {
			return true
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, obj[m.KeyStart:rawjson.SkipString(obj, m.KeyStart)]...), ':'), fixed...)
		return true
	})
	if !changed {
		return obj
	}
	return append(out, '}')
}

// saneSchema makes a schema readable for clients that type its top level: property
// schemas must be objects, so `true` and `false` get their long form, and `required`
// must be a list of names.
func saneSchema(schema []byte) []byte {
	if deeperThan(schema, maxWireDepth) {
		return nil
	}
	return remake(schema, func(key string, val []byte) []byte {
		switch key {
		case "properties":
			return remake(val, func(_ string, v []byte) []byte {
				switch {
				case rawjson.IsObject(v):
					return v
				case rawjson.IsKind(v, "f"):
					return []byte(`{"not":{}}`)
				default: // true, and what says nothing
					return []byte("{}")
				}
			})
		case "required":
			return stringsOnly(val)
		}
		return val
	})
}

func hasObjectType(schema []byte) bool {
	t, _ := rawjson.Lookup(schema, "type")
	return unquoteIf(t) == "object"
}

// stringsOnly keeps a list of strings.
func stringsOnly(val []byte) []byte {
	ok := true
	if !rawjson.Array(val, func(v []byte) bool {
		ok = rawjson.IsString(v)
		return ok
	}) || !ok {
		return nil
	}
	return val
}

// saneAnnotations returns a as it is where every known hint has its type, without
// the members that have not, and nil where a is no object.
func saneAnnotations(a []byte) []byte {
	if deeperThan(a, maxWireDepth) {
		return nil
	}
	return remake(a, func(key string, val []byte) []byte {
		switch key {
		case "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint":
			if !rawjson.IsKind(val, "tf") {
				return nil
			}
		case "title":
			if !rawjson.IsString(val) {
				return nil
			}
		}
		return val
	})
}

// saneIcons keeps the icons that clients can read.
func saneIcons(val []byte) []byte {
	var kept [][]byte
	changed := false
	if !rawjson.Array(val, func(icon []byte) bool {
		fixed := saneIcon(icon)
		changed = changed || !bytes.Equal(fixed, icon)
		if fixed != nil {
			kept = append(kept, fixed)
		}
		return true
	}) {
		return nil
	}
	if !changed {
		return val
	}
	return append(append([]byte{'['}, bytes.Join(kept, []byte{','})...), ']')
}

func saneIcon(icon []byte) []byte {
	if src, _ := rawjson.Lookup(icon, "src"); !rawjson.IsString(src) {
		return nil
	}
	return remake(icon, func(key string, val []byte) []byte {
		switch key {
		case "src":
			return onlyIf(rawjson.IsString)(val)
		case "mimeType":
			return onlyIf(rawjson.IsString)(val)
		case "sizes":
			return stringsOnly(val)
		case "theme":
			if s := unquoteIf(val); s != "light" && s != "dark" {
				return nil
			}
		}
		return val
	})
}

func saneExecution(val []byte) []byte {
	return remake(val, func(key string, v []byte) []byte {
		if key != "taskSupport" {
			return v
		}
		switch unquoteIf(v) {
		case "required", "optional", "forbidden":
			return v
		}
		return nil
	})
}
