package lane

import (
	"fmt"
	"slices"
	"strings"
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

// A stream of either class cannot keep the other from starting: whoever is admitted
// starts after those that were admitted before, however many come later.
func TestNobodyStarves(t *testing.T) {
	for _, serial := range []bool{false, true} {
		for _, victim := range []Class{Read, SideEffect} {
			t.Run(fmt.Sprint("serial=", serial, " ", victim), func(t *testing.T) {
				l := New(Limits{MaxReads: 2, Serial: serial})
				stream := 1 - victim
				admit(t, l, stream, "s0", "s1", "s2")
				admit(t, l, victim, "victim")
				for i := 3; i < 50; i++ {
					admit(t, l, stream, fmt.Sprint("s", i))
					if slices.Contains(next(l), "victim") {
						return
					}
					l.Done(l.AppendActive(nil)[0], 0)
				}
				t.Error("the stream went by for ever")
			})
		}
	}
}

// put admits a side effect of a client with a key.
func put(t *testing.T, l *Lane, client, id, key string) {
	t.Helper()
	if over, ok := l.Admit(Item{ID: id, Class: SideEffect, Client: client, Key: key}); !ok {
		t.Fatalf("%s not admitted: %+v", id, over)
	}
}

func TestRoundRobin(t *testing.T) {
	l := New(Limits{})
	for i := range 4 {
		put(t, l, "a", fmt.Sprint("a", i), "")
	}
	var order []string
	run := func() {
		for it, ok := l.Next(); ok; it, ok = l.Next() {
			order = append(order, it.ID)
			l.Done(it.ID, 0)
		}
	}
	if it, _ := l.Next(); it.ID != "a0" {
		t.Fatal(it.ID)
	}
	put(t, l, "b", "b0", "") // one of many visits
	put(t, l, "c", "c0", "")
	put(t, l, "c", "c1", "")
	l.Remove("a1") // costs its client no turn
	l.Done("a0", 0)
	run()
	if d := cmp.Diff([]string{"a2", "b0", "c0", "a3", "c1"}, order); d != "" {
		t.Errorf("order:\n%s", d)
	}
	// Short visits bring no more turns than a long queue.
	order = nil
	for i := range 3 {
		put(t, l, "a", fmt.Sprint("a", 10+i), "")
	}
	for i := range 6 {
		put(t, l, "b", fmt.Sprint("b", 10+i), "")
		it, _ := l.Next()
		order = append(order, it.ID)
		l.Done(it.ID, 0)
	}
	if d := cmp.Diff([]string{"a10", "b10", "a11", "b11", "a12", "b12"}, order); d != "" {
		t.Errorf("visits:\n%s", d)
	}
}

func TestKeys(t *testing.T) {
	l := New(Limits{})
	put(t, l, "", "x1", "x")
	put(t, l, "", "x2", "x")
	put(t, l, "", "y1", "y")
	wantNext(t, l, "x1", "y1") // y1 passes x2
	admit(t, l, Read, "r1")
	put(t, l, "", "z1", "z")
	wantNext(t, l) // a read waits for every key, and who comes behind it waits too
	put(t, l, "", "all", "")
	if d := cmp.Diff([]Waiting{
		{"x2", 1, []string{"x1"}}, {"r1", 2, []string{"x1", "y1", "x2"}}, {"z1", 3, []string{"r1"}}, {"all", 4, []string{"x1", "y1", "z1"}},
	}, l.Explain()); d != "" {
		t.Error(d)
	}
	l.Done("x1", 0)
	wantNext(t, l, "x2")
	l.Done("x2", 0)
	l.Done("y1", 0)
	wantNext(t, l, "r1")
	l.Done("r1", 0)
	wantNext(t, l, "z1")
	put(t, l, "", "w1", "w")
	wantNext(t, l) // nobody passes one that takes all lanes
	l.Done("z1", 0)
	wantNext(t, l, "all")
	l.Done("all", 0)
	wantNext(t, l, "w1")
	l.Fence("w1")
	put(t, l, "", "w2", "w")
	put(t, l, "", "v1", "v")
	wantNext(t, l, "v1") // a fence holds the lane of its key only
}

func TestKeysAreBounded(t *testing.T) {
	l := New(Limits{})
	for i := range maxKeys + 2 {
		put(t, l, "", fmt.Sprint("c", i), fmt.Sprint("k", i))
	}
	if n := len(next(l)); n != maxKeys {
		t.Errorf("%d at once", n)
	}
	l.Done("c7", 0)
	wantNext(t, l, fmt.Sprint("c", maxKeys))
}

func TestSideEffectsSideBySide(t *testing.T) {
	l := New(Limits{MaxSideEffects: 2})
	admit(t, l, SideEffect, "e1", "e2", "e3")
	admit(t, l, Read, "r1")
	wantNext(t, l, "e1", "e2")
	put(t, l, "", "x", "x")
	l.Done("e1", 0)
	wantNext(t, l, "e3")
	l.Done("e2", 0)
	l.Done("e3", 0)
	wantNext(t, l, "r1")
	l.Done("r1", 0)
	wantNext(t, l, "x")
}

func TestGroup(t *testing.T) {
	a, b, c := New(Limits{}), New(Limits{}), New(Limits{})
	g := NewGroup()
	for _, l := range []*Lane{a, b, c} {
		l.Join(g)
	}
	admit(t, a, SideEffect, "a1", "a2")
	admit(t, b, SideEffect, "b1")
	admit(t, c, Read, "c1")
	admit(t, c, SideEffect, "c2")
	wantNext(t, b) // a1 came first
	wantNext(t, a, "a1")
	wantNext(t, b)
	wantNext(t, c, "c1") // reads are nobody else's business
	if d := cmp.Diff([]Waiting{{"b1", 1, []string{"a1"}}}, b.Explain()); d != "" {
		t.Error(d)
	}
	a.Done("a1", 0)
	a.Pause() // its server died: it stands in nobody's way
	wantNext(t, b, "b1")
	a.Resume()
	b.Done("b1", 0)
	wantNext(t, c) // c2 waits for c1 still
	wantNext(t, a, "a2")
	a.Fence("a2")
	c.Done("c1", 0)
	wantNext(t, c) // a fence counts
	a.Done("a2", 0)
	wantNext(t, c, "c2")
	if b.Free(Item{Class: SideEffect}) || !b.Free(Item{Class: Read}) {
		t.Error("Free")
	}
	c.Join(nil)
	if !b.Free(Item{Class: SideEffect}) {
		t.Error("a lane that left the group holds it")
	}
}

func TestIsolationChanges(t *testing.T) {
	l := New(Limits{})
	admit(t, l, SideEffect, "e1")
	wantNext(t, l, "e1")
	admit(t, l, Read, "r1")
	admit(t, l, SideEffect, "e2")
	wantNext(t, l)
	l.SetLimits(Limits{Serial: true})
	wantNext(t, l, "r1")
	admit(t, l, Read, "r2")
	l.SetLimits(Limits{})
	l.Done("e1", 0)
	wantNext(t, l)
	l.Done("r1", 0)
	wantNext(t, l, "e2")
	l.Done("e2", 0)
	wantNext(t, l, "r2")
}

func TestHold(t *testing.T) {
	l := New(Limits{})
	l.Hold(Item{ID: "old", Class: SideEffect})
	put(t, l, "", "x", "x")
	wantNext(t, l)
	l.Done("old", 0)
	wantNext(t, l, "x")
}

func TestKeyOf(t *testing.T) {
	for _, tc := range []struct{ path, args, want string }{
		{"path", `{"path":"a"}`, `"a"`},
		{"path", `{"path":"\u0061"}`, `"a"`},
		{"path", `{"path":""}`, `""`},
		{"path", `{"path":null}`, ""},
		{"path", `{"PATH":"a"}`, ""},
		{"path", `{}`, ""},
		{"path", `[]`, ""},
		{"n", `{"n":1.0}`, "1"},
		{"n", `{"n":1e0}`, "1"},
		{"n", `{"n":1e999}`, ""},
		{"o", `{"o":{"b":1,"a":[true]}}`, `{"a":[true],"b":1}`},
		{"o", `{"o":{"a":[true], "b":1.0}}`, `{"a":[true],"b":1}`},
		{"o.a.b", `{"o":{"a":{"b":7}}}`, "7"},
		{"o.a.b", `{"o":{"a":7}}`, ""},
	} {
		if got := KeyOf(tc.path, []byte(tc.args)); got != tc.want {
			t.Errorf("%s of %s: %q, want %q", tc.path, tc.args, got, tc.want)
		}
	}
	long := KeyOf("p", []byte(`{"p":"`+strings.Repeat("x", 1000)+`"}`))
	if len(long) > maxKey || !strings.HasPrefix(long, "sha256:") || long == KeyOf("p", []byte(`{"p":"`+strings.Repeat("x", 1001)+`"}`)) {
		t.Errorf("long: %q", long)
	}
}
