package config

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"mcpbridge/messages"
)

// Show renders the effective configuration as YAML, defaults included. References
// are shown as they were written, never what they stand for; literal values of env and
// headers, user info and query values of URLs and secrets on command lines are masked.
// With origin, every value tells in a comment where it was written.
func Show(c *Config, origin bool) string {
	s := &shower{origin: origin, origins: c.Origins}
	root := mapping()
	s.put(root, "version", "version", number(1))
	s.put(root, "enabled", "enabled", boolean(c.Enabled))
	servers := mapping()
	for i := range c.Servers {
		srv := &c.Servers[i]
		sub := &shower{origin: origin, origins: srv.Origins, notes: srv.Notes}
		key := str(srv.Name)
		key.HeadComment = serverComment(srv, origin)
		servers.Content = append(servers.Content, key, sub.server(srv))
	}
	s.block(root, "mcp_servers", servers)
	if c.HasPermissions {
		s.block(root, "permissions", s.rules(c.Permissions))
	}
	if len(c.ProjectRules) > 0 {
		key := str("project_permissions")
		key.HeadComment = "rules of the project layer, judged apart: deny, then ask, then allow"
		root.Content = append(root.Content, key, s.rules(c.ProjectRules))
	}
	s.sections(root, c)
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(root); err != nil {
		return "# this configuration has no YAML form: " + err.Error() + "\n"
	}
	return b.String()
}

// serverComment says what state an entry is in and where it stands.
func serverComment(s *Server, origin bool) string {
	var lines []string
	if origin && s.Source != "" {
		lines = append(lines, fmt.Sprintf("%s (%s layer)", s.Source, s.Layer))
	}
	if s.Err != nil {
		lines = append(lines, "config_error: "+s.Err.Message)
	}
	if s.Blocked != "" {
		lines = append(lines, "blocked: "+s.Blocked)
	}
	return strings.ReplaceAll(strings.Join(lines, "\n"), "\r", "")
}

// shower adds values to mappings, with their origin where that is wanted.
type shower struct {
	origin  bool
	origins map[string]string
	notes   map[string]string
}

func (s *shower) put(m *yaml.Node, path, key string, v *yaml.Node) {
	if v.Kind == yaml.ScalarNode {
		v.LineComment = s.notes[path]
		if s.origin {
			v.LineComment = s.from(path)
			if how := s.notes[path]; how != "" {
				v.LineComment += ": " + how
			}
		}
	}
	m.Content = append(m.Content, str(key), v)
}

// from is the place of the nearest thing that was written on a path.
func (s *shower) from(path string) string {
	for p := path; p != ""; p = parent(p) {
		if w, ok := s.origins[p]; ok {
			return w
		}
		if p == path && !strings.Contains(p, "[") {
			break // a missing key of a block is a default, a missing item belongs to its list
		}
	}
	return "default"
}

// block adds a mapping or list; its own place counts only when it is empty.
func (s *shower) block(m *yaml.Node, key string, v *yaml.Node) {
	if len(v.Content) == 0 {
		v.Style = yaml.FlowStyle
	}
	m.Content = append(m.Content, str(key), v)
}

