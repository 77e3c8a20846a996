// Package rawjson walks JSON without decoding it, so that what the bridge does not need
// keeps its bytes. Its functions expect valid JSON (json.Valid) and are merely safe, not
// picky, on anything else. They keep nothing and may be used from any goroutine.
package rawjson

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Member is one member of an object: its decoded key and where it stands.
type Member struct {
	Key                        string
	KeyStart, ValStart, ValEnd int
}

// Object calls f for each top-level member of the object b until f returns
// false. It reports whether b is an object.
func Object(b []byte, f func(Member) bool) bool {
	return members(b, func(key []byte, m Member) bool {
		m.Key = Unquote(key)
		return f(m)
	})
}

// Fields calls f for each top-level member of the object b, in order, with its decoded
// key and its value, and reports whether b is an object. Both are b's own bytes, but for
// a key that is written with escapes.
func Fields(b []byte, f func(key, val []byte)) bool {
	return members(b, func(key []byte, m Member) bool {
		if bytes.IndexByte(key, '\\') >= 0 {
			key = []byte(Unquote(key))
		} else {
			key = key[1 : len(key)-1]
		}
		f(key, b[m.ValStart:m.ValEnd])
		return true
	})
}

// members walks the members of an object; key is as it is written, quotes and all.
func members(b []byte, f func(key []byte, at Member) bool) bool {
	i := SkipSpace(b, 0)
	if i >= len(b) || b[i] != '{' {
		return false
	}
	for i++; ; i++ {
		i = SkipSpace(b, i)
		if i >= len(b) || b[i] != '"' {
			return i < len(b) && b[i] == '}'
		}
		m := Member{KeyStart: i}
		end := SkipString(b, i)
		if end < 0 {
			return false
		}
		key := b[i:end]
		i = SkipSpace(b, end)
		if i >= len(b) || b[i] != ':' {
			return false
		}
		m.ValStart = SkipSpace(b, i+1)
		if m.ValEnd = SkipValue(b, m.ValStart); m.ValEnd < 0 {
			return false
		}
		if !f(key, m) {
			return true
		}
		i = SkipSpace(b, m.ValEnd)
		if i >= len(b) || b[i] != ',' {
			return i < len(b) && b[i] == '}'
		}
	}
}

// Array calls f for each element of the array b until f returns false. It
// reports whether b is an array.
func Array(b []byte, f func(val []byte) bool) bool {
	i := SkipSpace(b, 0)
	if i >= len(b) || b[i] != '[' {
		return false
	}
	if i = SkipSpace(b, i+1); i < len(b) && b[i] == ']' {
		return true
	}
	for {
		i = SkipSpace(b, i)
		end := SkipValue(b, i)
		if end < 0 {
			return false
		}
		if !f(b[i:end]) {
			return true
		}
		if i = SkipSpace(b, end); i >= len(b) || b[i] != ',' {
			return i < len(b) && b[i] == ']'
		}
		i++
	}
}

// Lookup returns the value of the last member named key, as a JSON decoder would.
func Lookup(obj []byte, key string) (json.RawMessage, bool) {
	var val json.RawMessage
	found := false
	Object(obj, func(m Member) bool {
		if m.Key == key {
			val, found = obj[m.ValStart:m.ValEnd], true
		}
		return true
	})
	return val, found
}

// SetMember returns obj with the member key set to val: the last of that name is
// replaced where it stands, a new one goes in front. No other byte changes.
func SetMember(obj []byte, key string, val []byte) []byte {
	start, end := -1, -1
	empty := true
	Object(obj, func(m Member) bool {
		empty = false
		if m.Key == key {
			start, end = m.ValStart, m.ValEnd
		}
		return true
	})
	if start >= 0 {
		out := make([]byte, 0, len(obj)+len(val))
		out = append(out, obj[:start]...)
		out = append(out, val...)
		return append(out, obj[end:]...)
	}
	open := SkipSpace(obj, 0)
	if open >= len(obj) || obj[open] != '{' {
		return obj
	}
	out := make([]byte, 0, len(obj)+len(key)+len(val)+6)
	out = append(out, obj[:open+1]...)
	out = AppendString(out, key)
	out = append(out, ':')
	out = append(out, val...)
	if !empty {
		out = append(out, ',')
	}
	return append(out, obj[open+1:]...)
}

// Drop returns obj without the members whose decoded keys the function names; obj itself
// if there are none. No other byte changes, but for the commas and blanks between them.
func Drop(obj []byte, named func(key string) bool) []byte {
	var kept [][2]int
	dropped := false
	if !Object(obj, func(m Member) bool {
		if named(m.Key) {
			dropped = true
		} else {
			kept = append(kept, [2]int{m.KeyStart, m.ValEnd})
		}
		return true
	}) || !dropped {
		return obj
	}
	out := append(make([]byte, 0, len(obj)), '{')
	for i, at := range kept {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, obj[at[0]:at[1]]...)
	}
	return append(out, '}')
}

// OneLine makes raw fit a line: line breaks in valid JSON are white space between
// tokens, so each becomes a blank. The length stays.
func OneLine(raw []byte) []byte {
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

// IsKind reports whether the JSON value starts with one of the bytes.
func IsKind(raw []byte, kinds string) bool {
	i := SkipSpace(raw, 0)
	return i < len(raw) && strings.IndexByte(kinds, raw[i]) >= 0
}

// IsNull reports whether raw is null or absent.
func IsNull(raw []byte) bool { return len(raw) == 0 || IsKind(raw, "n") }

// IsObject reports whether raw is an object.
func IsObject(raw []byte) bool { return IsKind(raw, "{") }

// IsString reports whether raw is a string.
func IsString(raw []byte) bool { return IsKind(raw, `"`) }

// IsNumber reports whether raw is a number.
func IsNumber(raw []byte) bool { return IsKind(raw, "-0123456789") }

// SkipSpace returns the index of the first byte from i on that is no white space.
func SkipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// SkipString returns the index behind the string that begins at i, or -1. It looks
// for quotes only, because the strings of results can be long.
func SkipString(b []byte, i int) int {
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

// SkipValue returns the index behind the value that begins at i, or -1.
func SkipValue(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			if i = SkipString(b, i); i < 0 {
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
				for j < len(b) && strings.IndexByte(",]} \t\r\n:", b[j]) < 0 {
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

// Unquote decodes a JSON string; a broken one decodes to "".
func Unquote(raw []byte) string {
	if len(raw) >= 2 && bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// AppendString appends s as a JSON string, without HTML escapes.
func AppendString(dst []byte, s string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(s) != nil { // cannot happen: every string encodes
		return append(dst, `""`...)
	}
	return append(dst, bytes.TrimSuffix(b.Bytes(), []byte{'\n'})...)
}
