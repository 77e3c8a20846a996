package upstream

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"mcpbridge/internal/rawjson"
	"mcpbridge/messages"
)

// reservedMeta reports whether a key of _meta belongs to one hop of the protocol
// and must not travel through the bridge.
func reservedMeta(key []byte) bool {
	k := string(key)
	return k == "progressToken" || strings.HasPrefix(k, "io.modelcontextprotocol/") || strings.HasPrefix(k, "mcpbridge/")
}

// appendCall builds the params of tools/call around the caller's own bytes. The
// progress token is the request's id; era is what a 2026-07-28 request carries.
func appendCall(b []byte, id int64, exec *messages.Exec, era []byte) []byte {
	b = appendHead(b, id, "tools/call")
	b = append(b, `{"name":`...)
	b = appendString(b, exec.Remote)
	b = append(b, `,"arguments":`...)
	if rawjson.IsNull(exec.Args) {
		b = append(b, `{}`...)
	} else {
		b = appendOneLine(b, exec.Args)
	}
	b = append(b, `,"_meta":{"progressToken":`...)
	b = strconv.AppendInt(b, id, 10)
	b = append(b, era...)
	if len(exec.Meta) > 0 && json.Valid(exec.Meta) {
		rawjson.Fields(exec.Meta, func(k, v []byte) {
			if reservedMeta(k) {
				return
			}
			b = append(b, ',')
			b = appendString(b, string(k))
			b = append(b, ':')
			b = appendOneLine(b, v)
		})
	}
	return append(b, "}}}\n"...)
}

// appendRequest builds any other request; fields are its params but for _meta,
// each preceded by a comma.
func appendRequest(b []byte, id int64, method, fields string, era []byte) []byte {
	b = appendHead(b, id, method)
	b = append(b, `{"_meta":{`...)
	b = append(b, bytes.TrimPrefix(era, []byte{','})...)
	b = append(b, '}')
	b = append(b, fields...)
	return append(b, "}}\n"...)
}

func appendHead(b []byte, id int64, method string) []byte {
	b = append(b, `{"jsonrpc":"2.0","id":`...)
	b = strconv.AppendInt(b, id, 10)
	b = append(b, `,"method":"`...)
	b = append(b, method...)
	return append(b, `","params":`...)
}

// appendCancelled builds notifications/cancelled.
func appendCancelled(b []byte, id int64, reason string) []byte {
	b = append(b, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`...)
	b = strconv.AppendInt(b, id, 10)
	if reason != "" {
		b = append(b, `,"reason":`...)
		b = appendString(b, reason)
	}
	return append(b, "}}\n"...)
}

// appendOneLine adds JSON that may not span lines: a newline can only be white
// space between tokens, and goes.
func appendOneLine(b []byte, raw []byte) []byte {
	if bytes.IndexByte(raw, '\n') < 0 && bytes.IndexByte(raw, '\r') < 0 {
		return append(b, raw...)
	}
	var c bytes.Buffer
	if json.Compact(&c, raw) != nil {
		return append(b, `{}`...) // cannot be: the gate has parsed it
	}
	return append(b, c.Bytes()...)
}

// appendString adds a JSON string; plain ASCII needs no encoder.
func appendString(b []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			var buf bytes.Buffer
			enc := json.NewEncoder(&buf)
			enc.SetEscapeHTML(false)
			_ = enc.Encode(s)
			return append(b, bytes.TrimRight(buf.Bytes(), "\n")...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
