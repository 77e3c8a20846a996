package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/tailscale/hujson"
	"gopkg.in/yaml.v3"
)

// maxBrackets bounds how deep the recursive parsers can be driven.
const maxBrackets = 100_000

// lines turns offsets into positions, many of them fast.
type lines struct {
	data   []byte
	starts []int // offset of each line
}

func newLines(data []byte) *lines {
	l := &lines{data: data, starts: []int{0}}
	for i, b := range data {
		if b == '\n' {
			l.starts = append(l.starts, i+1)
		}
	}
	return l
}

func (l *lines) at(offset int) (line, col int) {
	offset = min(max(offset, 0), len(l.data))
	line = sort.SearchInts(l.starts, offset+1)
	return line, 1 + utf8.RuneCount(l.data[l.starts[line-1]:offset])
}

func (l *lines) place(n *yaml.Node, offset int) *yaml.Node {
	n.Line, n.Column = l.at(offset)
	return n
}

// parseJSON reads JSON with comments and trailing commas into the tree that the rest
// of the package reads; every node keeps its place. Nil stands for a file that says nothing.
func parseJSON(file string, data []byte) (*yaml.Node, *FileError) {
	l := newLines(data)
	fail := func(offset int, format string, args ...any) *FileError {
		line, col := l.at(offset)
		return &FileError{File: file, Line: line, Column: col, Message: fmt.Sprintf(format, args...)}
	}
	if bytes.Count(data, []byte("{"))+bytes.Count(data, []byte("[")) > maxBrackets {
		return nil, fail(0, "more than %d brackets; a configuration has a few hundred", maxBrackets)
	}
	v, err := hujson.Parse(data)
	if err != nil {
		if saysNothing(data) {
			return nil, nil
		}
		if link := checkedOutLink(file, data); link != nil {
			return nil, link
		}
		offset, msg := l.jsonFault(err)
		return nil, fail(offset, "%s", msg)
	}
	root, failure := l.node(&v, 0)
	if failure != nil {
		failure.File = file
		return nil, failure
	}
	if isNull(root) {
		return nil, nil
	}
	return root, nil
}

// saysNothing reports a text of blanks and comments alone.
func saysNothing(data []byte) bool {
	v, err := hujson.Parse(append(bytes.Clone(data), "\nnull"...))
	if err != nil {
		return false
	}
	lit, ok := v.Value.(hujson.Literal)
	return ok && string(lit) == "null"
}

// node converts one value.
func (l *lines) node(v *hujson.Value, depth int) (*yaml.Node, *FileError) {
	if depth > maxDepth {
		line, col := l.at(v.StartOffset)
		return nil, &FileError{Line: line, Column: col, Message: fmt.Sprintf("nested more than %d levels deep", maxDepth)}
	}
	switch t := v.Value.(type) {
	case *hujson.Object:
		n := l.place(mapping(), v.StartOffset)
		for i := range t.Members {
			m := &t.Members[i]
			k, failure := l.node(&m.Name, depth+1)
			if failure != nil {
				return nil, failure
			}
			c, failure := l.node(&m.Value, depth+1)
			if failure != nil {
				return nil, failure
			}
			n.Content = append(n.Content, k, c)
		}
		return n, nil
	case *hujson.Array:
		n := l.place(list(), v.StartOffset)
		for i := range t.Elements {
			c, failure := l.node(&t.Elements[i], depth+1)
			if failure != nil {
				return nil, failure
			}
			n.Content = append(n.Content, c)
		}
		return n, nil
	}
	return l.literal(v), nil
}

// literal converts a value that holds no others.
func (l *lines) literal(v *hujson.Value) *yaml.Node {
	lit, ok := v.Value.(hujson.Literal)
	if !ok {
		return l.place(scalar("!!null", "null"), v.StartOffset)
	}
	text := string(lit)
	n := scalar("!!str", text)
	switch lit.Kind() {
	case 'n':
		n.Tag = "!!null"
	case 't', 'f':
		n.Tag = "!!bool"
	case '0':
		n.Tag = "!!float"
		if !strings.ContainsAny(text, ".eE") {
			n.Tag = "!!int"
		}
	default:
		n.Style = yaml.DoubleQuotedStyle
		if json.Unmarshal(lit, &n.Value) != nil { // the parser has accepted it already
			n.Value = strings.Trim(text, `"`)
		}
	}
	return l.place(n, v.StartOffset)
}

var hujsonPlace = regexp.MustCompile(`^hujson: line (\d+), column (\d+): `)

// jsonFault says where a syntax error is, and what to do about it.
func (l *lines) jsonFault(err error) (offset int, msg string) {
	var line, col int
	msg = err.Error()
	if m := hujsonPlace.FindString(msg); m != "" {
		_, _ = fmt.Sscanf(m, "hujson: line %d, column %d: ", &line, &col) // the expression has matched
		msg = msg[len(m):]
		offset = l.starts[min(max(line, 1), len(l.starts))-1] + col - 1
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		end := len(bytes.TrimRight(l.data, " \t\r\n"))
		return end, "the file ends before everything that it opened is closed: a }, ] or \" is missing (or the file was cut off)"
	}
	for _, h := range []struct{ has, say string }{
		{"at start of object name", `expected a key in double quotes here`},
		{"after object name", "expected `:` after the key"},
		{"after object value", "expected `,` or `}` here: a comma or a brace is missing on this line or before"},
		{"after array value", "expected `,` or `]` here: a comma or a bracket is missing on this line or before"},
		{"after top-level value", "the configuration is complete before this place; remove what follows, or a brace too many before it"},
		{"in string escape", `a backslash in a text must be doubled (\\)`},
		{"at start of value", "expected a value here: text stands in double quotes"},
		{"invalid literal", "expected a value here: text stands in double quotes"},
	} {
		if strings.Contains(msg, h.has) {
			return offset, h.say
		}
	}
	return offset, "this is not readable as JSON: " + msg
}
