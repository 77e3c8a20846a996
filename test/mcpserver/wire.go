package main

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// wire writes messages, one a line, with whatever is wrong with the stream.
type wire struct {
	mu     sync.Mutex
	w      io.Writer
	o      *options
	marked bool // the byte order mark is out
}

// frame renders an answer as one JSON-RPC message.
func frame(id json.RawMessage, a answer, modern bool) []byte {
	out := make([]byte, 0, len(a.result)+len(a.rpcErr)+len(id)+64)
	out = append(out, `{"jsonrpc":"2.0","id":`...)
	out = append(out, id...)
	if a.rpcErr != nil {
		out = append(append(out, `,"error":`...), a.rpcErr...)
	} else {
		out = append(out, `,"result":`...)
		if modern {
			out = append(append(out, `{"resultType":"complete",`...), a.result[1:]...)
		} else {
			out = append(out, a.result...)
		}
	}
	return append(out, '}')
}

func (w *wire) reply(id json.RawMessage, a answer, modern bool) { w.message(frame(id, a, modern)) }

func (w *wire) progress(token json.RawMessage, n int) {
	w.message(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, token, n))
}

// message writes one message and its line end.
func (w *wire) message(msg []byte) {
	if w.o.blanks {
		msg = append(append([]byte("\n  \n"), msg...), "  \t "...)
	}
	if w.o.crlf {
		msg = append(msg, '\r')
	}
	w.raw(string(append(msg, '\n')))
}

// raw writes bytes as they are. An error means that nobody listens any more; the
// reading side finds that out by itself.
func (w *wire) raw(s string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.o.bom && !w.marked {
		s = "\ufeff" + s
	}
	w.marked = true
	if !w.o.split {
		_, _ = io.WriteString(w.w, s)
		return
	}
	for len(s) > 0 {
		n := min(7, len(s))
		_, _ = io.WriteString(w.w, s[:n])
		s = s[n:]
	}
}
