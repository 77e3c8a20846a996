package actors

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/go-cmp/cmp"

	"mcpbridge/config"
	"mcpbridge/messages"
)

// registryRig runs a registry among real actors. A probe stands in for the router.
type registryRig struct {
	t         *testing.T
	system    *actor.ActorSystem
	registry  *actor.PID
	router    *actor.PID
	snapshots chan *messages.Snapshot
	events    chan messages.Event
	told      chan uint64 // versions that the router heard of
	panicNext atomic.Bool
}

// registrySeen asks the router probe whether it knew a version when its publication came.
type registrySeen struct{ version uint64 }

func startRegistry(t *testing.T, cfg *config.Config) *registryRig {
	t.Helper()
	r := &registryRig{t: t, snapshots: make(chan *messages.Snapshot, 100), events: make(chan messages.Event, 100), told: make(chan uint64, 100)}
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	r.system = actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return quiet }))
	newest := uint64(0)
	r.router = r.system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
		switch m := ctx.Message().(type) {
		case messages.CatalogueChanged:
			newest = m.Catalogue.Version
			r.told <- newest
		case registrySeen:
			if m.version > newest {
				t.Errorf("version %d was published before the router heard of it", m.version)
			}
		}
	}))
	r.registry = r.system.Root.Spawn(NewRegistry(RegistryConfig{
		Config: cfg, Router: r.router,
		Publish: func(s *messages.Snapshot) {
			if r.panicNext.CompareAndSwap(true, false) {
				panic("a fault in a subscriber")
			}
			r.system.Root.Send(r.router, registrySeen{s.Catalogue.Version})
			r.snapshots <- s
		},
		Emit: func(e messages.Event) { r.events <- e },
	}))
	t.Cleanup(func() {
		for _, pid := range []*actor.PID{r.registry, r.router} {
			if err := r.system.Root.StopFuture(pid).Wait(); err != nil {
				t.Errorf("stopping: %v", err)
			}
		}
		r.system.Shutdown()
	})
	return r
}

func (r *registryRig) send(m messages.Message) { r.system.Root.Send(r.registry, m) }

// next waits for the next snapshot.
func (r *registryRig) next() *messages.Snapshot {
	r.t.Helper()
	return registryAwait(r.t, r.snapshots, "a snapshot")
}

func registryAwait[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(30 * time.Second):
		t.Fatalf("%s did not come", what)
		panic("unreachable")
	}
}

func registryListing(names ...string) messages.Listing {
	l := messages.Listing{Discovered: len(names)}
	for _, n := range names {
		l.Tools = append(l.Tools, messages.ToolDef{Name: n, Description: n, InputSchema: json.RawMessage(`{"type":"object"}`),
			Raw: json.RawMessage(fmt.Sprintf(`{"name":%q}`, n))})
	}
	return l
}

func registryRow(name string, state messages.State) messages.ServerChanged {
	return messages.ServerChanged{Status: messages.ServerStatus{Name: name, State: state, Transport: "stdio"}}
}

func registryNames(tools []messages.Tool) []string {
	out := []string{}
	for _, t := range tools {
		out = append(out, t.EndpointName)
	}
	return out
}

func registryFind(t *testing.T, s *messages.Snapshot, name string) messages.ServerStatus {
	t.Helper()
	for _, v := range s.Servers {
		if v.Name == name {
			return v
		}
	}
	t.Fatalf("no row for %s", name)
	return messages.ServerStatus{}
}

func registryIssues(v messages.ServerStatus) []string {
	out := []string{}
	for _, i := range v.Issues {
		out = append(out, fmt.Sprintf("%s %s: %s", i.Severity, i.Stage, i.Message))
	}
	return out
}

