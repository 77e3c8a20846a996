package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// maxArgsFile bounds what is read as arguments.
const maxArgsFile = 64 << 20

func readAll(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxArgsFile+1))
	if err == nil && len(b) > maxArgsFile {
		err = fmt.Errorf("more than %s of arguments", humanSize(maxArgsFile))
	}
	return b, err
}

// property is what is read of a schema's property: the types it may have.
type property struct {
	Type  any   `json:"type"` // a word or a list of words
	Enum  []any `json:"enum"`
	Const any   `json:"const"`
}

func (p property) types() []string {
	switch t := p.Type.(type) {
	case string:
		return []string{t}
	case []any:
		var out []string
		for _, v := range t {
			if s, ok := v.(string); ok {
				out = append(out, s)
			}
		}
		return out
	}
	var out []string
	values := p.Enum
	if p.Const != nil {
		values = append(values, p.Const)
	}
	for _, v := range values {
		out = append(out, jsonType(v))
	}
	return slices.Compact(out)
}

func jsonType(v any) string {
	switch v.(type) {
	case string:
		return "string"
	case bool:
		return "boolean"
	case nil:
		return "null"
	case float64, json.Number:
		return "number"
	case []any:
		return "array"
	default:
		return "object"
	}
}

// mergeArguments adds k=v and k:=JSON pairs to an arguments object, in their order; a
// key that is there already gets the new value. schema may be nil.
func mergeArguments(text string, pairs []string, schema json.RawMessage) (string, error) {
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if len(schema) > 0 {
		_ = json.Unmarshal(schema, &s) // an odd schema guides less, and that is all
	}
	keys, values, err := members(text)
	if err != nil {
		return "", fmt.Errorf("arguments cannot be added to what --args gives: %w", err)
	}
	for _, p := range pairs {
		key, value, _ := strings.Cut(p, "=")
		var raw json.RawMessage
		if k, exact := strings.CutSuffix(key, ":"); exact {
			if key = k; !json.Valid([]byte(value)) {
				return "", fmt.Errorf("argument %q: %q is no JSON; use %s=TEXT for text", key, value, key)
			}
			raw = json.RawMessage(value)
		} else {
			var prop property
			_ = json.Unmarshal(s.Properties[key], &prop)
			raw = readValue(value, prop.types())
		}
		if key == "" {
			return "", fmt.Errorf("argument %q has no name", p)
		}
		if _, there := values[key]; !there {
			keys = append(keys, key)
		}
		values[key] = raw
	}
	var b bytes.Buffer
	b.WriteByte('{')
	for i, k := range keys {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(k)
		if err != nil {
			return "", err
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(values[k])
	}
	b.WriteByte('}')
	return b.String(), nil
}

// members reads an object's members with the bytes of their values, in order.
func members(text string) (keys []string, values map[string]json.RawMessage, err error) {
	values = map[string]json.RawMessage{}
	if t := strings.TrimSpace(text); t == "" || t == "null" {
		return nil, values, nil
	}
	d := json.NewDecoder(strings.NewReader(text))
	tok, err := d.Token()
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
	}()
	if tok != json.Delim('{') {
		return nil, nil, fmt.Errorf("it is no JSON object")
	}
	for d.More() {
		tok, err := d.Token()
		if err != nil {
			return nil, nil, err
		}
		key, _ := tok.(string)
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return nil, nil, err
		}
		if _, twice := values[key]; twice {
			return nil, nil, fmt.Errorf("it has the key %q twice", key)
		}
		keys = append(keys, key)
		values[key] = v
	}
	if _, err = d.Token(); err != nil {
		return nil, nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, nil, fmt.Errorf("something follows the object")
	}
	return keys, values, nil
}

// readValue reads a word as the schema's types allow. What does not fit is sent as
// text, and the schema check says so. Without types, JSON other than text is taken
// as such.
func readValue(word string, types []string) json.RawMessage {
	text, _ := json.Marshal(word) // a string always marshals
	var v any
	d := json.NewDecoder(strings.NewReader(word))
	d.UseNumber()
	if d.Decode(&v) != nil || d.InputOffset() != int64(len(word)) {
		return text
	}
	kind := jsonType(v)
	if len(types) == 0 {
		if kind == "string" {
			return text
		}
		return json.RawMessage(word)
	}
	fits := func(t string) bool { return t == kind && t != "string" || t == "integer" && kind == "number" }
	if slices.ContainsFunc(types, fits) {
		return json.RawMessage(word)
	}
	return text
}
