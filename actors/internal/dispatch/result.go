package dispatch

import (
	"bytes"
	"encoding/json"

	"mcpbridge/messages"
)

// isError reports whether the top level of a result object says `"isError": true`.
// Results can be megabytes and this runs on the router's own time, so that it walks
// over the values without decoding them, and only when the word can occur at all.
// What is no object, or breaks off, says nothing.
func isError(raw json.RawMessage) bool {
	if !bytes.Contains(raw, []byte("isError")) && !bytes.Contains(raw, []byte(`\u`)) {
		return false
	}
	s := scanner{b: raw}
	if !s.take('{') {
		return false
	}
	said := false
	for {
		key, ok := s.str()
		if !ok || !s.take(':') {
			return said
		}
		value, ok := s.value()
		if !ok {
			return said
		}
		if isErrorKey(key) {
			said = string(value) == "true" // of two, the last one counts, as for encoding/json
		}
		if !s.take(',') {
			return said
		}
	}
}

// isErrorKey compares a key with its quotes; one with escapes is decoded first.
func isErrorKey(key []byte) bool {
	if bytes.IndexByte(key, '\\') < 0 {
		return string(key) == `"isError"`
	}
	var k string
	return json.Unmarshal(key, &k) == nil && k == "isError"
}

// scanner walks over JSON that a decoder has seen before; it is lenient, not a check.
type scanner struct {
	b []byte
	i int
}

func (s *scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

func (s *scanner) take(c byte) bool {
	s.space()
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

// str walks over a string and returns it with its quotes.
func (s *scanner) str() ([]byte, bool) {
	s.space()
	start := s.i
	if start >= len(s.b) || s.b[start] != '"' {
		return nil, false
	}
	for i := start + 1; ; {
		n := bytes.IndexByte(s.b[i:], '"')
		if n < 0 {
			return nil, false
		}
		end := i + n
		i = end + 1
		slashes := 0
		for s.b[end-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			s.i = i
			return s.b[start:i], true
		}
	}
}

// value walks over one value and returns it.
func (s *scanner) value() ([]byte, bool) {
	s.space()
	start, depth := s.i, 0
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case '"':
			if _, ok := s.str(); !ok {
				return nil, false
			}
		case '{', '[':
			depth++
			s.i++
			continue
		case '}', ']':
			if depth == 0 {
				return nil, false
			}
			depth--
			s.i++
		case ',', ':':
			if depth == 0 {
				return nil, false
			}
			s.i++
			continue
		case ' ', '\t', '\n', '\r':
			s.i++
			continue
		default:
			s.word()
		}
		if depth == 0 {
			return s.b[start:s.i], true
		}
	}
	return nil, false
}

// word walks over a number, true, false or null.
func (s *scanner) word() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r', ',', ':', '{', '}', '[', ']', '"':
			return
		}
		s.i++
	}
}

// stub is a result object that says why there is no other.
func stub(text string) json.RawMessage {
	type content struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	b, err := json.Marshal(struct {
		Content []content `json:"content"`
		IsError bool      `json:"isError"`
	}{Content: []content{{"text", text}}})
	if err != nil { // strings only: cannot happen
		return json.RawMessage(`{"content":[]}`)
	}
	return b
}

func detail(what, name string) string {
	if name == "" {
		return ""
	}
	return " (" + what + name + ")"
}

// dryRun describes what would become of a call that all checks let pass.
func (c *Core) dryRun(cl *call) verdict {
	s, line := cl.server, laneOf(cl.effect).String()
	key, name := "", ""
	if laneIsEffect(cl) {
		key, name = short(cl.laneKey), s.limits.LaneGroup
	}
	state := s.state
	if s.draining {
		state = messages.StateDraining
	}
	type content struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	type structured struct {
		Decision string `json:"decision"`
		Rule     string `json:"rule"`
		Effect   string `json:"effect"`
		Lane     string `json:"lane"`
		Server   string `json:"server"`
		Tool     string `json:"tool"`
		State    string `json:"state"`
		Key      string `json:"lane_key,omitempty"`
		Group    string `json:"lane_group,omitempty"`
	}
	text := toolName(s.key.Server, cl.remote) + " would run as " + cl.effect.String() + " in the " + line + " lane" + detail("for key ", key) + detail("shared with group ", name) + " of " + s.key.String() +
		" (" + state.String() + "); allowed by " + ruleName(cl.rule) + ". Nothing was sent."
	b, err := json.Marshal(struct {
		Content    []content  `json:"content"`
		Structured structured `json:"structuredContent"`
	}{
		[]content{{"text", text}},
		structured{messages.Allow.String(), cl.rule, cl.effect.String(), line, s.key.Server, cl.remote, state.String(), key, name},
	})
	if err != nil { // strings only: cannot happen
		return verdict{kind: messages.NotSent, code: messages.CodeInternal, message: err.Error(), hint: hintReport, quiet: true}
	}
	return verdict{kind: messages.OK, result: b, quiet: true}
}
