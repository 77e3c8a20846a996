package supervisor

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"mcpbridge/config"
	"mcpbridge/messages"
)

// withEnv is a configuration of the named servers, in which each has another environment
// in each turn that is given.
func withEnv(turn string, names ...string) *config.Config {
	c := fakeConfig(names...)
	for i := range c.Servers {
		c.Servers[i].Env = map[string]string{"TURN": turn}
	}
	return c
}

func mustReload(t *testing.T, b *Bridge, c *config.Config) Changes {
	t.Helper()
	got, err := b.Reload(background, c)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestReloadRaces reloads two hundred times while servers crash, hang, are stopped and
// drained, and reloads meet (C05): what is not in the configuration never runs afterwards,
// whatever timers were due; no incarnation meets another one; no generation comes twice.
func TestReloadRaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(5, 5))
		f := newFakes(func(_ string, n int) behaviour {
			switch n % 5 {
			case 0:
				return behaviour{fail: &messages.Exit{Reason: "exit status 1", Stage: messages.StageHandshake, At: time.Now()}}
			case 1:
				return behaviour{livesFor: time.Duration(n%700) * time.Millisecond}
			case 2:
				return behaviour{takes: 300 * time.Millisecond, slowStop: 200 * time.Millisecond}
			default:
				return behaviour{}
			}
		})
		all := []string{"a", "b", "c", "d"}
		b := openFakes(t, f, fakeConfig(all...))
		defer closeBridge(t, b)
		seen := map[uint64]string{}
		var mu sync.Mutex
		stop := b.Subscribe(func(e messages.Event) {
			if e.Type == messages.EventServerSpawned {
				mu.Lock()
				defer mu.Unlock()
				if other, twice := seen[e.Generation]; twice {
					t.Errorf("generation %d of %s was %s's before", e.Generation, e.Server, other)
				}
				seen[e.Generation] = e.Server
			}
		})
		defer stop()
		verbs := []messages.Verb{messages.VerbStart, messages.VerbRestart, messages.VerbReset, messages.VerbStop, messages.VerbDrain}
		revived := 0
		for n := range 200 {
			names := slices.DeleteFunc(slices.Clone(all), func(string) bool { return rng.IntN(3) == 0 })
			turn := []string{"", "1", "2"}[rng.IntN(3)]
			var both sync.WaitGroup
			for _, c := range []*config.Config{withEnv("x", all[:rng.IntN(5)]...), withEnv(turn, names...)} {
				if rng.IntN(3) > 0 {
					both.Go(func() { mustReload(t, b, c) })
				}
			}
			for range rng.IntN(4) {
				name := all[rng.IntN(len(all))]
				if p := f.peer(name); p != nil && rng.IntN(2) == 0 {
					p.die(messages.Exit{Reason: "signal: killed", Stage: messages.StageRunning, At: time.Now()})
				} else {
					_ = b.Operate(background, verbs[rng.IntN(len(verbs))], name) // refused where it cannot be
				}
				time.Sleep(time.Duration(rng.IntN(400)) * time.Millisecond)
			}
			both.Wait()
			mustReload(t, b, withEnv(turn, names...))
			time.Sleep(10 * time.Second) // drained
			counts := map[string]int{}
			for _, name := range all {
				counts[name] = f.count(name)
			}
			time.Sleep(2 * time.Hour) // longer than any timer
			for _, name := range all {
				_, shown := b.Status().Server(name)
				if configured := slices.Contains(names, name); configured != shown {
					t.Fatalf("turn %d: %s is configured: %t, shown: %t", n, name, configured, shown)
				}
				if !shown && (f.alive(name) > 0 || f.count(name) != counts[name]) {
					t.Fatalf("turn %d: %s was removed, and %d live, %d starts became %d", n, name, f.alive(name), counts[name], f.count(name))
				}
				if !shown {
					revived++
				}
			}
		}
		for _, name := range all {
			if f.atOnce(name) > 1 {
				t.Errorf("%d of %s lived at once", f.atOnce(name), name)
			}
		}
		if revived < 100 {
			t.Errorf("only %d times there was a removed server to look at", revived)
		}
	})
}

