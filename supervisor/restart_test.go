package supervisor

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"mcpbridge/config"
	"mcpbridge/messages"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// middle is the random number that jitter leaves a delay alone with.
const middle = 0.5

func testRestart() config.Restart { return config.DefaultServer().Restart }

func crash(reason string) messages.Exit {
	return messages.Exit{Reason: reason, Stage: messages.StageRunning}
}

// delays lets a server fail n times, each at once, and returns what it is told.
func delays(p *policy, n int) []time.Duration {
	var out []time.Duration
	for range n {
		out = append(out, p.ended(start, middle, crash("exit status 1")).Delay)
	}
	return out
}

func TestPolicyBacksOffFromTheSecondFailure(t *testing.T) {
	cfg := testRestart()
	cfg.Burst = 0
	got := delays(newPolicy(cfg), 10)
	s := time.Second
	want := []time.Duration{0, s / 2, s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 60 * s, 60 * s}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestPolicyForgetsAfterReadiness(t *testing.T) {
	p := newPolicy(testRestart())
	delays(p, 4)
	p.forget()
	if d := cmp.Diff([]time.Duration{0, 500 * time.Millisecond}, delays(p, 2)); d != "" {
		t.Error(d)
	}
}

// A server that has run for an hour must be restarted like any other: the backoff
// library would answer Stop after a quarter of an hour.
func TestPolicyOutlivesTheLibrarysElapsedTime(t *testing.T) {
	p := newPolicy(testRestart())
	p.ended(start, middle, crash("a"))
	for i := 1; i < 100; i++ {
		d := p.ended(start.Add(time.Duration(i)*time.Hour), middle, crash("a"))
		if d.Action != actRestart || d.Delay <= 0 {
			t.Fatalf("failure %d: %+v", i, d)
		}
	}
}

func TestPolicyQuarantinesABurst(t *testing.T) {
	p := newPolicy(testRestart())
	var got decision
	for i := range 6 {
		if got.Action == actQuarantine {
			t.Fatalf("quarantined after %d failures", i)
		}
		got = p.ended(start.Add(time.Duration(i)*8*time.Second), middle, crash("exit status 1"))
	}
	want := decision{actQuarantine, 5 * time.Minute, "6 exits in 40s, the last one: exit status 1"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestPolicyWindowSlides(t *testing.T) {
	p := newPolicy(testRestart())
	for i := range 50 { // five in any ten minutes
		if d := p.ended(start.Add(time.Duration(i)*2*time.Minute), middle, crash("x")); d.Action != actRestart {
			t.Fatalf("failure %d: %+v", i, d)
		}
	}
}

func TestPolicyCooldownDoubles(t *testing.T) {
	cfg := testRestart()
	cfg.Burst = 1
	p := newPolicy(cfg)
	delays(p, 1)
	var got []time.Duration
	for i := range 6 {
		d := p.ended(start, middle, crash("x"))
		if d.Action != actQuarantine {
			t.Fatalf("round %d: %+v", i, d)
		}
		got = append(got, d.Delay)
		p.tryOnce()
	}
	m := time.Minute
	if d := cmp.Diff([]time.Duration{5 * m, 10 * m, 20 * m, 40 * m, 60 * m, 60 * m}, got); d != "" {
		t.Error(d)
	}
	p.forget()
	delays(p, 1)
	if d := p.ended(start, middle, crash("x")); d.Delay != 5*m {
		t.Errorf("after a reset the cool-down is %s", d.Delay)
	}
}

func TestPolicyModes(t *testing.T) {
	clean := messages.Exit{Reason: "exit status 0", Clean: true}
	permanent := messages.Exit{Reason: "no such command", Permanent: true}
	for _, tc := range []struct {
		mode config.RestartMode
		exit messages.Exit
		want action
	}{
		{config.RestartAlways, crash("x"), actRestart},
		{config.RestartAlways, clean, actRestart},
		{config.RestartAlways, permanent, actQuarantine},
		{config.RestartOnFailure, crash("x"), actRestart},
		{config.RestartOnFailure, clean, actIdle},
		{config.RestartOnFailure, permanent, actQuarantine},
		{config.RestartNever, crash("x"), actIdle},
		{config.RestartNever, clean, actIdle},
		{config.RestartNever, permanent, actQuarantine},
	} {
		cfg := testRestart()
		cfg.Mode = tc.mode
		if got := newPolicy(cfg).ended(start, middle, tc.exit); got.Action != tc.want || got.Reason != tc.exit.Reason {
			t.Errorf("%s, %+v: got %+v, want %s", tc.mode, tc.exit, got, tc.want)
		}
	}
}

// Even a server that is never restarted by itself must not spin because calls wake it.
func TestPolicyNeverCountsWakesThatFail(t *testing.T) {
	cfg := testRestart()
	cfg.Mode = config.RestartNever
	p := newPolicy(cfg)
	for range cfg.Burst {
		if d := p.ended(start, middle, crash("x")); d.Action != actIdle {
			t.Fatalf("%+v", d)
		}
	}
	if d := p.ended(start, middle, crash("x")); d.Action != actQuarantine || !strings.HasPrefix(d.Reason, "6 exits in") {
		t.Errorf("%+v", d)
	}
}

func TestPolicyOfZerosDoesNotSpin(t *testing.T) {
	p := newPolicy(config.Restart{})
	got := delays(p, 4)
	for i, d := range got[1:] {
		if d < defaultInitial {
			t.Errorf("delay %d is %s", i+1, d)
		}
	}
}

// Whatever the settings and the times: no delay is negative or above the maximum, no
// quarantine is shorter than the cool-down or longer than its maximum, no more than
// burst restarts happen within the window, and without jitter delays do not shrink
// until they are forgotten.
func TestPolicyModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dur := func(name string, lo, hi time.Duration) time.Duration {
			return time.Duration(rapid.Int64Range(int64(lo), int64(hi)).Draw(t, name))
		}
		cfg := config.Restart{
			Mode: config.RestartAlways, Initial: dur("initial", time.Millisecond, time.Minute), Multiplier: rapid.Float64Range(1, 10).Draw(t, "multiplier"),
			Max: dur("max", time.Millisecond, time.Hour), Jitter: rapid.Float64Range(0, 1).Draw(t, "jitter"), Burst: rapid.IntRange(0, 6).Draw(t, "burst"),
			Within: dur("within", time.Second, time.Hour), Cooldown: dur("cooldown", time.Second, time.Hour), MaxCooldown: dur("max_cooldown", time.Second, 4*time.Hour),
		}
		p := newPolicy(cfg)
		now, last := start, time.Duration(-1)
		var restarts []time.Time
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(dur("gap", 0, 20*time.Minute))
			if rapid.IntRange(0, 9).Draw(t, "forget") == 0 {
				p.forget()
				restarts, last = nil, -1
			}
			d := p.ended(now, rapid.Float64Range(0, 0.999999).Draw(t, "random"), crash("x"))
			switch d.Action {
			case actRestart:
				if d.Delay < 0 || d.Delay > p.cfg.Max {
					t.Fatalf("delay %s beyond %s", d.Delay, p.cfg.Max)
				}
				if cfg.Jitter == 0 && d.Delay < last {
					t.Fatalf("delay fell from %s to %s", last, d.Delay)
				}
				last = d.Delay
				restarts = append(restarts, now)
				recent := 0
				for _, r := range restarts {
					if now.Sub(r) < p.cfg.Within {
						recent++
					}
				}
				if cfg.Burst > 0 && recent > cfg.Burst {
					t.Fatalf("%d restarts within %s", recent, p.cfg.Within)
				}
			case actQuarantine:
				if cfg.Burst == 0 {
					t.Fatal("burst: 0 quarantined")
				}
				if d.Delay < p.cfg.Cooldown || d.Delay > p.cfg.MaxCooldown {
					t.Fatalf("cool-down %s is not in %s to %s", d.Delay, p.cfg.Cooldown, p.cfg.MaxCooldown)
				}
				p.tryOnce()
				restarts = nil
			default:
				t.Fatalf("%+v", d)
			}
		}
	})
}
