package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"unicode/utf8"

	"mcpbridge/internal/rawjson"
)

// The JSON-RPC error codes that the gateway itself uses.
const (
	codeParse          = -32700
	codeInvalidRequest = -32600
	codeInvalidParams  = -32602
	codeInternal       = -32603
	codeHeaderMismatch = -32020
	codeBusy           = -32000
)

// wireError is a JSON-RPC error of the gateway's own.
type wireError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// Error implements error.
func (e *wireError) Error() string { return e.Message }

func invalidParams(format string, a ...any) *wireError {
	return &wireError{Code: codeInvalidParams, Message: fmt.Sprintf(format, a...)}
}

func invalidRequest(format string, a ...any) *wireError {
	return &wireError{Code: codeInvalidRequest, Message: fmt.Sprintf(format, a...)}
}

// envelope is one JSON-RPC message, taken apart but not decoded.
type envelope struct {
	raw    []byte
	id     json.RawMessage // nil when absent
	method string          // "" for a response
	params json.RawMessage // nil when absent
}

// parseEnvelope takes a message apart. batch is true for a JSON array, which is
// not looked into. Keys are compared exactly, and a key that occurs twice is
// refused: two readers of one message could otherwise disagree about it.
func parseEnvelope(b []byte) (env envelope, batch bool, werr *wireError) {
	if !utf8.Valid(b) || !json.Valid(b) {
		return env, false, &wireError{Code: codeParse, Message: "the message is not valid JSON in UTF-8"}
	}
	env.raw = b
	if rawjson.IsKind(b, "[") {
		return env, true, nil
	}
	var seen, version = 0, ""
	ok := rawjson.Object(b, func(m rawjson.Member) bool {
		bit, val := 0, b[m.ValStart:m.ValEnd]
		switch m.Key {
		case "jsonrpc":
			bit = 1
			version = unquoteIf(val)
		case "id":
			bit = 2
			env.id = val
		case "method":
			bit = 4
			env.method = unquoteIf(val)
			if env.method == "" {
				werr = invalidRequest("method must be a non-empty string")
			}
		case "params":
			bit = 8
			env.params = val
		case "result":
			bit = 16
		case "error":
			bit = 32
		}
		if seen&bit != 0 {
			env.id = nil
			werr = invalidRequest("the key %q occurs twice", m.Key)
			return false
		}
		seen |= bit
		return true
	})
	switch {
	case !ok:
		return env, false, invalidRequest("the message is not a JSON object")
	case werr != nil:
		return env, false, werr
	case version != "2.0":
		return env, false, invalidRequest(`jsonrpc must be "2.0"`)
	case seen&(4|16|32) == 0:
		return env, false, invalidRequest("the message is neither a request nor a response")
	}
	return env, false, nil
}

func unquoteIf(val []byte) string {
	if !rawjson.IsString(val) {
		return ""
	}
	return rawjson.Unquote(val)
}

// idKey turns a request id into a map key: equal ids give equal keys, however
// they are written. ok is false where it is neither a string nor a number.
func idKey(id json.RawMessage) (key string, ok bool) {
	switch {
	case rawjson.IsString(id):
		return "s" + rawjson.Unquote(id), true
	case rawjson.IsNumber(id):
		return "n" + string(id), true
	default:
		return "", false
	}
}

// appendHead appends `{"jsonrpc":"2.0","id":<id>,"<member>":`.
func appendHead(dst []byte, id json.RawMessage, member string) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	if len(id) == 0 {
		dst = append(dst, "null"...)
	} else {
		dst = append(dst, id...)
	}
	dst = append(dst, `,"`...)
	dst = append(dst, member...)
	return append(dst, `":`...)
}

// errorBody is a whole JSON-RPC error response.
func errorBody(id json.RawMessage, e *wireError) []byte {
	out := appendHead(nil, id, "error")
	out = append(out, `{"code":`...)
	out = strconv.AppendInt(out, int64(e.Code), 10)
	out = append(out, `,"message":`...)
	out = rawjson.AppendString(out, e.Message)
	return append(out, "}}"...)
}

// writeError answers a request with a JSON-RPC error.
func writeError(w http.ResponseWriter, status int, id json.RawMessage, e *wireError) {
	body := errorBody(id, e)
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the peer may be gone: nobody is left to tell
}
