package config

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"mcpbridge/messages"
)

// reporter takes one problem of a server under the path of its field.
type reporter func(field string, sev messages.Severity, msg string)

// check tests what holds for every server, however it came about: that its transport
// has what it needs and that its values make sense.
func (s *Server) check(report reporter) {
	fail := func(field, format string, args ...any) {
		report(field, messages.SeverityError, fmt.Sprintf(format, args...))
	}
	switch s.Type {
	case Stdio:
		if s.Command == "" {
			fail("command", "a stdio server needs a command")
		}
	case HTTP, SSE, Auto:
		if s.URL == "" {
			fail("url", "a server of type %s needs a url", shownType(s.Type))
		}
	case "": // its absence was reported with the reason
	default:
		fail("type", "%s is not known: one of stdio, http, sse", quote(string(s.Type)))
	}
	s.checkRestart(fail)

	t := s.Timeouts
	for _, v := range []struct {
		field    string
		value    time.Duration
		positive bool
	}{
		{"timeouts.start", t.Start, true}, {"timeouts.first_start", t.FirstStart, true}, {"timeouts.call", t.Call, true},
		{"timeouts.abandon_after", t.AbandonAfter, false}, {"timeouts.stdin_close", t.StdinClose, false},
		{"timeouts.sigterm", t.SigTerm, false}, {"timeouts.drain", t.Drain, false}, {"health.probe_every", s.Health.ProbeEvery, false},
	} {
		atLeast(fail, v.field, v.value, 0, v.positive)
	}
	l := s.Limits
	for _, v := range []struct {
		field    string
		value    int64
		positive bool
	}{
		{"limits.max_reads", int64(l.MaxReads), true}, {"limits.max_side_effects", int64(l.MaxSideEffects), true},
		{"limits.queue", int64(l.Queue), true}, {"limits.queue_bytes", l.QueueBytes, true}, {"limits.result_bytes", l.ResultBytes, true},
		{"limits.frame_bytes", l.FrameBytes, true}, {"limits.tools", int64(l.Tools), true}, {"limits.pages", int64(l.Pages), true},
		{"limits.nofile", int64(l.NoFile), false}, {"limits.memory", l.Memory, false}, {"limits.pids", int64(l.PIDs), false},
		{"health.failures", int64(s.Health.Failures), true},
	} {
		atLeast(fail, v.field, v.value, 0, v.positive)
	}
	if l.FrameBytes > 0 && l.ResultBytes > l.FrameBytes {
		report("limits.result_bytes", messages.SeverityWarning, "is above frame_bytes, which ends larger results first")
	}
}

func (s *Server) checkRestart(fail func(string, string, ...any)) {
	r := s.Restart
	atLeast(fail, "restart.backoff.initial", r.Initial, 0, true)
	atLeast(fail, "restart.reset_after", r.ResetAfter, 0, true)
	atLeast(fail, "restart.within", r.Within, 0, true)
	atLeast(fail, "restart.quarantine.cooldown", r.Cooldown, 0, true)
	atLeast(fail, "restart.burst", r.Burst, 0, false)
	if !finite(r.Multiplier) || r.Multiplier < 1 {
		fail("restart.backoff.multiplier", "must be 1 or more")
	}
	if !finite(r.Jitter) || r.Jitter < 0 || r.Jitter > 1 {
		fail("restart.backoff.jitter", "must be between 0 and 1")
	}
	if r.Max < r.Initial {
		fail("restart.backoff.max", "must not be below initial (%s)", formatDuration(r.Initial))
	}
	if r.MaxCooldown < r.Cooldown {
		fail("restart.quarantine.max_cooldown", "must not be below cooldown (%s)", formatDuration(r.Cooldown))
	}
}

func atLeast[T cmp.Ordered](fail func(string, string, ...any), field string, v, zero T, positive bool) {
	switch {
	case v < zero:
		fail(field, "must not be negative")
	case positive && v == zero:
		fail(field, "must be above 0")
	}
}

// checkReferences tests the form of every `${…}`, without looking anything up.
func (s *Server) checkReferences(report reporter) {
	if s.Written == nil {
		return
	}
	s.Written.texts(func(field, text string) {
		segs, err := split(text)
		if err != nil {
			report(field, messages.SeverityError, err.Error())
		}
		if slices.ContainsFunc(segs, func(g segment) bool { return g.ref != nil && g.ref.runs }) {
			report(field, messages.SeverityWarning, neverRun)
		}
	})
}

// checkText tests texts that hold no reference (any more): names, URL and headers as the
// operating system and HTTP will want them. Messages never repeat a value.
func (s *Server) checkText(report reporter) {
	fail := func(field, msg string) { report(field, messages.SeverityError, msg) }
	ready := func(text string, written string) bool {
		return s.Written == nil || text != written || !hasReference(written)
	}
	w := s.Written
	if w == nil {
		w = &Written{}
	}
	for _, k := range slices.Sorted(maps.Keys(s.Env)) {
		if k == "" || strings.ContainsAny(k, "=\x00") {
			fail(join("env", k), "is not a name for a variable")
		}
		if strings.Contains(s.Env[k], "\x00") {
			fail(join("env", k), "the value holds a NUL byte")
		}
	}
	for i, a := range append([]string{s.Command, s.Cwd}, s.Args...) {
		if strings.Contains(a, "\x00") {
			fail([]string{"command", "cwd", "args"}[min(i, 2)], "holds a NUL byte")
		}
	}
	if s.URL != "" && ready(s.URL, w.URL) {
		if msg := badURL(s.URL); msg != "" {
			fail("url", msg)
		}
	}
	seen := map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(s.Headers)) {
		field, v := join("headers", k), s.Headers[k]
		if other, twice := seen[strings.ToLower(k)]; twice {
			fail(field, fmt.Sprintf("the same header as %s: the case of letters does not count", other))
		}
		seen[strings.ToLower(k)] = k
		switch {
		case !headerName.MatchString(k):
			fail(field, "is not a name for a header")
		case !ready(v, w.Headers[k]):
		case strings.ContainsFunc(v, func(r rune) bool { return r != '\t' && unicode.IsControl(r) }):
			fail(field, "the value holds a line break or another control character")
		case emptyBearer(v):
			fail(field, "the bearer token is empty"+emptyBecause(w.Headers[k]))
		}
	}
}

