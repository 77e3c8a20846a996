package supervisor

import (
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"

	"mcpbridge/config"
	"mcpbridge/messages"
)

// action is what the restart policy says after an incarnation has ended.
type action uint8

// The three answers of the policy; the zero value starts nothing.
const (
	actIdle       action = iota // stay down until somebody asks
	actRestart                  // start again after Delay
	actQuarantine               // give up for Delay, then try once
)

var actionNames = [...]string{actIdle: "idle", actRestart: "restart", actQuarantine: "quarantine"}

// String names the action for tests.
func (a action) String() string {
	if int(a) < len(actionNames) {
		return actionNames[a]
	}
	return fmt.Sprintf("bug: unknown action %d", a)
}

// decision is the policy's answer. Reason is for people: "exit status 2",
// "6 exits in 40s".
type decision struct {
	Action action
	Delay  time.Duration
	Reason string
}

// policy is the restart policy of one server (semantics section 3). It holds no
// clock and no randomness: both come in. It is not safe for concurrent use.
//
// The first failure after the start, or after reset_after of continuous readiness,
// restarts at once; then initial × multiplier^n up to max, with jitter that never
// leads above max. More than burst failures within the window quarantine. While
// trying is set, the server is on its one try after a quarantine, and the next
// failure leads back there, for twice as long.
type policy struct {
	cfg      config.Restart
	bo       *backoff.ExponentialBackOff
	fresh    bool
	failures []time.Time
	cooldown time.Duration // the next quarantine's
	trying   bool
}

// Floors for a policy that was built in code without defaults: a policy of zeros
// must not spin.
const (
	defaultInitial     = 500 * time.Millisecond
	defaultMax         = 60 * time.Second
	defaultWithin      = 10 * time.Minute
	defaultCooldown    = 5 * time.Minute
	defaultMaxCooldown = time.Hour
	defaultResetAfter  = 2 * time.Minute
)

func orDefault(d, def time.Duration) time.Duration {
	if d <= 0 {
		return def
	}
	return d
}

// newPolicy returns the policy of a server that has not failed yet.
func newPolicy(cfg config.Restart) *policy {
	cfg.Initial = orDefault(cfg.Initial, defaultInitial)
	cfg.Max = max(orDefault(cfg.Max, defaultMax), cfg.Initial)
	cfg.Within = orDefault(cfg.Within, defaultWithin)
	cfg.Cooldown = orDefault(cfg.Cooldown, defaultCooldown)
	cfg.MaxCooldown = max(orDefault(cfg.MaxCooldown, defaultMaxCooldown), cfg.Cooldown)
	cfg.ResetAfter = orDefault(cfg.ResetAfter, defaultResetAfter)
	cfg.Multiplier = max(cfg.Multiplier, 1)
	cfg.Jitter = min(max(cfg.Jitter, 0), 1)
	p := &policy{cfg: cfg}
	// MaxElapsedTime 0: the library would otherwise answer Stop for any server that
	// had run a quarter of an hour. Its jitter may exceed the maximum and cannot be
	// seeded, so it is off and ours is used.
	p.bo = backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(cfg.Initial),
		backoff.WithMultiplier(cfg.Multiplier),
		backoff.WithMaxInterval(cfg.Max),
		backoff.WithMaxElapsedTime(0),
		backoff.WithRandomizationFactor(0),
	)
	p.forget()
	return p
}

// forget is the operator's reset, and the reward of reset_after of readiness.
func (p *policy) forget() {
	p.bo.Reset()
	p.fresh, p.trying = true, false
	p.failures = p.failures[:0]
	p.cooldown = p.cfg.Cooldown
}

// tryOnce begins the one try after a quarantine.
func (p *policy) tryOnce() { p.trying = true }

// ended decides what follows the end of an incarnation that nobody asked for.
// random is from [0,1).
func (p *policy) ended(now time.Time, random float64, exit messages.Exit) decision {
	if exit.Permanent {
		return p.quarantine(exit.Reason)
	}
	if exit.Clean && p.cfg.Mode == config.RestartOnFailure {
		return decision{actIdle, 0, exit.Reason}
	}
	if p.trying {
		return p.quarantine("failed again after the cool-down: " + exit.Reason)
	}
	if why, over := p.count(now); over {
		return p.quarantine(why + ", the last one: " + exit.Reason)
	}
	if p.cfg.Mode == config.RestartNever {
		return decision{actIdle, 0, exit.Reason}
	}
	if p.fresh {
		p.fresh = false
		return decision{actRestart, exit.RetryAfter, exit.Reason}
	}
	d := p.bo.NextBackOff()
	if d == backoff.Stop { // cannot be with MaxElapsedTime 0, but -1 as a delay would spin
		return p.quarantine(exit.Reason)
	}
	return decision{actRestart, max(p.jitter(d, random), exit.RetryAfter), exit.Reason}
}

// count notes a failure and tells whether there were too many within the window.
func (p *policy) count(now time.Time) (why string, over bool) {
	kept := p.failures[:0]
	for _, t := range p.failures {
		if now.Sub(t) < p.cfg.Within {
			kept = append(kept, t)
		}
	}
	p.failures = append(kept, now)
	if p.cfg.Burst <= 0 {
		p.failures = p.failures[len(p.failures)-1:] // never quarantined: nothing to remember
		return "", false
	}
	if len(p.failures) <= p.cfg.Burst {
		return "", false
	}
	span := now.Sub(p.failures[0]).Round(time.Second)
	return fmt.Sprintf("%d exits in %s", len(p.failures), span), true
}

// quarantine hands out the cool-down and doubles the next one.
func (p *policy) quarantine(reason string) decision {
	d := p.cooldown
	p.cooldown = min(2*p.cooldown, p.cfg.MaxCooldown)
	p.trying = false
	p.failures = p.failures[:0]
	return decision{actQuarantine, d, reason}
}

// jitter moves d by up to ± Jitter of itself, never above Max.
func (p *policy) jitter(d time.Duration, random float64) time.Duration {
	moved := time.Duration(float64(d) * (1 + p.cfg.Jitter*(2*random-1)))
	return min(max(moved, 0), p.cfg.Max)
}
