package results

import (
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"

	"mcpbridge/internal/rawjson"
)

// The keys of _meta (of an error's data, where there is no _meta) that mark what was cut.
const (
	metaTruncated = "mcpbridge/truncated"
	metaURI       = "mcpbridge/result_uri"
	metaBytes     = "mcpbridge/result_bytes"
)

// reserve is what the marker and the punctuation of a cut result may need.
const reserve = 1 << 10

// Cut returns a result object of about limit bytes at most, for one that is larger:
// what is small stays, structured content stays if it fits as a whole, of the content
// the first blocks stay, and the first text that does not fit is cut. A last block of
// text and _meta say so, and where the whole can be read. What stays keeps its bytes.
func Cut(raw json.RawMessage, limit int64, uri string) json.RawMessage {
	room := int(min(limit, int64(len(raw)))) - reserve
	type field struct{ key, val []byte }
	var rest []field
	var content, structured, meta json.RawMessage
	rawjson.Object(raw, func(m rawjson.Member) bool {
		switch val := raw[m.ValStart:m.ValEnd]; m.Key {
		case "content":
			content = val
		case "structuredContent":
			structured = val
		case "_meta":
			meta = val
		default:
			rest = append(rest, field{raw[m.KeyStart:rawjson.SkipString(raw, m.KeyStart)], val})
		}
		return true
	})
	take := func(n int) bool {
		if n > room {
			return false
		}
		room -= n
		return true
	}
	kept := rest[:0]
	for _, f := range rest { // isError among them
		if take(len(f.key) + len(f.val) + 2) {
			kept = append(kept, f)
		}
	}
	if !rawjson.IsObject(meta) || !take(len(meta)) {
		meta = json.RawMessage("{}")
	}
	if structured != nil && !take(len(structured)) {
		structured = nil
	}
	out := make([]byte, 0, int(min(limit, int64(len(raw))))+reserve+len(uri))
	out = append(out, `{"content":[`...)
	rawjson.Array(content, func(block []byte) bool {
		switch text, _ := rawjson.Lookup(block, "text"); {
		case take(len(block) + 1):
			out = append(append(out, block...), ',')
		case rawjson.IsString(text):
			frame := len(block) - len(text) + 1
			if part := cutString(text, room-frame); len(part) > 2 && take(frame+len(part)) {
				out = append(append(out, rawjson.SetMember(block, "text", part)...), ',')
			}
		}
		return true
	})
	out = append(out, `{"type":"text","text":`...)
	out = rawjson.AppendString(out, marker(len(raw), uri))
	out = append(out, `}]`...)
	if structured != nil {
		out = append(append(out, `,"structuredContent":`...), structured...)
	}
	for _, f := range kept {
		out = append(append(append(append(out, ','), f.key...), ':'), f.val...)
	}
	out = append(out, `,"_meta":`...)
	out = append(out, mark(meta, len(raw), uri)...)
	return append(out, '}')
}

// CutError is Cut for a JSON-RPC error object.
func CutError(raw json.RawMessage, limit int64, uri string) json.RawMessage {
	code, _ := rawjson.Lookup(raw, "code")
	message, _ := rawjson.Lookup(raw, "message")
	if len(code) == 0 || len(code) > 32 {
		code = json.RawMessage("-32603")
	}
	if !rawjson.IsString(message) {
		message = json.RawMessage(`"the server answered with an error that says nothing readable"`)
	}
	message = cutString(message, max(int(min(limit, int64(len(raw))))-reserve, 2))
	out := append([]byte(`{"code":`), code...)
	out = append(append(out, `,"message":`...), message...)
	out = append(out, `,"data":`...)
	out = append(out, mark([]byte("{}"), len(raw), uri)...)
	return append(out, '}')
}

func marker(bytes int, uri string) string {
	if uri == "" {
		return fmt.Sprintf("[cut: the whole result has %d bytes, which is too much to keep]", bytes)
	}
	return fmt.Sprintf("[cut: the whole result has %d bytes; for a while it can be read as resource %s]", bytes, uri)
}

func mark(meta []byte, bytes int, uri string) []byte {
	if uri != "" {
		meta = rawjson.SetMember(meta, metaURI, rawjson.AppendString(nil, uri))
	}
	meta = rawjson.SetMember(meta, metaBytes, strconv.AppendInt(nil, int64(bytes), 10))
	return rawjson.SetMember(meta, metaTruncated, []byte("true"))
}

// cutString returns a JSON string of at most n bytes with the beginning of s, which it
// cuts between two characters. Less than two bytes hold none.
func cutString(s []byte, n int) []byte {
	if len(s) <= n {
		return s
	}
	end := 1
	for end < len(s)-1 {
		step := 1
		switch {
		case s[end] == '\\':
			step = escapeLen(s[end:])
		case s[end] >= utf8.RuneSelf:
			_, step = utf8.DecodeRune(s[end:])
		}
		if end+step+1 > n {
			break
		}
		end += step
	}
	return append(append(make([]byte, 0, end+1), s[:end]...), '"')
}

// escapeLen is the length of the escape that s begins with; two halves of one character
// are one.
func escapeLen(s []byte) int {
	const unicode = len(`\u0000`)
	if len(s) < 2 || s[1] != 'u' {
		return 2
	}
	if high := s[2:min(len(s), 4)]; len(high) == 2 && (high[0] == 'd' || high[0] == 'D') && (high[1] >= '8' && high[1] <= '9' || high[1]|0x20 == 'a' || high[1]|0x20 == 'b') {
		if len(s) >= 2*unicode && s[unicode] == '\\' && s[unicode+1] == 'u' {
			return 2 * unicode
		}
	}
	return unicode
}
