package supervisor

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"mcpbridge/config"
	"mcpbridge/messages"
)

// TestMachineModel throws everything at a machine in any order, late and stale
// things above all; the rules stand in world.check and world.left.
func TestMachineModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := testServer()
		cfg.Connect = rapid.SampledFrom([]config.Connect{config.ConnectStartup, config.ConnectStartup, config.ConnectLazy, config.ConnectDisabled}).Draw(t, "connect")
		cfg.Restart.Mode = rapid.SampledFrom([]config.RestartMode{config.RestartAlways, config.RestartAlways, config.RestartOnFailure, config.RestartNever}).Draw(t, "mode")
		cfg.Restart.Burst = rapid.SampledFrom([]int{0, 1, 5}).Draw(t, "burst")
		if rapid.IntRange(0, 4).Draw(t, "blocked") == 0 {
			cfg.Blocked = "approval"
		}
		w := newWorld(cfg)
		must := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		must(w.send(evBoot{}))
		steps := rapid.IntRange(1, 120).Draw(t, "steps")
		for range steps {
			must(randomMove(t, w))
		}
		// Whatever happened, a person can bring the bridge down.
		must(w.send(evStopAll{messages.Ladder{}}))
		if w.session != 0 {
			must(w.end(crash("killed")))
		}
		if w.over == 0 {
			t.Fatal("not over")
		}
	})
}

// randomMove makes one possible move of the world around the machine.
func randomMove(t *rapid.T, w *world) error {
	exits := []messages.Exit{crash("x"), crash("y"), crash("z"), {Reason: "exit status 0", Clean: true}, {Reason: "gone", Permanent: true}, {Reason: "401", Blocked: true}, {Reason: "alive", TreeAlive: true}}
	verbs := []messages.Verb{messages.VerbStart, messages.VerbStop, messages.VerbRestart, messages.VerbReset, messages.VerbDrain}
	switch rapid.IntRange(0, 17).Draw(t, "move") {
	case 16:
		return w.send(randomReload(t))
	case 17:
		return w.send(evRemove{w.gens})
	case 15:
		return w.send(evApproved{testServer()})
	case 0, 1:
		if len(w.wishes) > 0 {
			return w.grant()
		}
	case 2:
		if w.session != 0 {
			return w.spawn()
		}
	case 3, 4:
		if w.session != 0 {
			return w.ready()
		}
	case 5, 6:
		if w.session != 0 {
			return w.end(rapid.SampledFrom(exits).Draw(t, "exit"))
		}
	case 7, 8:
		for _, k := range []timerKind{timerRetry, timerCooldown, timerDrain, timerStable, timerStart, timerStop} {
			if _, ok := w.timers[k]; ok && rapid.Bool().Draw(t, "fire") {
				err := w.fire(k)
				if err == nil && k == timerStop && w.session != 0 { // the shell stops the actor
					err = w.end(messages.Exit{Reason: "without a report", TreeAlive: true})
				}
				return err
			}
		}
	case 9:
		if len(w.stale) > 0 {
			return w.send(rapid.SampledFrom(w.stale).Draw(t, "stale"))
		}
	case 10, 11:
		return w.send(evOperate{rapid.SampledFrom(verbs).Draw(t, "verb")})
	case 12:
		return w.send(evWake{})
	case 13:
		gen := rapid.Uint64Range(0, w.gens+1).Draw(t, "gen")
		late := []event{evSlot{gen}, evLost{gen}, evSpawned{gen, 1}, evRecycle{gen, "x"}, evDrained{}, evListed{gen, messages.Listing{}}, evNoise{gen, 1, true}}
		if gen != w.session { // what only a live session can say
			late = append(late, evReady{Gen: gen}, evDown{Gen: gen, Exit: crash("late")})
		}
		e := rapid.SampledFrom(late).Draw(t, "late")
		if s, ok := e.(evSlot); ok && len(w.wishes) > 0 && w.wishes[0] == s.Gen {
			return w.grant()
		}
		return w.send(e)
	case 14:
		w.now = w.now.Add(time.Duration(rapid.Int64Range(0, int64(10*time.Minute)).Draw(t, "gap")))
	}
	return nil
}

// TestMachineStopStartTimerRaces is the race that revives servers in other
// supervisors: a due timer meets a stop or a start. 10,000 of them, in any order.
func TestMachineStopStartTimerRaces(t *testing.T) {
	races := 0
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(testServer())
		must := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		must(w.send(evBoot{}))
		for range 120 {
			races++
			switch {
			case len(w.wishes) > 0 && rapid.Bool().Draw(t, "grant"):
				must(w.grant())
			case w.session != 0 && !w.asked && rapid.Bool().Draw(t, "crash"):
				must(w.end(crash("x")))
			case w.session != 0 && w.asked && rapid.Bool().Draw(t, "ended"):
				must(w.end(crash("stopped")))
			}
			var due []evTimer
			for k, s := range w.timers {
				if k == timerRetry || k == timerCooldown {
					due = append(due, evTimer{k, s.token})
				}
			}
			verb := rapid.SampledFrom([]messages.Verb{messages.VerbStop, messages.VerbStart, messages.VerbReset, messages.VerbRestart}).Draw(t, "verb")
			first := rapid.Bool().Draw(t, "timer first")
			fire := func() {
				for _, d := range due {
					if s, ok := w.timers[d.Kind]; ok && s.token == d.Token {
						must(w.fire(d.Kind))
					} else {
						must(w.send(d)) // it was on its way when it was cancelled
					}
				}
			}
			if first {
				fire()
			}
			must(w.send(evOperate{verb}))
			stopped := w.m.state == messages.StateStopped
			if !first {
				fire()
			}
			if verb == messages.VerbStop && stopped && w.m.state != messages.StateStopped {
				t.Fatal(fmt.Errorf("revived into %s", w.m.state))
			}
		}
	})
	if races < 10000 && !testing.Short() {
		t.Errorf("only %d races", races)
	}
}

// randomReload is another entry of the server, or the same one.
func randomReload(t *rapid.T) evReload {
	cfg := testServer()
	e := evReload{process: rapid.Bool().Draw(t, "process"), off: rapid.IntRange(0, 5).Draw(t, "off") == 0}
	cfg.Connect = rapid.SampledFrom([]config.Connect{config.ConnectStartup, config.ConnectStartup, config.ConnectLazy, config.ConnectDisabled}).Draw(t, "connect")
	cfg.Restart.Burst = rapid.SampledFrom([]int{0, 1, 5}).Draw(t, "burst")
	if rapid.IntRange(0, 4).Draw(t, "blocked") == 0 {
		cfg.Blocked = "approval"
	}
	e.cfg = cfg
	return e
}
