package gateway

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcpbridge/internal/rawjson"
)

// responder writes the answer to one raw request: plain JSON when it is there soon,
// an event stream when progress was asked for or when it takes so long that a
// proxy might cut a silent connection.
type responder struct {
	w      http.ResponseWriter
	rc     *http.ResponseController
	modern bool
	every  time.Duration

	mu     sync.Mutex
	stream bool // the headers of an event stream are out
	done   bool
	timer  *time.Timer
}

// newResponder begins an answer. With stream the headers go out at once.
func newResponder(w http.ResponseWriter, modern, stream bool, grace, every time.Duration) *responder {
	r := &responder{w: w, rc: http.NewResponseController(w), modern: modern, every: every}
	r.mu.Lock()
	defer r.mu.Unlock()
	if stream {
		r.startLocked()
		grace = every
	}
	r.timer = time.AfterFunc(grace, r.tick)
	return r
}

func (r *responder) startLocked() {
	r.stream = true
	h := r.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	r.writeLocked([]byte(": ok\n\n"))
	_ = r.rc.Flush() // a writer that cannot flush still delivers at the end
}

func (r *responder) tick() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return
	}
	if !r.stream {
		r.startLocked()
	} else {
		r.writeLocked([]byte(": keep-alive\n\n"))
		_ = r.rc.Flush()
	}
	r.timer.Reset(r.every)
}

// writeLocked writes with a deadline. Its errors mean that the client is gone,
// which the caller's context knows; the call itself goes on by its own rules.
func (r *responder) writeLocked(b []byte) {
	_ = r.rc.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, _ = r.w.Write(b)
}

// notify sends one event of the stream.
func (r *responder) notify(payload []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return
	}
	r.writeLocked(appendEvent(nil, payload))
	_ = r.rc.Flush()
}

// send is notify for what cannot wait for the stream to begin.
func (r *responder) send(payload []byte) {
	r.mu.Lock()
	if !r.done && !r.stream {
		r.startLocked()
	}
	r.mu.Unlock()
	r.notify(payload)
}

// finish sends the answer; nothing is written afterwards.
func (r *responder) finish(a answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return
	}
	r.done = true
	r.timer.Stop()
	if r.stream {
		r.writeLocked(appendEvent(make([]byte, 0, a.size()+32), a.head, a.body, a.tail))
		_ = r.rc.Flush()
	} else {
		h := r.w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Length", strconv.Itoa(a.size()))
		if status := statusOf(a.code, r.modern); status != http.StatusOK {
			r.w.WriteHeader(status)
		}
		if len(a.body) < 4096 { // one copy is cheaper than three writes
			r.writeLocked(append(append(append(make([]byte, 0, a.size()), a.head...), a.body...), a.tail...))
		} else {
			r.writeLocked(a.head)
			r.writeLocked(a.body)
			r.writeLocked(a.tail)
		}
	}
	_ = r.rc.SetWriteDeadline(time.Time{}) // the connection serves other requests next
}

// stop ends a response that nobody finished (a panic).
func (r *responder) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done = true
	r.timer.Stop()
}

// statusOf is the HTTP status that goes with a JSON-RPC error: only protocol
// 2026-07-28 and later wants another than 200.
func statusOf(code int, modern bool) int {
	if !modern {
		return http.StatusOK
	}
	switch code {
	case -32601:
		return http.StatusNotFound
	case codeInvalidParams, codeHeaderMismatch, -32021, -32022:
		return http.StatusBadRequest
	}
	return http.StatusOK
}

// appendEvent appends one server-sent event. A line break inside the payload
// becomes one between data lines, which the receiver puts together again.
func appendEvent(dst []byte, parts ...[]byte) []byte {
	dst = append(dst, "event: message\ndata: "...)
	for _, p := range parts {
		for {
			i := bytes.IndexAny(p, "\r\n")
			if i < 0 {
				dst = append(dst, p...)
				break
			}
			dst = append(dst, p[:i]...)
			if p[i] == '\r' && i+1 < len(p) && p[i+1] == '\n' {
				i++
			}
			dst = append(dst, "\ndata: "...)
			p = p[i+1:]
		}
	}
	return append(dst, "\n\n"...)
}

