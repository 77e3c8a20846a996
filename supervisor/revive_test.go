package supervisor

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"mcpbridge/config"
	"mcpbridge/messages"
)

// TestNothingIsRevived stops, drains, disables or removes a server ten thousand times at
// random moments of its life (starting, ready, in backoff, draining, quarantined, in the
// midst of its restart timers) and looks for longer than any timer lasts: it stays down,
// until somebody starts it or configures it again.
func TestNothingIsRevived(t *testing.T) {
	rounds := 10_000
	if testing.Short() {
		rounds = 1_000
	}
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(4, 1))
		f := newFakes(func(_ string, n int) behaviour {
			switch n % 5 {
			case 0:
				return behaviour{fail: &messages.Exit{Reason: "exit status 1", Stage: messages.StageHandshake, At: time.Now()}}
			case 1:
				return behaviour{livesFor: time.Duration(n%700) * time.Millisecond}
			case 2:
				return behaviour{hang: true}
			case 3:
				return behaviour{takes: 300 * time.Millisecond, slowStop: 200 * time.Millisecond}
			default:
				return behaviour{}
			}
		})
		b := openFakes(t, f, fakeConfig("fs"))
		defer closeBridge(t, b)
		verbs := []messages.Verb{messages.VerbStart, messages.VerbRestart, messages.VerbReset, messages.VerbStart}
		disabled := fakeConfig("fs")
		disabled.Servers[0].Connect = config.ConnectDisabled
		ends := []struct {
			name string
			end  func()
			down messages.State
			gone bool // it is not there any more, in no state
			back func()
		}{
			{"stop", func() { _ = b.Operate(background, messages.VerbStop, "fs") }, messages.StateStopped, false, func() {}},
			{"drain", func() { _ = b.Operate(background, messages.VerbDrain, "fs") }, messages.StateStopped, false, func() {}},
			{"disable", func() { mustReload(t, b, disabled) }, messages.StateDisabled, false, func() { mustReload(t, b, fakeConfig("fs")) }},
			{"remove", func() { mustReload(t, b, fakeConfig()) }, messages.StateIdle, true, func() { mustReload(t, b, fakeConfig("fs")) }},
		}
		seen, ended := map[messages.State]int{}, map[string]int{}
		for n := range rounds {
			for range 1 + rng.IntN(3) { // what is refused in this state is refused
				_ = b.Operate(background, verbs[rng.IntN(len(verbs))], "fs")
				time.Sleep(time.Duration(rng.IntN(900)) * time.Millisecond)
			}
			s, _ := b.Status().Server("fs")
			seen[s.State]++
			e := ends[rng.IntN(len(ends))]
			ended[e.name]++
			e.end()
			awaitDown(t, b, f, "fs", e.down, e.gone)
			dials := f.count("fs")
			// Longer than the longest pause; every tenth time, than the longest cooldown.
			pause := 2 * time.Minute
			if n%10 == 0 {
				pause = 2 * time.Hour
			}
			time.Sleep(pause)
			if now, shown := b.Status().Server("fs"); now.State != e.down || shown == e.gone || f.count("fs") != dials || f.alive("fs") != 0 {
				t.Fatalf("round %d: %s in %s, then %s (%s): %d starts became %d, %d live", n, e.name, s.State, now.State, now.Reason, dials, f.count("fs"), f.alive("fs"))
			}
			e.back()
		}
		if f.atOnce("fs") > 1 {
			t.Errorf("%d of it lived at once", f.atOnce("fs"))
		}
		t.Logf("%d rounds, %d starts; ended by %v in %v", rounds, f.count("fs"), ended, seen)
		for _, state := range []messages.State{messages.StateStarting, messages.StateReady, messages.StateBackoff} {
			if seen[state] == 0 {
				t.Errorf("it was never stopped in %s: the test shows less than it says", state)
			}
		}
	})
}

// awaitDown waits until the server has the state, or is gone, and none
// of its processes lives.
func awaitDown(t *testing.T, b *Bridge, f *fakes, name string, state messages.State, gone bool) {
	t.Helper()
	for range 1000 {
		synctest.Wait()
		if s, shown := b.Status().Server(name); s.State == state && shown != gone && f.alive(name) == 0 {
			return
		}
		time.Sleep(time.Second)
	}
	s, shown := b.Status().Server(name)
	t.Fatalf("%s is %s (shown: %t, %d live), want %s", name, s.State, shown, f.alive(name), state)
}
