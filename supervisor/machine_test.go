package supervisor

import (
	"strings"
	"testing"
	"time"

	"mcpbridge/config"
	"mcpbridge/messages"
)

func testServer() config.Server {
	s := config.DefaultServer()
	s.Name, s.Type, s.Command, s.Source = "fs", config.Stdio, "fs-server", "config.yaml:3:3"
	return s
}

// story is a table test of the machine: moves and the state after each.
type story struct {
	t *testing.T
	w *world
}

func tell(t *testing.T, change func(*config.Server)) story {
	t.Helper()
	cfg := testServer()
	if change != nil {
		change(&cfg)
	}
	s := story{t, newWorld(cfg)}
	s.do(s.w.send(evBoot{}))
	return s
}

func (s story) do(err error) story {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
	return s
}

func (s story) is(want messages.State, reason string) story {
	s.t.Helper()
	if s.w.m.state != want || !strings.Contains(s.w.m.reason, reason) {
		s.t.Fatalf("is %s (%s), want %s (%s)", s.w.m.state, s.w.m.reason, want, reason)
	}
	return s
}

func (s story) verb(v messages.Verb, wantErr string) story {
	s.t.Helper()
	s.do(s.w.send(evOperate{v}))
	switch {
	case wantErr == "" && s.w.answer != nil:
		s.t.Fatalf("%s: %v", v, s.w.answer)
	case wantErr != "" && (s.w.answer == nil || !strings.Contains(s.w.answer.Error(), wantErr)):
		s.t.Fatalf("%s: got %v, want %q", v, s.w.answer, wantErr)
	}
	return s
}

// up boots and leads to ready.
func up(t *testing.T) story {
	t.Helper()
	s := tell(t, nil)
	return s.do(s.w.bringUp()).is(messages.StateReady, "")
}

func TestMachineBoot(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*config.Server)
		want   messages.State
		reason string
		start  string // the error of start
	}{
		{"startup", nil, messages.StateStarting, "", ""},
		{"lazy", func(s *config.Server) { s.Connect = config.ConnectLazy }, messages.StateIdle, "lazy", ""},
		{"not enabled", func(s *config.Server) { s.Enabled = false }, messages.StateDisabled, "enabled: false", "fs is disabled (enabled: false in config.yaml:3:3); change that"},
		{"not connected", func(s *config.Server) { s.Connect = config.ConnectDisabled }, messages.StateDisabled, "connect: disabled", "change that in the configuration"},
		{"broken", func(s *config.Server) {
			s.Err = &messages.Issue{Path: "mcp_servers.fs.headers.Authorization", Message: "NOT_SET is not set"}
		}, messages.StateConfigError, "headers.Authorization: NOT_SET is not set", "correct it"},
		{"unapproved", func(s *config.Server) { s.Blocked = "approval" }, messages.StateBlocked, "approval", "--trust-project"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := tell(t, tc.change).is(tc.want, tc.reason).verb(messages.VerbStart, tc.start)
			if tc.start != "" {
				s.verb(messages.VerbRestart, tc.start).verb(messages.VerbReset, tc.start)
				// Stopping what is down anyway is fine and changes nothing.
				s.verb(messages.VerbStop, "").verb(messages.VerbDrain, "").do(s.w.send(evWake{})).is(tc.want, tc.reason)
				if len(s.w.spawned)+len(s.w.wishes) > 0 {
					t.Error("something was started")
				}
			}
		})
	}
}

func TestMachineRestartsAtOnceThenBacksOff(t *testing.T) {
	s := up(t)
	s.do(s.w.end(crash("signal: killed"))).is(messages.StateStarting, "signal: killed")
	s.do(s.w.bringUp())
	s.do(s.w.end(crash("signal: killed"))).is(messages.StateBackoff, "signal: killed")
	if got := s.w.m.retry.Sub(s.w.now); got != 500*time.Millisecond {
		t.Errorf("next try in %s", got)
	}
	s.do(s.w.fire(timerRetry)).is(messages.StateStarting, "")
	if s.w.m.gen != 3 || s.w.m.spawns != 2 {
		t.Errorf("generation %d, %d spawns", s.w.m.gen, s.w.m.spawns)
	}
}