// TestReloadInPlace: what needs no other process touches none, and the unchanged hears
// nothing of it.
func TestReloadInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakes(nil)
		b := openFakes(t, f, fakeConfig("same", "tuned"))
		defer closeBridge(t, b)
		await(t, b, "same", messages.StateReady)
		await(t, b, "tuned", messages.StateReady)
		next := fakeConfig("same", "tuned")
		next.Servers[1].Limits.ResultBytes = 77
		next.Servers[1].Required = true
		next.Servers[1].Timeouts.Call = time.Minute
		next.Permissions = []config.Rule{{Action: messages.Deny}}
		next.ListWait = time.Hour
		c := mustReload(t, b, next)
		if len(c.Changed) != 1 || c.Changed[0].Process || len(c.Settings) == 0 {
			t.Errorf("%+v", c)
		}
		if f.count("same") != 1 || f.count("tuned") != 1 {
			t.Errorf("started %d and %d times", f.count("same"), f.count("tuned"))
		}
		if row, _ := b.Status().Server("tuned"); !row.Required {
			t.Error("required did not arrive")
		}
		if got := (*b.limits.Load())["tuned"]; got != 77 {
			t.Errorf("result_bytes is %d", got)
		}
		if out := b.Call(background, messages.CallTool{Tool: "same/echo"}); out.Kind != messages.Rejected {
			t.Errorf("a call that is denied now: %s/%s", out.Kind, out.Code)
		}
		if time.Duration(b.wait.Load()) != time.Hour {
			t.Error("list_wait did not arrive")
		}
	})
}

// TestReloadRefused: a configuration with an error, none at all, a bridge that closes.
func TestReloadRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakes(nil)
		b := openFakes(t, f, fakeConfig("a"))
		await(t, b, "a", messages.StateReady)
		bad := fakeConfig("b")
		bad.Servers[0].Err = &messages.Issue{Severity: messages.SeverityError, Stage: messages.StageConfig, Server: "b", Message: "no"}
		twice := fakeConfig("b", "b")
		for _, load := range []func() (*config.Config, error){
			func() (*config.Config, error) { return bad, nil },
			func() (*config.Config, error) { return twice, nil },
			func() (*config.Config, error) { return nil, nil },
			func() (*config.Config, error) { return nil, errors.New("x.yaml:1:1: no") },
		} {
			_, err := b.ReloadFrom(background, load)
			var refused *ReloadError
			if !errors.As(err, &refused) {
				t.Errorf("%v", err)
			}
			if st := b.Status(); len(st.Servers) != 1 || st.Servers[0].State != messages.StateReady || len(st.Issues) == 0 || f.count("a") != 1 {
				t.Errorf("%+v", st)
			}
		}
		mustReload(t, b, fakeConfig("a"))
		if st := b.Status(); len(st.Issues) > 0 {
			t.Errorf("still told: %v", st.Issues)
		}
		// Whoever does not want to wait for another reload need not.
		began, end := make(chan struct{}), make(chan struct{})
		go func() {
			_, _ = b.ReloadFrom(background, func() (*config.Config, error) { close(began); <-end; return nil, errors.New("no") })
		}()
		<-began
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		if _, err := b.Reload(ctx, fakeConfig("a")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		close(end)
		closeBridge(t, b)
		if _, err := b.Reload(background, fakeConfig("a", "b")); !errors.Is(err, errClosing) || f.count("b") > 0 {
			t.Errorf("a closed bridge: %v", err)
		}
	})
}

