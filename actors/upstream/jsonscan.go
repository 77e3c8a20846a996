package upstream

import (
	"encoding/json"
	"strconv"

	"mcpbridge/internal/rawjson"
)

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
	i := rawjson.SkipSpace(b, 0)
	if i >= len(b) || b[i] != '{' {
		return 0, false
	}
	i = rawjson.SkipSpace(b, i+1)
	for i < len(b) && b[i] == '"' {
		end := rawjson.SkipString(b, i)
		if end < 0 {
			return 0, false
		}
		key := b[i:end]
		i = rawjson.SkipSpace(b, end)
		if i >= len(b) || b[i] != ':' {
			return 0, false
		}
		i = rawjson.SkipSpace(b, i+1)
		end = rawjson.SkipValue(b, i)
		if end < 0 || end >= len(b) {
			return 0, false // cut off: the value may go on
		}
		if string(key) == `"id"` {
			return asID(b[i:end])
		}
		i = rawjson.SkipSpace(b, end)
		if i >= len(b) || b[i] != ',' {
			return 0, false
		}
		i = rawjson.SkipSpace(b, i+1)
	}
	return 0, false
}
