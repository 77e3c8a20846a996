package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"mcpbridge/messages"
)

// Bounds on what one file may ask of the reader. No honest file comes near them.
const (
	maxFileSize  = 4 << 20
	maxDepth     = 100
	maxAliasWork = 100_000   // nodes reached through aliases
	maxServers   = 2000      // of one file
	maxIssues    = 500       // that are kept
	maxSearch    = 256 << 10 // above it a syntax error keeps the parser's own line
)

// FileError says why a file as a whole cannot be used. Load returns it for a file
// named with --config; for any other layer it becomes an issue.
type FileError struct {
	File    string
	Line    int // from 1; 0 = the file as such
	Column  int
	Message string
	Err     error // the cause, where there is one
}

// Error renders `file:line:col: message`.
func (e *FileError) Error() string { return e.Issue().String() }

// Unwrap gives the cause, so that errors.Is(err, fs.ErrNotExist) works.
func (e *FileError) Unwrap() error { return e.Err }

// Issue is the error as an issue.
func (e *FileError) Issue() messages.Issue {
	return messages.Issue{File: e.File, Line: e.Line, Column: e.Column, Stage: messages.StageConfig,
		Severity: messages.SeverityError, Message: e.Message}
}

// parseYAML reads one file, already plain text, into its root node; nil stands for a file that says
// nothing. The tree that it returns is safe to walk: of bounded depth, without a
// cycle, and small even when every alias is followed.
func parseYAML(file string, data []byte) (*yaml.Node, *FileError) {
	fail := func(line, col int, format string, args ...any) *FileError {
		return &FileError{File: file, Line: line, Column: col, Message: fmt.Sprintf(format, args...)}
	}
	nodes, err := decodeYAML(data)
	if err != nil {
		line, col := locate(data, err)
		return nil, fail(line, col, "%s", plainYAML(err))
	}
	if len(nodes) > 1 {
		n := nodes[1]
		return nil, fail(n.Line, n.Column, "a second document begins here; put everything into one (remove the --- line)")
	}
	if len(nodes) == 0 || len(nodes[0].Content) == 0 {
		return nil, nil
	}
	root := nodes[0].Content[0]
	if e := checkShape(root); e != nil {
		e.File = file
		return nil, e
	}
	root = resolveAlias(root)
	if isNull(root) {
		return nil, nil
	}
	if root.Kind != yaml.MappingNode {
		if link := checkedOutLink(file, data); link != nil {
			return nil, link
		}
		return nil, fail(root.Line, root.Column, "expected keys such as mcp_servers:, found %s", kindWord(root))
	}
	return root, nil
}