// TestReloadNewest: what runs after a reload runs on the newest entry, in whatever state
// the reload found the server; what an operator stopped meanwhile stays stopped, and
// starts on the newest entry when it is asked for.
func TestReloadNewest(t *testing.T) {
	slow := behaviour{slowStop: time.Second}
	hang := behaviour{hang: true}
	for name, tt := range map[string]struct {
		first  behaviour
		before func(b *Bridge)
		during func(b *Bridge) // after the reload, before the old process is down
		want   messages.State
	}{
		"ready":               {first: slow, want: messages.StateReady},
		"starting":            {first: hang, want: messages.StateReady},
		"restarting":          {first: slow, before: func(b *Bridge) { _ = b.Operate(background, messages.VerbRestart, "a") }, want: messages.StateReady},
		"stopping":            {first: slow, before: func(b *Bridge) { _ = b.Operate(background, messages.VerbStop, "a") }, want: messages.StateStopped},
		"stopped meanwhile":   {first: slow, during: func(b *Bridge) { _ = b.Operate(background, messages.VerbStop, "a") }, want: messages.StateStopped},
		"reloaded meanwhile":  {first: slow, during: func(b *Bridge) { _, _ = b.Reload(background, withEnv("new", "a")) }, want: messages.StateReady},
		"restarted meanwhile": {first: slow, during: func(b *Bridge) { _ = b.Operate(background, messages.VerbRestart, "a") }, want: messages.StateReady},
		"removed and it is back": {first: slow, during: func(b *Bridge) {
			_, _ = b.Reload(background, fakeConfig())
			_, _ = b.Reload(background, withEnv("new", "a"))
		}, want: messages.StateReady},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakes(func(_ string, n int) behaviour {
					if n == 1 {
						return tt.first
					}
					return behaviour{}
				})
				b := openFakes(t, f, withEnv("old", "a"))
				defer closeBridge(t, b)
				synctest.Wait()
				if tt.before != nil {
					tt.before(b)
				}
				if c := mustReload(t, b, withEnv("new", "a")); len(c.Changed) != 1 || !c.Changed[0].Process {
					t.Errorf("%+v", c)
				}
				if tt.during != nil {
					tt.during(b)
				}
				time.Sleep(time.Hour)
				if row, _ := b.Status().Server("a"); row.State != tt.want {
					t.Fatalf("it is %s (%s), want %s", row.State, row.Reason, tt.want)
				}
				if tt.want == messages.StateStopped {
					if f.alive("a") > 0 || f.count("a") != 1 {
						t.Fatalf("%d live after %d starts", f.alive("a"), f.count("a"))
					}
					if err := b.Operate(background, messages.VerbStart, "a"); err != nil {
						t.Fatal(err)
					}
					await(t, b, "a", messages.StateReady)
				}
				if got := f.peer("a").o.Server.Env["TURN"]; got != "new" || f.atOnce("a") > 1 {
					t.Errorf("it runs on the %s entry, %d lived at once", got, f.atOnce("a"))
				}
			})
		})
	}
}

// TestReloadBackAndForth removes a server and adds it again, as fast as it goes: the end
// of one removal must not be taken for the end of a later one.
func TestReloadBackAndForth(t *testing.T) {
	b := openFakes(t, newFakes(nil), fakeConfig("a", "b"))
	defer func() {
		if err := b.Close(background); err != nil {
			t.Error(err)
		}
	}()
	for range 300 {
		for _, c := range []*config.Config{fakeConfig("b"), fakeConfig("a", "b")} {
			mustReload(t, b, c)
		}
	}
	deadline := time.Now().Add(time.Minute)
	for {
		next := b.changed.after()
		if state(b, "a") == messages.StateReady {
			break
		}
		select {
		case <-next:
		case <-time.After(time.Until(deadline)):
			row, ok := b.Status().Server("a")
			t.Fatalf("it is not ready: %t %+v", ok, row)
		}
	}
	if row, _ := b.Status().Server("b"); row.Generation != 1 && row.Generation != 2 {
		t.Errorf("the other one is in generation %d", row.Generation)
	}
}

// TestLateGone: the end of an earlier removal does not end a server that has come back
// and been removed again.
func TestLateGone(t *testing.T) {
	s := &servers{children: map[string]*actor.PID{"a": actor.NewPID("here", "a")}, removed: map[string]uint64{"a": 2}}
	s.gone(nil, serverGone{"a", 1}) // it would need its context
	if s.children["a"] == nil || s.removed["a"] != 2 {
		t.Errorf("%v %v", s.children, s.removed)
	}
}
