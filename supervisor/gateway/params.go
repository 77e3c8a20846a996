package gateway

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"mcpbridge/internal/rawjson"
)

// paramSchema is what the check of Mcp-Param headers reads of an input schema.
type paramSchema struct {
	Type       json.RawMessage        `json:"type"`
	Header     json.RawMessage        `json:"x-mcp-header"`
	Properties map[string]paramSchema `json:"properties"`
}

// paramMismatch checks the Mcp-Param-* headers that a tool's schema asks for by
// x-mcp-header: protocol 2026-07-28 lets intermediaries route by them, so that one
// that says something else than the arguments must be refused. It returns what is
// wrong, or "".
func (sc *scope) paramMismatch(h http.Header, name string, args json.RawMessage) string {
	cat := sc.g.backend.Catalogue()
	t, ok := cat.Lookup(name)
	if sc.key.server != "" {
		t, ok = cat.LookupRemote(sc.key.server, name)
	}
	if !ok || !bytes.Contains(t.Def.InputSchema, []byte(`"x-mcp-header"`)) {
		return ""
	}
	var s paramSchema
	if json.Unmarshal(t.Def.InputSchema, &s) != nil {
		return "" // a schema that cannot be read asks for nothing
	}
	return s.mismatch(h, "", args)
}

// mismatch walks the properties with the arguments beside them.
func (s paramSchema) mismatch(h http.Header, path string, obj json.RawMessage) string {
	for name, prop := range s.Properties {
		val, _ := rawjson.Lookup(obj, name)
		where := strings.TrimPrefix(path+"."+name, ".")
		if header := unquoteIf(prop.Header); header != "" {
			if why := prop.compare(h.Get("Mcp-Param-"+header), val); why != "" {
				return "header mismatch: Mcp-Param-" + header + " " + why + " parameter " + strconv.Quote(where)
			}
		}
		if len(prop.Properties) > 0 {
			if why := prop.mismatch(h, where, val); why != "" {
				return why
			}
		}
	}
	return ""
}

// compare says how a header differs from the argument, "" where it does not.
func (s paramSchema) compare(header string, val json.RawMessage) string {
	switch {
	case rawjson.IsNull(val):
		if header != "" {
			return "is given for the absent"
		}
		return ""
	case header == "":
		return "is missing for the"
	}
	text := decodeHeader(header)
	switch {
	case rawjson.IsString(val):
		if text == rawjson.Unquote(val) {
			return ""
		}
	case rawjson.IsKind(val, "tf"):
		if text == string(val) {
			return ""
		}
	case rawjson.IsNumber(val):
		a, errA := strconv.ParseFloat(text, 64)
		b, errB := strconv.ParseFloat(string(val), 64)
		if errA == nil && errB == nil && a == b {
			return ""
		}
	}
	return "does not match the"
}
