package lane

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func admit(t *testing.T, l *Lane, class Class, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if over, ok := l.Admit(Item{ID: id, Class: class, Bytes: 10}); !ok {
			t.Fatalf("%s not admitted: %+v", id, over)
		}
	}
}

// next starts all that may start and returns their ids.
func next(l *Lane) []string {
	var ids []string
	for {
		it, ok := l.Next()
		if !ok {
			return ids
		}
		ids = append(ids, it.ID)
	}
}

func wantNext(t *testing.T, l *Lane, ids ...string) {
	t.Helper()
	if d := cmp.Diff(ids, next(l)); d != "" {
		t.Fatalf("started (-want +got):\n%s", d)
	}
}

func TestExclusiveOrder(t *testing.T) {
	l := New(Limits{MaxReads: 2})
	admit(t, l, Read, "r1", "r2", "r3")
	admit(t, l, SideEffect, "e1", "e2")
	admit(t, l, Read, "r4")
	wantNext(t, l, "r1", "r2")
	l.Done("r1", time.Second)
	wantNext(t, l, "r3")
	l.Done("r2", time.Second)
	wantNext(t, l) // e1 waits for r3, r4 behind e1 although a read place is free
	l.Done("r3", time.Second)
	wantNext(t, l, "e1")
	l.Done("e1", time.Second)
	wantNext(t, l, "e2")
	l.Done("e2", time.Second)
	wantNext(t, l, "r4")
	l.Done("r4", time.Second)
	if !l.Empty() {
		t.Error("lane is not empty at the end")
	}
}

func TestSerialOrder(t *testing.T) {
	l := New(Limits{MaxReads: 2, Serial: true})
	admit(t, l, SideEffect, "e1", "e2")
	admit(t, l, Read, "r1", "r2", "r3")
	wantNext(t, l, "e1", "r1", "r2") // reads are held neither by a running nor by a waiting side effect
	l.Done("r2", 0)
	wantNext(t, l, "r3")
	l.Done("e1", 0)
	wantNext(t, l, "e2")
}

func TestFenceKeepsThePlace(t *testing.T) {
	for _, serial := range []bool{false, true} {
		t.Run(fmt.Sprint("serial=", serial), func(t *testing.T) {
			l := New(Limits{Serial: serial})
			admit(t, l, SideEffect, "e1", "e2")
			wantNext(t, l, "e1")
			if !l.Fence("e1") || l.Fence("e2") {
				t.Fatal("only a running call can be fenced")
			}
			wantNext(t, l)
			l.Done("e1", 0)
			wantNext(t, l, "e2")
		})
	}
}

func TestZombieReads(t *testing.T) {
	l := New(Limits{MaxReads: 1})
	admit(t, l, Read, "r1")
	wantNext(t, l, "r1")
	l.Fence("r1")
	if l.Zombies() != 1 {
		t.Fatalf("zombies = %d", l.Zombies())
	}
	admit(t, l, SideEffect, "e1")
	admit(t, l, Read, "r2")
	wantNext(t, l) // as long as it is not abandoned, a side effect runs alone
	l.Abandon("r1")
	wantNext(t, l, "e1")
	l.Done("e1", 0)
	wantNext(t, l) // its own place stays taken
	if d := cmp.Diff([]Waiting{{"r2", 1, []string{"r1"}}}, l.Explain()); d != "" {
		t.Error(d)
	}
	l.Done("r1", 0)
	wantNext(t, l, "r2")
	if l.Zombies() != 0 {
		t.Errorf("zombies = %d", l.Zombies())
	}
}

func TestRequeueTakesTheOldPlace(t *testing.T) {
	l := New(Limits{MaxReads: 3})
	admit(t, l, Read, "r1", "r2", "r3", "r4")
	wantNext(t, l, "r1", "r2", "r3")
	l.Pause()
	for _, id := range []string{"r2", "r3", "r1"} {
		if !l.Requeue(id, false) {
			t.Fatal(id)
		}
	}
	if l.Requeue("r4", false) {
		t.Error("a waiting call came back")
	}
	wantNext(t, l)
	l.Resume()
	wantNext(t, l, "r1", "r2", "r3")
}

func TestHeldCallHoldsTheLine(t *testing.T) {
	l := New(Limits{})
	admit(t, l, SideEffect, "e1", "e2")
	wantNext(t, l, "e1")
	l.Requeue("e1", true)
	wantNext(t, l)
	if l.Release("e2") || !l.Release("e1") {
		t.Error("Release: only e1 is held")
	}
	wantNext(t, l, "e1")
}

func TestBounds(t *testing.T) {
	l := New(Limits{MaxReads: 1, Queue: 2, QueueBytes: 100})
	if _, ok := l.Admit(Item{ID: "big", Class: Read, Bytes: 1000}); !ok {
		t.Fatal("a call that starts at once is under no bound")
	}
	wantNext(t, l, "big")
	if over, ok := l.Admit(Item{ID: "big2", Class: Read, Bytes: 101}); ok || over.RetryAfter != time.Second {
		t.Fatalf("over the byte limit: %v %+v", ok, over)
	}
	admit(t, l, Read, "r1", "r2")
	over, ok := l.Admit(Item{ID: "r3", Class: Read, Bytes: 1})
	if ok {
		t.Fatal("the queue is full")
	}
	if over.Reason == "" || over.RetryAfter <= 0 {
		t.Errorf("overload without a reason or a retry-after: %+v", over)
	}
	l.Done("big", 4*time.Second)
	if got := l.RetryAfter(Read); got != 12*time.Second { // two ahead and itself, one at a time
		t.Errorf("retry after %v", got)
	}
	if !l.Remove("r1") || l.Remove("r1") {
		t.Error("Remove")
	}
	admit(t, l, Read, "r3")
	wantNext(t, l, "r2")
	if l.Remove("r2") {
		t.Error("a running call was removed")
	}
}

func TestExplain(t *testing.T) {
	build := func(serial bool) *Lane {
		l := New(Limits{MaxReads: 1, Serial: serial})
		admit(t, l, Read, "r1")
		next(l)
		admit(t, l, SideEffect, "e1")
		admit(t, l, Read, "r2")
		next(l)
		admit(t, l, SideEffect, "e2")
		return l
	}
	if d := cmp.Diff([]Waiting{
		{"e1", 1, []string{"r1"}}, {"r2", 2, []string{"r1", "e1"}}, {"e2", 3, []string{"r1", "r2"}},
	}, build(false).Explain()); d != "" {
		t.Errorf("exclusive:\n%s", d)
	}
	if d := cmp.Diff([]Waiting{{"r2", 1, []string{"r1"}}, {"e2", 1, []string{"e1"}}}, build(true).Explain()); d != "" {
		t.Errorf("serial:\n%s", d)
	}
}

func TestClassNames(t *testing.T) {
	for c, want := range map[Class]string{Read: "read", SideEffect: "side_effect", 7: "bug: unknown class 7"} {
		if c.String() != want {
			t.Errorf("%d: %s", c, c)
		}
	}
}

func TestAdmitTwicePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("the second Admit of one id went through")
		}
	}()
	l := New(Limits{})
	admit(t, l, Read, "r1", "r1")
}

func BenchmarkAdmitNextDone(b *testing.B) {
	l := New(Limits{})
	b.ReportAllocs()
	for b.Loop() {
		l.Admit(Item{ID: "a", Class: Read})
		l.Next()
		l.Done("a", time.Millisecond)
	}
}
