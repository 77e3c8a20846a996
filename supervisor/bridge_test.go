package supervisor

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpbridge/config"
	"mcpbridge/messages"
)

var background = context.Background()

func echo(server string) messages.CallTool {
	return messages.CallTool{Tool: server + "/echo", Args: json.RawMessage(`{"a":1}`)}
}

func hang(server string) messages.CallTool { return messages.CallTool{Tool: server + "/hang"} }

func TestCallGoesThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openFakes(t, newFakes(nil), fakeConfig("fs", "web"), WithStartupWait(10*time.Second))
		defer closeBridge(t, b)
		if n := len(b.Catalogue().Tools()); n != 8 {
			t.Errorf("%d tools right after Open", n)
		}
		out := b.Call(background, echo("fs"))
		if out.Kind != messages.OK || !strings.Contains(out.Text(), `{"a":1}`) {
			t.Errorf("%+v", out)
		}
		if out := b.Call(background, messages.CallTool{Tool: "fs/nothing"}); out.Code != messages.CodeUnknownTool {
			t.Errorf("%+v", out)
		}
		if out := b.Call(background, messages.CallTool{Tool: "fs/echo", Args: json.RawMessage(`[1]`)}); out.Code != messages.CodeInvalidArguments {
			t.Errorf("%+v", out)
		}
		st := b.Status()
		want := messages.Counts{Configured: 2, Connected: 2, Discovered: 8, Adapted: 8, Registered: 8}
		if st.Bridge.Counts != want || st.Bridge.RunID != b.RunID() {
			t.Errorf("%+v", st.Bridge)
		}
		if ok, missing := b.Ready(); !ok {
			t.Errorf("not ready: %v", missing)
		}
	})
}

// The same server crashes for ever: it is tried as often as the policy says, over two
// days, and never two of it live at once.
func TestBackoffQuarantineCooldownOverDays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakes(func(string, int) behaviour { return behaviour{livesFor: time.Second} })
		b := openFakes(t, f, fakeConfig("fs"))
		defer closeBridge(t, b)
		s := await(t, b, "fs", messages.StateQuarantined)
		if n := f.count("fs"); n != 6 {
			t.Errorf("started %d times before the quarantine", n)
		}
		if !strings.HasPrefix(s.Reason, "6 exits in ") || s.NextRetry == nil || s.LastExit == nil || s.Restarts != 5 {
			t.Errorf("%+v", s)
		}
		if len(b.Catalogue().Tools()) != 0 {
			t.Error("its tools are still on offer")
		}
		time.Sleep(48 * time.Hour)
		// Cool-downs of 5, 10, 20, 40 and then 60 minutes.
		if n := f.count("fs"); n < 6+48 || n > 6+4+48 {
			t.Errorf("started %d times in two days", n)
		}
		if f.atOnce("fs") != 1 {
			t.Errorf("%d lived at once", f.atOnce("fs"))
		}
		if out := b.Call(background, echo("fs")); out.Kind != messages.NotSent {
			t.Errorf("a call to a quarantined server: %+v", out)
		}
		if err := b.Operate(background, messages.VerbReset, "fs"); err != nil {
			t.Error(err)
		}
		await(t, b, "fs", messages.StateReady)
	})
}

// A server that hangs without ending is a failure for the restart policy, and the
// calls that come while it is ended go to its successor.
func TestHungServerIsRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakes(func(_ string, n int) behaviour { return behaviour{silent: n == 1, slowStop: 3 * time.Second} })
		b := openFakes(t, f, fakeConfig("fs"))
		defer closeBridge(t, b)
		await(t, b, "fs", messages.StateReady)
		time.Sleep(131 * time.Second) // three pings, a list, and the ladder goes on
		synctest.Wait()
		if f.alive("fs") != 1 || f.count("fs") != 1 {
			t.Fatalf("%d alive after %d starts", f.alive("fs"), f.count("fs"))
		}
		if out := b.Call(background, echo("fs")); out.Kind != messages.OK || !strings.Contains(out.Text(), "generation 2") {
			t.Errorf("%+v", out)
		}
		s := await(t, b, "fs", messages.StateReady)
		if s.Restarts != 1 || s.LastExit == nil || s.LastExit.Reason != "no answer to 3 pings and a list" || s.LastExit.Stage != messages.StageRunning {
			t.Errorf("%+v, %+v", s, s.LastExit)
		}
		time.Sleep(24 * time.Hour)
		if f.count("fs") != 2 || f.atOnce("fs") != 1 {
			t.Errorf("%d starts, %d at once", f.count("fs"), f.atOnce("fs"))
		}
	})
}

func TestPermanentFailureQuarantinesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exit := messages.Exit{Reason: "npx not found in PATH", Stage: messages.StageSpawn, Permanent: true, Hint: "install Node.js"}
		f := newFakes(func(string, int) behaviour { return behaviour{fail: &exit} })
		b := openFakes(t, f, fakeConfig("fs"), WithStartupWait(time.Minute))
		defer closeBridge(t, b)
		s := await(t, b, "fs", messages.StateQuarantined)
		if f.count("fs") != 1 || s.Reason != exit.Reason || s.LastExit.Hint != exit.Hint || len(s.Issues) == 0 {
			t.Errorf("%d starts, %+v", f.count("fs"), s)
		}
	})
}

// Calls in flight are settled by the death, at once; a queued one waits for the next
// generation; other servers never notice.
func TestDeathSettlesCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakes(func(_ string, n int) behaviour {
			if n == 1 {
				return behaviour{}
			}
			return behaviour{takes: 3 * time.Second}
		})
		b := openFakes(t, f, fakeConfig("fs", "web"), WithStartupWait(time.Minute))
		defer closeBridge(t, b)
		outs := make(chan messages.Outcome, 1)
		queued := make(chan messages.Outcome, 1)
		go func() { outs <- b.Call(background, hang("fs")) }()
		synctest.Wait()
		go func() { queued <- b.Call(background, hang("fs")) }()
		synctest.Wait()
		if st, _ := b.Status().Server("fs"); st.InFlight != 1 || st.Queued != 1 {
			t.Fatalf("in flight %d, queued %d", st.InFlight, st.Queued)
		}
		died := time.Now()
		f.peer("fs").die(messages.Exit{Reason: "signal: killed"})
		out := <-outs
		if out.Kind != messages.OutcomeUnknown || out.Code != messages.CodeConnectionLost || time.Since(died) > 50*time.Millisecond {
			t.Errorf("after %s: %+v", time.Since(died), out)
		}
		if out := b.Call(background, echo("web")); out.Kind != messages.OK || time.Since(died) > 50*time.Millisecond {
			t.Errorf("after %s: %+v", time.Since(died), out)
		}
		s := await(t, b, "fs", messages.StateReady)
		if s.Generation <= out.Generation || time.Since(died) > 3500*time.Millisecond {
			t.Errorf("generation %d after %s", s.Generation, time.Since(died))
		}
		synctest.Wait()
		calls, err := b.Calls(background)
		if err != nil || len(calls) != 1 || calls[0].State != messages.CallRunning || calls[0].Generation != s.Generation {
			t.Fatalf("%+v, %v", calls, err)
		}
		if !b.CancelCall(calls[0].CallID) || b.CancelCall("nobody") {
			t.Error("cancel did not find the call, or found another")
		}
		if out := <-queued; out.Kind != messages.ToolError && out.Code != messages.CodeCancelled {
			t.Errorf("%+v", out)
		}
	})
}

func TestCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openFakes(t, newFakes(nil), fakeConfig("fs"), WithStartupWait(time.Minute))
		defer closeBridge(t, b)
		ctx, cancel := context.WithTimeout(background, 2*time.Second)
		defer cancel()
		began := time.Now()
		out := b.Call(ctx, hang("fs"))
		if out.Kind != messages.OutcomeUnknown || out.Code != messages.CodeTimeout || time.Since(began) != 2*time.Second || out.DeadlineSource != messages.DeadlineCaller {
			t.Errorf("after %s: %+v", time.Since(began), out)
		}
		gone, leave := context.WithCancel(background)
		leave()
		if out := b.Call(gone, hang("fs")); out.Code != messages.CodeCancelled {
			t.Errorf("%+v", out)
		}
	})
}

