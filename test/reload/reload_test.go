// Package reload tests from the outside that the configuration of a running bridge can be
// replaced: by the verb, by SIGHUP and by a change of its files.
package reload

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpbridge/messages"
	"mcpbridge/supervisor/control"
	"mcpbridge/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// reload is `reload -o json`, which must succeed.
func reload(t *testing.T, d *harness.Daemon) (r control.Reload) {
	t.Helper()
	d.OK(t, "reload", "-o", "json").JSON(t, &r)
	return r
}

// tally counts what became of calls, by server.
type tally struct {
	mu    sync.Mutex
	kinds map[string]map[string]int    // server → outcome → how often
	calls map[string]map[string]string // server → nonce → outcome
}

func (c *tally) note(server, nonce, outcome string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kinds[server] == nil {
		c.kinds[server], c.calls[server] = map[string]int{}, map[string]string{}
	}
	c.kinds[server][outcome]++
	c.calls[server][nonce] = outcome
}

// load calls the servers about 200 times a second together, from many callers, until ctx
// ends. An answer that is no result of a call breaks the test.
func load(ctx context.Context, t *testing.T, d *harness.Daemon, servers []string) (c *tally, done func()) {
	c = &tally{kinds: map[string]map[string]int{}, calls: map[string]map[string]string{}}
	const callers, every = 24, 120 * time.Millisecond
	var work sync.WaitGroup
	var seq atomic.Int64
	for i := range callers {
		cs := d.Session(t, "", nil)
		work.Go(func() {
			tick := time.NewTicker(every)
			defer tick.Stop()
			for n := i; ctx.Err() == nil; n++ {
				server, tool := servers[n%len(servers)], []string{"read", "write"}[n/len(servers)%2]
				nonce := fmt.Sprintf("%s-%d", tool, seq.Add(1))
				res, err := cs.CallTool(context.WithoutCancel(ctx), &mcp.CallToolParams{Name: server + "__" + tool,
					Arguments: json.RawMessage(fmt.Sprintf(`{"nonce":%q,"sleep_ms":%d}`, nonce, n%4))})
				switch {
				case err != nil:
					c.note(server, nonce, "error: "+err.Error())
				case res.IsError:
					c.note(server, nonce, fmt.Sprint(res.Meta["mcpbridge/outcome"]))
				default:
					c.note(server, nonce, "ok")
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
		})
	}
	return c, work.Wait
}

// TestUnderLoad reloads again and again under about 200 calls a second: the neighbour
// keeps its process and loses no call, the changed server starts anew after its calls, and
// what is refused was not sent.
func TestUnderLoad(t *testing.T) {
	lab := harness.NewLab(t)
	config := func(turn int) harness.M {
		changes := lab.Server(t, "changes")
		changes["env"] = harness.M{"TURN": fmt.Sprint(turn)}
		tuned := lab.Server(t, "tuned")
		tuned["limits"] = harness.M{"queue": 200 + turn}
		return harness.Config(harness.M{"stays": lab.Server(t, "stays"), "tuned": tuned, "changes": changes})
	}
	d := harness.Start(t, harness.Options{Config: config(0)})
	names := []string{"stays", "tuned", "changes"}
	d.Await(t, "ready", names...)
	before := d.Status(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	began := time.Now()
	calls, wait := load(ctx, t, d, names)
	for turn := range 5 {
		row := d.Server(t, "changes")
		d.WriteConfig(t, "bridge.yaml", config(turn+1))
		r := reload(t, d)
		if len(r.Changed) != 2 || len(r.Added)+len(r.Removed)+len(r.Settings)+len(r.Restart) != 0 {
			t.Errorf("turn %d: %+v", turn, r)
		}
		d.AwaitGeneration(t, "changes", row.Generation)
		time.Sleep(300 * time.Millisecond) // calls of the new process
	}
	stop()
	wait()
	seconds := time.Since(began).Seconds()
	for _, name := range []string{"stays", "tuned"} {
		was, _ := before.Server(name)
		if now := d.Server(t, name); now.PID != was.PID || now.Generation != was.Generation || now.Restarts != 0 {
			t.Errorf("%s was touched: pid %d became %d, generation %d became %d", name, was.PID, now.PID, was.Generation, now.Generation)
		}
		if k := calls.kinds[name]; len(k) != 1 || k["ok"] == 0 {
			t.Errorf("%s lost calls: %v", name, k)
		}
	}
	h := lab.History(t)
	total := 0
	for server, list := range calls.calls {
		for nonce, outcome := range list {
			total++
			begins, ends := h.Begins(nonce), h.Ends(nonce)
			switch {
			case outcome == "ok" && ends >= 1 && (begins == 1 || strings.HasPrefix(nonce, "read")):
			case (outcome == "not_sent" || outcome == "rejected") && begins == 0 && server == "changes":
			default:
				t.Errorf("%s %s: %s, began %d times, ended %d times", server, nonce, outcome, begins, ends)
			}
		}
	}
	for _, bad := range [][]string{h.Twice(), h.Overlaps(), h.Survivors()} {
		for _, s := range bad {
			t.Error(s)
		}
	}
	if calls.kinds["changes"]["ok"] == 0 {
		t.Error("the changed server never answered")
	}
	t.Logf("%d calls in %.1f s (%.0f/s): %v", total, seconds, float64(total)/seconds, calls.kinds)
}

// TestInvalid: a configuration with any error changes nothing, not even what is right in
// it; the verb, status, events and log say so, until a reload succeeds.
func TestInvalid(t *testing.T) {
	lab := harness.NewLab(t)
	good := harness.Config(harness.M{"fs": lab.Server(t, "fs")})
	d := harness.Start(t, harness.Options{Config: good})
	d.Await(t, "ready", "fs")
	before := d.Server(t, "fs")
	broken := lab.Server(t, "bad")
	broken["timeouts"] = harness.M{"call": "soon"}
	gone := lab.Server(t, "bad")
	gone["env"] = harness.M{"X": "${env:NOT_SET_ANYWHERE}"}
	for name, text := range map[string]any{
		"one server of several":            harness.Config(harness.M{"other": lab.Server(t, "other"), "bad": broken}),
		"a reference that leads nowhere":   harness.Config(harness.M{"other": lab.Server(t, "other"), "bad": gone}),
		"no YAML":                          "mcp_servers: [\n",
		"an endpoint that cannot start":    harness.M{"version": 1, "tls": harness.M{"cert": "cert.pem"}, "mcp_servers": harness.M{}},
		"permissions that nobody can read": harness.M{"version": 1, "permissions": []any{harness.M{"action": "perhaps"}}, "mcp_servers": harness.M{}},
	} {
		t.Run(name, func(t *testing.T) {
			file := d.WriteConfig(t, "bridge.yaml", text)
			r := d.CLI(t, "reload")
			if r.Exit != 2 || !strings.Contains(r.Stderr, "nothing has changed") || r.Stdout != "" {
				t.Errorf("%s", r)
			}
			if name != "an endpoint that cannot start" && !strings.Contains(r.Stderr, file+":") {
				t.Errorf("it does not say where: %s", r)
			}
			st := d.Status(t)
			row, _ := st.Server("fs")
			if len(st.Servers) != 1 || row.PID != before.PID || row.State != messages.StateReady {
				t.Errorf("something has changed: %+v", st.Servers)
			}
			if o, _ := d.Call(t, "fs/read", `{}`); o.Kind != messages.OK {
				t.Errorf("a call is %s/%s", o.Kind, o.Code)
			}
			refused := 0
			for _, i := range st.Issues {
				if i.Severity == messages.SeverityError && strings.Contains(i.Message, "was refused") {
					refused++
				}
			}
			if refused != 1 {
				t.Errorf("%d issues tell of the refusal: %v", refused, st.Issues)
			}
			if ev := d.OK(t, "events", "--type", "reload_refused", "-n", "1").Stdout; !strings.Contains(ev, "nothing has changed") {
				t.Errorf("the events say %q", ev)
			}
		})
	}
	d.WriteConfig(t, "bridge.yaml", good)
	if r := reload(t, d); !r.Empty() {
		t.Errorf("the configuration of before is a change: %+v", r)
	}
	for _, i := range d.Status(t).Issues {
		if strings.Contains(i.Message, "was refused") {
			t.Errorf("still told: %s", i)
		}
	}
}

// TestServers: what is added comes, what is removed leaves after its calls and is not
// brought back by anything, what is switched off stops, and an operator's stop holds.
func TestServers(t *testing.T) {
	lab := harness.NewLab(t)
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"stays": lab.Server(t, "stays"), "leaves": lab.Server(t, "leaves"),
		"off": lab.Server(t, "off"), "stopped": lab.Server(t, "stopped")})})
	d.Await(t, "ready", "stays", "leaves", "off", "stopped")
	d.OK(t, "stop", "stopped", "--wait")
	lists := make(chan struct{}, 100)
	cs := d.Session(t, "", &mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { lists <- struct{}{} }})
	running := make(chan messages.Outcome, 1)
	go func() {
		o, _ := d.Call(t, "leaves/write", `{"nonce":"last","sleep_ms":1000}`)
		running <- o
	}()
	queued := make(chan messages.Outcome, 1)
	harness.Eventually(t, "the last call has begun", func() bool { return lab.History(t).Begins("last") == 1 })
	go func() {
		o, _ := d.Call(t, "leaves/write", `{"nonce":"queued"}`)
		queued <- o
	}()
	harness.Eventually(t, "the other one waits", func() bool { return d.Server(t, "leaves").Queued == 1 })
	pid := d.Server(t, "leaves").PID
	off, stopped := lab.Server(t, "off"), lab.Server(t, "stopped")
	off["enabled"], stopped["env"] = false, harness.M{"A": "1"}
	d.WriteConfig(t, "bridge.yaml", harness.Config(harness.M{"stays": lab.Server(t, "stays"), "comes": lab.Server(t, "comes"), "off": off, "stopped": stopped}))
	r := d.OK(t, "reload")
	for _, line := range []string{"+ comes", "- leaves", "~ off", "~ stopped (starts anew)"} {
		if !strings.Contains(r.Stdout, line) {
			t.Errorf("reload does not say %q: %s", line, r)
		}
	}
	if o := <-running; o.Kind != messages.OK {
		t.Errorf("the call in flight is %s/%s", o.Kind, o.Code)
	}
	if o := <-queued; o.Kind != messages.NotSent || lab.History(t).Begins("queued") != 0 {
		t.Errorf("the queued call is %s/%s", o.Kind, o.Code)
	}
	d.Await(t, "ready", "comes")
	harness.Eventually(t, "it has left", func() bool { _, there := d.Status(t).Server("leaves"); return !there })
	harness.Eventually(t, "its process is gone", func() bool { p, ok := harness.Process(pid); return !ok || !p.Alive() })
	harness.Eventually(t, "it is off", func() bool { return d.Server(t, "off").State == messages.StateDisabled })
	if row := d.Server(t, "stopped"); row.State != messages.StateStopped {
		t.Errorf("what the operator stopped is %s", row.State)
	}
	<-lists
	offered := map[string]bool{}
	for tool, err := range cs.Tools(harness.Context(t), nil) {
		if err != nil {
			t.Fatal(err)
		}
		offered[strings.Split(tool.Name, "__")[0]] = true
	}
	if !offered["stays"] || !offered["comes"] || len(offered) != 2 {
		t.Errorf("tools of %v are offered", offered)
	}
	for _, verb := range []string{"start", "restart"} {
		if r := d.CLI(t, verb, "leaves"); r.Exit != 2 {
			t.Errorf("%s", r)
		}
	}
	// It may come again, as a new one.
	d.WriteConfig(t, "bridge.yaml", harness.Config(harness.M{"stays": lab.Server(t, "stays"), "leaves": lab.Server(t, "leaves")}))
	reload(t, d)
	d.Await(t, "ready", "leaves")
	if o, _ := d.Call(t, "leaves/read", `{}`); o.Kind != messages.OK {
		t.Errorf("a call to what came back is %s/%s", o.Kind, o.Code)
	}
}

