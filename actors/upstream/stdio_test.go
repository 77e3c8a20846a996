//go:build linux

package upstream

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpbridge/messages"
)

func TestHandshakeTeachesTheServer(t *testing.T) {
	r := newRig(t, "plain").dial()
	got := r.peer.Info()
	want := messages.PeerInfo{Transport: "stdio", Protocol: "2025-11-25", PID: r.pids[0], ServerName: "fake", ServerVer: "1.2",
		Instructions: "be nice", HasTools: true}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if len(r.listing.Tools) != 1 || r.listing.Discovered != 1 || len(r.listing.Issues) != 0 {
		t.Errorf("listing %+v", r.listing)
	}
}

func TestResultsKeepTheirBytes(t *testing.T) {
	for _, modes := range []string{"plain", "crlf", "bom", "banner", "stringid", "idlast"} {
		t.Run(modes, func(t *testing.T) {
			r := newRig(t, modes).dial()
			rep := r.call("exact", `{}`)
			r.kind(rep, messages.ReplyResult)
			if string(rep.Raw) != exactResult {
				t.Errorf("result changed:\n%s", rep.Raw)
			}
			if rep = r.call("error", `{}`); rep.Kind != messages.ReplyError || !strings.Contains(string(rep.Raw), `{"code":-32000,"message":"no such <thing>","extra":1e400}`) {
				t.Errorf("error changed: %v %s", rep.Kind, rep.Raw)
			}
		})
	}
}

func TestRequestIsTheCallersOwn(t *testing.T) {
	r := newRig(t, "plain").dial()
	e := r.exec("raw", "{\n \"n\": 9007199254740993,\r\n \"f\": 1.0 }")
	e.Meta = json.RawMessage(`{"traceparent":"00-x","progressToken":"mine","io.modelcontextprotocol/protocolVersion":"x","mcpbridge/idempotency-key":"k","p\u0072ogressToken":1}`)
	got := text(t, r.do(e))
	var m struct {
		ID     int64
		Params json.RawMessage
	}
	if err := json.Unmarshal([]byte(got), &m); err != nil {
		t.Fatal(err)
	}
	id := strconv.FormatInt(m.ID, 10)
	if want := `{"name":"raw","arguments":{"n":9007199254740993,"f":1.0},"_meta":{"progressToken":` + id + `,"traceparent":"00-x"}}`; string(m.Params) != want {
		t.Errorf("params\n%s\nwant\n%s", m.Params, want)
	}
	if m.ID < firstRawID {
		t.Errorf("id %d is the SDK's", m.ID)
	}
}

func TestNoiseCostsNothing(t *testing.T) {
	r := newRig(t, "banner").dial()
	for _, tool := range []string{"noise", "two", "batch"} {
		r.kind(r.call(tool, `{}`), messages.ReplyResult)
	}
	noise := func() (uint64, bool) { r.mu.Lock(); defer r.mu.Unlock(); return r.noise, r.noisy }
	// Four lines of the banner (the fifth, a bare number, and the log object too)
	// and three of the call.
	r.eventually("noise count", func() bool { n, _ := noise(); return n == 7 })
	if _, bad := noise(); bad {
		t.Error("degraded by a few lines")
	}
	r.kind(r.call("manynoise", `{}`), messages.ReplyResult)
	r.eventually("degraded", func() bool { _, bad := noise(); return bad })
}

func TestAnswersThatAreNone(t *testing.T) {
	r := newRig(t, "plain").dial()
	r.kind(r.call("brokenanswer", `{}`), messages.ReplyProtocol)
	r.kind(r.call("noanswer", `{}`), messages.ReplyProtocol)
	r.kind(r.call("echo", `{}`), messages.ReplyResult)
}