func TestDrainVerb(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openFakes(t, newFakes(nil), fakeConfig("fs", "web"), WithStartupWait(time.Minute))
		defer closeBridge(t, b)
		outs := make(chan messages.Outcome, 3)
		for range 2 { // the second waits behind the first
			go func() { outs <- b.Call(background, hang("fs")) }()
		}
		synctest.Wait()
		began := time.Now()
		if err := b.Operate(background, messages.VerbDrain, "fs"); err != nil {
			t.Fatal(err)
		}
		if out := <-outs; out.Kind != messages.NotSent || time.Since(began) > 0 {
			t.Errorf("the queued one after %s: %+v", time.Since(began), out)
		}
		if out := <-outs; out.Kind != messages.OutcomeUnknown || time.Since(began) < 5*time.Second {
			t.Errorf("the one in flight after %s: %+v", time.Since(began), out)
		}
		await(t, b, "fs", messages.StateStopped)
		if out := b.Call(background, echo("fs")); out.Kind != messages.NotSent && out.Kind != messages.Rejected {
			t.Errorf("%+v", out)
		}
		if out := b.Call(background, echo("web")); out.Kind != messages.OK {
			t.Errorf("%+v", out)
		}
		time.Sleep(24 * time.Hour)
		if state(b, "fs") != messages.StateStopped {
			t.Error("it came back by itself")
		}
	})
}

// Restart replaces the incarnation, keeps what is queued, and is no failure.
func TestRestartVerb(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakes(func(string, int) behaviour { return behaviour{slowStop: time.Second} })
		b := openFakes(t, f, fakeConfig("fs"), WithStartupWait(time.Minute))
		defer closeBridge(t, b)
		for i := range 10 {
			if err := b.Operate(background, messages.VerbRestart, "fs"); err != nil {
				t.Fatal(err)
			}
			if out := b.Call(background, echo("fs")); out.Kind != messages.OK || out.Generation != uint64(i+2) {
				t.Fatalf("%+v", out)
			}
		}
		if s := await(t, b, "fs", messages.StateReady); s.Restarts != 10 || f.atOnce("fs") != 1 {
			t.Errorf("%+v, %d at once", s, f.atOnce("fs"))
		}
	})
}

func TestOperateUnknownServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openFakes(t, newFakes(nil), fakeConfig("fs", "web"))
		defer closeBridge(t, b)
		err := b.Operate(background, messages.VerbStart, "sf")
		if err == nil || err.Error() != `no server is named "sf": there are fs, web` {
			t.Error(err)
		}
	})
}

// Stop and start meet the timers of backoff, again and again: a stopped server stays
// down, and there is never more than one.
func TestStopMeetsTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakes(func(string, int) behaviour { return behaviour{livesFor: time.Millisecond} })
		cfg := fakeConfig("fs")
		cfg.Servers[0].Restart.Burst = 0
		cfg.Servers[0].Restart.Initial = 10 * time.Millisecond
		cfg.Servers[0].Restart.Max = 20 * time.Millisecond
		b := openFakes(t, f, cfg)
		defer closeBridge(t, b)
		for i := range 300 {
			time.Sleep(time.Duration(i%37) * time.Millisecond)
			if err := b.Operate(background, messages.VerbStop, "fs"); err != nil {
				t.Fatal(err)
			}
			await(t, b, "fs", messages.StateStopped)
			n := f.count("fs")
			time.Sleep(time.Second)
			if state(b, "fs") != messages.StateStopped || f.count("fs") != n {
				t.Fatalf("round %d: revived", i)
			}
			if err := b.Operate(background, messages.VerbStart, "fs"); err != nil {
				t.Fatal(err)
			}
		}
		if f.atOnce("fs") != 1 {
			t.Errorf("%d lived at once", f.atOnce("fs"))
		}
	})
}

func TestLazyServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakes(nil)
		cfg := fakeConfig("fs", "web")
		cfg.Servers[0].Connect, cfg.Servers[1].Connect = config.ConnectLazy, config.ConnectLazy
		b := openFakes(t, f, cfg)
		defer closeBridge(t, b)
		time.Sleep(time.Hour)
		if f.count("fs")+f.count("web") != 0 {
			t.Fatal("a lazy server was started")
		}
		if out := b.Call(background, echo("fs")); out.Kind != messages.OK {
			t.Errorf("%+v", out)
		}
		b.WaitListed(background, "") // wakes the other one, whose tools nobody has seen
		if n := len(b.Catalogue().Tools()); n != 8 || f.count("web") != 1 {
			t.Errorf("%d tools, %d starts", n, f.count("web"))
		}
	})
}

