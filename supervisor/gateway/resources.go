package gateway

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpbridge/internal/rawjson"
	"mcpbridge/messages"
)

// codeNoResource is how revisions before 2026-07-28 call a resource that does not exist;
// later ones call it invalid params.
const codeNoResource = -32002

// readResult answers resources/read with the result object: the only resources of the
// bridge are results that were cut (requirement D7). One that belongs to somebody else
// does not exist.
func (sc *scope) readResult(client string, params json.RawMessage, modern bool) ([]byte, *wireError) {
	if !rawjson.IsObject(params) {
		return nil, invalidParams("params must be an object with the uri of a resource")
	}
	raw, _ := rawjson.Lookup(params, "uri")
	uri := unquoteIf(raw)
	if uri == "" {
		return nil, invalidParams("params.uri must be the uri of a resource")
	}
	var whole json.RawMessage
	id, ours := strings.CutPrefix(uri, messages.ResultScheme)
	if ours {
		whole, ours = sc.g.backend.Result(client, sc.key.view, sc.key.server, id)
	}
	if !ours {
		e := &wireError{Code: codeNoResource, Message: "there is no such resource; results that were cut can be read for ten minutes"}
		if modern {
			e.Code = codeInvalidParams
		}
		return nil, e
	}
	out := make([]byte, 0, len(whole)+len(whole)/8+256)
	out = append(out, '{')
	if modern {
		out = append(out, completeType...)
		out = append(out, `,"ttlMs":0,"cacheScope":"private",`...)
	}
	out = append(out, `"contents":[{"uri":`...)
	out = rawjson.AppendString(out, uri)
	out = append(out, `,"mimeType":"application/json",`...)
	if utf8.Valid(whole) {
		out = appendText(append(out, `"text":"`...), whole)
	} else { // bytes that no text can carry
		out = append(out, `"blob":"`...)
		out = base64.StdEncoding.AppendEncode(out, whole)
	}
	return append(out, `"}]}`...), nil
}

// appendText appends JSON as the inside of a string, without the copies that an encoder
// would make of it.
func appendText(out, raw []byte) []byte {
	for from, i := 0, 0; ; i++ {
		if i < len(raw) && raw[i] != '"' && raw[i] != '\\' && raw[i] >= ' ' {
			continue
		}
		out = append(out, raw[from:i]...)
		if from = i + 1; i == len(raw) {
			return out
		}
		switch c := raw[i]; c {
		case '"', '\\':
			out = append(out, '\\', c)
		default: // in valid JSON these are line breaks and tabs between tokens
			out = append(out, `\u00`...)
			out = append(out, "0123456789abcdef"[c>>4], "0123456789abcdef"[c&15])
		}
	}
}

// sdkRead answers a resources/read that reached the SDK, as one inside a batch does.
func (sc *scope) sdkRead(ctx context.Context, req mcp.Request) (mcp.Result, error) {
	r, ok := req.(*mcp.ReadResourceRequest)
	if !ok || r.Params == nil {
		return nil, &jsonrpc.Error{Code: codeInvalidParams, Message: "params must be an object with the uri of a resource"}
	}
	params := append(append([]byte(`{"uri":`), rawjson.AppendString(nil, r.Params.URI)...), '}')
	raw, werr := sc.readResult(requestOf(ctx).client, params, isModern(r.ProtocolVersion()))
	if werr != nil {
		return nil, &jsonrpc.Error{Code: int64(werr.Code), Message: werr.Message}
	}
	return &rawResult{raw: raw}, nil
}