func (s *shower) server(v *Server) *yaml.Node {
	m := mapping()
	put := func(key string, n *yaml.Node) { s.put(m, key, key, n) }
	group := func(key string, pairs ...any) {
		g := mapping()
		for i := 0; i < len(pairs); i += 2 {
			name := pairs[i].(string)
			if n, ok := pairs[i+1].(*yaml.Node); ok {
				s.put(g, key+"."+name, name, n)
			}
		}
		m.Content = append(m.Content, str(key), g)
	}
	if t := shownType(v.Type); t != "" {
		put("type", str(t))
	}
	w := v.Written
	if w == nil {
		w = &Written{Command: v.Command, Args: v.Args, Env: v.Env, Cwd: v.Cwd, URL: v.URL, Headers: v.Headers}
	}
	if v.Remote() && v.Type != "" {
		put("url", str(maskURL(w.URL)))
		s.texts(m, "headers", w.Headers, maskHeader)
	} else {
		put("command", str(w.Command))
		args := list()
		for i := range w.Args {
			args.Content = append(args.Content, str(maskArg(w.Args, i)))
		}
		args.Style = yaml.FlowStyle
		s.block(m, "args", args)
		s.texts(m, "env", w.Env, maskText)
		if v.InheritAll {
			put("inherit_env", str("all"))
		} else {
			s.block(m, "inherit_env", strs(v.InheritEnv))
		}
		put("cwd", str(cmp.Or(cwdShown(v, w), v.Cwd)))
	}
	put("enabled", boolean(v.Enabled))
	put("required", boolean(v.Required))
	put("trust", str(string(v.Trust)))
	effects := mapping()
	for _, k := range slices.Sorted(maps.Keys(v.Effects)) {
		s.put(effects, join("effects", k), k, str(v.Effects[k].String()))
	}
	s.block(m, "effects", effects)
	allow := v.Allow
	if len(allow) == 0 {
		allow = []string{"*"}
	}
	tools := mapping()
	s.block(tools, "allow", strs(allow))
	s.block(tools, "deny", strs(v.Deny))
	s.block(m, "tools", tools)
	put("connect", str(string(v.Connect)))
	put("sessions", word(v.PerClient, "per_client", "shared"))
	s.restart(m, v.Restart)
	t := v.Timeouts
	abandon := str("never")
	if t.AbandonAfter > 0 {
		abandon = duration(t.AbandonAfter)
	}
	group("timeouts", "start", duration(t.Start), "first_start", duration(t.FirstStart), "call", duration(t.Call),
		"abandon_after", abandon, "stdin_close", duration(t.StdinClose), "sigterm", duration(t.SigTerm), "drain", duration(t.Drain))
	l := v.Limits
	group("limits", "max_reads", number(l.MaxReads), "max_side_effects", number(l.MaxSideEffects), "queue", number(l.Queue),
		"queue_bytes", size(l.QueueBytes), "result_bytes", size(l.ResultBytes), "frame_bytes", size(l.FrameBytes), "tools", number(l.Tools),
		"pages", number(l.Pages), "nofile", number(l.NoFile), "memory", size(l.Memory), "pids", number(l.PIDs))
	put("isolation", word(v.Serial, "serial", "exclusive"))
	s.texts(m, "lane_key", v.LaneKey, same)
	put("lane_group", str(v.LaneGroup))
	s.texts(m, "abandon", v.Abandon, same)
	put("keep_listed", boolean(v.KeepListed))
	group("pins", "on_change", str(v.PinChange))
	group("health", "probe_every", duration(v.Health.ProbeEvery), "failures", number(v.Health.Failures))
	return m
}

// cwdShown is the working directory without what its references stand for.
func cwdShown(v *Server, w *Written) string {
	if hasReference(w.Cwd) {
		return w.Cwd
	}
	return v.Cwd
}

func (s *shower) restart(m *yaml.Node, r Restart) {
	g, b, q := mapping(), mapping(), mapping()
	s.put(g, "restart.mode", "mode", str(string(r.Mode)))
	s.put(b, "restart.backoff.initial", "initial", duration(r.Initial))
	s.put(b, "restart.backoff.multiplier", "multiplier", float(r.Multiplier))
	s.put(b, "restart.backoff.max", "max", duration(r.Max))
	s.put(b, "restart.backoff.jitter", "jitter", float(r.Jitter))
	s.block(g, "backoff", b)
	s.put(g, "restart.reset_after", "reset_after", duration(r.ResetAfter))
	s.put(g, "restart.burst", "burst", number(r.Burst))
	s.put(g, "restart.within", "within", duration(r.Within))
	s.put(q, "restart.quarantine.cooldown", "cooldown", duration(r.Cooldown))
	s.put(q, "restart.quarantine.max_cooldown", "max_cooldown", duration(r.MaxCooldown))
	s.block(g, "quarantine", q)
	s.block(m, "restart", g)
}

func (s *shower) texts(m *yaml.Node, key string, texts map[string]string, show func(string) string) {
	g := mapping()
	for _, k := range slices.Sorted(maps.Keys(texts)) {
		s.put(g, join(key, k), k, str(show(texts[k])))
	}
	s.block(m, key, g)
}

func (s *shower) rules(rules []Rule) *yaml.Node {
	out := list()
	for _, r := range rules {
		m := mapping()
		m.Style = yaml.FlowStyle
		for _, f := range []struct{ key, val string }{{"server", r.Server}, {"tool", r.Tool}, {"effect", effectWord(r.Effect)},
			{"client", r.Client}, {"view", r.View}, {"action", r.Action.String()}} {
			if f.val != "" {
				m.Content = append(m.Content, str(f.key), str(f.val))
			}
		}
		if s.origin {
			m.LineComment = r.Source
		}
		out.Content = append(out.Content, m)
	}
	return out
}

