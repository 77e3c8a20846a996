package network

import (
	"testing"
	"time"

	"mcpbridge/messages"
	"mcpbridge/test/harness"
)

// TestN01RefusedBeforeSend: nobody listens. Not one byte left, which is what the
// outcome says; and who still has time is served when the server is back.
func TestN01RefusedBeforeSend(t *testing.T) {
	for _, tool := range []string{"write", "put", "read"} {
		t.Run(tool, func(t *testing.T) {
			r := newRig(t).open(nil)
			r.ok(r.call(tool, harness.Patience))
			r.w.down()
			time.Sleep(100 * time.Millisecond) // an idle connection's end is heard of: what leaves on one is lost
			out := r.call(tool, 700*time.Millisecond)
			if out.Kind != messages.NotSent || !out.SafeToRetry() || out.Sent() {
				t.Errorf("%s %s: %s", out.Kind, out.Code, out.ErrorText())
			}
			if n := r.begins(); n != 0 {
				t.Errorf("it began %d times", n)
			}
			waits := make(chan messages.Outcome, 1)
			go func() { waits <- r.call(tool, harness.Patience) }()
			time.Sleep(300 * time.Millisecond) // the outage lasts
			r.w.back()
			r.ok(<-waits)
		})
	}
}

// TestN01ResetBeforeSend: the connection is reset as soon as it is made. Whatever the
// outcome, the server never saw the call.
func TestN01ResetBeforeSend(t *testing.T) {
	r := newRig(t).open(nil)
	for _, tool := range []string{"write", "put", "read"} {
		r.w.set(fault{refuse: true})
		r.resetAll()
		out := r.call(tool, 700*time.Millisecond)
		if out.Kind != messages.NotSent && out.Kind != messages.OutcomeUnknown {
			t.Errorf("%s: %s %s: %s", tool, out.Kind, out.Code, out.ErrorText())
		}
		if n := r.begins(); n != 0 {
			t.Errorf("%s began %d times", tool, n)
		}
		r.w.set(fault{})
		r.ok(r.call(tool, harness.Patience))
	}
}

// resetAll resets what connections there are.
func (r *rig) resetAll() {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	for p := range r.w.conns {
		p.reset()
	}
}

// TestN02ResetAfterRequest: the connection is reset when a part of the request, or all
// of it, has left. Nobody can know, and a side effect is not sent again.
func TestN02ResetAfterRequest(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fault fault
	}{
		{"first byte", fault{resetUp: 1, once: true}},
		{"first byte, passed on", fault{resetUp: 1, pass: true, once: true}},
		{"in the headers", fault{resetUp: 100, pass: true, once: true}},
		{"all of it", fault{resetUp: 350, pass: true, once: true}},
		{"first byte of the answer", fault{cutDown: 1, once: true}},
		{"in the headers of the answer", fault{cutDown: 30, once: true}},
		{"orderly end instead of an answer", fault{cutDown: 1, orderly: true, once: true}},
		{"a connection that was idle", fault{resetUp: 1, reused: true, once: true}},
		{"a connection that was idle, passed on", fault{resetUp: 1, reused: true, pass: true, once: true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			// The name of this header makes net/http take a POST for repeatable.
			r := newRig(t)
			r.o.on("GET", func(x *exchange) bool { x.w.WriteHeader(405); return true })
			r.open(harness.M{"headers": harness.M{"Idempotency-Key": "k", "X-Idempotency-Key": "k"}})
			r.ok(r.call("read", harness.Patience)) // leaves an idle connection behind
			r.w.set(tc.fault)
			r.want(r.call("write", 10*time.Second), messages.OutcomeUnknown, messages.CodeConnectionLost)
			if n := r.arrived(); n > 1 {
				t.Errorf("the request arrived %d times", n)
			}
			r.ok(r.call("read", harness.Patience))
			r.w.set(tc.fault)
			out := r.call("read", harness.Patience)
			r.ok(out)
			if out.Attempt != 2 {
				t.Errorf("the read took %d attempts", out.Attempt)
			}
			r.w.set(fault{})
			r.ok(r.call("write", harness.Patience))
		})
	}
}

// arrived is how many requests the last call was.
func (r *rig) arrived() (n int) {
	r.mu.Lock()
	nonce := r.calls[len(r.calls)-1].nonce
	r.mu.Unlock()
	for _, s := range r.o.requests("tools/call") {
		if contains(s.Body, `"`+nonce+`"`) {
			n++
		}
	}
	return n
}
