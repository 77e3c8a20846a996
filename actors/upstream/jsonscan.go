package upstream

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// The functions here walk the top level of JSON without decoding the values, so
// that results keep their bytes and cost one copy. Except for the sniffing ones
// they need valid JSON: check with json.Valid first.

// eachField calls f for every field of a JSON object, in order, with the decoded
// key and the raw value; it reports whether obj is an object.
func eachField(obj []byte, f func(key, value []byte)) bool {
	i := skipSpace(obj, 0)
	if i >= len(obj) || obj[i] != '{' {
		return false
	}
	i = skipSpace(obj, i+1)
	for i < len(obj) && obj[i] == '"' {
		end := skipString(obj, i)
		key := obj[i+1 : end-1]
		if bytes.IndexByte(key, '\\') >= 0 {
			var s string
			_ = json.Unmarshal(obj[i:end], &s)
			key = []byte(s)
		}
		i = skipSpace(obj, end)
		i = skipSpace(obj, i+1) // behind the colon
		end = skipValue(obj, i)
		f(key, obj[i:end])
		i = skipSpace(obj, end)
		if i < len(obj) && obj[i] == ',' {
			i = skipSpace(obj, i+1)
		}
	}
	return true
}

// eachElement calls f for every element of a JSON array and reports whether arr is one.
func eachElement(arr []byte, f func(value []byte)) bool {
	i := skipSpace(arr, 0)
	if i >= len(arr) || arr[i] != '[' {
		return false
	}
	i = skipSpace(arr, i+1)
	for i < len(arr) && arr[i] != ']' {
		end := skipValue(arr, i)
		f(arr[i:end])
		i = skipSpace(arr, end)
		if i < len(arr) && arr[i] == ',' {
			i = skipSpace(arr, i+1)
		}
	}
	return true
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the index behind the string that starts at i.
func skipString(b []byte, i int) int {
	for i++; i < len(b); {
		q := bytes.IndexByte(b[i:], '"')
		if q < 0 {
			return len(b)
		}
		i += q
		n := 0
		for b[i-1-n] == '\\' {
			n++
		}
		i++
		if n%2 == 0 {
			return i
		}
	}
	return len(b)
}

// skipValue returns the index behind the value that starts at i.
func skipValue(b []byte, i int) int {
	if i >= len(b) {
		return i
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		depth := 0
		for i < len(b) {
			switch b[i] {
			case '"':
				i = skipString(b, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
			i++
		}
		return len(b)
	default:
		for i < len(b) && b[i] != ',' && b[i] != '}' && b[i] != ']' && b[i] > ' ' {
			i++
		}
		return i
	}
}

func isObject(raw []byte) bool { return len(raw) > 0 && raw[0] == '{' }

func isNull(raw []byte) bool { return len(raw) == 0 || string(raw) == "null" }

// asString decodes a JSON string; anything else is not ok.
func asString(raw []byte) (string, bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return "", false
	}
	return s, true
}

// asID reads a request id that is an integer, or one that came back as a string or
// in another spelling of the same number.
func asID(raw []byte) (int64, bool) {
	if len(raw) >= 2 && raw[0] == '"' {
		raw = raw[1 : len(raw)-1]
	}
	if len(raw) == 0 || len(raw) > 24 {
		return 0, false
	}
	var n int64
	for _, c := range raw {
		if c < '0' || c > '9' || n > 1<<59 {
			f, err := strconv.ParseFloat(string(raw), 64)
			if err != nil || f != float64(int64(f)) {
				return 0, false
			}
			return int64(f), true
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

// sniffHead finds the id of a message that is broken. It walks the top-level fields as
// far as the bytes reach: whatever a result holds deeper inside is never taken for it.
func sniffHead(b []byte) (int64, bool) {
	i := skipSpace(b, 0)
	if i >= len(b) || b[i] != '{' {
		return 0, false
	}
	i = skipSpace(b, i+1)
	for i < len(b) && b[i] == '"' {
		end := skipString(b, i)
		key := b[i:end]
		i = skipSpace(b, end)
		if i >= len(b) || b[i] != ':' {
			return 0, false
		}
		i = skipSpace(b, i+1)
		end = skipValue(b, i)
		if end >= len(b) {
			return 0, false // cut off: the value may go on
		}
		if string(key) == `"id"` {
			return asID(b[i:end])
		}
		i = skipSpace(b, end)
		if i >= len(b) || b[i] != ',' {
			return 0, false
		}
		i = skipSpace(b, i+1)
	}
	return 0, false
}
