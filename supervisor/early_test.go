package supervisor

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpbridge/config"
	"mcpbridge/messages"
)

// outage is a remote server that is away from the beginning of a test for some time.
type outage struct {
	*fakes
	mu    sync.Mutex
	tries []time.Duration // since the beginning
}

func newOutage(length time.Duration) *outage {
	o, began := &outage{}, time.Now()
	refused := messages.Exit{Reason: "connection refused", Stage: messages.StageConnect}
	o.fakes = newFakes(func(string, int) behaviour {
		o.mu.Lock()
		defer o.mu.Unlock()
		at := time.Since(began)
		o.tries = append(o.tries, at)
		if at < length {
			return behaviour{fail: &refused, tools: []string{"echo"}}
		}
		return behaviour{}
	})
	return o
}

// gaps are the times between the tries.
func (o *outage) gaps() (out []time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := 1; i < len(o.tries); i++ {
		out = append(out, o.tries[i]-o.tries[i-1])
	}
	return out
}

// remoteConfig is one server over HTTP that is never quarantined.
func remoteConfig() *config.Config {
	c := fakeConfig("web")
	s := &c.Servers[0]
	s.Type, s.URL, s.Command = config.HTTP, "http://web.test/mcp", ""
	s.Restart.Burst = 0
	return c
}

// TestB14BackoffOfALongOutage: away for ten minutes and for ten hours, the pauses grow
// to a minute and no further, no two of them alike, and a minute after it is back the
// server is ready.
func TestB14BackoffOfALongOutage(t *testing.T) {
	for _, length := range []time.Duration{10 * time.Minute, 10 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			o := newOutage(length)
			b := openFakes(t, o.fakes, remoteConfig())
			defer closeBridge(t, b)
			time.Sleep(length)
			gaps := o.gaps()
			if most := slices.Max(gaps); most > time.Minute {
				t.Errorf("a pause of %s", most)
			}
			late := gaps[8:] // at once, then half a second doubled up to the minute
			if slices.Min(late) < 40*time.Second || len(late) > 100 && slices.Min(late) == slices.Max(late) {
				t.Errorf("the pauses after the first: %v", late)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if s := state(b, "web"); s != messages.StateReady {
				t.Errorf("a minute later it is %s", s)
			}
		})
	}
}

// TestB14ACallTriesEarly: the server is back and nobody knows. The first call finds out
// within four seconds, however long the pause still is.
func TestB14ACallTriesEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutage(10 * time.Minute)
		b := openFakes(t, o.fakes, remoteConfig())
		defer closeBridge(t, b)
		time.Sleep(10 * time.Minute)
		await(t, b, "web", messages.StateBackoff)
		began := time.Now()
		// Its tools are not known yet, so that the call waits for the first list.
		out := b.Call(background, echo("web"))
		if out.Kind != messages.OK {
			t.Errorf("%+v", out)
		}
		if took := time.Since(began); took > 2*earlyAfter {
			t.Errorf("it took %s", took)
		}
	})
}

// TestB14EarlyTriesDoNotCount: calls in a row while the server is away neither hammer
// it, nor bring it nearer to a quarantine, nor change the schedule.
func TestB14EarlyTriesDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutage(3 * time.Minute)
		cfg := remoteConfig()
		cfg.Servers[0].Restart.Burst = 12
		b := openFakes(t, o.fakes, cfg)
		defer closeBridge(t, b)
		stop := time.Now().Add(3 * time.Minute)
		for time.Now().Before(stop) {
			c := echo("web")
			c.Timeout = 300 * time.Millisecond
			if out := b.Call(background, c); out.Kind == messages.OK || out.Kind == messages.OutcomeUnknown {
				t.Fatalf("%+v", out)
			}
			if s := state(b, "web"); s == messages.StateQuarantined {
				t.Fatalf("quarantined after %d tries", len(o.gaps())+1)
			}
		}
		gaps := o.gaps()
		if n := len(gaps); n < 30 || n > 95 {
			t.Errorf("%d tries in three minutes of calls", n)
		}
		for _, g := range gaps[4:] { // the first pauses of the schedule are shorter
			if g < 1900*time.Millisecond {
				t.Errorf("two tries %s apart: %v", g, gaps)
				break
			}
		}
		await(t, b, "web", messages.StateReady)
	})
}

// TestB14NoEarlyTryOfAProcess: what costs a process keeps its schedule.
func TestB14NoEarlyTryOfAProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutage(10 * time.Minute)
		cfg := fakeConfig("web")
		cfg.Servers[0].Restart.Burst = 0
		b := openFakes(t, o.fakes, cfg)
		defer closeBridge(t, b)
		time.Sleep(5 * time.Minute)
		n := len(o.gaps())
		next := await(t, b, "web", messages.StateBackoff).NextRetry
		c := echo("web")
		c.Timeout = 5 * time.Second
		_ = b.Call(background, c)
		if s := await(t, b, "web", messages.StateBackoff); len(o.gaps()) != n && time.Now().Before(*next) || s.NextRetry == nil {
			t.Errorf("tried again: %v", o.gaps())
		}
	})
}

// TestRetryAfterOfAFailedStart: the server's own word on when to come again outweighs a
// shorter pause, also the one that is none; a call changes nothing about it.
func TestRetryAfterOfAFailedStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := messages.Exit{Reason: "HTTP 503 Service Unavailable", Stage: messages.StageHandshake, RetryAfter: 20 * time.Second}
		began := time.Now()
		var tries []time.Duration
		f := newFakes(func(string, int) behaviour {
			tries = append(tries, time.Since(began))
			if len(tries) < 4 {
				return behaviour{fail: &busy}
			}
			return behaviour{}
		})
		b := openFakes(t, f, remoteConfig())
		defer closeBridge(t, b)
		for range 30 {
			c := echo("web")
			c.Timeout = 2 * time.Second
			_ = b.Call(background, c)
		}
		await(t, b, "web", messages.StateReady)
		for i := 1; i < len(tries); i++ {
			if tries[i]-tries[i-1] < 20*time.Second {
				t.Errorf("tries at %v", tries)
			}
		}
	})
}
