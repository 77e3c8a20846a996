package dispatch

import (
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var (
	simSeeds = flag.Int("sim.seeds", 0, "how many seeds TestSim plays; 0 = 2,000")
	simSeed  = flag.Int64("sim.seed", -1, "play this one seed, with every step")
)

// dice are where a simulation takes its chances from. Nothing else decides, so that
// the same throws make the same history.
type dice interface {
	roll(n int) int // 0 to n-1
}

type seededDice struct{ *rand.Rand }

func (d seededDice) roll(n int) int { return d.IntN(n) }

// rapidDice let rapid find a shorter history when one fails.
type rapidDice struct{ t *rapid.T }

func (d rapidDice) roll(n int) int { return rapid.IntRange(0, n-1).Draw(d.t, "roll") }

// simTB turns a failed check into a panic, which its loop takes as the result. What is to
// be looked at in the end belongs to the seed: the test itself would hold on to all that
// every seed ever made.
type simTB struct {
	testing.TB
	last []func()
}

type simFailure string

func (*simTB) Helper() {}
func (*simTB) Fatalf(format string, args ...any) {
	panic(simFailure(fmt.Sprintf(format, args...)))
}
func (t *simTB) Errorf(format string, args ...any) { t.Fatalf(format, args...) }
func (*simTB) Fatal(args ...any)                   { panic(simFailure(fmt.Sprint(args...))) }
func (t *simTB) Cleanup(f func())                  { t.last = append(t.last, f) }

// end is the end of a seed.
func (t *simTB) end() {
	for _, f := range t.last {
		f()
	}
}

// played is what became of one simulation.
type played struct {
	failure string
	steps   []string // the last of them
	digest  uint64   // of the whole history
	count   map[string]int
}

// play runs one seed. Even seeds end in the safety mode: anything may fail to the
// end, and only then does time pass. Odd ones end in the liveness mode: the faults
// stop, and then everything must get its way.
func play(t testing.TB, seed uint64, keep int) (out played) {
	tb := &simTB{TB: t}
	s := newSim(tb, seededDice{rand.New(rand.NewPCG(seed, 0x6d6370))})
	h := fnv.New64a()
	s.trace = func(line string) {
		_, _ = h.Write([]byte(line))
		if out.steps = append(out.steps, line); len(out.steps) > keep {
			out.steps = out.steps[1:]
		}
	}
	defer func() {
		out.digest, out.count = h.Sum64(), s.count
		if p := recover(); p != nil {
			f, ok := p.(simFailure)
			if !ok {
				panic(p)
			}
			out.failure = string(f)
		}
	}()
	s.begin()
	for range 60 + s.roll(200) {
		s.act()
	}
	switch {
	case seed%2 != 0:
		s.recoverAll()
	case s.roll(2) == 0:
		s.drain()
	}
	s.close()
	tb.end()
	return out
}

// defaultSeeds takes some ten seconds on a small machine, forty with the race detector.
const defaultSeeds = 2000

// TestSim plays seeds. A failing one is printed with its last steps, and
// `-sim.seed N` plays it again, step by step the same.
func TestSim(t *testing.T) {
	if *simSeed >= 0 {
		out := play(t, uint64(*simSeed), 1<<30)
		t.Log("\n" + strings.Join(out.steps, "\n"))
		if out.failure != "" {
			t.Fatalf("seed %d: %s", *simSeed, out.failure)
		}
		return
	}
	seeds := *simSeeds
	if seeds == 0 {
		seeds = defaultSeeds
		if testing.Short() {
			seeds /= 10
		}
	}
	sum := map[string]int{}
	for seed := range uint64(seeds) {
		out := play(t, seed, 40)
		if out.failure != "" {
			t.Fatalf("seed %d: %s\nthe last steps (go test ./actors/internal/dispatch -run 'TestSim$' -sim.seed %d -v shows all):\n%s",
				seed, out.failure, seed, strings.Join(out.steps, "\n"))
		}
		for k, n := range out.count {
			sum[k] += n
		}
	}
	t.Logf("%d seeds: %v", seeds, sum)
	// What never happens is not checked either.
	for _, k := range []string{"ok", "tool_error", "outcome_unknown", "not_sent", "rejected", "recorded", "record failed", "joined", "stored",
		"conflict", "restart", "fenced at start", "overlap", "requeued", "two keys at once", "two unkeyed at once", "found late", "ran anew", "carried on", "drain"} {
		if sum[k] == 0 && seeds >= 200 {
			t.Errorf("%d seeds never saw %q", seeds, k)
		}
	}
}

func TestSimReplaysIdentically(t *testing.T) {
	for seed := range uint64(20) {
		a, b := play(t, seed, 5), play(t, seed, 5)
		if a.digest != b.digest || a.failure != b.failure {
			t.Fatalf("seed %d plays differently the second time:\n%s\n\n%s", seed, strings.Join(a.steps, "\n"), strings.Join(b.steps, "\n"))
		}
	}
}

// TestSimulation is the same world under rapid, which makes a failing history short.
func TestSimulation(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tb := &simTB{TB: t}
		s := newSim(tb, rapidDice{rt})
		defer func() {
			if p := recover(); p != nil {
				f, ok := p.(simFailure)
				if !ok {
					panic(p)
				}
				rt.Fatalf("%s", string(f))
			}
		}()
		s.trace = func(line string) { rt.Log(line) }
		s.begin()
		for range 20 + s.roll(150) {
			s.act()
		}
		s.close()
		tb.end()
	})
}
