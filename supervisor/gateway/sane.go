package gateway

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"

	"mcpbridge/internal/rawjson"
)

// maxWireDepth is how deep the server's part of a message may nest, which is as deep
// as the arguments of a call may. Clients stop at different depths (the official Go
// client at 1000) and take their whole session with them.
const maxWireDepth = 512

// deeperThan reports whether valid JSON nests deeper than limit.
func deeperThan(raw []byte, limit int) bool {
	if bytes.Count(raw, []byte{'{'})+bytes.Count(raw, []byte{'['}) <= limit {
		return false
	}
	depth := 0
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			end := rawjson.SkipString(raw, i)
			if end < 0 {
				return false
			}
			i = end - 1
		case '{', '[':
			if depth++; depth > limit {
				return true
			}
		case '}', ']':
			depth--
		}
	}
	return false
}

// saneError is the server's JSON-RPC error as it goes to a client: byte for byte
// where every client can read it. A code that is no integer, a message that is no
// string, or data that nests too deep costs typed clients their session, so such an
// error is worded anew, with what the server wrote as its data where that can be read.
func saneError(raw json.RawMessage) json.RawMessage {
	code, _ := rawjson.Lookup(raw, "code")
	message, hasMessage := rawjson.Lookup(raw, "message")
	deep := deeperThan(raw, maxWireDepth)
	n, okCode := integer(code)
	if okCode && hasMessage && rawjson.IsString(message) && !deep {
		return raw
	}
	text := unquoteIf(message)
	if text == "" {
		text = "the server answered with an error that says nothing readable"
	}
	if !okCode {
		n = codeInternal
	}
	out := append([]byte(nil), `{"code":`...)
	out = strconv.AppendInt(out, n, 10)
	out = append(out, `,"message":`...)
	out = rawjson.AppendString(out, text)
	if !deep && json.Valid(raw) {
		out = append(append(out, `,"data":{"mcpbridge/error":`...), append(bytes.Clone(raw), '}')...)
	}
	return append(out, '}')
}

// integer reads an error code; clients hold it in 32 bits at least.
func integer(raw []byte) (int64, bool) {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return n, err == nil && n >= math.MinInt32 && n <= math.MaxInt32
}

// saneProgress reports whether clients can read a progress notification's params.
func saneProgress(params json.RawMessage) bool {
	if !rawjson.IsObject(params) || deeperThan(params, maxWireDepth) {
		return false
	}
	number := func(key string, must bool) bool {
		val, ok := rawjson.Lookup(params, key)
		if !ok {
			return !must
		}
		_, err := strconv.ParseFloat(string(val), 64)
		return rawjson.IsNumber(val) && err == nil
	}
	message, ok := rawjson.Lookup(params, "message")
	return number("progress", true) && number("total", false) && (!ok || rawjson.IsString(message))
}
