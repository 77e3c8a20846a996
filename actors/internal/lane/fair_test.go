package lane

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// loop is a closed loop in virtual time: each caller brings its next call when it has
// its answer, a quarter of them side effects. It returns the mean waits by class.
func loop(seed uint64, limits Limits, callers, clients, calls int) (mean [2]time.Duration) {
	type call struct {
		Item
		caller  int
		came    time.Duration
		started time.Duration
		ends    time.Duration
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	l := New(limits)
	var now time.Duration
	open := map[string]*call{}
	var running []*call
	var sum [2]time.Duration
	var count [2]int
	n := 0
	bring := func(caller int) {
		n++
		c := &call{Item: Item{ID: fmt.Sprint(n), Class: Read, Client: fmt.Sprint(caller % clients)}, caller: caller, came: now}
		if rng.IntN(4) == 0 {
			c.Class = SideEffect
		}
		if _, ok := l.Admit(c.Item); !ok {
			panic("refused")
		}
		open[c.ID] = c
	}
	start := func() {
		for it, ok := l.Next(); ok; it, ok = l.Next() {
			c := open[it.ID]
			c.started, c.ends = now, now+time.Duration(rng.ExpFloat64()*float64(10*time.Millisecond))
			sum[c.Class] += now - c.came
			count[c.Class]++
			running = append(running, c)
		}
	}
	for i := range callers {
		bring(i)
	}
	for n < calls {
		start()
		i := 0
		for k, c := range running {
			if c.ends < running[i].ends {
				i = k
			}
		}
		c := running[i]
		running = slices.Delete(running, i, i+1)
		now = c.ends
		l.Done(c.ID, c.ends-c.started)
		delete(open, c.ID)
		bring(c.caller)
	}
	for c := range mean {
		mean[c] = sum[c] / time.Duration(max(count[c], 1))
	}
	return mean
}

// unfairness is the median of five loops of how much longer one class waits.
func unfairness(limits Limits, callers, clients, calls int) (ratio float64, mean [2]time.Duration) {
	type run struct {
		ratio float64
		mean  [2]time.Duration
	}
	var runs []run
	for seed := range uint64(5) {
		m := loop(seed, limits, callers, clients, calls)
		r, e := float64(m[Read]), float64(m[SideEffect])
		runs = append(runs, run{max(r/e, e/r), m})
	}
	slices.SortFunc(runs, func(a, b run) int { return int((a.ratio - b.ratio) * 1e6) })
	return runs[2].ratio, runs[2].mean
}

// Neither class of an exclusive lane waits more than twice as long as the other.
func TestClassesWaitAlike(t *testing.T) {
	for _, clients := range []int{1, 4, 32} {
		ratio, mean := unfairness(Limits{}, 32, clients, 5000)
		t.Logf("%d clients: reads wait %v, side effects %v, ratio %.2f", clients, mean[Read], mean[SideEffect], ratio)
		if ratio > 2 {
			t.Errorf("%d clients: %.2f", clients, ratio)
		}
	}
}

// BenchmarkFairness reports the mean waits of both classes with 32 callers at 25 %
// side effects in an exclusive lane, where a call runs 10 ms on average.
func BenchmarkFairness(b *testing.B) {
	for _, clients := range []int{1, 32} {
		b.Run(fmt.Sprint(clients, " clients"), func(b *testing.B) {
			var ratio float64
			var mean [2]time.Duration
			for b.Loop() {
				ratio, mean = unfairness(Limits{}, 32, clients, 5000)
			}
			b.ReportMetric(ratio, "ratio")
			b.ReportMetric(float64(mean[Read].Microseconds())/1000, "read-ms")
			b.ReportMetric(float64(mean[SideEffect].Microseconds())/1000, "effect-ms")
		})
	}
}

// BenchmarkKeys is a step of a lane in which many wait for a few keys.
func BenchmarkKeys(b *testing.B) {
	l := New(Limits{Queue: 1000})
	for i := range 200 {
		l.Admit(Item{ID: fmt.Sprint("k", i), Class: SideEffect, Client: fmt.Sprint(i % 4), Key: fmt.Sprint(i % 8)})
	}
	for {
		if _, ok := l.Next(); !ok {
			break
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		l.Admit(Item{ID: "a", Class: SideEffect, Client: "x", Key: "mine"})
		l.Next()
		l.Done("a", time.Millisecond)
		l.Next()
	}
}
