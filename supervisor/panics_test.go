//go:build planted

package supervisor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpbridge/internal/planted"
	"mcpbridge/messages"
)

// busyDay is a workload that brings every ordinary message to its actor: calls that end,
// hang and are cancelled, a death, a drain, a restart, a stop and a start. It returns what
// each call was told; one that is still waiting two seconds behind its deadline is an
// error.
func busyDay(t *testing.T, b *Bridge, f *fakes) {
	t.Helper()
	var calls sync.WaitGroup
	call := func(m messages.CallTool) {
		calls.Go(func() {
			m.Timeout = 5 * time.Second
			began := time.Now()
			o := b.Call(background, m)
			if took := time.Since(began); took > 7*time.Second || o.Kind.String() == "" {
				t.Errorf("%s: %s/%s after %s", m.Tool, o.Kind, o.Code, took)
			}
		})
	}
	operate := func(v messages.Verb, name string) {
		ctx, cancel := context.WithTimeout(background, 30*time.Second)
		defer cancel()
		_ = b.Operate(ctx, v, name) // under a panic it may fail, and must end
	}
	for _, s := range []string{"fs", "web"} {
		call(echo(s))
		call(hang(s))
		cancelled := hang(s)
		cancelled.ID = "cancel-" + s
		call(cancelled)
	}
	time.Sleep(time.Second)
	_, _ = b.Calls(background)
	b.CancelCall("cancel-fs")
	if p := f.peer("fs"); p != nil {
		p.o.OnListChanged()
		p.o.OnNoise(3, false)
	}
	time.Sleep(2 * time.Second)
	if p := f.peer("fs"); p != nil {
		p.die(messages.Exit{Reason: "exit status 1"})
	}
	call(echo("fs"))
	time.Sleep(10 * time.Second)
	operate(messages.VerbDrain, "web")
	operate(messages.VerbRestart, "web")
	operate(messages.VerbStop, "web")
	operate(messages.VerbStart, "web")
	operate(messages.VerbStart, "fs")
	calls.Wait()
}

// aDay opens a bridge, lives through a busy day, and looks whether all is well at its end.
func aDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakes(nil)
		b := openFakes(t, f, fakeConfig("fs", "web"), WithStartupWait(10*time.Second))
		busyDay(t, b, f)
		time.Sleep(5 * time.Minute)
		for _, s := range []string{"fs", "web"} {
			o := b.Call(background, echo(s))
			if row, _ := b.Status().Server(s); o.Kind != messages.OK || row.State != messages.StateReady {
				t.Errorf("five minutes later %s is %s (%s), and a call ends as %s/%s: %s", s, row.State, row.Reason, o.Kind, o.Code, o.Message)
			}
			if n := f.alive(s); n != 1 {
				t.Errorf("%d processes of %s", n, s)
			}
		}
		ctx, cancel := context.WithTimeout(background, time.Minute)
		defer cancel()
		if err := b.Close(ctx); err != nil {
			t.Error(err)
		}
		planted.Sabotage(nil)
		time.Sleep(time.Minute)
	})
}

// announcement is what Open waits for, as long as its context lets it.
const announcement = "servers supervisor.announced"

// TestActorPanics (F15): a bug in the handler of any message, met once, costs what the
// message was about: every caller has an outcome in time, the bridge lives, and the
// state is rebuilt.
func TestActorPanics(t *testing.T) {
	defer planted.Sabotage(nil)
	var mu sync.Mutex
	met := map[string]int{}
	planted.Sabotage(func(actor string, m any) {
		if name := fmt.Sprintf("%T", m); !strings.HasPrefix(name, "*actor.") {
			mu.Lock()
			met[actor+" "+name]++
			mu.Unlock()
		}
	})
	aDay(t)
	if t.Failed() {
		t.Fatal("without any panic")
	}
	if len(met) < 30 {
		t.Errorf("a busy day has only %d kinds of message: %v", len(met), met)
	}
	for _, which := range slices.Sorted(maps.Keys(met)) {
		if which == announcement {
			continue
		}
		for _, nth := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s/%d", which, nth), func(t *testing.T) {
				n := 0
				planted.Sabotage(func(actor string, m any) {
					if actor+" "+fmt.Sprintf("%T", m) != which {
						return
					}
					mu.Lock()
					n++
					hit := n == nth
					mu.Unlock()
					if hit {
						panic("on purpose")
					}
				})
				aDay(t)
			})
		}
	}
}
