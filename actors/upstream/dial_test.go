//go:build linux

package upstream

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mcpbridge/messages"
)

func TestSilentDiscoverFallsBackOnTheSameProcess(t *testing.T) {
	r := newRig(t, "silentdiscover").dial()
	if !r.peer.Info().SkipProbe || len(r.pids) != 1 {
		t.Errorf("info %+v, pids %v", r.peer.Info(), r.pids)
	}
	r.kind(r.call("echo", `{}`), messages.ReplyResult)
}

func TestDeathByDiscoverIsTriedAgain(t *testing.T) {
	r := newRig(t, "diediscover").dial()
	if !r.peer.Info().SkipProbe || len(r.pids) != 2 {
		t.Errorf("info %+v, pids %v", r.peer.Info(), r.pids)
	}
	r.kind(r.call("echo", `{}`), messages.ReplyResult)
}

// A server that is slow to answer the question may refuse the handshake behind it.
func TestLateDiscoverIsTriedAgain(t *testing.T) {
	r := newRig(t, "latediscover").dial()
	if !r.peer.Info().SkipProbe || len(r.pids) != 2 {
		t.Errorf("info %+v, pids %v", r.peer.Info(), r.pids)
	}
	r.kind(r.call("echo", `{}`), messages.ReplyResult)
}

func TestSkipProbeAsksNothing(t *testing.T) {
	r := newRig(t, "diediscover")
	r.o.SkipProbe = true
	r.dial()
	if !r.peer.Info().SkipProbe || len(r.pids) != 1 {
		t.Errorf("info %+v, pids %v", r.peer.Info(), r.pids)
	}
}

func TestNewestRevision(t *testing.T) {
	r := newRig(t, "sdk").dial()
	if got := r.peer.Info(); got.Protocol != stateless || got.ServerName != "sdk" || got.SkipProbe {
		t.Fatalf("info %+v", got)
	}
	if len(r.listing.Tools) != 6 {
		t.Errorf("listed %d tools over several pages", len(r.listing.Tools))
	}
	if got := text(t, r.call("echo", `{"n":9007199254740993}`)); got != `{"n":9007199254740993}` {
		t.Errorf("got %s", got)
	}
	e := r.exec("wait", `{}`)
	ch := r.start(e)
	r.entered(e)
	r.peer.Cancel(e.CallID, 1, "x")
	if got := text(t, r.await(ch)); got != "cancelled" {
		t.Errorf("cancelled call got %q", got)
	}
	n := 0
	progress := r.exec("progress", `{}`)
	progress.Progress = func(json.RawMessage) { n++ }
	if r.kind(r.do(progress), messages.ReplyResult); n != 1 {
		t.Errorf("%d progress notifications", n)
	}
	r.growsAndTells()
	r.peer.Stop(messages.Ladder{StdinClose: patience, SigTerm: patience, Kill: patience})
	r.wait(r.peer.Done(), "done")
}

// growsAndTells makes an SDK server add a tool and waits to hear of it.
func (r *rig) growsAndTells() {
	r.t.Helper()
	before := len(r.listing.Tools)
	r.eventually("list change", func() bool {
		r.kind(r.call("grow", `{}`), messages.ReplyResult)
		select {
		case <-r.changed:
			return true
		case <-time.After(100 * time.Millisecond):
			return false
		}
	})
	l, err := r.peer.List(context.Background())
	if err != nil || len(l.Tools) != before+1 {
		r.t.Errorf("listed %d tools after %d: %v", len(l.Tools), before, err)
	}
}

