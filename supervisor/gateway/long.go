package gateway

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"mcpbridge/internal/rawjson"
)

var errLineTooLong = errors.New("line too long")

// maxSkipped is how much of a body over the limit is read and thrown away.
const maxSkipped = 64 << 20

// readLine reads up to the next line feed, which is not part of the line. A line
// over limit bytes is skipped to its end and reported as errLineTooLong, with the id
// of its request in place of the line. The last line needs no line feed; io.EOF
// comes with it.
func readLine(br *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	var long *longMessage
	for {
		part, err := br.ReadSlice('\n')
		if long == nil && len(line)+len(part) > limit+1 {
			long = new(longMessage)
			_, _ = long.Write(line)
			line = nil
		}
		if long != nil {
			_, _ = long.Write(part)
		} else {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case long != nil && (err == nil || errors.Is(err, io.EOF)):
			return long.id(), errLineTooLong // EOF comes again with the next read
		case err != nil:
			return line, err
		}
		return line[:len(line)-1], nil
	}
}

// longMessage keeps the two ends of a message that is too long to be kept.
type longMessage struct{ head, end []byte }

// Write implements io.Writer; it never fails.
func (l *longMessage) Write(p []byte) (int, error) {
	const keep = 1 << 10
	if room := keep - len(l.head); room > 0 {
		l.head = append(l.head, p[:min(room, len(p))]...)
	}
	l.end = append(l.end, p[max(0, len(p)-keep):]...)
	l.end = append(l.end[:0], l.end[max(0, len(l.end)-keep):]...)
	return len(p), nil
}

// id finds the id of the request, nil where it cannot be seen. It looks at the
// outermost object only: what the params hold is never taken for it.
func (l *longMessage) id() json.RawMessage {
	var id json.RawMessage
	rawjson.Object(l.head, func(m rawjson.Member) bool {
		if m.ValEnd >= len(l.head) {
			return false // cut off: the value may go on
		}
		if m.Key == "id" {
			id = l.head[m.ValStart:m.ValEnd]
		}
		return id == nil
	})
	if id == nil {
		id = idAtEnd(l.end)
	}
	if _, ok := idKey(id); !ok {
		return nil
	}
	return bytes.Clone(id)
}

// idAtEnd recognises an id that is one of the last two members: …,"id":7} and
// …,"id":7,"jsonrpc":"2.0"}, which only the end of the outermost object can be.
func idAtEnd(end []byte) json.RawMessage {
	s, ok := strings.CutSuffix(strings.TrimSpace(string(end)), "}")
	if !ok {
		return nil
	}
	for range 2 {
		s = strings.TrimSpace(s)
		at := valueAtEnd(s)
		if at < 0 {
			return nil
		}
		val := s[at:]
		if s, ok = strings.CutSuffix(strings.TrimSpace(s[:at]), ":"); !ok {
			return nil
		}
		s = strings.TrimSpace(s)
		if before, isID := strings.CutSuffix(s, `"id"`); isID {
			if before = strings.TrimSpace(before); strings.HasSuffix(before, ",") && json.Valid([]byte(val)) {
				return json.RawMessage(val)
			}
			return nil
		}
		if s, ok = strings.CutSuffix(s, `"jsonrpc"`); !ok {
			return nil
		}
		if s, ok = strings.CutSuffix(strings.TrimSpace(s), ","); !ok {
			return nil
		}
	}
	return nil
}

// valueAtEnd is where the string or number begins that s ends with, or -1.
func valueAtEnd(s string) int {
	if body, ok := strings.CutSuffix(s, `"`); ok {
		at := strings.LastIndexByte(body, '"')
		if at < 0 || strings.Contains(body[at:], `\`) || strings.HasSuffix(body[:at], `\`) {
			return -1
		}
		return at
	}
	at := len(strings.TrimRight(s, "+-.0123456789Ee"))
	if at == len(s) {
		return -1
	}
	return at
}
