package gateway

import (
	"bytes"
	"encoding/json"
)

// The functions of this file walk JSON without decoding it, so that what the
// gateway does not need keeps its bytes. They expect valid JSON (json.Valid) and
// are merely safe, not picky, on anything else.

// member is one member of an object: its decoded key and where it stands.
type member struct {
	key                        string
	keyStart, valStart, valEnd int
}

// scanObject calls f for each top-level member of the object b until f returns
// false. It reports whether b is an object.
func scanObject(b []byte, f func(member) bool) bool {
	i := skipSpace(b, 0)
	if i >= len(b) || b[i] != '{' {
		return false
	}
	for i++; ; i++ {
		i = skipSpace(b, i)
		if i >= len(b) || b[i] != '"' {
			return i < len(b) && b[i] == '}'
		}
		m := member{keyStart: i}
		end := skipString(b, i)
		if end < 0 {
			return false
		}
		m.key = unquote(b[i:end])
		i = skipSpace(b, end)
		if i >= len(b) || b[i] != ':' {
			return false
		}
		m.valStart = skipSpace(b, i+1)
		if m.valEnd = skipValue(b, m.valStart); m.valEnd < 0 {
			return false
		}
		if !f(m) {
			return true
		}
		i = skipSpace(b, m.valEnd)
		if i >= len(b) || b[i] != ',' {
			return i < len(b) && b[i] == '}'
		}
	}
}

// scanArray calls f for each element of the array b until f returns false. It
// reports whether b is an array.
func scanArray(b []byte, f func(val []byte) bool) bool {
	i := skipSpace(b, 0)
	if i >= len(b) || b[i] != '[' {
		return false
	}
	if i = skipSpace(b, i+1); i < len(b) && b[i] == ']' {
		return true
	}
	for {
		i = skipSpace(b, i)
		end := skipValue(b, i)
		if end < 0 {
			return false
		}
		if !f(b[i:end]) {
			return true
		}
		if i = skipSpace(b, end); i >= len(b) || b[i] != ',' {
			return i < len(b) && b[i] == ']'
		}
		i++
	}
}

// lookup returns the value of the last member named key, as a JSON decoder would.
func lookup(obj []byte, key string) (json.RawMessage, bool) {
	var val json.RawMessage
	found := false
	scanObject(obj, func(m member) bool {
		if m.key == key {
			val, found = obj[m.valStart:m.valEnd], true
		}
		return true
	})
	return val, found
}

// setMember returns obj with the member key set to val: the last of that name is
// replaced where it stands, a new one goes in front. No other byte changes.
func setMember(obj []byte, key string, val []byte) []byte {
	start, end := -1, -1
	empty := true
	scanObject(obj, func(m member) bool {
		empty = false
		if m.key == key {
			start, end = m.valStart, m.valEnd
		}
		return true
	})
	if start >= 0 {
		out := make([]byte, 0, len(obj)+len(val))
		out = append(out, obj[:start]...)
		out = append(out, val...)
		return append(out, obj[end:]...)
	}
	open := skipSpace(obj, 0)
	if open >= len(obj) || obj[open] != '{' {
		return obj
	}
	out := make([]byte, 0, len(obj)+len(key)+len(val)+6)
	out = append(out, obj[:open+1]...)
	out = appendString(out, key)
	out = append(out, ':')
	out = append(out, val...)
	if !empty {
		out = append(out, ',')
	}
	return append(out, obj[open+1:]...)
}

// oneLine makes raw fit a line: line breaks in valid JSON are white space between
// tokens, so each becomes a blank. The length stays.
func oneLine(raw []byte) []byte {
	if bytes.IndexByte(raw, '\n') < 0 && bytes.IndexByte(raw, '\r') < 0 {
		return raw
	}
	out := bytes.Clone(raw)
	for i, c := range out {
		if c == '\n' || c == '\r' {
			out[i] = ' '
		}
	}
	return out
}

// isKind reports whether the JSON value starts with one of the bytes.
func isKind(raw []byte, kinds string) bool {
	i := skipSpace(raw, 0)
	return i < len(raw) && bytes.IndexByte([]byte(kinds), raw[i]) >= 0
}

func isNull(raw []byte) bool   { return len(raw) == 0 || isKind(raw, "n") }
func isObject(raw []byte) bool { return isKind(raw, "{") }
func isString(raw []byte) bool { return isKind(raw, `"`) }
func isNumber(raw []byte) bool { return isKind(raw, "-0123456789") }

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the index behind the string that begins at i, or -1. It looks
// for quotes only, because the strings of results can be long.
func skipString(b []byte, i int) int {
	for from := i + 1; from <= len(b); {
		n := bytes.IndexByte(b[from:], '"')
		if n < 0 {
			return -1
		}
		end := from + n
		slashes := 0
		for end-slashes-1 > i && b[end-slashes-1] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return end + 1
		}
		from = end + 1
	}
	return -1
}

// skipValue returns the index behind the value that begins at i, or -1.
func skipValue(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			if i = skipString(b, i); i < 0 {
				return -1
			}
			if depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
			if depth < 0 {
				return -1
			}
		default:
			if depth == 0 {
				j := i
				for j < len(b) && bytes.IndexByte([]byte(",]} \t\r\n:"), b[j]) < 0 {
					j++
				}
				if j == i {
					return -1
				}
				return j
			}
		}
		i++
	}
	return -1
}

// unquote decodes a JSON string; a broken one decodes to "".
func unquote(raw []byte) string {
	if len(raw) >= 2 && bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// appendString appends s as a JSON string, without HTML escapes.
func appendString(dst []byte, s string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(s) != nil { // cannot happen: every string encodes
		return append(dst, `""`...)
	}
	return append(dst, bytes.TrimSuffix(b.Bytes(), []byte{'\n'})...)
}
