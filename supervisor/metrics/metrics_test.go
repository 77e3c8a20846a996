package metrics

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"mcpbridge/messages"
)

func scraped(t *testing.T, c *Collector) string {
	t.Helper()
	w := httptest.NewRecorder()
	c.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("scrape: %d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func wantLines(t *testing.T, got string, lines ...string) {
	t.Helper()
	for _, l := range lines {
		if !strings.Contains(got, l+"\n") {
			t.Errorf("no line %q", l)
		}
	}
	if t.Failed() {
		for _, l := range strings.Split(got, "\n") {
			if strings.HasPrefix(l, "mcpbridge_") && !strings.Contains(l, "_bucket") {
				t.Log(l)
			}
		}
	}
}

func TestCalls(t *testing.T) {
	c := New(Options{Version: "1.2"})
	c.Observe(messages.Event{Type: messages.EventCallAccepted, CallID: "a", Server: "fs", Effect: "read_only"})
	c.Observe(messages.Event{Type: messages.EventCallSettled, CallID: "a", Outcome: "ok", Attempt: 1, QueuedMS: 20, RanMS: 300})
	c.Observe(messages.Event{Type: messages.EventCallAccepted, CallID: "b", Server: "fs", Effect: "side_effect"})
	c.Observe(messages.Event{Type: messages.EventCallSettled, CallID: "b", Outcome: "not_sent", Code: messages.CodeExpired})
	c.Observe(messages.Event{Type: messages.EventCallSettled, CallID: "c", Server: "../evil", Outcome: "rejected", Code: messages.CodeUnknownTool})
	c.Observe(messages.Event{Type: messages.EventGap, Count: 7})
	c.Observe(messages.Event{Type: messages.EventReplyLate, Server: "fs"})
	wantLines(t, scraped(t, c),
		`mcpbridge_calls_total{effect="read_only",outcome="ok",server="fs"} 1`,
		`mcpbridge_calls_total{effect="side_effect",outcome="not_sent",server="fs"} 1`,
		`mcpbridge_calls_total{effect="",outcome="rejected",server=""} 1`,
		`mcpbridge_call_duration_seconds_sum{effect="read_only",server="fs"} 0.3`,
		`mcpbridge_call_duration_seconds_count{effect="read_only",server="fs"} 1`,
		`mcpbridge_call_queue_seconds_sum{effect="read_only",server="fs"} 0.02`,
		`mcpbridge_call_queue_seconds_count{effect="side_effect",server="fs"} 1`,
		`mcpbridge_events_dropped_total 7`,
		`mcpbridge_replies_late_total{server="fs"} 1`)
	if got := scraped(t, c); !strings.Contains(got, `mcpbridge_build_info{goversion=`) || !strings.Contains(got, "go_goroutines") || strings.Contains(got, "evil") {
		t.Error("build info, go collector, or a foreign label")
	}
	if len(c.open) != 0 {
		t.Errorf("%d calls are still remembered", len(c.open))
	}
}

// A call that joins another one counts, but its wait and its run are the other one's.
func TestJoinedCalls(t *testing.T) {
	c := New(Options{})
	for _, id := range []string{"a", "b"} {
		c.Observe(messages.Event{Type: messages.EventCallAccepted, CallID: id, Server: "fs", Effect: "side_effect"})
	}
	c.Observe(messages.Event{Type: messages.EventCallJoined, CallID: "b", Server: "fs", Reason: "a"})
	for _, id := range []string{"a", "b"} {
		c.Observe(messages.Event{Type: messages.EventCallSettled, CallID: id, Server: "fs", Outcome: "ok", Attempt: 1, RanMS: 300})
	}
	c.Observe(messages.Event{Type: messages.EventCallJoined, CallID: "c", Server: "fs", Reason: "a"}) // later: never accepted
	c.Observe(messages.Event{Type: messages.EventCallSettled, CallID: "c", Server: "fs", Effect: "side_effect", Outcome: "ok", Attempt: 1})
	wantLines(t, scraped(t, c),
		`mcpbridge_calls_joined_total{server="fs"} 2`,
		`mcpbridge_calls_total{effect="side_effect",outcome="ok",server="fs"} 3`,
		`mcpbridge_call_duration_seconds_count{effect="side_effect",server="fs"} 1`,
		`mcpbridge_call_queue_seconds_count{effect="side_effect",server="fs"} 1`)
}

// One that runs itself, because its first was not sent, counts like any other.
func TestJoinedCallThatRuns(t *testing.T) {
	c := New(Options{})
	c.Observe(messages.Event{Type: messages.EventCallAccepted, CallID: "b", Server: "fs", Effect: "side_effect"})
	c.Observe(messages.Event{Type: messages.EventCallJoined, CallID: "b", Server: "fs", Reason: "a"})
	c.Observe(messages.Event{Type: messages.EventCallDispatched, CallID: "b", Server: "fs", Attempt: 1})
	c.Observe(messages.Event{Type: messages.EventCallSettled, CallID: "b", Server: "fs", Outcome: "ok", Attempt: 1, RanMS: 300})
	wantLines(t, scraped(t, c), `mcpbridge_call_duration_seconds_count{effect="side_effect",server="fs"} 1`)
}

func TestRecovery(t *testing.T) {
	c := New(Options{})
	at := time.Unix(1000, 0)
	ev := func(typ messages.EventType, after time.Duration, state string) {
		c.Observe(messages.Event{Type: typ, Server: "fs", Time: at.Add(after), State: state})
	}
	ev(messages.EventServerReady, 0, "") // the first start is no recovery
	ev(messages.EventServerExited, time.Second, "")
	ev(messages.EventServerExited, 2*time.Second, "") // a failed try in between
	ev(messages.EventServerReady, 4*time.Second, "")
	ev(messages.EventServerExited, 5*time.Second, "")
	ev(messages.EventServerState, 5*time.Second, "stopped") // a person
	ev(messages.EventServerReady, time.Hour, "")
	wantLines(t, scraped(t, c), `mcpbridge_server_ready_seconds_count{server="fs"} 1`, `mcpbridge_server_ready_seconds_sum{server="fs"} 3`)
}

func TestStatus(t *testing.T) {
	c := New(Options{})
	retry := time.Now().Add(-time.Second)
	c.Bind(func() messages.Status {
		return messages.Status{
			Bridge: messages.BridgeStatus{UptimeMS: 1500, Draining: true},
			Servers: []messages.ServerStatus{
				{Name: "fs", State: messages.StateBackoff, Restarts: 3, Tools: 14, InFlight: 1, Queued: 2, NextRetry: &retry},
				{Name: "fs", Instance: "client", InFlight: 4},
			},
			Issues: []messages.Issue{{Severity: messages.SeverityError}},
		}
	})
	wantLines(t, scraped(t, c),
		`mcpbridge_server_state{server="fs",state="backoff"} 1`, `mcpbridge_server_state{server="fs",state="ready"} 0`,
		`mcpbridge_server_state{server="fs",state="blocked"} 0`,
		`mcpbridge_server_restarts_total{server="fs"} 3`, `mcpbridge_server_backoff_seconds{server="fs"} 0`,
		`mcpbridge_tools{server="fs"} 14`, `mcpbridge_calls_inflight{server="fs"} 5`, `mcpbridge_calls_queued{server="fs"} 2`,
		`mcpbridge_uptime_seconds 1.5`, `mcpbridge_draining 1`, `mcpbridge_config_issues{severity="error"} 1`)
}
