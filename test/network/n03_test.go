package network

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"mcpbridge/messages"
	"mcpbridge/test/harness"
)

// flush makes what was written leave.
func (x *exchange) flush() { _ = http.NewResponseController(x.w).Flush() }

// cut ends the connection without an end of the answer.
func cut() { panic(http.ErrAbortHandler) }

// TestN03ConnectionLostInTheAnswer: the answer breaks off. The side effect has happened
// once and is not sent again; what the server can still be asked for is asked for.
func TestN03ConnectionLostInTheAnswer(t *testing.T) {
	for _, tc := range []struct {
		name   string
		modern bool
		answer func(x *exchange, result string)
		resume func(x *exchange, answer string) // GET with Last-Event-ID; nil = none on offer
		kind   messages.OutcomeKind
	}{
		{name: "nothing at all", answer: func(*exchange, string) { cut() }},
		{name: "headers only", answer: func(x *exchange, _ string) {
			x.w.Header().Set("Content-Type", "application/json")
			x.flush()
			cut()
		}},
		{name: "JSON with a length", answer: func(x *exchange, result string) {
			m := x.message(result)
			x.w.Header().Set("Content-Type", "application/json")
			x.w.Header().Set("Content-Length", fmt.Sprint(len(m)))
			_, _ = io.WriteString(x.w, m[:len(m)/2])
			x.flush()
			cut()
		}},
		{name: "JSON in chunks", answer: func(x *exchange, result string) {
			x.w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(x.w, x.message(result)[:40])
			x.flush()
			cut()
		}},
		{name: "JSON to the end of the connection", answer: func(x *exchange, result string) {
			m := x.message(result)
			x.raw("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"+m[:len(m)-5], true)
		}},
		{name: "JSON without its last chunk", kind: messages.OK, answer: func(x *exchange, result string) {
			x.w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(x.w, x.message(result)) // the answer is whole
			x.flush()
			cut()
		}},
		{name: "SSE without an event", answer: func(x *exchange, _ string) {
			x.w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(x.w, ": hello\n\n")
			x.flush()
			cut()
		}},
		{name: "SSE in the event", answer: func(x *exchange, result string) {
			x.w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(x.w, "data: "+x.message(result)+"\n") // it has no end
			x.flush()
			cut()
		}},
		{name: "SSE orderly without the answer", answer: func(x *exchange, _ string) {
			x.w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(x.w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\n")
		}},
		{name: "SSE with an id, nothing to resume", answer: sseWithID, kind: messages.OutcomeUnknown,
			resume: func(x *exchange, _ string) { x.w.WriteHeader(405) }},
		{name: "SSE with an id, resumed", answer: sseWithID, kind: messages.OK,
			resume: func(x *exchange, answer string) {
				x.w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(x.w, "data: "+answer+"\n\n")
			}},
		{name: "SSE with an id, resumed and cut again", answer: sseWithID, kind: messages.OK,
			resume: func(x *exchange, answer string) {
				x.w.Header().Set("Content-Type", "text/event-stream")
				if len(x.o.requests("GET")) < 4 {
					_, _ = io.WriteString(x.w, "id: 8\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\n")
					x.flush()
					cut()
				}
				_, _ = io.WriteString(x.w, "data: "+answer+"\n\n")
			}},
		{name: "SSE with an id, 503 for ever", answer: sseWithID,
			resume: func(x *exchange, _ string) { x.w.WriteHeader(503) }},
		{name: "SSE with an id, newest revision", modern: true, answer: sseWithID,
			resume: func(x *exchange, _ string) { x.o.log.End("x", "x", "read"); x.w.WriteHeader(500) }},
		{name: "JSON, newest revision", modern: true, answer: func(x *exchange, result string) {
			x.w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(x.w, x.message(result)[:40])
			x.flush()
			cut()
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.o.modern = tc.modern
			var answer string
			r.o.on("tools/call", func(x *exchange) bool {
				if !contains(x.msg.Params.Arguments, `"break"`) {
					return false
				}
				result := x.act()
				x.o.mu.Lock()
				answer = x.message(result)
				x.o.mu.Unlock()
				tc.answer(x, result)
				return true
			})
			r.o.on("GET", func(x *exchange) bool {
				if x.r.Header.Get("Last-Event-ID") == "" {
					return false
				}
				if tc.modern {
					t.Error("a stream of the newest revision was taken up again: it has none")
				}
				x.o.mu.Lock()
				a := answer
				x.o.mu.Unlock()
				tc.resume(x, a)
				return true
			})
			r.open(nil)
			for _, tool := range []string{"write", "put", "read"} {
				out := r.callWith(tool, 12*time.Second, harness.M{"break": true})
				if out.Kind != tc.kind {
					t.Errorf("%s: %s %s: %s", tool, out.Kind, out.Code, out.ErrorText())
				}
				want := 2 // the operator allows one repetition
				if tool == "write" || tc.kind == messages.OK {
					want = 1
				}
				if n := r.begins(); n != want {
					t.Errorf("%s began %d times, want %d", tool, n, want)
				}
				r.ok(r.call(tool, harness.Patience))
			}
		})
	}
}

func sseWithID(x *exchange, _ string) {
	x.w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(x.w, "id: 7\nretry: 10\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\n")
	x.flush()
	cut()
}

// TestN03CutAtEveryPlace: the connection ends behind each of the bytes of an answer, by
// a reset or in order.
func TestN03CutAtEveryPlace(t *testing.T) {
	for _, sse := range []bool{false, true} {
		for _, orderly := range []bool{false, true} {
			t.Run(fmt.Sprintf("sse=%t,orderly=%t", sse, orderly), func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				r.o.sse = sse
				r.o.on("GET", func(x *exchange) bool { x.w.WriteHeader(405); return true })
				r.open(harness.M{"timeouts": harness.M{"abandon_after": "1ms"}})
				for at := 1; at < 260; at += 23 {
					r.w.set(fault{cutDown: at, orderly: orderly, once: true})
					out := r.call("write", 5*time.Second)
					if out.Kind != messages.OutcomeUnknown && out.Kind != messages.OK {
						t.Errorf("cut behind byte %d: %s %s: %s", at, out.Kind, out.Code, out.ErrorText())
					}
					if n := r.begins(); n != 1 {
						t.Errorf("cut behind byte %d: it began %d times", at, n)
					}
				}
				r.w.set(fault{})
				r.ok(r.call("write", harness.Patience))
			})
		}
	}
}
