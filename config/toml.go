package config

import (
	"errors"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
	"gopkg.in/yaml.v3"
)

// parseTOML reads TOML into the tree that the rest of the package reads; every node keeps
// its place. The decoder judges whether the file is valid as a whole; the
// parser below it knows where things stand.
func parseTOML(file string, data []byte) (root *yaml.Node, failure *FileError) {
	fail := func(line, col int, msg string) *FileError {
		return &FileError{File: file, Line: line, Column: col, Message: msg}
	}
	if link := checkedOutLink(file, data); link != nil {
		return nil, link
	}
	if err := toml.Unmarshal(data, new(any)); err != nil {
		line, col, msg := 1, 1, strings.TrimPrefix(err.Error(), "toml: ")
		if de, ok := errors.AsType[*toml.DecodeError](err); ok {
			line, col = de.Position()
		}
		return nil, fail(max(line, 1), max(col, 1), "this is not readable as TOML: "+msg)
	}
	defer func() {
		if r := recover(); r != nil { // the parser's way to say that it is wrong itself
			root, failure = nil, fail(1, 1, "this is not readable as TOML")
		}
	}()
	b := &tomlBuilder{lines: newLines(data)}
	b.p.Reset(data)
	root = b.place(mapping(), 0)
	b.at = root
	b.root = root
	for b.p.NextExpression() {
		b.expression(b.p.Expression())
	}
	if err := b.p.Error(); err != nil {
		return nil, fail(1, 1, "this is not readable as TOML: "+strings.TrimPrefix(err.Error(), "toml: "))
	}
	if e := checkShape(root); e != nil {
		e.File = file
		return nil, e
	}
	return root, nil
}

// tomlBuilder puts the expressions of a file together.
type tomlBuilder struct {
	*lines
	p    unstable.Parser
	root *yaml.Node
	at   *yaml.Node // the table that key-values go into
}

func (b *tomlBuilder) expression(e *unstable.Node) {
	switch e.Kind {
	case unstable.Table:
		b.at = b.walk(b.root, e.Key(), false)
	case unstable.ArrayTable:
		b.at = b.walk(b.root, e.Key(), true)
	case unstable.KeyValue:
		b.keyValue(b.at, e)
	}
}

// walk goes down a dotted key and makes what is missing; with array, the last step
// appends a table to a list.
func (b *tomlBuilder) walk(n *yaml.Node, keys unstable.Iterator, array bool) *yaml.Node {
	for keys.Next() {
		k := keys.Node()
		at := int(k.Raw.Offset)
		next := get(n, string(k.Data))
		if next == nil {
			next = b.place(mapping(), at)
			if array && keys.IsLast() {
				next = b.place(list(), at)
			}
			b.add(n, k, next)
		}
		if next.Kind == yaml.SequenceNode {
			if array && keys.IsLast() {
				next.Content = append(next.Content, b.place(mapping(), at))
			}
			next = next.Content[len(next.Content)-1]
		}
		n = next
	}
	return n
}

func (b *tomlBuilder) keyValue(n *yaml.Node, e *unstable.Node) {
	keys := e.Key()
	for keys.Next() {
		if keys.IsLast() {
			b.add(n, keys.Node(), b.value(e.Value(), int(keys.Node().Raw.Offset)))
			return
		}
		next := get(n, string(keys.Node().Data))
		if next == nil {
			next = b.place(mapping(), int(keys.Node().Raw.Offset))
			b.add(n, keys.Node(), next)
		}
		n = next
	}
}

func (b *tomlBuilder) add(n *yaml.Node, key *unstable.Node, v *yaml.Node) {
	k := b.place(scalar("!!str", string(key.Data)), int(key.Raw.Offset))
	n.Content = append(n.Content, k, v)
}

// value converts a value; near is a place close to it, for kinds that have none.
func (b *tomlBuilder) value(v *unstable.Node, near int) *yaml.Node {
	if v.Raw.Length > 0 {
		near = int(v.Raw.Offset)
	}
	switch v.Kind {
	case unstable.Array:
		n := b.place(list(), near)
		for it := v.Children(); it.Next(); {
			n.Content = append(n.Content, b.value(it.Node(), near))
		}
		return n
	case unstable.InlineTable:
		n := b.place(mapping(), near)
		for it := v.Children(); it.Next(); {
			b.keyValue(n, it.Node())
		}
		return n
	}
	tag := "!!str"
	switch v.Kind {
	case unstable.Bool:
		tag = "!!bool"
	case unstable.Integer:
		tag = "!!int"
	case unstable.Float:
		tag = "!!float"
	}
	text := string(v.Data)
	if tag == "!!int" {
		text = strings.ReplaceAll(text, "_", "")
	}
	n := scalar(tag, text)
	if v.Kind == unstable.String {
		n.Style = yaml.DoubleQuotedStyle
	}
	return b.place(n, near)
}

// get is the value under a key of a mapping, nil if there is none.
func get(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return resolveAlias(n.Content[i+1])
		}
	}
	return nil
}
