package supervisor

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"mcpbridge/messages"
)

func TestFeedOrderAndGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFeed[int](1000)
		size := int(f.size)
		var got []int
		hold, held := make(chan struct{}), make(chan struct{})
		stop := f.follow(func(n int) {
			got = append(got, n)
			if len(got) == 1 {
				close(held)
				<-hold
			}
		}, func(lost, _ uint64) int { return -int(lost) })
		f.put(func(n uint64) int { return int(n) })
		<-held
		for range 3*size + 5 { // nobody is held up by the slow one
			f.put(func(n uint64) int { return int(n) })
		}
		close(hold)
		synctest.Wait()
		f.close()
		synctest.Wait()
		stop()
		last := 3*size + 6
		if got[0] != 1 || got[1] >= 0 || got[len(got)-1] != last {
			t.Fatalf("got %d … %d %d … %d", got[0], got[1], got[2], got[len(got)-1])
		}
		lost := -got[1]
		if len(got) != last-lost+1 {
			t.Errorf("%d items, %d lost, of %d", len(got)-1, lost, last)
		}
		for i := 3; i < len(got); i++ {
			if got[i] != got[i-1]+1 {
				t.Fatalf("%d follows %d", got[i], got[i-1])
			}
		}
	})
}

// Lines may be long: what is remembered is bounded in bytes too, and a follower is told
// what it missed.
func TestLogbookIsBoundedInBytes(t *testing.T) {
	b := newLogbook()
	defer b.close()
	long := strings.Repeat("x", lineBytes)
	const n = 2000
	for i := range n {
		b.add("noisy", sourceStderr, fmt.Sprint(i)+long)
	}
	b.add("quiet", sourceStderr, "hello")
	size := 0
	lines := b.last("noisy", 0)
	for _, l := range lines {
		size += len(l.Text)
	}
	if size > bytesPerServer || len(lines) < 10 || !strings.HasPrefix(lines[len(lines)-1].Text, fmt.Sprint(n-1)) {
		t.Errorf("%d lines of %d bytes", len(lines), size)
	}
	if l := b.last("quiet", 0); len(l) != 1 {
		t.Errorf("%d lines of the other server", len(l))
	}
	if b.feed.weight > bytesFollowed {
		t.Errorf("%d bytes for followers", b.feed.weight)
	}
	items, lost := b.feed.since(0, 0)
	if uint64(len(items))+lost != n+1 || items[0].Seq != lost+1 {
		t.Errorf("%d items and %d lost, the first is %d", len(items), lost, items[0].Seq)
	}
}

func TestFeedStopInsideTheCallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFeed[int](10)
		n := 0
		var stop func()
		stop = f.follow(func(int) { n++; stop(); stop() }, func(uint64, uint64) int { return 0 })
		for range 5 {
			f.put(func(uint64) int { return 0 })
		}
		synctest.Wait()
		if n != 1 {
			t.Errorf("called %d times", n)
		}
	})
}

func TestEventHistoryForgets(t *testing.T) {
	h := newHub()
	for range eventHistory + 10 {
		h.emit(messages.Event{Type: messages.EventServerState})
	}
	got := h.since(0)
	if got[0].Type != messages.EventGap || got[0].Count != 10 || got[1].Seq != 11 || len(got) != eventHistory+1 {
		t.Errorf("%d events, %+v, %+v", len(got), got[0], got[1])
	}
	if n := len(h.since(eventHistory + 10)); n != 0 {
		t.Errorf("%d events after the last", n)
	}
}

func TestLogbookKeepsTheLastLines(t *testing.T) {
	b := newLogbook()
	for i := range linesPerServer + 50 {
		b.add("noisy", sourceStderr, fmt.Sprint(i))
	}
	b.add("quiet", sourceBridge, "ready")
	if l := b.last("noisy", 0); len(l) != linesPerServer || l[0].Text != "50" || l[len(l)-1].Text != fmt.Sprint(linesPerServer+49) {
		t.Errorf("%d lines from %q", len(l), l[0].Text)
	}
	if l := b.last("", 2); len(l) != 2 || l[0].Server != "noisy" || l[1].Server != "quiet" {
		t.Errorf("%+v", l)
	}
	if l := b.last("nobody", 5); len(l) != 0 {
		t.Errorf("%+v", l)
	}
}
