package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// maxArgDepth bounds the nesting of arguments: every MCP peer reads this deep, few
// read much deeper, and one that gives up takes its whole session with it.
const maxArgDepth = 512

// Args are a call's arguments after the first check: a JSON object.
type Args struct {
	// Raw is the object as the caller wrote it: key order, number spelling and
	// escapes are untouched. Only white space between tokens may be gone, where it
	// held a line break that the line-based transport could not carry.
	Raw   json.RawMessage
	value object
	stats stats
}

// ParseArgs checks that raw is what a call may carry (requirement D1): nothing or
// null means {}, anything else must be one JSON object without repeated keys.
// maxBytes bounds its size; 0 means no bound.
func ParseArgs(raw json.RawMessage, maxBytes int64) (Args, error) {
	raw = bytes.Trim(raw, " \t\r\n")
	if len(raw) == 0 || string(raw) == "null" {
		return Args{Raw: json.RawMessage("{}"), value: object{}, stats: stats{perDepth: []int{1}}}, nil
	}
	if maxBytes > 0 && int64(len(raw)) > maxBytes {
		return Args{}, fmt.Errorf("arguments are %d bytes; one call may carry %d", len(raw), maxBytes)
	}
	if !json.Valid(raw) {
		return Args{}, notJSON(raw)
	}
	if raw[0] != '{' {
		return Args{}, fmt.Errorf("arguments must be a JSON object, not %s", kindOf(raw[0]))
	}
	v, st, err := decode(raw, maxArgDepth)
	if err != nil {
		return Args{}, fmt.Errorf("arguments: %w", err)
	}
	m, ok := instance(v).(object)
	if !ok { // cannot happen: it begins with a brace
		return Args{}, errors.New("arguments must be a JSON object")
	}
	if bytes.ContainsAny(raw, "\r\n") { // only ever between tokens: inside a string it is not JSON
		var b bytes.Buffer
		if err := json.Compact(&b, raw); err != nil {
			return Args{}, fmt.Errorf("arguments: %w", err)
		}
		raw = b.Bytes()
	}
	return Args{Raw: raw, value: m, stats: st}, nil
}

// notJSON says where the JSON breaks, without quoting it.
func notJSON(raw []byte) error {
	err := json.Unmarshal(raw, new(json.RawMessage))
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("arguments are not valid JSON: %w (at byte %d)", err, syntax.Offset)
	}
	return errors.New("arguments are not valid JSON")
}

func kindOf(first byte) string {
	switch first {
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	default:
		return "a number"
	}
}
