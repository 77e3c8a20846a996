package supervisor

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"mcpbridge/messages"
)

// TestNothingIsRevived stops a server ten thousand times at random moments of its life
// (starting, ready, in backoff, draining, quarantined, in the midst of its restart timers)
// and looks for longer than any timer lasts: what is stopped stays stopped, until it is
// started by somebody.
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
		stops := []messages.Verb{messages.VerbStop, messages.VerbDrain, messages.VerbStop}
		seen := map[messages.State]int{}
		for n := range rounds {
			for range 1 + rng.IntN(3) { // what is refused in this state is refused
				_ = b.Operate(background, verbs[rng.IntN(len(verbs))], "fs")
				time.Sleep(time.Duration(rng.IntN(900)) * time.Millisecond)
			}
			s, _ := b.Status().Server("fs")
			seen[s.State]++
			_ = b.Operate(background, stops[rng.IntN(len(stops))], "fs")
			await(t, b, "fs", messages.StateStopped)
			dials := f.count("fs")
			// Longer than the longest pause; every tenth time, than the longest cooldown.
			pause := 2 * time.Minute
			if n%10 == 0 {
				pause = 2 * time.Hour
			}
			time.Sleep(pause)
			if now, _ := b.Status().Server("fs"); now.State != messages.StateStopped || f.count("fs") != dials || f.alive("fs") != 0 {
				t.Fatalf("round %d: stopped in %s, then %s (%s): %d starts became %d, %d live", n, s.State, now.State, now.Reason, dials, f.count("fs"), f.alive("fs"))
			}
		}
		if f.atOnce("fs") > 1 {
			t.Errorf("%d of it lived at once", f.atOnce("fs"))
		}
		t.Logf("%d rounds, %d starts; stopped in %v", rounds, f.count("fs"), seen)
		for _, state := range []messages.State{messages.StateStarting, messages.StateReady, messages.StateBackoff} {
			if seen[state] == 0 {
				t.Errorf("it was never stopped in %s: the test shows less than it says", state)
			}
		}
	})
}
