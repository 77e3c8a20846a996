package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// segment is a piece of a text: literal, or a reference.
type segment struct {
	lit string // literal text, with $${ already turned into ${
	ref *reference
}

// reference is one `${…}`.
type reference struct {
	name   string // the variable, or "" for a file
	file   string
	def    string
	hasDef bool
	input  string // the question that the variable answers
	runs   bool   // a command, which is never run
	raw    string // as written
}

var refName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// split cuts a text into literals and references, from left to right, once:
//
//	${NAME}  ${NAME:-default}  ${env:NAME}  ${file:/path}     $${ is a literal ${
//
// Two forms of other tools are known besides: ${input:id}, a question, which the variable
// MCP_INPUT_ID answers, and ${cmd:…}, which is never run.
// As in a shell, the default also stands in for a variable that is set but empty.
func split(s string) ([]segment, error) {
	var out []segment
	var lit strings.Builder
	for s != "" {
		i := strings.IndexByte(s, '$')
		if i < 0 {
			break
		}
		lit.WriteString(s[:i])
		s = s[i:]
		switch {
		case strings.HasPrefix(s, "$${"):
			lit.WriteString("${")
			s = s[3:]
		case strings.HasPrefix(s, "${"):
			end := strings.IndexByte(s, '}')
			if end < 0 {
				return nil, fmt.Errorf("${ is not closed by }; write $${ for a literal ${")
			}
			r, err := parseReference(s[:end+1])
			if err != nil {
				return nil, err
			}
			if lit.Len() > 0 {
				out = append(out, segment{lit: lit.String()})
				lit.Reset()
			}
			out = append(out, segment{ref: r})
			s = s[end+1:]
		default:
			lit.WriteByte('$')
			s = s[1:]
		}
	}
	if lit.WriteString(s); lit.Len() > 0 {
		out = append(out, segment{lit: lit.String()})
	}
	return out, nil
}

func parseReference(raw string) (*reference, error) {
	body := raw[2 : len(raw)-1]
	r := &reference{raw: raw}
	if f, ok := strings.CutPrefix(body, "file:"); ok {
		if f == "" {
			return nil, fmt.Errorf("${file:} names no file")
		}
		r.file = f
		return r, nil
	}
	if id, ok := strings.CutPrefix(body, "input:"); ok {
		if r.name, r.input = inputVariable(id), id; r.name == "" {
			return nil, fmt.Errorf("${input:} names no question")
		}
		return r, nil
	}
	if strings.HasPrefix(body, "cmd:") {
		r.runs = true
		return r, nil
	}
	name, def, hasDef := strings.Cut(strings.TrimPrefix(body, "env:"), ":-")
	if !refName.MatchString(name) {
		return nil, errors.New("a ${…} here is no reference: write ${NAME}, ${NAME:-default}, ${env:NAME} or ${file:/path}, or $${ for a literal ${")
	}
	if strings.Contains(def, "${") {
		return nil, fmt.Errorf("the default of ${%s:-…} holds another reference; a default is plain text", name)
	}
	r.name, r.def, r.hasDef = name, def, hasDef
	return r, nil
}

// inputVariable is the variable that answers a question: MCP_INPUT_ and its name in
// capitals, with _ for what no variable may hold; "" for a name that gives none.
func inputVariable(id string) string {
	plain := strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToUpper(strings.TrimSpace(id)))
	if strings.Trim(plain, "_") == "" {
		return ""
	}
	return "MCP_INPUT_" + plain
}

// hasReference reports whether a text holds a reference (or a broken one).
func hasReference(s string) bool {
	segs, err := split(s)
	if err != nil {
		return true
	}
	for _, g := range segs {
		if g.ref != nil {
			return true
		}
	}
	return false
}