// TestInPlace: rules, effects, filters and views apply at once, and no process is touched;
// what needs a restart of the bridge is said and not applied.
func TestInPlace(t *testing.T) {
	lab := harness.NewLab(t)
	c := harness.Config(harness.M{"fs": lab.Server(t, "fs")})
	d := harness.Start(t, harness.Options{Config: c})
	d.Await(t, "ready", "fs")
	before := d.Server(t, "fs")
	fs := lab.Server(t, "fs")
	fs["tools"] = harness.M{"deny": []string{"big"}}
	fs["effects"] = harness.M{"echo": "side_effect", "read": "read_only"}
	next := harness.Config(harness.M{"fs": fs})
	next["permissions"] = []any{harness.M{"tool": "write", "action": "deny"}, harness.M{"action": "allow"}}
	next["views"] = harness.M{"plan": harness.M{"effects": []string{"read_only"}}}
	next["listen"] = "127.0.0.1:1"
	d.WriteConfig(t, "bridge.yaml", next)
	r := d.OK(t, "reload")
	if !strings.Contains(r.Stdout, "needs a restart") || !strings.Contains(r.Stdout, "listen") {
		t.Errorf("it does not say that the address waits for a restart: %s", r)
	}
	if now := d.Server(t, "fs"); now.PID != before.PID || now.Tools != before.Tools-1 {
		t.Errorf("pid %d became %d, %d tools became %d", before.PID, now.PID, before.Tools, now.Tools)
	}
	if o, _ := d.Call(t, "fs/write", `{"nonce":"no"}`); o.Kind != messages.Rejected || lab.History(t).Begins("no") != 0 {
		t.Errorf("what is denied now is %s/%s", o.Kind, o.Code)
	}
	if o, _ := d.Call(t, "fs/big", `{}`); o.Kind != messages.NotSent && o.Kind != messages.Rejected {
		t.Errorf("what is filtered now is %s/%s", o.Kind, o.Code)
	}
	var tools control.Tools
	d.OK(t, "tools", "--view", "plan", "-o", "json").JSON(t, &tools)
	names := []string{}
	for _, x := range tools.Tools {
		names = append(names, x.RemoteName)
	}
	if len(names) != 1 || names[0] != "read" {
		t.Errorf("the new view shows %v", names)
	}
	if show := d.OK(t, "config", "diff").Stdout; !strings.Contains(show, "listen") {
		t.Errorf("the address counts as applied: %q", show)
	}
}