// headerName is a token of RFC 9110.
var headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// emptyBearer reports a header that announces a token and brings none.
func emptyBearer(v string) bool { return strings.EqualFold(strings.TrimSpace(v), "bearer") }

// emptyBecause names the references that gave nothing.
func emptyBecause(written string) string {
	segs, err := split(written)
	if err != nil {
		return ""
	}
	for _, g := range segs {
		if g.ref != nil {
			return fmt.Sprintf(": %s gives an empty text", cmp.Or(g.ref.name, g.ref.file))
		}
	}
	return ""
}

func badURL(raw string) string {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return "is not a URL"
	case u.Scheme != "http" && u.Scheme != "https":
		return "must begin with http:// or https://"
	case u.Host == "" || u.Hostname() == "":
		return "names no host"
	}
	return ""
}

// checkSecrets warns of secrets in the wrong place: on a command line, which every
// user of the machine can read, and in the text of a project file, which is shared.
func (s *Server) checkSecrets(report reporter) {
	w := s.Written
	warn := func(field, msg string) { report(field, messages.SeverityWarning, msg) }
	project := s.Layer == LayerProject || s.Layer == LayerProjectJSON
	for i, a := range w.Args {
		field := fmt.Sprintf("args[%d]", i)
		switch secret := argSecret(w.Args, i); {
		case secret == "" && !secretReference(a):
			continue
		case project && secret != "" && !hasReference(secret):
			warn(field, "holds a literal secret in a project file, and command lines are public; pass it through env with ${NAME}")
		default:
			warn(field, "seems to hold a secret, and command lines are public; pass it through env instead")
		}
	}
	if !project {
		return
	}
	const advice = "holds a literal secret in a project file, which others can read; write ${NAME} or ${file:/path} instead"
	for _, k := range slices.Sorted(maps.Keys(w.Env)) {
		if v := w.Env[k]; looksSecret(k, v) && !hasReference(v) {
			warn(join("env", k), advice)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(w.Headers)) {
		v := w.Headers[k]
		_, token, _ := strings.Cut(v, " ")
		if !hasReference(v) && (looksSecret(k, v) || looksSecret("", token)) {
			warn(join("headers", k), advice)
		}
	}
	if u, err := url.Parse(w.URL); err == nil {
		password, _ := u.User.Password()
		literal := password != "" && !hasReference(password)
		for k, vs := range u.Query() {
			literal = literal || (looksSecret(k, vs[0]) && !hasReference(vs[0]))
		}
		if literal {
			warn("url", advice)
		}
	}
}

// Validate reports what is wrong with a configuration, for one that was built in
// code; call it after Normalize. What Load returned was checked with positions already.
func (c *Config) Validate() []messages.Issue {
	var out []messages.Issue
	seen := map[string]bool{}
	for i := range c.Servers {
		s := &c.Servers[i]
		report := func(field string, sev messages.Severity, msg string) {
			out = append(out, messages.Issue{Path: join2(join("mcp_servers", s.Name), field), Stage: messages.StageConfig,
				Severity: sev, Server: s.Name, Message: msg})
		}
		fail := func(field, msg string) { report(field, messages.SeverityError, msg) }
		if msg := badName(s.Name); msg != "" {
			fail("", msg)
		}
		if seen[s.Name] {
			fail("", "there is another server of this name")
		}
		seen[s.Name] = true
		if s.Type == "" {
			_, msg := inferType(s.Command != "", s.URL != "")
			fail("", msg)
		}
		s.check(report)
		s.checkText(report)
		oneOf(fail, "trust", s.Trust, TrustNone, TrustAnnotations, TrustReadOnly)
		oneOf(fail, "connect", s.Connect, ConnectStartup, ConnectLazy, ConnectDisabled)
		oneOf(fail, "restart.mode", s.Restart.Mode, RestartAlways, RestartOnFailure, RestartNever)
		oneOf(fail, "pins.on_change", s.PinChange, "block", "warn", "allow")
		for name, globs := range map[string][]string{"tools.allow": s.Allow, "tools.deny": s.Deny, "effects": slices.Sorted(maps.Keys(s.Effects))} {
			for _, g := range globs {
				if msg := badGlob(g); msg != "" {
					fail(name, msg)
				}
			}
		}
	}
	for block, rules := range map[string][]Rule{"permissions": c.Permissions, "project permissions": c.ProjectRules} {
		for i, r := range rules {
			for _, g := range []string{r.Server, r.Tool} {
				if g != "" && badGlob(g) != "" {
					out = append(out, messages.Issue{Path: fmt.Sprintf("%s[%d]", block, i), Stage: messages.StageConfig,
						Severity: messages.SeverityError, Message: badGlob(g)})
				}
			}
		}
	}
	slices.SortStableFunc(out, func(a, b messages.Issue) int { return strings.Compare(a.Path, b.Path) })
	return out
}

func oneOf[T ~string](fail func(string, string), field string, v T, allowed ...T) {
	if !slices.Contains(allowed, v) {
		fail(field, fmt.Sprintf("%s is not known: one of %v", quote(string(v)), allowed))
	}
}
