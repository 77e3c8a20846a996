package supervisor

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"mcpbridge/messages"
)

func wish(i int) slotID {
	return slotID{messages.Key{Server: fmt.Sprint("s", i)}, uint64(i)}
}

// Twenty servers of which nobody gives a slot back: everybody still gets one.
func TestLimiterHungSpawnsDelayNobodyForLong(t *testing.T) {
	l := newLimiter()
	for i := range 20 {
		l.request(wish(i))
	}
	now, granted := start, 0
	for granted < 20 {
		g, again := l.next(now)
		granted += len(g)
		if granted < 20 {
			if !again.After(now) {
				t.Fatalf("asked again at %s, which is no progress", again.Sub(start))
			}
			now = again
		}
	}
	if took := now.Sub(start); took > 5*slotHold {
		t.Errorf("the last one waited %s", took)
	}
}

func TestLimiterRateWithoutHolding(t *testing.T) {
	l := newLimiter()
	now := start
	for i := range 40 {
		l.request(wish(i))
	}
	granted := 0
	for granted < 40 {
		g, again := l.next(now)
		granted += len(g)
		for _, id := range g {
			l.release(id)
		}
		if len(g) == 0 {
			now = again
		}
	}
	if took := now.Sub(start); took < 2900*time.Millisecond || took > 3100*time.Millisecond {
		t.Errorf("40 spawns at 10 a second with 10 in hand took %s", took)
	}
}

func TestLimiterWithdrawnWishesAreForgotten(t *testing.T) {
	l := newLimiter()
	for i := range 6 {
		l.request(wish(i))
	}
	l.next(start)
	l.release(wish(4))
	l.release(wish(0))
	g, _ := l.next(start)
	if len(g) != 1 || g[0] != wish(5) {
		t.Errorf("granted %v", g)
	}
}

// Never more than four at once, never more than the rate allows, first come first
// served, and everybody who does not withdraw is served in the end.
func TestLimiterModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLimiter()
		now, next := start, 0
		var queue []slotID
		held := map[slotID]time.Time{}
		var grants []time.Time
		ask := func() {
			g, again := l.next(now)
			for id, until := range held {
				if !now.Before(until) {
					delete(held, id)
				}
			}
			for _, id := range g {
				if len(queue) == 0 || queue[0] != id {
					t.Fatalf("granted %v out of order, next is %v", id, queue)
				}
				queue = queue[1:]
				held[id] = now.Add(slotHold)
				grants = append(grants, now)
			}
			if len(held) > slotsAtOnce {
				t.Fatalf("%d slots at once", len(held))
			}
			if n := len(grants); n > 2*slotsPerSecond && grants[n-1].Sub(grants[n-1-2*slotsPerSecond]) < 990*time.Millisecond {
				t.Fatal("more than the rate allows")
			}
			if len(queue) > 0 && !again.After(now) {
				t.Fatalf("%d wait and nobody is asked again", len(queue))
			}
		}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0, 1:
				next++
				l.request(wish(next))
				queue = append(queue, wish(next))
			case 2:
				if next > 0 {
					id := wish(rapid.IntRange(1, next).Draw(t, "who"))
					l.release(id)
					delete(held, id)
					for i := range queue {
						if queue[i] == id {
							queue = append(queue[:i:i], queue[i+1:]...)
							break
						}
					}
				}
			case 3:
				now = now.Add(time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "gap")))
			}
			ask()
		}
		for i := 0; len(queue) > 0; i++ {
			if i > 10000 {
				t.Fatal("somebody waits for ever")
			}
			now = now.Add(100 * time.Millisecond)
			ask()
		}
	})
}
