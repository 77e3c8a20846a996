package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"mcpbridge/messages"
	"mcpbridge/test/harness"
)

// onWire is what of a call's answer the endpoint says in _meta.
type onWire struct {
	IsError bool
	Content []struct{ Text string }
	Meta    struct {
		Outcome string `json:"mcpbridge/outcome"`
		Code    string `json:"mcpbridge/code"`
		Sent    bool   `json:"mcpbridge/sent"`
		Safe    bool   `json:"mcpbridge/safe_to_retry"`
		Retry   int    `json:"mcpbridge/retry_after_ms"`
	} `json:"_meta"`
}

// TestMisuse: what a caller gets wrong about keys, ids and durations is answered clearly
// with the right exit code, by command line and endpoint, and nothing is sent.
func TestMisuse(t *testing.T) {
	lab := harness.NewLab(t)
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"s": lab.Server(t, "s")})})
	d.Await(t, "ready", "s")
	raw := d.Raw(t, d.URL)
	// None of them may leave a trace at the server but those that are right.
	defer func() {
		for _, s := range lab.History(t).Spans {
			if s.Nonce != "cli-right" && s.Nonce != "wire-right" && s.Nonce != "cli-right-read" {
				t.Errorf("%s reached the server", s.Nonce)
			}
		}
		if h := lab.History(t); h.Begins("cli-right") != 1 || h.Begins("wire-right") != 1 {
			t.Errorf("the good calls began %d and %d times", h.Begins("cli-right"), h.Begins("wire-right"))
		}
	}()

	t.Run("a key with other arguments", func(t *testing.T) {
		key := []string{"--idempotency-key", "order-1"}
		if o, r := d.Call(t, "s/write", `{"nonce":"cli-right"}`, key...); o.Kind != messages.OK {
			t.Fatal(r)
		}
		o, r := d.Call(t, "s/write", `{"nonce":"cli-other"}`, key...)
		wants(t, r, 7, "order-1")
		if o.Code != messages.CodeIdempotencyConflict || o.Kind != messages.Rejected || o.Sent() {
			t.Errorf("%s", r)
		}
		// The first call is still what the key stands for.
		if o, r := d.Call(t, "s/write", `{"nonce":"cli-right"}`, key...); o.Kind != messages.OK || o.FirstID == "" {
			t.Errorf("%s", r)
		}
		wire := func(nonce string) onWire {
			reply := raw.Do(t, "tools/call", fmt.Sprintf(`{"name":"s__write","arguments":{"nonce":%q},"_meta":{"mcpbridge/idempotency-key":"order-2"}}`, nonce))
			return decodeWire(t, reply)
		}
		if m := wire("wire-right"); m.IsError {
			t.Errorf("%+v", m)
		}
		if m := wire("wire-other"); !m.IsError || m.Meta.Code != "idempotency_conflict" || m.Meta.Outcome != "rejected" || m.Meta.Sent || !strings.Contains(m.Content[0].Text, "order-2") {
			t.Errorf("%+v", m)
		}
	})

	t.Run("an unknown call id", func(t *testing.T) {
		wants(t, d.CLI(t, "calls", "--journal", "no-such-id"), 1, "no-such-id", "no record")
		var j struct{ Entries []messages.JournalEntry }
		if d.OK(t, "calls", "--journal", "no-such-id", "-o", "json").JSON(t, &j); len(j.Entries) != 0 {
			t.Errorf("%+v", j)
		}
		wants(t, d.CLI(t, "cancel", "no-such-id"), 1, "no-such-id")
		wants(t, d.CLI(t, "cancel", "no-such-id", "-o", "json"), 1, "no-such-id")
		wants(t, d.CLI(t, "cancel"), 2)
		// A notification has no answer: that the session goes on is all there is to see.
		if err := raw.Notify(harness.Context(t), "notifications/cancelled", `{"requestId":987654}`); err != nil {
			t.Error(err)
		}
		if reply := raw.Do(t, "ping", `{}`); reply.Error != nil {
			t.Errorf("%s", reply.Error)
		}
	})

	t.Run("durations", func(t *testing.T) {
		for _, v := range []string{"0", "0s", "-1s", "-1ns", "5", "soon", "", "1e3s", "99999999999h", "9223372036854775808ns", "∞"} {
			wants(t, d.CLI(t, "call", "s/write", "nonce=cli-bad", "--timeout", v), 2, "timeout")
			wants(t, d.CLI(t, "wait", "s", "--timeout", v), 2, "timeout")
			wants(t, d.CLI(t, "restart", "s", "--wait", "--timeout", v), 2, "timeout")
		}
		wants(t, d.CLI(t, "restart", "s", "--timeout", "5s"), 2, "--wait")
		if row := d.Server(t, "s"); row.Restarts != 0 {
			t.Errorf("a command that was refused restarted the server %d times", row.Restarts)
		}
		for _, v := range []string{"-1", "-0.5", `"5s"`, "true", "{}", "1e300", "99999999999999999999"} {
			reply := raw.Do(t, "tools/call", `{"name":"s__write","arguments":{"nonce":"wire-bad"},"_meta":{"mcpbridge/timeout_ms":`+v+`}}`)
			if !strings.Contains(string(reply.Error), "-32602") || !strings.Contains(string(reply.Error), "timeout_ms") {
				t.Errorf("timeout_ms %s: error %s, result %s", v, reply.Error, reply.Result)
			}
		}
		// The longest there is means "as long as the server's configuration lets it".
		if o, r := d.Call(t, "s/read", `{"nonce":"cli-right-read"}`, "--timeout", "2562047h"); o.Kind != messages.OK {
			t.Errorf("%s", r)
		}
	})
}

