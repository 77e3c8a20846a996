package history

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

func seeded(seed uint64) func(int) int {
	rng := rand.New(rand.NewPCG(seed, 1))
	return rng.IntN
}

// TestGoodHistories: whatever a bridge that keeps its promises does, the checker
// finds nothing, and every property had something to look at.
func TestGoodHistories(t *testing.T) {
	seen := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		r := Check(story(seeded(seed), rapid.IntRange(20, 400).Draw(t, "steps")))
		if len(r.Violations) > 0 {
			t.Fatalf("a good history:\n%s", r)
		}
		for p, n := range r.Checked {
			seen[p] += n
		}
	})
	for _, p := range properties {
		if seen[p.name] == 0 {
			t.Errorf("%s met nothing to check in all histories", p.name)
		}
	}
}

// try applies one mutation to a copy of a good history; applied is false where there
// was no occasion for it.
func try(good *Input, mu mutation, seed uint64) (applied bool, missed *Report) {
	m := &mutant{clone(good), seeded(seed)}
	if !mu.apply(m) {
		return false, nil
	}
	if r := Check(m.Input); len(r.Of(mu.property)) == 0 {
		return true, r
	}
	return true, nil
}

// TestEveryMutant: each way of breaking a promise is caught as what it is, in several
// histories.
func TestEveryMutant(t *testing.T) {
	const enough, patience = 3, 2000
	applied := make([]int, len(mutations))
	open := len(mutations)
	for seed := uint64(1); open > 0 && seed < patience; seed++ {
		good := story(seeded(seed), 300)
		for i, mu := range mutations {
			if applied[i] >= enough {
				continue
			}
			ok, missed := try(good, mu, seed)
			if missed != nil {
				t.Fatalf("seed %d: %s: %s: not caught\n%s", seed, mu.property, mu.name, missed)
			}
			if ok {
				if applied[i]++; applied[i] == enough {
					open--
				}
			}
		}
	}
	for i, mu := range mutations {
		if applied[i] < enough {
			t.Errorf("%s: %s: only %d histories gave occasion for it", mu.property, mu.name, applied[i])
		}
	}
}

// TestMutants goes on with histories and mutations that rapid chooses.
func TestMutants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		good := story(seeded(seed), rapid.IntRange(50, 300).Draw(t, "steps"))
		for range 12 {
			mu := rapid.SampledFrom(mutations).Draw(t, "mutation")
			if _, missed := try(good, mu, seed); missed != nil {
				t.Fatalf("%s: %s: not caught\n%s", mu.property, mu.name, missed)
			}
		}
	})
}