func TestTooLargeAnswerCostsOneCall(t *testing.T) {
	for _, modes := range []string{"plain", "idlast", "stringid"} {
		t.Run(modes, func(t *testing.T) {
			r := newRig(t, modes)
			r.o.Server.Limits.FrameBytes = 300_000
			r.dial()
			hang := r.start(r.exec("waitcancel", `{}`))
			r.kind(r.call("big", `{"N":3000000}`), messages.ReplyTooLarge)
			r.kind(r.call("big", `{"N":300000}`), messages.ReplyTooLarge)
			r.kind(r.call("big", `{"N":299000}`), messages.ReplyResult)
			r.peer.Cancel("c1", 1, "enough")
			if got := text(t, r.await(hang)); got != "cancelled: enough" {
				t.Errorf("the other call got %q", got)
			}
		})
	}
}

func TestBigMessagesBothWays(t *testing.T) {
	r := newRig(t, "plain").dial()
	args := `{"s":"` + strings.Repeat("x", 1<<20) + `"}`
	if got := text(t, r.call("echo", args)); got != args {
		t.Errorf("%d bytes came back of %d", len(got), len(args))
	}
}

func TestCancelTellsTheServerOnce(t *testing.T) {
	r := newRig(t, "plain").dial()
	e := r.exec("waitcancel", `{}`)
	ch := r.start(e)
	r.entered(e)
	r.peer.Cancel(e.CallID, 2, "other attempt")
	r.peer.Cancel(e.CallID, 1, "changed \"my\" mind")
	r.peer.Cancel(e.CallID, 1, "again")
	if got := text(t, r.await(ch)); got != `cancelled: changed "my" mind` {
		t.Errorf("got %q", got)
	}
	r.peer.Cancel(e.CallID, 1, "too late")
}

func TestVoidCallIsNotWritten(t *testing.T) {
	r := newRig(t, "plain").dial()
	e := r.exec("crash", `{}`)
	e.Boundary.Void()
	r.kind(r.do(e), messages.ReplyNotEntered)
	r.kind(r.call("echo", `{}`), messages.ReplyResult)
}

func TestProgressOfOurOwnCallsOnly(t *testing.T) {
	r := newRig(t, "plain").dial()
	var got []string
	e := r.exec("progress", `{}`)
	e.Progress = func(p json.RawMessage) { got = append(got, string(p)) }
	r.kind(r.do(e), messages.ReplyResult)
	if len(got) != 3 || !strings.HasSuffix(got[2], `"progress":2,"total":1e2}`) {
		t.Errorf("progress %q", got)
	}
}

func TestListChangedAndServerRequests(t *testing.T) {
	r := newRig(t, "plain").dial()
	r.kind(r.call("change", `{}`), messages.ReplyResult)
	r.wait(r.changed, "list changed")
	got := text(t, r.call("ask", `{}`))
	if !strings.HasPrefix(got, "{}") || !strings.Contains(got, `"code":-3`) {
		t.Errorf("ping and sampling were answered %q", got)
	}
}

func TestCrashSettlesCallsAtOnce(t *testing.T) {
	for _, tool := range []string{"crash", "half"} {
		t.Run(tool, func(t *testing.T) {
			r := newRig(t, "plain").dial()
			hang := r.exec("hang", `{}`)
			ch := r.start(hang)
			r.entered(hang)
			r.kind(r.call(tool, `{}`), messages.ReplyLost)
			r.kind(r.await(ch), messages.ReplyLost)
			r.wait(r.peer.Gone(), "gone")
			r.wait(r.peer.Done(), "done")
			if x := r.peer.Exit(); x.Reason != "exit status 7" || x.Clean || x.TreeAlive || x.Stage != messages.StageRunning {
				t.Errorf("exit %+v", x)
			}
			r.kind(r.call("echo", `{}`), messages.ReplyNotEntered)
		})
	}
}

func TestAnswerWrittenBeforeDeathCounts(t *testing.T) {
	for range 20 {
		r := newRig(t, "plain").dial()
		if got := text(t, r.call("answerandcrash", `{}`)); got != "last words" {
			t.Fatalf("got %q", got)
		}
	}
}