// TestSignalAndWatch: SIGHUP and a changed file do what the verb does, however the file is
// written, and also where it was not there before.
func TestSignalAndWatch(t *testing.T) {
	lab := harness.NewLab(t)
	with := func(names ...string) harness.M {
		servers := harness.M{}
		for _, n := range names {
			servers[n] = lab.Server(t, n)
		}
		return harness.Config(servers)
	}
	t.Run("SIGHUP", func(t *testing.T) {
		d := harness.Start(t, harness.Options{Config: with("a")})
		d.Await(t, "ready", "a")
		pid := d.Server(t, "a").PID
		d.WriteConfig(t, "bridge.yaml", with("a", "b"))
		d.Signal(t, syscall.SIGHUP)
		harness.Eventually(t, "b is there", func() bool { _, ok := d.Status(t).Server("b"); return ok })
		d.Await(t, "ready", "b")
		d.WriteConfig(t, "bridge.yaml", "mcp_servers: [\n")
		d.Signal(t, syscall.SIGHUP)
		harness.Eventually(t, "the refusal is told", func() bool {
			return strings.Contains(d.OK(t, "events", "--type", "reload_refused").Stdout, "nothing has changed")
		})
		if now := d.Server(t, "a"); now.PID != pid {
			t.Errorf("a was touched")
		}
	})
	t.Run("one file", func(t *testing.T) {
		d := harness.Start(t, harness.Options{Config: with("a"), Args: []string{"--watch"}})
		d.Await(t, "ready", "a")
		pid := d.Server(t, "a").PID
		// As editors do it: beside it, and renamed over it.
		if err := os.Rename(d.WriteConfig(t, "bridge.yaml.swp", with("a", "b")), d.Path("bridge.yaml")); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, "b is there", func() bool { _, ok := d.Status(t).Server("b"); return ok })
		// Truncated and written in place; the directory's events of before must not be all.
		d.WriteConfig(t, "bridge.yaml", with("a", "c"))
		harness.Eventually(t, "c is there in b's place", func() bool {
			_, b := d.Status(t).Server("b")
			_, c := d.Status(t).Server("c")
			return c && !b
		})
		// Empty, as between the two steps of a slow writer: nothing is taken away.
		d.WriteConfig(t, "bridge.yaml", "")
		harness.Eventually(t, "it is told", func() bool { return strings.Contains(d.Stderr(), "not taken for a wish") })
		if _, c := d.Status(t).Server("c"); !c {
			t.Error("an empty file took everything away")
		}
		// Removed: refused, and told.
		if err := os.Remove(d.Path("bridge.yaml")); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, "the refusal is told", func() bool {
			return strings.Contains(d.OK(t, "events", "--type", "reload_refused").Stdout, "no such file")
		})
		d.WriteConfig(t, "bridge.yaml", with("a"))
		harness.Eventually(t, "c has left", func() bool { _, c := d.Status(t).Server("c"); return !c })
		if now := d.Server(t, "a"); now.PID != pid {
			t.Errorf("a was touched")
		}
	})
	t.Run("files that appear", func(t *testing.T) {
		w := harness.NewWorld(t)
		d := harness.Start(t, harness.Options{World: w, Args: []string{"--watch"}})
		user := filepath.Join(w.Home, "config", "mcpbridge") // neither of them exists
		if err := os.MkdirAll(user, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(w.WriteConfig(t, "x.yaml", with("a")), filepath.Join(user, "config.yaml")); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, "a is there", func() bool { _, ok := d.Status(t).Server("a"); return ok })
		d.Await(t, "ready", "a")
	})
}