func TestRegistryStartsWithEveryServer(t *testing.T) {
	enabled := func(s config.Server) config.Server { s.Enabled, s.Type = true, config.Stdio; return s }
	notice := messages.Issue{File: "config.yaml", Line: 3, Severity: messages.SeverityWarning, Message: "a notice"}
	r := startRegistry(t, &config.Config{Enabled: true, Issues: []messages.Issue{notice}, Servers: []config.Server{
		enabled(config.Server{Name: "broken", Err: &messages.Issue{File: "config.yaml", Line: 9, Path: "mcp_servers.broken.headers.Authorization",
			Severity: messages.SeverityError, Message: "NOT_SET is not set"}}),
		enabled(config.Server{Name: "lazy", Connect: config.ConnectLazy}),
		enabled(config.Server{Name: "normal", Required: true, Connect: config.ConnectStartup, Source: "config.yaml:20:3"}),
		{Name: "off"},
		enabled(config.Server{Name: "never", Connect: config.ConnectDisabled}),
		enabled(config.Server{Name: "strange", Blocked: "approval"}),
	}})
	s := r.next()
	if d := cmp.Diff(messages.Counts{Configured: 5}, s.Counts); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]messages.Issue{notice}, s.Issues); d != "" {
		t.Error(d)
	}
	got := map[string][]string{}
	for _, v := range s.Servers {
		got[v.Name+" "+v.State.String()] = registryIssues(v)
	}
	want := map[string][]string{
		"broken config_error": {"error config: headers.Authorization: NOT_SET is not set"},
		"lazy idle":           {"warning connect: not started: connect: lazy; a call starts it"},
		"normal starting":     {"warning connect: still starting"},
		"off disabled":        {"warning config: disabled: enabled: false"},
		"never disabled":      {"warning config: disabled: connect: disabled"},
		"strange blocked":     {"error config: waits for a person: approval"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if v := registryFind(t, s, "normal"); !v.Required || v.Transport != "stdio" || v.Source != "config.yaml:20:3" || v.Since.IsZero() {
		t.Errorf("%+v", v)
	}
	if v := s.Catalogue.Version; v != 1 || registryAwait(t, r.told, "the first catalogue") != 1 {
		t.Errorf("first version %d", v)
	}
}

func TestRegistryOfADisabledBridge(t *testing.T) {
	r := startRegistry(t, &config.Config{Servers: []config.Server{{Name: "fs", Enabled: true}}})
	if v := registryFind(t, r.next(), "fs"); v.State != messages.StateDisabled || v.Reason != "the whole bridge is disabled" {
		t.Errorf("%v: %s", v.State, v.Reason)
	}
}

func TestRegistryFollowsAServer(t *testing.T) {
	r := startRegistry(t, &config.Config{Enabled: true, Servers: []config.Server{
		{Name: "fs", Enabled: true, Deny: []string{"secret*"}, Effects: map[string]messages.Effect{"read": messages.ReadOnly}},
		{Name: "kept", Enabled: true, KeepListed: true},
	}, Views: map[string]config.View{"plan": {Effects: []messages.Effect{messages.ReadOnly}}}})
	r.next()
	registryAwait(t, r.told, "the first catalogue")

	r.send(registryRow("fs", messages.StateReady))
	ready := r.next()
	if ready.Catalogue.Version != 1 || ready.Counts.Connected != 1 || ready.Catalogue.Knows("fs") {
		t.Errorf("ready: version %d, %+v", ready.Catalogue.Version, ready.Counts)
	}

	l := registryListing("write", "read", "secret1", "secret2")
	l.Discovered++
	l.Issues = []messages.Issue{{Stage: messages.StageAdaptTool, Severity: messages.SeverityWarning, Message: "an entry without a name was dropped"}}
	l.Tools[0].InputSchema = json.RawMessage(`{"$ref":"#"}`)
	r.send(messages.ListingChanged{Key: messages.Key{Server: "fs"}, Listing: l})
	s := r.next()
	if d := cmp.Diff(messages.Counts{Configured: 2, Connected: 1, Discovered: 5, Adapted: 4, Registered: 2}, s.Counts); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"fs__read", "fs__write"}, registryNames(s.Catalogue.Tools())); d != "" {
		t.Error(d)
	}
	read, _ := s.Catalogue.Lookup("fs/read")
	write, _ := s.Catalogue.Lookup("fs/write")
	if read.Effect != messages.ReadOnly || read.Permission != messages.Allow || read.Rule != "default" || write.Permission != messages.Ask {
		t.Errorf("read: %v %v, write: %v", read.Effect, read.Permission, write.Permission)
	}
	if !s.Catalogue.InView("plan", read) || s.Catalogue.InView("plan", write) || s.Catalogue.InView("other", read) {
		t.Error("views")
	}
	want := []string{
		"warning adapt_tool: an entry without a name was dropped",
		`warning adapt_tool: its input schema is quarantined, and {"type":"object"} is listed in its place: the root refers to itself; the server checks the arguments alone`,
		"warning register: 2 tools hidden by tools.allow and tools.deny",
	}
	if d := cmp.Diff(want, registryIssues(registryFind(t, s, "fs"))); d != "" {
		t.Error(d)
	}
	if v := registryFind(t, s, "fs"); v.Tools != 2 {
		t.Errorf("row says %d tools", v.Tools)
	}
	if v := registryAwait(t, r.told, "the new catalogue"); v != 2 {
		t.Errorf("the router heard of version %d", v)
	}
	if e := registryAwait(t, r.events, "the event"); e.Type != messages.EventCatalogue || e.Count != 2 || e.Version != 2 {
		t.Errorf("%v", e)
	}

	// What changes nothing to see bumps nothing.
	r.send(messages.ListingChanged{Key: messages.Key{Server: "fs"}, Listing: l})
	if again := r.next(); again.Catalogue != s.Catalogue {
		t.Error("the same listing made another catalogue")
	}
	noisy := registryRow("fs", messages.StateReady)
	noisy.Status.NoiseLines = 7
	r.send(noisy)
	if v := r.next(); v.Catalogue != s.Catalogue || registryFind(t, v, "fs").NoiseLines != 7 {
		t.Error("a row made another catalogue, or was lost")
	}
	r.send(registryRow("fs", messages.StateBackoff))
	if v := r.next(); v.Catalogue != s.Catalogue || v.Counts.Connected != 0 || v.Counts.Registered != 2 {
		t.Error("the tools of a server in backoff stay")
	}

	// Quarantine takes the tools off the offer, but the router still knows them.
	gone := registryRow("fs", messages.StateQuarantined)
	gone.Status.Reason = "burst"
	gone.Status.LastExit = &messages.Exit{Reason: "exit status 2", Stage: messages.StageHandshake, Hint: "look at its log"}
	r.send(gone)
	q := r.next()
	if q.Catalogue.Version != 3 || len(q.Catalogue.Tools()) != 0 || len(q.Catalogue.All()) != 2 || q.Counts.Registered != 0 || q.Counts.Adapted != 4 {
		t.Errorf("quarantined: version %d, %d tools, %+v", q.Catalogue.Version, len(q.Catalogue.Tools()), q.Counts)
	}
	got := registryIssues(registryFind(t, q, "fs"))
	for _, want := range []string{
		"error handshake: quarantined: burst; `bridgectl reset fs` tries at once; last end: exit status 2 (look at its log)",
		"warning register: 2 tools not on offer while the server is quarantined",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no issue %q in %q", want, got)
		}
	}
	if e := registryAwait(t, r.events, "the event"); e.Count != 0 || e.Version != 3 {
		t.Errorf("%v", e)
	}
	// Back again.
	r.send(registryRow("fs", messages.StateStarting))
	if v := r.next(); v.Catalogue.Version != 4 || len(v.Catalogue.Tools()) != 2 {
		t.Error("the tools did not come back")
	}

	// keep_listed keeps them.
	r.send(messages.ListingChanged{Key: messages.Key{Server: "kept"}, Listing: registryListing("x")})
	r.next()
	r.send(registryRow("kept", messages.StateStopped))
	if v := r.next(); v.Catalogue.Version != 5 || !slices.Contains(registryNames(v.Catalogue.Tools()), "kept__x") {
		t.Errorf("version %d, %q", v.Catalogue.Version, registryNames(v.Catalogue.Tools()))
	}

	r.send(messages.ServerGone{Key: messages.Key{Server: "fs"}})
	v := r.next()
	if len(v.Servers) != 1 || v.Catalogue.Knows("fs") || v.Catalogue.Version != 6 || len(v.Catalogue.All()) != 1 {
		t.Errorf("%d rows, version %d, %d tools", len(v.Servers), v.Catalogue.Version, len(v.Catalogue.All()))
	}
	if ready.Counts.Discovered != 0 || len(ready.Servers) != 2 {
		t.Error("an older snapshot changed")
	}
}