func decodeWire(t *testing.T, reply harness.RawReply) (m onWire) {
	t.Helper()
	if reply.Error != nil {
		t.Fatalf("%s", reply.Error)
	}
	if err := json.Unmarshal(reply.Result, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestFullQueue: one runs, one waits, and the third is told at once when to come again.
func TestFullQueue(t *testing.T) {
	lab := harness.NewLab(t)
	e := lab.Server(t, "s")
	e["limits"] = harness.M{"queue": 1}
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"s": e, "other": lab.Server(t, "other")})})
	d.Await(t, "ready", "s", "other")
	running := async(t, d, "s/write", `{"nonce":"runs","sleep_ms":3000}`)
	harness.Eventually(t, "the first runs", func() bool { return lab.History(t).Begins("runs") == 1 })
	waiting := async(t, d, "s/write", `{"nonce":"waits"}`)
	harness.Eventually(t, "the second waits", func() bool { return d.Server(t, "s").Queued == 1 })

	o, r := d.Call(t, "s/write", `{"nonce":"third"}`)
	wants(t, r, 7, "full")
	if o.Kind != messages.Rejected || o.Code != messages.CodeOverloaded || o.Sent() || !o.SafeToRetry() || o.RetryAfter <= 0 {
		t.Errorf("retry after %s: %s", o.RetryAfter, r)
	}
	wants(t, d.CLI(t, "call", "s/write", "nonce=fourth"), 7, "full", "another try is worth it in ")
	m := decodeWire(t, d.Raw(t, d.URL).Do(t, "tools/call", `{"name":"s__write","arguments":{"nonce":"fifth"}}`))
	if !m.IsError || m.Meta.Code != "overloaded" || m.Meta.Outcome != "rejected" || m.Meta.Sent || !m.Meta.Safe || m.Meta.Retry <= 0 {
		t.Errorf("%+v", m)
	}
	if o, r := d.Call(t, "other/write", `{"nonce":"neighbour"}`); o.Kind != messages.OK {
		t.Errorf("the neighbour: %s", r)
	}
	for _, c := range []<-chan messages.Outcome{running, waiting} {
		if o := <-c; o.Kind != messages.OK {
			t.Errorf("%s/%s: %s", o.Kind, o.Code, o.ErrorText())
		}
	}
	h := lab.History(t)
	for _, nonce := range []string{"third", "fourth", "fifth"} {
		if h.Begins(nonce) != 0 {
			t.Errorf("%s was refused, and it began", nonce)
		}
	}
}
