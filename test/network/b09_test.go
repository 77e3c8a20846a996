package network

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"mcpbridge/messages"
	"mcpbridge/test/harness"
)

// soon is what is promised to be at once, on a machine that has other things to do.
const soon = 5 * time.Second

// httpRig is a bridge over the fixture in a process of its own, which can be killed.
func httpRig(t *testing.T, more harness.M, flags ...string) (r *rig, kill func()) {
	t.Helper()
	r = &rig{t: t, lab: harness.NewLab(t)}
	url, cmd := r.lab.HTTPFixture(t, "web", flags...)
	r.w = newWire(t, strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/mcp"))
	r.open(more)
	return r, func() { _ = cmd.Process.Kill(); _ = cmd.Wait(); r.w.down() }
}

// TestB09KilledServer: the process behind the URL is killed. That is noticed at once,
// idle or not, where there is a stream or a call to notice it by; calls end, and the
// state says what is.
func TestB09KilledServer(t *testing.T) {
	for _, tc := range []struct {
		name  string
		flags []string
		busy  bool
		call  bool // it takes a call to find out
	}{
		{"idle", nil, false, false},
		{"idle, JSON", []string{"-http-json"}, false, false},
		{"a call in flight", nil, true, false},
		{"idle, without a stream", []string{"-http-no-get"}, false, true},
		{"a call in flight, without a stream", []string{"-http-no-get"}, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, kill := httpRig(t, harness.M{"required": true}, tc.flags...)
			if ok, missing := r.b.Ready(); !ok {
				t.Fatalf("not ready: %v", missing)
			}
			flying := make(chan messages.Outcome, 1)
			if tc.busy {
				go func() { flying <- r.callWith("write", harness.Patience, harness.M{"sleep_ms": 60000}) }()
				harness.Eventually(t, "the call has begun", func() bool { return r.begun("write") })
			}
			kill()
			at := time.Now()
			if tc.busy {
				out := <-flying
				r.want(out, messages.OutcomeUnknown, messages.CodeConnectionLost)
				if took := time.Since(at); took > soon {
					t.Errorf("the call ended after %s", took)
				}
			}
			if tc.call {
				if out := r.call("write", 2*time.Second); out.Kind != messages.NotSent && out.Kind != messages.OutcomeUnknown {
					t.Errorf("%s %s: %s", out.Kind, out.Code, out.ErrorText())
				}
			}
			harness.EventuallyWithin(t, soon, "the state says so", func() bool { return r.status().State != messages.StateReady })
			t.Logf("after %s", time.Since(at).Round(time.Millisecond))
			harness.EventuallyWithin(t, soon, "and the readiness", func() bool { ok, _ := r.b.Ready(); return !ok })
			harness.EventuallyWithin(t, soon, "and why", func() bool {
				e := r.status().LastExit
				return e != nil && strings.Contains(e.Reason, "refused")
			})
			if !r.has("write") {
				t.Error("the tools of a server that may come back are not on offer any more")
			}
		})
	}
}

// TestB16OneShotServer: the server ends after its first answer. The answer is delivered,
// and the next call gets a new server, as fast as the policy allows and no faster.
func TestB16OneShotServer(t *testing.T) {
	t.Run("http", func(t *testing.T) {
		r := newRig(t)
		r.o.on("tools/call", func(x *exchange) bool {
			x.result(x.act())
			x.flush()
			time.AfterFunc(20*time.Millisecond, func() {
				r.o.forget()
				r.w.down()
				time.AfterFunc(300*time.Millisecond, r.w.back)
			})
			return true
		})
		r.open(nil)
		for range 4 {
			r.ok(r.call("put", harness.Patience))
			time.Sleep(100 * time.Millisecond)
		}
		if n := len(r.o.requests("initialize")); n < 4 || n > 8 {
			t.Errorf("%d sessions for 4 calls", n)
		}
	})
	t.Run("stdio", func(t *testing.T) {
		r := &rig{t: t, lab: harness.NewLab(t)}
		entry := r.lab.Server(t, "web", "-exit-on", "answered", "-exit-code", "0")
		entry["restart"] = harness.M{"backoff": harness.M{"initial": "200ms", "max": "1s"}, "burst": 0}
		r.b = harness.Library(t, harness.Config(harness.M{"web": entry, "near": r.lab.Server(t, "near")}))
		harness.Neighbour(r.t, r.b, "near/read")
		t.Cleanup(r.judge)
		r.await(messages.StateReady)
		began := time.Now()
		for range 4 {
			r.ok(r.call("put", harness.Patience))
			gen := r.status().Generation
			harness.Eventually(t, "it has ended", func() bool { s := r.status(); return s.State != messages.StateReady || s.Generation != gen })
		}
		if s := r.status(); s.LastExit == nil || s.LastExit.Reason != "exit status 0" {
			t.Errorf("%+v", s.LastExit)
		}
		// The first restart is at once, the others after 200 ms less the jitter.
		if n, most := r.status().Restarts, int(time.Since(began)/(160*time.Millisecond))+2; n > most {
			t.Errorf("%d restarts in %s", n, time.Since(began))
		}
	})
}

// TestB09ProxyInBetween: a gateway in front of the dead server answers for it. That is
// found out by the probes.
func TestB09ProxyInBetween(t *testing.T) {
	for _, status := range []int{502, 503, 504, 404} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.open(harness.M{"health": harness.M{"probe_every": "200ms", "failures": 2}})
			r.o.on("", func(x *exchange) bool { x.w.WriteHeader(status); return true })
			r.o.forget()
			r.o.breakStreams()
			harness.Eventually(t, "it is not ready any more", func() bool { return r.status().State != messages.StateReady })
			r.o.calm()
			r.await(messages.StateReady)
			r.ok(r.call("write", harness.Patience))
		})
	}
}