// A server that answers the handshake and exits is started six times, then kept down.
func TestMachineDoesNotSpin(t *testing.T) {
	s := tell(t, nil)
	for s.w.m.state != messages.StateQuarantined {
		if s.w.m.state == messages.StateBackoff {
			s.do(s.w.fire(timerRetry))
		}
		s.do(s.w.bringUp())
		s.w.now = s.w.now.Add(100 * time.Millisecond)
		s.do(s.w.end(crash("exit status 1")))
	}
	if n := len(s.w.spawned); n != 6 {
		t.Errorf("started %d times", n)
	}
	if took := s.w.now.Sub(start); took > 30*time.Second {
		t.Errorf("it took %s", took)
	}
	s.is(messages.StateQuarantined, "6 exits in")
	s.verb(messages.VerbStart, "bridgectl reset fs").verb(messages.VerbRestart, "bridgectl reset fs")
	s.do(s.w.send(evWake{})).is(messages.StateQuarantined, "")
	s.verb(messages.VerbReset, "").is(messages.StateStarting, "reset").do(s.w.bringUp()).is(messages.StateReady, "")
}

func TestMachineHalfOpenTry(t *testing.T) {
	s := tell(t, nil)
	s.do(s.w.grant())
	s.do(s.w.end(messages.Exit{Reason: "npx not found", Stage: messages.StageSpawn, Permanent: true})).is(messages.StateQuarantined, "npx not found")
	for _, want := range []time.Duration{5, 10, 20, 40, 60, 60} {
		if got := s.w.m.retry.Sub(s.w.now); got != want*time.Minute {
			t.Fatalf("cool-down of %s, want %d min", got, want)
		}
		s.do(s.w.fire(timerCooldown)).is(messages.StateStarting, "one try").do(s.w.bringUp())
		s.do(s.w.end(crash("exit status 1"))).is(messages.StateQuarantined, "failed again")
	}
	s.do(s.w.fire(timerCooldown)).do(s.w.bringUp()).do(s.w.fire(timerStable))
	s.do(s.w.end(crash("x"))).is(messages.StateStarting, "x") // all is forgotten
}

// Only reset_after of readiness forgets failures; being listed does not.
func TestMachineStableTimer(t *testing.T) {
	s := up(t)
	s.do(s.w.end(crash("x"))).do(s.w.bringUp())
	s.do(s.w.send(evListed{s.w.session, messages.Listing{}}))
	if at := s.w.timers[timerStable].at; at.Sub(s.w.now) != 2*time.Minute {
		t.Errorf("stable in %s", at.Sub(s.w.now))
	}
	old := s.w.timers[timerStable]
	s.do(s.w.end(crash("x"))).is(messages.StateBackoff, "")
	s.do(s.w.fire(timerRetry)).do(s.w.bringUp())
	s.do(s.w.send(evTimer{timerStable, old.token})) // of the generation before
	s.do(s.w.end(crash("x")))
	if got := s.w.m.retry.Sub(s.w.now); got != time.Second {
		t.Errorf("a stale timer made the policy forget: next try in %s", got)
	}
}

func TestMachineStop(t *testing.T) {
	s := up(t).verb(messages.VerbStop, "").is(messages.StateStopping, "operator")
	s.do(s.w.end(messages.Exit{Reason: "stopped"})).is(messages.StateStopped, "operator")
	for _, e := range []event{evWake{}, evSlot{1}, evReady{Gen: 1}, evDown{Gen: 1}, evRecycle{Gen: 1}, evDrained{}} {
		s.do(s.w.send(e)).is(messages.StateStopped, "operator")
	}
	for _, e := range s.w.stale {
		s.do(s.w.send(e)).is(messages.StateStopped, "operator")
	}
	s.verb(messages.VerbReset, "bridgectl start fs").verb(messages.VerbStart, "").is(messages.StateStarting, "operator")
	// While it waits for a slot nothing has to end.
	s.verb(messages.VerbStop, "").is(messages.StateStopped, "").verb(messages.VerbRestart, "").is(messages.StateStarting, "")
	// While it dials, the dial is ended.
	s.do(s.w.grant()).verb(messages.VerbStop, "").is(messages.StateStopping, "").do(s.w.end(crash("cancelled"))).is(messages.StateStopped, "")
}

func TestMachineStartDuringStop(t *testing.T) {
	s := up(t).verb(messages.VerbStop, "").verb(messages.VerbStart, "").is(messages.StateStopping, "")
	s.do(s.w.end(crash("stopped"))).is(messages.StateStarting, "operator")
	s.do(s.w.bringUp()).verb(messages.VerbStop, "").verb(messages.VerbStart, "").verb(messages.VerbStop, "")
	s.do(s.w.end(crash("stopped"))).is(messages.StateStopped, "")
}