func TestFailedStarts(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte("#!/no/such/interpreter\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "binary")
	if err := os.WriteFile(binary, []byte{1, 2, 3, 4}, 0o755); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name      string
		modes     string
		change    func(*Options)
		stage     messages.Stage
		reason    string
		hint      string
		permanent bool
	}{
		{"exits", "exit", nil, messages.StageHandshake, "exit status 2 before the handshake was finished", "run it by hand", false},
		{"mute", "mute", func(o *Options) { o.Budget = 600 * time.Millisecond }, messages.StageHandshake, "start budget 600ms spent", "timeouts.start", false},
		{"version", "oldversion", nil, messages.StageHandshake, "1999-01-01", "no protocol revision in common", true},
		{"list hangs", "listhang", func(o *Options) { o.Budget = 600 * time.Millisecond }, messages.StageListTools, "start budget 600ms spent", "", false},
		{"list fails", "listerror", nil, messages.StageListTools, "database is down", "", false},
		{"no such command", "plain", func(o *Options) { o.Server.Command = "npx"; o.Server.Env["PATH"] = dir }, messages.StageSpawn, "npx not found in PATH=" + dir, "install Node.js", true},
		{"no such uvx", "plain", func(o *Options) { o.Server.Command = "uvx"; o.Server.Env["PATH"] = dir }, messages.StageSpawn, "uvx not found", "install uv", true},
		{"not executable", "plain", func(o *Options) { o.Server.Command = plain }, messages.StageSpawn, "not an executable file", "chmod", true},
		{"not executable in PATH", "plain", func(o *Options) { o.Server.Command = "plain"; o.Server.Env["PATH"] = dir }, messages.StageSpawn, "not executable", "chmod", true},
		{"no interpreter", "plain", func(o *Options) { o.Server.Command = script }, messages.StageSpawn, "interpreter", "#!", true},
		{"no program", "plain", func(o *Options) { o.Server.Command = binary }, messages.StageSpawn, "no program", "built for this machine", true},
		{"no directory", "plain", func(o *Options) { o.Server.Cwd = filepath.Join(dir, "none") }, messages.StageSpawn, "working directory", "cwd", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, tt.modes)
			if tt.change != nil {
				tt.change(&r.o)
			}
			f := r.tryDial()
			if f == nil {
				t.Fatal("no error")
			}
			x := f.Exit
			if x.Stage != tt.stage || !strings.Contains(x.Reason, tt.reason) || !strings.Contains(x.Hint, tt.hint) || x.Permanent != tt.permanent {
				t.Errorf("exit %+v", x)
			}
			r.noneLeft()
		})
	}
}

func TestStderrOfAFailedStartIsRedacted(t *testing.T) {
	r := newRig(t, "exit")
	f := r.tryDial()
	if f == nil {
		t.Fatal("no error")
	}
	if got := strings.Join(f.Exit.StderrTail, "\n"); got != "fatal: token *** is wrong" {
		t.Errorf("stderr %q", got)
	}
}

func TestCancelledStart(t *testing.T) {
	r := newRig(t, "mute")
	ctx, cancel := context.WithCancel(context.Background())
	r.o.OnSpawned = func(int) { cancel() }
	_, _, err := Dial(ctx, r.o)
	f, ok := err.(*Failure)
	if !ok || !strings.Contains(f.Exit.Reason, "cancelled") {
		t.Errorf("error %v", err)
	}
	r.noneLeft()
}

func TestSessionOutlivesBudgetAndContext(t *testing.T) {
	r := newRig(t, "plain")
	r.o.Budget = 5 * time.Second
	ctx, cancel := context.WithCancel(context.Background())
	p, _, err := Dial(ctx, r.o)
	if err != nil {
		t.Fatal(err)
	}
	r.peer = p
	cancel()
	r.kind(r.call("echo", `{}`), messages.ReplyResult)
}

func TestListings(t *testing.T) {
	t.Run("no tools", func(t *testing.T) {
		r := newRig(t, "notools,listerror").dial()
		if r.peer.Info().HasTools || len(r.listing.Tools)+len(r.listing.Issues) != 0 {
			t.Errorf("%+v %+v", r.peer.Info(), r.listing)
		}
	})
	t.Run("claimed but missing", func(t *testing.T) {
		r := newRig(t, "nolist").dial()
		if len(r.listing.Tools) != 0 || len(r.listing.Issues) != 1 {
			t.Errorf("%+v", r.listing)
		}
	})
	t.Run("same cursor", func(t *testing.T) {
		r := newRig(t, "samecursor").dial()
		if len(r.listing.Tools) != 1 || !r.listing.Truncated || !hasIssue(r.listing, "repeats the cursor") {
			t.Errorf("%+v", r.listing)
		}
	})
	t.Run("endless pages", func(t *testing.T) {
		r := newRig(t, "pages").dial()
		if len(r.listing.Tools) != 50 || !r.listing.Truncated || !hasIssue(r.listing, "more than 50 pages") {
			t.Errorf("%d tools, %+v", len(r.listing.Tools), r.listing.Issues)
		}
	})
	t.Run("too many tools", func(t *testing.T) {
		r := newRig(t, "pages")
		r.o.Server.Limits.Tools = 7
		r.dial()
		if len(r.listing.Tools) != 7 || !r.listing.Truncated || !hasIssue(r.listing, "more than 7 tools") {
			t.Errorf("%d tools, %+v", len(r.listing.Tools), r.listing.Issues)
		}
	})
}