// decodeYAML runs the parser over the first two documents. The parser is a port of
// a C library and has been seen to panic on broken input; here that is a syntax error.
func decodeYAML(data []byte) (nodes []*yaml.Node, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errors.New("this is not readable as YAML")
		}
	}()
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for len(nodes) < 2 {
		n := new(yaml.Node)
		switch e := dec.Decode(n); {
		case errors.Is(e, io.EOF):
			return nodes, nil
		case e != nil:
			return nodes, e
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// yamlHints puts the parser's words into advice; the parser's own text about an
// unknown anchor would repeat the value, which may well be a password.
var yamlHints = []struct{ has, say string }{
	{"unknown anchor", "a value that begins with * refers to an anchor that does not exist; quote it if it is text"},
	{"cannot start any token", "a value may not begin with this character (a tab, @, ` or %); quote it, and indent with spaces"},
	{"mapping values are not allowed", "a second `: ` on this line; quote the value, or check the indentation"},
	{"did not find expected key", "expected a key here; check the indentation and that every line of this block is `key: value`"},
	{"could not find expected ':'", "expected `key: value`; a colon or a space after it is missing"},
	{"did not find expected '-' indicator", "expected a list item (`- …`) here; check the indentation"},
	{"did not find expected ',' or ']'", "expected `,` or `]`: the list [ … ] is not closed"},
	{"did not find expected ',' or '}'", "expected `,` or `}`: the block { … } is not closed"},
	{"incompatible YAML document", "this is read as YAML 1.1; remove the %YAML line"},
	{"found unexpected end of stream", "a quote is opened here and never closed"},
}

func plainYAML(err error) string {
	msg := yamlLine.ReplaceAllString(err.Error(), "")
	for _, h := range yamlHints {
		if strings.Contains(msg, h.has) {
			return h.say
		}
	}
	return msg
}

// locate finds where a syntax error is. The parser reports only a line, often the
// one where the surrounding block began and sometimes none; but it reads from front to back,
// so the shortest beginning of the file that fails in the same way ends at the fault.
func locate(data []byte, failure error) (line, col int) {
	reported := 1
	if m := yamlLine.FindStringSubmatch(failure.Error()); m != nil && m[1] != "" {
		_, _ = fmt.Sscan(m[1], &reported)
	}
	if len(data) > maxSearch {
		return reported, 1
	}
	want := yamlLine.ReplaceAllString(failure.Error(), "")
	fails := func(n int) bool {
		_, err := decodeYAML(data[:n])
		return err != nil && yamlLine.ReplaceAllString(err.Error(), "") == want
	}
	// The block's first line is a lower bound, unless the fault is shown to lie before it.
	lo := lineStart(data, reported-1)
	if fails(lo) {
		lo = 0
	}
	hi := len(data)
	for hi-lo > 1 {
		if mid := lo + (hi-lo)/2; fails(mid) {
			hi = mid
		} else {
			lo = mid
		}
	}
	at := max(hi-1, 0)
	for at > 0 && !utf8.RuneStart(data[at]) {
		at--
	}
	// A fault that shows at the line's end belongs to that line, not to the next.
	if at > 0 && at < len(data) && (data[at] == '\n' || data[at] == '\r') {
		at--
	}
	return position(data, at)
}

// lineStart is the offset of the given line, from 1.
func lineStart(data []byte, line int) int {
	at := 0
	for ; line > 1; line-- {
		i := bytes.IndexByte(data[at:], '\n')
		if i < 0 {
			return at
		}
		at += i + 1
	}
	return at
}

// position turns an offset into line and column, both from 1, columns in characters.
func position(data []byte, at int) (line, col int) {
	head := data[:min(at, len(data))]
	line = 1 + bytes.Count(head, []byte{'\n'})
	return line, 1 + utf8.RuneCount(head[bytes.LastIndexByte(head, '\n')+1:])
}

// checkShape walks the tree as a reader that follows every alias would, within the
// bounds above.
func checkShape(root *yaml.Node) *FileError {
	work := 0
	var walk func(n *yaml.Node, depth, aliases int, use *yaml.Node) *FileError
	walk = func(n *yaml.Node, depth, aliases int, use *yaml.Node) *FileError {
		at := n
		if use != nil {
			at = use
		}
		if depth > maxDepth {
			return &FileError{Line: at.Line, Column: at.Column,
				Message: fmt.Sprintf("nested more than %d levels deep (or an anchor that contains itself)", maxDepth)}
		}
		if aliases > 0 {
			if work++; work > maxAliasWork {
				return &FileError{Line: at.Line, Column: at.Column, Message: "too many aliases: written out, this file would be enormous"}
			}
		}
		if n.Kind == yaml.AliasNode {
			if use == nil {
				use = n
			}
			return walk(n.Alias, depth+1, aliases+1, use)
		}
		for _, c := range n.Content {
			if e := walk(c, depth+1, aliases, use); e != nil {
				return e
			}
		}
		return nil
	}
	return walk(root, 0, 0, nil)
}

func resolveAlias(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// kindWord names what a node is, for people.
func kindWord(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a block of keys"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!null":
		return "nothing"
	case "!!bool":
		return "true or false"
	case "!!int", "!!float":
		return "a number"
	default:
		return "text"
	}
}