// TestProject: a server of the workspace waits for approval again when its entry changes,
// and nothing of the new entry runs before that.
func TestProject(t *testing.T) {
	lab := harness.NewLab(t)
	w := harness.NewWorld(t)
	write := func(more ...string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(w.Work, ".mcpbridge"), 0o700); err != nil {
			t.Fatal(err)
		}
		file := w.WriteConfig(t, "project.yaml", harness.M{"version": 1, "mcp_servers": harness.M{"theirs": harness.M{"command": harness.Fixture(t), "args": lab.Args("theirs", more...)}}})
		if err := os.Rename(file, filepath.Join(w.Work, ".mcpbridge", "config.yaml")); err != nil {
			t.Fatal(err)
		}
	}
	approve := func(d *harness.Daemon) {
		t.Helper()
		var all struct{ Approvals []messages.Approval }
		harness.Eventually(t, "it waits for approval", func() bool {
			d.OK(t, "approvals", "-o", "json").JSON(t, &all)
			return len(all.Approvals) == 1
		})
		d.OK(t, "approve", all.Approvals[0].ID)
		d.Await(t, "ready", "theirs")
	}
	write()
	d := harness.Start(t, harness.Options{World: w})
	approve(d)
	before := d.Server(t, "theirs")
	if r := reload(t, d); !r.Empty() {
		t.Errorf("nothing was changed, and %+v", r)
	}
	if now := d.Server(t, "theirs"); now.PID != before.PID {
		t.Error("an approved server was touched by a reload of nothing")
	}
	if diff := d.OK(t, "config", "diff").Stdout; !strings.Contains(diff, "no difference") {
		t.Errorf("an approved server counts as a change: %q", diff)
	}
	write("-tools", "3")
	reload(t, d)
	harness.Eventually(t, "it is blocked", func() bool { return d.Server(t, "theirs").State == messages.StateBlocked })
	if now := d.Server(t, "theirs"); now.PID != 0 || now.Generation != before.Generation {
		t.Errorf("the entry that nobody approved has been started: %+v", now)
	}
	approve(d)
	if now := d.Server(t, "theirs"); now.Generation <= before.Generation {
		t.Errorf("generation %d after %d", now.Generation, before.Generation)
	}
}