func effectWord(e *messages.Effect) string {
	if e == nil {
		return ""
	}
	return e.String()
}

func (s *shower) sections(root *yaml.Node, c *Config) {
	group := func(key string, pairs ...any) {
		g := mapping()
		for i := 0; i < len(pairs); i += 2 {
			s.put(g, key+"."+pairs[i].(string), pairs[i].(string), pairs[i+1].(*yaml.Node))
		}
		root.Content = append(root.Content, str(key), g)
	}
	s.put(root, "ask_via", "ask_via", str(c.AskVia))
	views := mapping()
	for _, k := range slices.Sorted(maps.Keys(c.Views)) {
		v, m := c.Views[k], mapping()
		var effects []string
		for _, e := range v.Effects {
			effects = append(effects, e.String())
		}
		for _, f := range []struct {
			key  string
			list []string
		}{{"effects", effects}, {"tools", v.Tools}, {"servers", v.Servers}} {
			if len(f.list) > 0 {
				s.block(m, f.key, strs(f.list))
			}
		}
		s.block(views, k, m)
	}
	s.block(root, "views", views)
	group("discovery", "meta_tools", str(c.Discovery.MetaTools), "over_tokens", number(c.Discovery.OverTokens))
	group("clients", "queue", number(c.Clients.Queue))
	s.put(root, "listen", "listen", str(c.Listen))
	tokens := mapping()
	for _, k := range slices.Sorted(maps.Keys(c.Auth.Tokens)) {
		ref, m := c.Auth.Tokens[k], mapping()
		if ref.File != "" {
			s.put(m, join("auth.tokens", k)+".file", "file", str(ref.File))
		} else {
			s.put(m, join("auth.tokens", k)+".env", "env", str(ref.Env))
		}
		s.block(tokens, k, m)
	}
	auth := mapping()
	s.put(auth, "auth.none", "none", boolean(c.Auth.None))
	s.block(auth, "tokens", tokens)
	s.block(root, "auth", auth)
	group("tls", "cert", str(c.TLS.Cert), "key", str(c.TLS.Key), "client_ca", str(c.TLS.ClientCA))
	s.block(root, "allowed_hosts", strs(c.AllowedHosts))
	s.block(root, "allowed_origins", strs(c.AllowedOrigins))
	s.put(root, "list_wait", "list_wait", duration(c.ListWait))
	group("client_info", "name", str(c.ClientInfo.Name), "version", str(c.ClientInfo.Version))
	s.block(root, "reserved_names", strs(c.ReservedNames))
	group("journal", "fsync", str(c.Journal.Fsync), "keep", duration(c.Journal.Keep), "max_size", size(c.Journal.MaxSize))
	group("log", "file", str(c.Log.File), "max_size", size(c.Log.MaxSize), "keep", number(c.Log.Keep))
}

// --- nodes ------------------------------------------------------------------------

func mapping() *yaml.Node { return &yaml.Node{Kind: yaml.MappingNode} }
func list() *yaml.Node    { return &yaml.Node{Kind: yaml.SequenceNode} }

func str(s string) *yaml.Node {
	n := new(yaml.Node)
	n.SetString(s)
	return n
}

func strs(in []string) *yaml.Node {
	n := list()
	n.Style = yaml.FlowStyle
	for _, s := range in {
		n.Content = append(n.Content, str(s))
	}
	return n
}

func scalar(tag, v string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: v}
}

func number(n int) *yaml.Node             { return scalar("!!int", strconv.Itoa(n)) }
func boolean(b bool) *yaml.Node           { return scalar("!!bool", strconv.FormatBool(b)) }
func duration(d time.Duration) *yaml.Node { return scalar("!!str", formatDuration(d)) }

func float(f float64) *yaml.Node {
	if f == float64(int(f)) {
		return number(int(f))
	}
	return scalar("!!float", strconv.FormatFloat(f, 'g', -1, 64))
}

func size(n int64) *yaml.Node {
	if n == 0 {
		return number(0)
	}
	return scalar("!!str", formatSize(n))
}

func word(b bool, yes, no string) *yaml.Node {
	if b {
		return str(yes)
	}
	return str(no)
}