func TestMachineRestartIsNoFailure(t *testing.T) {
	s := up(t)
	for range 20 {
		s.verb(messages.VerbRestart, "").is(messages.StateStarting, "operator") // queued calls survive
		if s.w.session == 0 || !s.w.asked {
			t.Fatal("the old session was not asked to end")
		}
		s.do(s.w.send(evReady{Gen: s.w.session})) // too late
		s.is(messages.StateStarting, "operator").do(s.w.end(crash("signal: terminated"))).is(messages.StateStarting, "operator").do(s.w.bringUp())
	}
	s.do(s.w.end(crash("x"))).is(messages.StateStarting, "x") // still the first failure
}

func TestMachineRecycle(t *testing.T) {
	s := up(t)
	s.do(s.w.send(evRecycle{s.w.session - 1, "stale"})).is(messages.StateReady, "")
	s.do(s.w.send(evRecycle{s.w.session, "abandoned call"})).is(messages.StateStarting, "recycled: abandoned call")
	s.do(s.w.send(evRecycle{s.w.session, "again"})).is(messages.StateStarting, "recycled: abandoned call")
	s.do(s.w.end(crash("killed"))).is(messages.StateStarting, "recycled").do(s.w.bringUp()).is(messages.StateReady, "")
	// A stop that comes while the old tree ends wins.
	s.do(s.w.send(evRecycle{s.w.session, "x"})).verb(messages.VerbStop, "").is(messages.StateStopping, "")
	s.do(s.w.end(crash("killed"))).is(messages.StateStopped, "")
}

func TestMachineDrain(t *testing.T) {
	drained := func() story { return up(t).verb(messages.VerbDrain, "").is(messages.StateDraining, "drained") }
	t.Run("nothing in flight", func(t *testing.T) {
		s := drained()
		s.do(s.w.send(evDrained{})).is(messages.StateStopping, "").do(s.w.end(crash("eof"))).is(messages.StateStopped, "drained")
	})
	t.Run("deadline", func(t *testing.T) {
		s := drained()
		s.do(s.w.fire(timerDrain)).is(messages.StateStopping, "")
		s.do(s.w.send(evDrained{})).is(messages.StateStopping, "").do(s.w.end(crash("eof"))).is(messages.StateStopped, "drained")
	})
	t.Run("death", func(t *testing.T) {
		s := drained()
		s.do(s.w.end(crash("eof"))).is(messages.StateStopped, "drained")
	})
	t.Run("stop does not wait", func(t *testing.T) {
		s := drained()
		s.verb(messages.VerbStop, "").is(messages.StateStopping, "").do(s.w.end(crash("eof"))).is(messages.StateStopped, "stopped by")
	})
	t.Run("restart comes back", func(t *testing.T) {
		s := drained()
		s.verb(messages.VerbRestart, "").is(messages.StateDraining, "").do(s.w.send(evDrained{})).do(s.w.end(crash("eof"))).is(messages.StateStarting, "")
	})
}

func TestMachineTreeAlive(t *testing.T) {
	alive := messages.Exit{Reason: "does not die", TreeAlive: true}
	s := up(t)
	s.do(s.w.end(alive)).is(messages.StateQuarantined, "tree_alive")
	if len(s.w.timers) > 0 {
		t.Errorf("timers %v: nothing may start by itself", s.w.timers)
	}
	s.verb(messages.VerbStart, "could not be proven dead").verb(messages.VerbStop, "").is(messages.StateStopped, "")
	s.verb(messages.VerbStart, "could not be proven dead").verb(messages.VerbRestart, "could not be proven dead")
	s.verb(messages.VerbReset, "").is(messages.StateStarting, "reset").do(s.w.bringUp())
	// A stop does not hide it.
	s.verb(messages.VerbStop, "").do(s.w.end(alive)).is(messages.StateQuarantined, "tree_alive")
}

// A session that does not end is given up in the end, and nothing else starts.
func TestMachineGivesUpASessionThatDoesNotEnd(t *testing.T) {
	s := up(t).verb(messages.VerbRestart, "")
	s.do(s.w.fire(timerStop))
	s.do(s.w.end(messages.Exit{Reason: "without a report", TreeAlive: true})).is(messages.StateQuarantined, "tree_alive")
}

// A dial that does not even say that its budget is spent is ended, which is a failure.
func TestMachineEndsADialThatHangs(t *testing.T) {
	s := tell(t, nil)
	s.do(s.w.grant()).do(s.w.fire(timerStart)).is(messages.StateStarting, "")
	s.do(s.w.end(crash("cancelled"))).is(messages.StateStarting, "start budget")
	s.do(s.w.grant()).do(s.w.fire(timerStart)).do(s.w.end(crash("cancelled"))).is(messages.StateBackoff, "start budget")
}

