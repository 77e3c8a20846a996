package upstream

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"mcpbridge/internal/rawjson"
	"mcpbridge/messages"
)

// paramHeader says that an argument of a tool must be repeated in a header: since
// 2026-07-28 an input schema may ask for that with x-mcp-header, and the server
// refuses a call without it.
type paramHeader struct {
	path []string
	name string
}

// listed implements link.
func (r *remote) listed(tools []messages.ToolDef) {
	params := map[string][]paramHeader{}
	for _, t := range tools {
		if bytes.Contains(t.InputSchema, []byte("x-mcp-header")) {
			params[t.Name] = paramHeadersOf(t.InputSchema, nil, nil)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.params = params
}

// paramHeadersOf walks the properties of a schema, at most as deep as path may get.
func paramHeadersOf(schema []byte, path []string, out []paramHeader) []paramHeader {
	const maxDepth = 16
	if len(path) >= maxDepth {
		return out
	}
	rawjson.Fields(schema, func(k, props []byte) {
		if string(k) != "properties" {
			return
		}
		rawjson.Fields(props, func(name, prop []byte) {
			at := append(append([]string(nil), path...), string(name))
			rawjson.Fields(prop, func(k, v []byte) {
				if string(k) != "x-mcp-header" {
					return
				}
				if h, ok := asString(v); ok && isToken(h) {
					out = append(out, paramHeader{at, h})
				}
			})
			out = paramHeadersOf(prop, at, out)
		})
	})
	return out
}

// paramHeaders renders the headers that a call's tool asks for.
func (r *remote) paramHeaders(p *pending) http.Header {
	if p.exec == nil {
		return nil
	}
	r.mu.Lock()
	params := r.params[p.name]
	if r.protocol < stateless {
		params = nil
	}
	r.mu.Unlock()
	h := http.Header{}
	for _, b := range params {
		if v, ok := headerText(valueAt(p.exec.Args, b.path)); ok {
			h.Set("Mcp-Param-"+b.name, headerValue(v))
		}
	}
	return h
}

// valueAt finds the raw argument at a path, or nil.
func valueAt(obj []byte, path []string) []byte {
	for _, name := range path {
		var found []byte
		if !rawjson.Fields(obj, func(k, v []byte) {
			if string(k) == name {
				found = v
			}
		}) {
			return nil
		}
		obj = found
	}
	return obj
}

// headerText renders a primitive the way the protocol wants it in a header:
// strings, booleans and integers that a double holds exactly.
func headerText(raw []byte) (string, bool) {
	if s, ok := asString(raw); ok {
		return s, true
	}
	switch string(raw) {
	case "true", "false":
		return string(raw), true
	}
	const safe = 1<<53 - 1
	var f float64
	if rawjson.IsNull(raw) || json.Unmarshal(raw, &f) != nil || f > safe || f < -safe || f != float64(int64(f)) {
		return "", false
	}
	return strconv.FormatInt(int64(f), 10), true
}

// isToken reports whether s can be the name of a header.
func isToken(s string) bool {
	for _, c := range s {
		if c > 0x7e || c <= 0x20 || strings.ContainsRune(`()<>@,;:\"/[]?={}`, c) {
			return false
		}
	}
	return s != ""
}

// headerValue makes a text fit for a header, in the protocol's own encoding where
// it must.
func headerValue(s string) string {
	plain := s == strings.TrimSpace(s) && !strings.HasPrefix(s, "=?base64?")
	for i := 0; i < len(s) && plain; i++ {
		plain = s[i] >= 0x20 && s[i] < 0x7f
	}
	if plain {
		return s
	}
	return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(s)) + "?="
}