// TestRegistryTellsOfServersWithoutTools: that a server has nothing to offer is news
// for the router (a call need not wait any longer), but no change of the offer.
func TestRegistryTellsOfServersWithoutTools(t *testing.T) {
	r := startRegistry(t, &config.Config{Enabled: true})
	r.next()
	registryAwait(t, r.told, "the first catalogue")
	r.send(messages.ListingChanged{Key: messages.Key{Server: "new"}, Listing: registryListing("late")})
	if v := r.next(); v.Catalogue.Knows("new") || len(v.Catalogue.All()) != 0 {
		t.Error("a server without a row has tools")
	}
	r.send(registryRow("new", messages.StateReady))
	r.next()
	r.send(messages.ListingChanged{Key: messages.Key{Server: "new"}})
	if v := r.next(); !v.Catalogue.Knows("new") || v.Catalogue.Version != 2 {
		t.Errorf("version %d", v.Catalogue.Version)
	}
	if v := registryAwait(t, r.told, "the news"); v != 2 {
		t.Errorf("version %d", v)
	}
	r.send(messages.ServerGone{Key: messages.Key{Server: "new"}})
	if v := r.next(); v.Catalogue.Knows("new") || v.Catalogue.Version != 3 {
		t.Error("still known")
	}
	if len(r.events) != 0 {
		t.Errorf("%v", <-r.events)
	}
}

