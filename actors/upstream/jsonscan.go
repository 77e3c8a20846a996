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

// sniffID finds the id of a message that is cut off or broken, given its beginning
// and (for one that was too long) its end. It looks at the top level only: whatever
// a result holds deeper inside is never taken for the id.
func sniffID(head, end []byte) (int64, bool) {
	if id, ok := sniffHead(head); ok {
		return id, true
	}
	return sniffEnd(end)
}

// sniffHead walks the top-level fields as far as the bytes reach.
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

// sniffEnd recognises an id that is one of the last two fields: …,"id":7} and
// …,"id":7,"jsonrpc":"2.0"}, which only the end of the outermost object can be.
func sniffEnd(b []byte) (int64, bool) {
	b = bytes.TrimRight(b, " \t\r\n")
	if len(b) == 0 || b[len(b)-1] != '}' {
		return 0, false
	}
	b = bytes.TrimRight(b[:len(b)-1], " \t")
	if rest, ok := cutLastField(b, `"jsonrpc"`); ok {
		b = rest
	}
	i := bytes.LastIndex(b, []byte(`"id"`))
	if i < 0 {
		return 0, false
	}
	j := skipSpace(b, i+4)
	if j >= len(b) || b[j] != ':' {
		return 0, false
	}
	j = skipSpace(b, j+1)
	if end := skipValue(b, j); end < len(b) {
		return 0, false // not the last field
	}
	return asID(b[j:])
}

// cutLastField removes a trailing `,"key":"2.0"`.
func cutLastField(b []byte, key string) ([]byte, bool) {
	i := bytes.LastIndex(b, []byte(key))
	if i < 0 {
		return b, false
	}
	j := skipSpace(b, i+len(key))
	if j >= len(b) || b[j] != ':' {
		return b, false
	}
	j = skipSpace(b, j+1)
	if j >= len(b) || b[j] != '"' || skipString(b, j) != len(b) {
		return b, false
	}
	rest := bytes.TrimRight(b[:i], " \t")
	if len(rest) == 0 || rest[len(rest)-1] != ',' {
		return b, false
	}
	return bytes.TrimRight(rest[:len(rest)-1], " \t"), true
}