// pump carries progress from the backend to a client. A server may report as fast
// as it likes: what the client does not take in time is dropped, the newest last.
type pump struct {
	token json.RawMessage
	send  func(notification []byte)

	mu      sync.Mutex
	pending []json.RawMessage
	closed  bool
	wake    chan struct{}
	over    chan struct{}
}

// maxPending is how many progress reports wait for a client.
const maxPending = 32

func newPump(token json.RawMessage, send func([]byte)) *pump {
	p := &pump{token: token, send: send, wake: make(chan struct{}, 1), over: make(chan struct{})}
	go p.run()
	return p
}

// progress takes one report; it never blocks.
func (p *pump) progress(params json.RawMessage) {
	p.mu.Lock()
	if !p.closed {
		if len(p.pending) == maxPending {
			p.pending = p.pending[:maxPending-1] // an intermediate one
		}
		p.pending = append(p.pending, params)
	}
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// close returns when what was pending is sent; later reports are dropped.
func (p *pump) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
	<-p.over
}

func (p *pump) run() {
	defer close(p.over)
	for range p.wake {
		p.mu.Lock()
		batch, closed := p.pending, p.closed
		p.pending = nil
		p.mu.Unlock()
		for _, params := range batch {
			if !saneProgress(params) {
				continue
			}
			n := append([]byte(nil), `{"jsonrpc":"2.0","method":"notifications/progress","params":`...)
			n = append(n, rawjson.SetMember(params, "progressToken", p.token)...)
			p.send(append(n, '}'))
		}
		if closed {
			return
		}
	}
}

// streamWriter stands between the SDK and the connection: each write has a
// deadline, so that a client that does not read holds up nobody, and an event
// stream that is silent for long gets a comment now and then.
type streamWriter struct {
	http.ResponseWriter
	rc    *http.ResponseController
	every time.Duration // the comments
	most  time.Duration // for one write

	mu    sync.Mutex
	done  bool
	timer *time.Timer
}

func newStreamWriter(w http.ResponseWriter, every, most time.Duration) *streamWriter {
	return &streamWriter{ResponseWriter: w, rc: http.NewResponseController(w), every: every, most: most}
}

// Write implements http.ResponseWriter. The SDK writes whole events.
func (s *streamWriter) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer == nil && !s.done && strings.HasPrefix(s.Header().Get("Content-Type"), "text/event-stream") {
		s.timer = time.AfterFunc(s.every, s.tick)
	}
	_ = s.rc.SetWriteDeadline(time.Now().Add(s.most))
	return s.ResponseWriter.Write(b)
}

// FlushError is what http.ResponseController looks for.
func (s *streamWriter) FlushError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rc.Flush()
}

func (s *streamWriter) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return
	}
	_ = s.rc.SetWriteDeadline(time.Now().Add(s.most))
	if _, err := s.ResponseWriter.Write([]byte(": keep-alive\n\n")); err != nil {
		return // the request's context ends
	}
	_ = s.rc.Flush()
	s.timer.Reset(s.every)
}

func (s *streamWriter) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = true
	if s.timer != nil {
		s.timer.Stop()
	}
	_ = s.rc.SetWriteDeadline(time.Time{})
}

// tracked remembers whether a response has begun, for the recovery from panics.
type tracked struct {
	http.ResponseWriter
	begun atomic.Bool
}

// WriteHeader implements http.ResponseWriter.
func (t *tracked) WriteHeader(status int) {
	t.begun.Store(true)
	t.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (t *tracked) Write(b []byte) (int, error) {
	t.begun.Store(true)
	return t.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController through.
func (t *tracked) Unwrap() http.ResponseWriter { return t.ResponseWriter }
