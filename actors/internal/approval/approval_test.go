package approval

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"mcpbridge/messages"
)

var begin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// TestModel holds the table against a list of what was said: a call passes exactly as
// often as a person said yes to it, within ten minutes, and an id never means two
// things.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type grant struct {
			until time.Time
			id    string
		}
		table, now := New("seed"), begin
		open := map[string]Call{}       // by id
		seen := map[string]Call{}       // … ever
		asked := map[string]time.Time{} // when an open question is forgotten
		granted := map[Call]grant{}
		calls := rapid.Custom(func(t *rapid.T) Call {
			pick := func(name string) string { return rapid.SampledFrom([]string{"a", "b"}).Draw(t, name) }
			return Call{Client: pick("client"), Server: pick("server"), Tool: "t", Definition: pick("definition"), Args: pick("args")}
		})
		forget := func() {
			for id, until := range asked {
				if !until.After(now) {
					delete(asked, id)
					delete(open, id)
				}
			}
			for c, g := range granted {
				if !g.until.After(now) {
					delete(granted, c)
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"ask": func(t *rapid.T) {
				c := calls.Draw(t, "call")
				q, ok := table.Ask(now, c, messages.Approval{Server: c.Server, Client: c.Client})
				if !ok {
					t.Fatal("a small question is refused")
				}
				if g, yes := granted[c]; yes {
					if q.ID != g.id {
						t.Fatalf("a granted call has another id: %s, not %s", q.ID, g.id)
					}
					return
				}
				if old, used := seen[q.ID]; used && open[q.ID] != c {
					t.Fatalf("id %s means %v and %v", q.ID, old, c)
				}
				seen[q.ID], open[q.ID], asked[q.ID] = c, c, now.Add(Life)
			},
			"decide": func(t *rapid.T) {
				ids := []string{"call-unknown"}
				for id := range seen {
					ids = append(ids, id)
				}
				id, yes := rapid.SampledFrom(ids).Draw(t, "id"), rapid.Bool().Draw(t, "yes")
				a, known := table.Decide(now, id, yes)
				c, isOpen := open[id]
				isGranted := false
				for gc, g := range granted {
					if g.id == id {
						c, isGranted = gc, true
					}
				}
				if known != (isOpen || isGranted) || known && (a.ID != id || a.Client != c.Client) {
					t.Fatalf("decide %s: %v %+v", id, known, a)
				}
				if !known {
					return
				}
				delete(open, id)
				delete(asked, id)
				switch {
				case !yes:
					delete(granted, c)
				case isOpen:
					granted[c] = grant{now.Add(Life), id}
				}
			},
			"take": func(t *rapid.T) {
				c := calls.Draw(t, "call")
				_, want := granted[c]
				if got := table.Granted(now, c); got != want {
					t.Fatalf("granted %v: %v, want %v", c, got, want)
				}
				if got := table.Take(now, c); got != want {
					t.Fatalf("take %v: %v, want %v", c, got, want)
				}
				delete(granted, c)
			},
			"time": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, int(Life/time.Second)).Draw(t, "s")) * time.Second)
				forget()
			},
			"forget": func(t *rapid.T) {
				server := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "server")
				table.Forget(server)
				for id, c := range open {
					if c.Server == server {
						delete(open, id)
						delete(asked, id)
					}
				}
				for c := range granted {
					if c.Server == server {
						delete(granted, c)
					}
				}
			},
			"lives": func(*rapid.T) {
				grants := table.TakeAll(now)
				table = New("seed " + now.String() + fmt.Sprint(len(seen)))
				clear(open)
				clear(asked)
				for _, g := range grants {
					table.Restore(now, g)
				}
				for c, g := range granted {
					q, _ := table.Ask(now, c, messages.Approval{})
					granted[c] = grant{g.until, q.ID}
				}
			},
			"": func(t *rapid.T) {
				list := table.Pending(now)
				if len(list) != len(open) {
					t.Fatalf("%d are open, want %d", len(list), len(open))
				}
				for _, a := range list {
					if _, ok := open[a.ID]; !ok || a.ExpiresAt == nil || !a.ExpiresAt.Equal(asked[a.ID]) {
						t.Fatalf("%+v is not open, or until %v", a, asked[a.ID])
					}
				}
			},
		})
	})
}

// TestAYesTwice: the ten minutes run from the first one, and asking again does not
// lengthen them.
func TestAYesTwice(t *testing.T) {
	table, c := New("s"), Call{Client: "c"}
	q, _ := table.Ask(begin, c, messages.Approval{})
	table.Decide(begin, q.ID, true)
	later := begin.Add(Life - time.Second)
	table.Decide(later, q.ID, true)
	if again, _ := table.Ask(later, c, messages.Approval{}); again.ID != q.ID || !again.ExpiresAt.Equal(begin.Add(Life)) {
		t.Errorf("asked again: %+v", again)
	}
	if !table.Granted(later, c) || table.Granted(begin.Add(Life), c) {
		t.Error("the grant does not end ten minutes after the first yes")
	}
}

// TestBounds: one client cannot push out what another asks, nor fill the memory.
func TestBounds(t *testing.T) {
	table := New("s")
	ask := func(client string, i, size int) messages.Approval {
		t.Helper()
		q, ok := table.Ask(begin, Call{Client: client, Args: fmt.Sprint(i)}, messages.Approval{Client: client, Args: json.RawMessage(make([]byte, size))})
		if !ok {
			t.Fatalf("question %d of %s is refused", i, client)
		}
		return q
	}
	quiet := ask("quiet", 0, 10)
	yes := ask("loud", -1, 10)
	table.Decide(begin, yes.ID, true)
	for i := range 10_000 {
		ask("loud", i, 10)
	}
	count := map[string]int{}
	for _, a := range table.Pending(begin) {
		count[a.Client]++
	}
	if count["quiet"] != 1 || count["loud"] != perClient-1 {
		t.Errorf("open: %v", count)
	}
	if _, known := table.Decide(begin, quiet.ID, true); !known {
		t.Error("the quiet client's question is gone")
	}
	if !table.Granted(begin, Call{Client: "loud", Args: "-1"}) {
		t.Error("a grant gave way to questions")
	}
	for i := range 100 {
		ask("big", i, MaxArgs)
	}
	bytes := 0
	for _, a := range table.Pending(begin) {
		bytes += len(a.Args)
	}
	if bytes > perClientBytes+perClient*10 {
		t.Errorf("%d bytes are kept", bytes)
	}
	if _, ok := table.Ask(begin, Call{}, messages.Approval{Args: make([]byte, MaxArgs+1)}); ok {
		t.Error("arguments beyond what can be looked at are asked about")
	}
	for i := range 1000 {
		ask(fmt.Sprint("name ", i), 0, 0)
	}
	if n := len(table.byID); n > clientsMost+perClient*3 {
		t.Errorf("%d entries", n)
	}
}