func TestMachineBlockedByAuth(t *testing.T) {
	s := tell(t, func(s *config.Server) { s.Type, s.URL, s.Command = config.HTTP, "https://example.com/mcp", "" })
	s.do(s.w.grant()).do(s.w.end(messages.Exit{Reason: "401 Unauthorized", Stage: messages.StageHandshake, Blocked: true})).is(messages.StateBlocked, "auth")
	s.verb(messages.VerbStart, "401 Unauthorized").do(s.w.send(evWake{})).is(messages.StateBlocked, "auth")
	s.verb(messages.VerbReset, "").is(messages.StateStarting, "")
}

func TestMachineIdleModes(t *testing.T) {
	clean := messages.Exit{Reason: "exit status 0", Clean: true}
	s := tell(t, func(s *config.Server) { s.Restart.Mode = config.RestartOnFailure })
	s.do(s.w.bringUp()).do(s.w.end(clean)).is(messages.StateIdle, "exit status 0")
	s.do(s.w.send(evWake{})).is(messages.StateStarting, "a call waits")
	// Before the handshake an exit status of 0 is a failure like any other.
	s.do(s.w.grant()).do(s.w.end(clean)).is(messages.StateStarting, "exit status 0")
	s = tell(t, func(s *config.Server) { s.Restart.Mode = config.RestartNever })
	s.do(s.w.bringUp()).do(s.w.end(crash("exit status 2"))).is(messages.StateIdle, "exit status 2")
}

func TestMachineReset(t *testing.T) {
	s := up(t).verb(messages.VerbReset, "nothing to reset")
	s.do(s.w.end(crash("x"))).do(s.w.bringUp()).do(s.w.end(crash("x"))).is(messages.StateBackoff, "")
	s.verb(messages.VerbReset, "").is(messages.StateStarting, "reset")
	if _, left := s.w.timers[timerRetry]; left || len(s.w.timers) != 1 {
		t.Errorf("timers %v, want the one of the slot", s.w.timers)
	}
	s.do(s.w.bringUp()).do(s.w.end(crash("x"))).is(messages.StateStarting, "x")
	s.verb("frobnicate", "one of start, stop, restart, reset, drain")
}

func TestMachineStopAll(t *testing.T) {
	l := messages.Ladder{StdinClose: time.Second}
	s := up(t)
	s.do(s.w.send(evStopAll{l})).is(messages.StateStopping, "closes")
	s.verb(messages.VerbStart, "the bridge is closing").verb(messages.VerbReset, "the bridge is closing")
	s.do(s.w.send(evStopAll{messages.Ladder{}})).do(s.w.end(crash("killed"))).is(messages.StateStopped, "closes")
	if s.w.over != 1 {
		t.Errorf("over was told %d times", s.w.over)
	}
	for _, change := range []func(*config.Server){
		func(s *config.Server) { s.Connect = config.ConnectLazy },
		func(s *config.Server) { s.Enabled = false },
		nil,
	} {
		s := tell(t, change)
		s.do(s.w.send(evStopAll{l}))
		if s.w.over != 1 {
			t.Errorf("%s: over was told %d times", s.w.m.state, s.w.over)
		}
	}
}

// From the moment its connection is lost nobody may take a server for ready, though
// its queue lives on and the next generation waits for the proof of death.
func TestLostIsNotReady(t *testing.T) {
	var gen uint64
	m := newMachine(config.Server{Name: "fs", Type: config.Stdio, Enabled: true, Restart: config.DefaultServer().Restart}, func() uint64 { gen++; return gen })
	now := time.Now()
	m.step(now, 0, evBoot{})
	m.step(now, 0, evSlot{1})
	m.step(now, 0, evReady{Gen: 1})
	if m.state != messages.StateReady {
		t.Fatal(m.state)
	}
	m.step(now, 0, evLost{Gen: 2}) // of another incarnation
	if m.state != messages.StateReady {
		t.Fatalf("a stale message made it %s", m.state)
	}
	m.step(now, 0, evLost{Gen: 1})
	if m.state != messages.StateStarting || m.phase != phaseLive || gen != 1 {
		t.Errorf("%s, phase %d, generation %d", m.state, m.phase, gen)
	}
	m.step(now, 0, evDown{Gen: 1, Exit: messages.Exit{Reason: "signal: killed", Stage: messages.StageRunning, At: now}})
	if m.state != messages.StateStarting || gen != 2 {
		t.Errorf("%s, generation %d", m.state, gen)
	}
}
