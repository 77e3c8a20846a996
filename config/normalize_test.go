package config

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestNormalizeFillsWhatCodeLeftOut(t *testing.T) {
	c := &Config{Enabled: true, Workspace: "/w", Permissions: []Rule{{}}, Servers: []Server{
		{Name: "z", Command: "./x", Enabled: true, Env: map[string]string{"A": "secret-value"}},
		{Name: "a", URL: "https://example.com", Restart: Restart{Initial: 10 * time.Millisecond, Max: 100 * time.Millisecond, ResetAfter: 200 * time.Millisecond},
			Timeouts: Timeouts{Start: time.Second}, Limits: Limits{MaxReads: 2}},
	}}
	c.Normalize()
	if len(c.Validate()) != 0 || !c.HasPermissions || c.Permissions[0].Source != "permissions[0]" || c.Servers[0].Name != "a" {
		t.Errorf("%v, %+v", c.Validate(), c)
	}
	a, z := c.Servers[0], c.Servers[1]
	want := DefaultServer()
	if z.Type != Stdio || z.Command != "/w/x" || z.Cwd != "/w" || z.Restart != want.Restart || z.Timeouts != want.Timeouts || z.Limits != want.Limits ||
		z.Health != want.Health || z.Connect != ConnectStartup || z.Layer != LayerCode || len(z.Secrets) != 1 {
		t.Errorf("z: %+v", z)
	}
	if a.Type != Auto || a.Restart.Burst != 0 || a.Restart.Mode != RestartAlways || a.Restart.Max != 100*time.Millisecond || a.Restart.Jitter != 0 ||
		a.Restart.Cooldown != 5*time.Minute || a.Timeouts.Call != time.Minute || a.Timeouts.AbandonAfter != 0 || a.Limits.MaxReads != 2 || a.Limits.Queue != 256 {
		t.Errorf("a: %+v", a)
	}
	before := *c
	before.Servers = append([]Server{}, c.Servers...)
	c.Normalize()
	if d := cmp.Diff(before, *c); d != "" {
		t.Errorf("not idempotent: %s", d)
	}
}

func TestNormalizeKeepsWhatLoadResolved(t *testing.T) {
	w := newWorld(t).user(`
mcp_servers:
  a: {command: x, restart: {burst: 0}, timeouts: {abandon_after: never, stdin_close: 0, drain: 0}, health: {probe_every: 0}}
list_wait: 0
`)
	c := w.load()
	w.wantLines(c)
	before := *c
	before.Servers = append([]Server{}, c.Servers...)
	c.Normalize()
	if d := cmp.Diff(before, *c); d != "" {
		t.Error(d)
	}
	if s := c.Servers[0]; c.ListWait != 0 || s.Restart.Burst != 0 || s.Timeouts.AbandonAfter != 0 || s.Timeouts.StdinClose != 0 || s.Health.ProbeEvery != 0 {
		t.Errorf("a zero that means something is gone: %+v", s)
	}
}

func TestValidate(t *testing.T) {
	c := Default()
	for _, f := range []func(*Server){
		func(s *Server) { s.Name = "same"; s.Command = "x" },
		func(s *Server) { s.Name = "same"; s.Command = "x" },
		func(s *Server) { s.Name = "" },
		func(s *Server) { s.Name = "both"; s.Command, s.URL = "x", "https://x" },
		func(s *Server) { s.Name = "url"; s.URL = "x" },
		func(s *Server) { s.Name = "neg"; s.Command = "x"; s.Timeouts.Call = -1; s.Trust = "all" },
		func(s *Server) { s.Name = "glob"; s.Command = "x"; s.Deny = []string{"["} },
	} {
		s := DefaultServer()
		f(&s)
		c.Servers = append(c.Servers, s)
	}
	c.Permissions = []Rule{{Tool: "["}}
	c.Normalize()
	var got []string
	for _, i := range c.Validate() {
		got = append(got, i.String())
	}
	want := []string{
		`mcp_servers.both: both command and url are given; say which one counts with type: stdio or type: http`,
		`mcp_servers.glob.tools.deny: only * and ? are wild in a name; write ? in place of [ and ]`,
		`mcp_servers.neg.timeouts.call: must not be negative`,
		`mcp_servers.neg.trust: "all" is not known: one of [none annotations read_only]`,
		`mcp_servers.same: there is another server of this name`,
		`mcp_servers.url.url: must begin with http:// or https://`,
		`mcp_servers[""]: a server needs a name`,
		`mcp_servers[""]: neither command nor url is given; a stdio server needs command, a remote one url`,
		`permissions[0]: only * and ? are wild in a name; write ? in place of [ and ]`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestHash(t *testing.T) {
	load := func(text, token string) string {
		w := newWorld(t).user(text)
		w.env["T"] = token
		return w.load(func(o *LoadOptions) { o.Home = w.home }).Hash
	}
	const base = "mcp_servers: {b: {url: 'https://x.example', headers: {A: '${T}'}}, a: {url: 'https://y.example'}}\n"
	one := load(base, "token-one")
	if !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(one) {
		t.Errorf("got %q", one)
	}
	if load("# comment\n\n"+strings.ReplaceAll(base, "{b:", "{  b:"), "token-one") != one {
		t.Error("comments and places do not count")
	}
	for name, other := range map[string]string{
		"a token": load(base, "token-two"), "a limit": load(strings.Replace(base, "'}}", "', limits: {max_reads: 3}}}", 1), "token-one"),
		"a rule": load(base+"permissions: []\n", "token-one"), "a switch": load(base+"enabled: false\n", "token-one"),
	} {
		if other == one {
			t.Errorf("%s must change the hash", name)
		}
	}
}