func TestKilledLeaderUnderWrapper(t *testing.T) {
	r := newRig(t, "wrapper").dial()
	if n := len(r.marked()); n != 2 {
		t.Fatalf("%d processes instead of leader and server", n)
	}
	if got := text(t, r.call("pid", `{}`)); got == strconv.Itoa(r.peer.Info().PID) {
		t.Fatal("the server is the leader")
	}
	hang := r.exec("hang", `{}`)
	ch := r.start(hang)
	r.entered(hang)
	if err := syscall.Kill(r.peer.Info().PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.kind(r.await(ch), messages.ReplyLost)
	r.wait(r.peer.Done(), "done")
	if x := r.peer.Exit(); x.Reason != "signal: killed" || x.TreeAlive {
		t.Errorf("exit %+v", x)
	}
	r.noneLeft()
}

func TestProcessThatLeftTheGroupIsFound(t *testing.T) {
	r := newRig(t, "escape").dial()
	if n := len(r.marked()); n != 2 {
		t.Fatalf("%d processes instead of server and escaped child", n)
	}
	r.peer.Stop(messages.Ladder{StdinClose: patience, SigTerm: patience, Kill: patience})
	r.wait(r.peer.Done(), "done")
	r.noneLeft()
}

func TestStopLadder(t *testing.T) {
	t.Run("stdin close is enough", func(t *testing.T) {
		r := newRig(t, "plain").dial()
		r.peer.Stop(messages.Ladder{StdinClose: patience, SigTerm: patience, Kill: patience})
		r.wait(r.peer.Done(), "done")
		if x := r.peer.Exit(); x.Reason != "stopped (exit status 0)" || x.Clean {
			t.Errorf("exit %+v", x)
		}
	})
	t.Run("a second stop shortens", func(t *testing.T) {
		r := newRig(t, "ignoreterm").dial()
		r.peer.Stop(messages.Ladder{StdinClose: time.Hour, SigTerm: time.Hour, Kill: time.Hour})
		r.kind(r.call("echo", `{}`), messages.ReplyNotEntered)
		r.peer.Stop(messages.Ladder{StdinClose: 50 * time.Millisecond, SigTerm: 50 * time.Millisecond, Kill: patience})
		r.peer.Stop(messages.Ladder{StdinClose: time.Hour, SigTerm: time.Hour, Kill: time.Hour})
		r.wait(r.peer.Done(), "done")
		if x := r.peer.Exit(); x.Reason != "stopped (signal: killed)" {
			t.Errorf("exit %+v", x)
		}
	})
	t.Run("an answer still counts while stopping", func(t *testing.T) {
		r := newRig(t, "ignoreterm").dial()
		e := r.exec("waitcancel", `{}`)
		ch := r.start(e)
		r.entered(e)
		r.peer.Cancel(e.CallID, 1, "x")
		r.kind(r.await(ch), messages.ReplyResult)
		big := r.start(r.exec("big", `{"N":4000000}`))
		r.eventually("written", func() bool { return r.peer.(*peer).mux.inFlight() > 0 || len(big) > 0 })
		if len(big) == 0 {
			r.peer.Stop(messages.Ladder{StdinClose: patience})
		}
		if rep := r.await(big); rep.Kind != messages.ReplyResult && rep.Kind != messages.ReplyNotEntered {
			t.Errorf("reply %v %s", rep.Kind, rep.Err)
		}
	})
}

func TestServerThatStopsReading(t *testing.T) {
	r := newRig(t, "plain").dial()
	r.kind(r.call("stopread", `{}`), messages.ReplyResult)
	big := r.exec("echo", `{"s":"`+strings.Repeat("x", 1<<20)+`"}`)
	big.Deadline = time.Now().Add(2 * time.Second)
	ch := r.start(big)
	r.entered(big)
	waiting := r.exec("echo", `{}`)
	behind := r.start(waiting)
	r.eventually("both registered", func() bool { return r.peer.(*peer).mux.inFlight() == 2 })
	if !waiting.Boundary.Void() {
		t.Fatal("a call behind a blocked one has entered")
	}
	r.kind(r.await(behind), messages.ReplyNotEntered)
	late := r.start(r.exec("echo", `{}`))
	r.kind(r.await(ch), messages.ReplyLost)
	r.kind(r.await(late), messages.ReplyNotEntered)
	r.wait(r.peer.Done(), "done")
	if x := r.peer.Exit(); x.Reason != "does not read its stdin (signal: killed)" {
		t.Errorf("exit %+v", x)
	}
}

func TestServerThatClosesStdout(t *testing.T) {
	r := newRig(t, "ignoreterm").dial()
	r.kind(r.call("closestdout", `{}`), messages.ReplyLost)
	r.wait(r.peer.Gone(), "gone")
	r.wait(r.peer.Done(), "done")
	if x := r.peer.Exit(); x.Reason != "closed its stdout (signal: killed)" {
		t.Errorf("exit %+v", x)
	}
}

func TestClosedStdinProvesThatNothingWasSent(t *testing.T) {
	r := newRig(t, "plain").dial()
	r.kind(r.call("closestdin", `{}`), messages.ReplyResult)
	e := r.exec("echo", `{}`)
	r.kind(r.do(e), messages.ReplyUnsent)
	if !e.Boundary.Entered() {
		t.Error("it had its turn")
	}
	r.kind(r.call("echo", `{}`), messages.ReplyNotEntered)
	r.wait(r.peer.Done(), "done")
}

// TestWriterHasTheLastWord: the connection ends while a request is being written, and only
// the writer knows whether a byte of it has left.
func TestWriterHasTheLastWord(t *testing.T) {
	for _, tc := range []struct {
		n    int
		err  error
		want messages.ReplyKind
	}{{0, errStdinClosed, messages.ReplyUnsent}, {3, errStdinClosed, messages.ReplyLost}, {9, nil, messages.ReplyLost}} {
		m := newMux(func() {}, newNoise(func(uint64, bool) {}))
		p := &pending{}
		if err := m.add(p); err != nil {
			t.Fatal(err)
		}
		if !m.enterWriting(p) {
			t.Fatal("not entered")
		}
		m.close("the server's process ended")
		if len(p.reply) != 0 {
			t.Fatal("settled before the writer came back")
		}
		m.wrote(p, tc.n, tc.err)
		if r := <-p.reply; r.Kind != tc.want {
			t.Errorf("%d bytes, %v: %v", tc.n, tc.err, r.Kind)
		}
	}
}

func TestStderrFlood(t *testing.T) {
	r := newRig(t, "flood").dial()
	for range 20 {
		r.kind(r.call("echo", `{}`), messages.ReplyResult)
	}
	r.eventually("lines left out", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, l := range r.stderr {
			if strings.Contains(l, "left out") {
				return true
			}
		}
		return false
	})
	_ = syscall.Kill(r.peer.Info().PID, syscall.SIGKILL)
	r.wait(r.peer.Done(), "done")
	if n := len(r.peer.Exit().StderrTail); n != stderrTail {
		t.Errorf("%d lines in the tail", n)
	}
}

func TestChildGetsItsPipesAndEnvironmentOnly(t *testing.T) {
	t.Setenv("BRIDGE_SECRET", "x")
	t.Setenv("LC_ALL", "C")
	r := newRig(t, "plain")
	r.o.Server.Env["MINE"] = "1"
	r.dial()
	if got := text(t, r.call("fds", `{}`)); got != "0 1 2" {
		t.Errorf("pipes %q", got)
	}
	env := text(t, r.call("env", `{}`))
	for _, want := range []string{"MINE=1", "LC_ALL=C", "PATH=" + os.Getenv("PATH"), envRun + "=" + r.o.RunID, envGen + "=7"} {
		if !strings.Contains("\n"+env+"\n", "\n"+want+"\n") {
			t.Errorf("no %s in the environment", want)
		}
	}
	if strings.Contains(env, "BRIDGE_SECRET") {
		t.Error("the bridge's environment leaks")
	}
}
