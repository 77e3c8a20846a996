//go:build linux

package crash

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"mcpbridge/messages"
	"mcpbridge/supervisor/control"
	"mcpbridge/test/harness"
	"mcpbridge/test/witness"
)

// site is where points are played, one after the other: a binary and a remote server
// that outlives them.
type site struct {
	web string // URL of the remote server
	lab *harness.Lab
}

func newSite(t *testing.T) *site {
	lab := harness.NewLab(t)
	url, _ := lab.HTTPFixture(t, "web")
	return &site{web: url, lab: lab}
}

// config has a journal of that size.
func (s *site) config(t *testing.T, lab *harness.Lab, size string) harness.M {
	local := lab.Server(t, "s")
	effects := harness.Effects()
	effects["big"] = "side_effect"
	local["effects"] = effects
	cfg := harness.Config(harness.M{"s": local, "web": harness.M{"url": s.web, "effects": harness.Effects()}})
	cfg["list_wait"] = "60s" // the first call comes when the server may still be starting
	cfg["journal"] = harness.M{"max_size": size}
	return cfg
}

// life is a daemon over a state directory with a fault, from its start to its end.
type life struct {
	prefix string // of its call ids and nonces
	calls  []*said
	ops    []string // of its journal, in order: "write 0000000000000001.journal"
	rose   bool     // its endpoint served
	died   bool     // by kill -9, its own
	exit   int
	struck bool // an operation went wrong or the process died at it
	passes bool // the disk comes back within the life
}

// first reports whether c is the call of its key that was made first.
func (l *life) first(c *said) bool {
	for _, o := range l.calls {
		if c.key != "" && o.key == c.key {
			return o == c
		}
	}
	return true
}

func (l *life) count(op string) (n int) {
	for _, o := range l.ops {
		if strings.HasPrefix(o, op+" ") {
			n++
		}
	}
	return n
}

// world is the ground of one point: a state directory and a witness of its own.
type world struct {
	*harness.World
	site *site
	lab  *harness.Lab
	conf string // with a journal as small as they come
	room string // with one from which retention takes nothing
}

func (s *site) newWorld(t *testing.T) *world {
	w := &world{World: harness.NewWorld(t), site: s, lab: harness.NewLab(t)}
	w.Binary = harness.Stricken(t)
	w.conf = w.WriteConfig(t, "bridge.yaml", s.config(t, w.lab, "64KiB"))
	w.room = w.WriteConfig(t, "room.yaml", s.config(t, w.lab, "1MiB"))
	return w
}

// live starts a daemon with the fault, plays the steps, and ends it in peace if it is
// still there.
func (w *world) live(t *testing.T, fault, prefix string, steps []step) *life {
	t.Helper()
	log := filepath.Join(w.Home, "ops-"+prefix)
	env := "MCPBRIDGE_JOURNAL_FAULT=log:" + log
	if fault != "" {
		env += "," + fault
	}
	d := harness.Launch(t, harness.Options{World: w.World, Args: []string{"-c", w.conf, "--log-level", "error"}, Env: []string{env}})
	l := &life{prefix: prefix}
	if l.rose = d.Rises(t); l.rose {
		l.calls = play(t, d, prefix, steps)
		if d.Alive() {
			d.Signal(t, syscall.SIGTERM)
		}
	}
	d.Wait(t)
	l.exit = d.ExitCode()
	l.died = l.exit == -1
	if b, err := os.ReadFile(log); err == nil {
		l.ops = strings.Split(strings.TrimSpace(string(b)), "\n")
	}
	return l
}

// witness is what both servers say about the nonces of this world.
func (w *world) witness(t *testing.T) *witness.History {
	t.Helper()
	records, err := witness.ReadFile(w.site.lab.Path("witness"))
	if err != nil {
		t.Fatal(err)
	}
	own, err := witness.ReadFile(w.lab.Path("witness"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // no server had the time to write
		t.Fatal(err)
	}
	h, err := witness.NewHistory(slices.Concat(records, own))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// account is what a daemon without faults says of an earlier life, and does after it.
type account struct {
	entries map[string][]messages.JournalEntry // by call id
	journal control.Journal                    // the newest of all calls
	cli     harness.Result
	fenced  []messages.CallInfo
	before  map[string]int              // begins of each nonce before that
	told    map[string]messages.Outcome // what a key gave
	fresh   []*said
	issues  []messages.Issue
}

// ask starts a daemon over what is left, without faults, and listens to it. Its journal
// has room: retention takes nothing while it is asked. Keys that retention took before,
// with their calls, are not tried: they are forgotten by right.
func (w *world) ask(t *testing.T, name string, calls []*said) *account {
	t.Helper()
	a := &account{entries: map[string][]messages.JournalEntry{}, before: map[string]int{}, told: map[string]messages.Outcome{}}
	d := harness.Launch(t, harness.Options{World: w.World, Args: []string{"-c", w.room, "--log-level", "error"}})
	if !d.Rises(t) {
		t.Errorf("the next daemon does not start: exit %d\n%s", d.ExitCode(), d.Stderr())
		return nil
	}
	cl := control.NewClient(d.Control)
	defer cl.Close()
	ctx := harness.Context(t)
	must := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	list, err := cl.Calls(ctx)
	must(err)
	for _, c := range list.Calls {
		if c.State == messages.CallFenced {
			a.fenced = append(a.fenced, c)
		}
	}
	for _, c := range calls {
		j, err := cl.Journal(ctx, c.id, 0)
		must(err)
		a.entries[c.id] = j.Entries
	}
	a.journal, err = cl.Journal(ctx, "", control.JournalMost)
	must(err)
	st, err := cl.Status(ctx)
	must(err)
	for _, i := range st.Issues {
		if i.Path == "journal" {
			a.issues = append(a.issues, i)
		}
	}
	a.cli = d.CLI(t, "calls", "--journal")
	h := w.witness(t)
	tried := map[string]bool{}
	for _, c := range calls {
		a.before[c.nonce] = h.Begins(c.nonce)
		known := len(a.entries[c.id]) > 0
		if c.key == "" || tried[c.key] || !known && a.before[c.nonce] > 0 || c.server == "web" && len(a.fenced) > 0 && !known {
			continue
		}
		tried[c.key] = true
		out, err := cl.Call(ctx, c.request(name+"-"+c.id), nil)
		must(err)
		a.told[c.key] = out
	}
	for _, server := range []string{"s", "web"} {
		c := &said{step: step{server: server, tool: "write"}, id: name + "-" + server, nonce: name + "-" + server}
		r := c.request(c.id)
		if server == "web" && len(a.fenced) > 0 {
			r.Timeout = control.Duration(100 * time.Millisecond)
		}
		c.out, err = cl.Call(ctx, r, nil)
		must(err)
		a.fresh = append(a.fresh, c)
	}
	d.Stop(t)
	return a
}