// TestRegistryIsNotHeldUp: a server with a mountain of schemas does not keep the
// registry from its work.
func TestRegistryIsNotHeldUp(t *testing.T) {
	r := startRegistry(t, &config.Config{Enabled: true})
	r.next()
	r.send(registryRow("big", messages.StateReady))
	r.next()
	l := messages.Listing{}
	for i := range 80 {
		d := registryListing(fmt.Sprint("t", i)).Tools[0]
		d.InputSchema = json.RawMessage(fmt.Sprintf(`{"title":"%d%s"}`, i, strings.Repeat("x", 60_000)))
		l.Tools = append(l.Tools, d)
	}
	r.send(messages.ListingChanged{Key: messages.Key{Server: "big"}, Listing: l})
	s := r.next()
	want := []string{"warning adapt_tool: the input schemas of 11 tools are looked at only when they are called: together the schemas have more than 4 MiB"}
	if d := cmp.Diff(want, registryIssues(registryFind(t, s, "big"))); d != "" || s.Counts.Registered != 80 || s.Counts.Discovered != 80 {
		t.Errorf("%s%+v", d, s.Counts)
	}
}

// TestRegistryKeepsBrokenOutputSchemasBack: clients compile the output schemas of a
// list, and lose the whole list over one that does not compile.
func TestRegistryKeepsBrokenOutputSchemasBack(t *testing.T) {
	r := startRegistry(t, &config.Config{Enabled: true})
	r.next()
	r.send(registryRow("s", messages.StateReady))
	r.next()
	good := []string{`{"type":"object","properties":{"a":{"$ref":"#/$defs/n"}},"$defs":{"n":{"type":"object","properties":{"next":{"$ref":"#/$defs/n"}}}}}`, `{"type":"object"}`,
		`{"pattern":"^(?!x)\\p{Lu}$"}`, `{"multipleOf":0.01}`} // what the bridge leaves out of its own check, others understand
	broken := []string{`{"type":"nonsense"}`, `{"type":"object","properties":{"a":{"type":"int"}}}`, `{"$ref":"#/$defs/missing"}`, `{"$ref":"https://example.org/s.json"}`,
		`{"allOf":{}}`, `{"properties":[]}`, `{"$ref":"#"}`, `{"minLength":"x"}`, `{"enum":[]}`, `{"pattern":"("}`, `{"pattern":"(?i)x"}`}
	var l messages.Listing
	for i, schema := range append(append([]string{}, good...), broken...) {
		d := registryListing(fmt.Sprintf("t%02d", i)).Tools[0]
		d.OutputSchema = json.RawMessage(schema)
		l.Tools = append(l.Tools, d)
	}
	r.send(messages.ListingChanged{Key: messages.Key{Server: "s"}, Listing: l})
	s := r.next()
	issues := registryIssues(registryFind(t, s, "s"))
	for i, tool := range s.Catalogue.Tools() {
		if kept := tool.Def.OutputSchema != nil; kept != (i < len(good)) {
			t.Errorf("%s: kept %t", l.Tools[i].OutputSchema, kept)
		}
	}
	if len(issues) != len(broken) || !strings.Contains(issues[0], "its output schema is not passed on: ") {
		t.Errorf("%q", issues)
	}
}

// TestRegistrySurvivesARestart: a panic costs one message, not what is known, and
// versions never go back.
func TestRegistrySurvivesARestart(t *testing.T) {
	r := startRegistry(t, &config.Config{Enabled: true})
	r.next()
	r.send(registryRow("fs", messages.StateReady))
	r.send(messages.ListingChanged{Key: messages.Key{Server: "fs"}, Listing: registryListing("a")})
	r.next()
	before := r.next()
	r.panicNext.Store(true)
	r.send(registryRow("fs", messages.StateReady))
	after := r.next() // on Started
	if after.Catalogue != before.Catalogue || after.Counts != before.Counts {
		t.Errorf("version %d became %d", before.Catalogue.Version, after.Catalogue.Version)
	}
	r.send(messages.ListingChanged{Key: messages.Key{Server: "fs"}, Listing: registryListing("a", "b")})
	if v := r.next(); v.Catalogue.Version != before.Catalogue.Version+1 {
		t.Errorf("version %d", v.Catalogue.Version)
	}
}