// However many hang, the others are up at once and the hung ones keep nobody waiting
// beyond list_wait.
func TestHungServersDelayNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var names []string
		for i := range 20 {
			names = append(names, fmt.Sprintf("s%02d", i))
		}
		f := newFakes(func(s string, _ int) behaviour { return behaviour{hang: s < "s08"} })
		began := time.Now()
		b := openFakes(t, f, fakeConfig(names...))
		defer closeBridge(t, b)
		if time.Since(began) > 0 {
			t.Errorf("Open took %s", time.Since(began))
		}
		for _, n := range names[8:] {
			await(t, b, n, messages.StateReady)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the healthy ones took %s", took)
		}
		b.WaitListed(background, "")
		if took := time.Since(began); took > 8*time.Second {
			t.Errorf("a list took %s", took)
		}
		again := time.Now()
		b.WaitListed(background, "")
		if took := time.Since(again); took > 0 {
			t.Errorf("the hung ones kept a second list waiting for %s", took)
		}
	})
}

func TestOpenDisabled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakes(nil)
		cfg := fakeConfig("fs")
		cfg.Enabled = false
		b := openFakes(t, f, cfg, WithStartupWait(time.Minute))
		defer closeBridge(t, b)
		time.Sleep(time.Hour)
		if f.count("fs") != 0 || state(b, "fs") != messages.StateDisabled {
			t.Errorf("%d starts, %s", f.count("fs"), state(b, "fs"))
		}
		if err := b.Operate(background, messages.VerbStart, "fs"); err == nil || !strings.Contains(err.Error(), "the whole bridge is disabled") {
			t.Error(err)
		}
	})
}

func TestOpenRefusesWhatCannotRun(t *testing.T) {
	if _, err := Open(background, nil); err == nil {
		t.Error("no configuration was accepted")
	}
	if _, err := Open(background, fakeConfig("a", "a")); err == nil || !strings.Contains(err.Error(), `two servers are named "a"`) {
		t.Error(err)
	}
}

func TestEventsAndLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakes(nil)
		var mu sync.Mutex
		var hooked []messages.Event
		b := openFakes(t, f, fakeConfig("fs"), WithStartupWait(time.Minute), WithEventHook(func(e messages.Event) {
			mu.Lock()
			defer mu.Unlock()
			hooked = append(hooked, e)
		}))
		f.peer("fs").die(messages.Exit{Reason: "signal: killed"})
		await(t, b, "fs", messages.StateReady)
		b.Call(background, echo("fs"))
		closeBridge(t, b)
		mu.Lock()
		defer mu.Unlock()
		events := b.Events(0)
		if len(events) != len(hooked) {
			t.Errorf("%d events, the hook heard %d", len(events), len(hooked))
		}
		var types []string
		for i, e := range events {
			if e.Seq != uint64(i+1) || e.Time.IsZero() {
				t.Errorf("event %d: %+v", i, e)
			}
			types = append(types, string(e.Type))
		}
		all := strings.Join(types, " ")
		for _, want := range []string{"server_state server_spawned", "server_ready", "server_exited", "call_accepted", "call_settled", "bridge_draining"} {
			if !strings.Contains(all, want) {
				t.Errorf("%s is missing in %s", want, all)
			}
		}
		if n := len(b.Events(events[3].Seq)); n != len(events)-4 {
			t.Errorf("%d events after the fourth of %d", n, len(events))
		}
		var lines []string
		for _, l := range b.Logs("fs", 0) {
			lines = append(lines, l.Source+": "+l.Text)
		}
		text := strings.Join(lines, "\n")
		for _, want := range []string{"stderr: hello from fs, start 1", "bridge: ready: generation 1, 4 tools", "generation 1 failed (running): signal: killed; restarting at once", "stderr: hello from fs, start 2"} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is missing in\n%s", want, text)
			}
		}
		if last := b.Logs("", 1); len(last) != 1 || last[0].Seq != uint64(len(lines)) {
			t.Errorf("%+v of %d", last, len(lines))
		}
	})
}

// A lost answer of a first start costs nothing: the second start of a command line
// has the shorter budget, in the next life of the bridge too.
func TestStartBudgets(t *testing.T) {
	dir := t.TempDir()
	for life, want := range []time.Duration{5 * time.Minute, 30 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakes(nil)
			b := openFakes(t, f, fakeConfig("fs"), WithStartupWait(time.Minute), WithStateDir(dir))
			if got := f.peer("fs").o.Budget; got != want {
				t.Errorf("life %d: budget %s, want %s", life, got, want)
			}
			_ = b.Operate(background, messages.VerbRestart, "fs")
			await(t, b, "fs", messages.StateReady)
			if got := f.peer("fs").o.Budget; got != 30*time.Second {
				t.Errorf("life %d: budget of a restart %s", life, got)
			}
			closeBridge(t, b)
		})
	}
}
