package config

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"mcpbridge/messages"
)

// DefaultServer is a Server with every default filled in, enabled, and nothing to
// start yet: set Name and either Command or URL.
func DefaultServer() Server {
	return Server{
		Layer:     LayerCode,
		Enabled:   true,
		Trust:     TrustNone,
		Connect:   ConnectStartup,
		PinChange: "block",
		Restart:   defaultRestart,
		Timeouts:  defaultTimeouts,
		Limits:    defaultLimits,
		Health:    defaultHealth,
	}
}

var (
	defaultRestart = Restart{Mode: RestartAlways, Initial: 500 * time.Millisecond, Multiplier: 2, Max: time.Minute, Jitter: 0.2,
		ResetAfter: 2 * time.Minute, Burst: 5, Within: 10 * time.Minute, Cooldown: 5 * time.Minute, MaxCooldown: time.Hour}
	defaultTimeouts = Timeouts{Start: 30 * time.Second, FirstStart: 5 * time.Minute, Call: time.Minute, AbandonAfter: 30 * time.Second,
		StdinClose: 2 * time.Second, SigTerm: 5 * time.Second, Drain: 5 * time.Second}
	defaultLimits = Limits{MaxReads: 8, MaxSideEffects: 1, Queue: 256, QueueBytes: 64 << 20, ResultBytes: 8 << 20, FrameBytes: 32 << 20,
		Tools: 10000, Pages: 1000}
	defaultHealth = Health{ProbeEvery: 30 * time.Second, Failures: 3}
)

// Default is a Config with every default filled in and no server: the place to start
// from when a configuration is built in code.
func Default() *Config {
	return &Config{
		Enabled:    true,
		ListWait:   5 * time.Second,
		ClientInfo: ClientInfo{Name: "mcpbridge"},
		Clients:    Clients{Queue: 1024},
		Listen:     "127.0.0.1:7332",
		Log:        Log{MaxSize: 50 << 20, Keep: 5},
		Journal:    Journal{Fsync: "always", Keep: 7 * day, MaxSize: 256 << 20},
		AskVia:     "none",
		Discovery:  Discovery{MetaTools: "auto", OverTokens: 10000},
	}
}

// Normalize makes a configuration that was built in code ready to run: it fills in
// defaults, makes paths absolute, collects secrets, sorts servers by name and computes
// Hash. It is idempotent and leaves what Load returned as it is.
//
// A group of settings (Restart, Timeouts, Limits, Health) that is entirely zero
// gets its defaults. In a group that says something, only the fields for which zero makes
// no sense are filled: Burst, Jitter, AbandonAfter, StdinClose, SigTerm, Drain and ProbeEvery mean
// their zero. Enabled and ListWait are never touched; Default and DefaultServer set them.
func (c *Config) Normalize() {
	def := Default()
	fill(&c.ClientInfo.Name, def.ClientInfo.Name)
	fill(&c.Clients.Queue, def.Clients.Queue)
	fill(&c.Listen, def.Listen)
	fill(&c.Log.MaxSize, def.Log.MaxSize)
	fill(&c.Log.Keep, def.Log.Keep)
	fill(&c.Journal.Fsync, def.Journal.Fsync)
	fill(&c.Journal.Keep, def.Journal.Keep)
	fill(&c.Journal.MaxSize, def.Journal.MaxSize)
	fill(&c.AskVia, def.AskVia)
	fill(&c.Discovery.MetaTools, def.Discovery.MetaTools)
	fill(&c.Discovery.OverTokens, def.Discovery.OverTokens)
	if c.Workspace == "" {
		c.Workspace, _ = os.Getwd() // without one, relative paths stay relative to the process
	}
	if len(c.Permissions) > 0 {
		c.HasPermissions = true
	}
	nameRules("permissions", c.Permissions)
	nameRules("project permissions", c.ProjectRules)
	for i := range c.Servers {
		c.Servers[i].normalize(c.Workspace)
	}
	slices.SortStableFunc(c.Servers, func(a, b Server) int { return strings.Compare(a.Name, b.Name) })
	c.Hash = c.hash()
}

func nameRules(block string, rules []Rule) {
	for i := range rules {
		fill(&rules[i].Source, block+"["+strconv.Itoa(i)+"]")
	}
}

func (s *Server) normalize(workspace string) {
	def := DefaultServer()
	fill(&s.Layer, LayerCode)
	fill(&s.Trust, def.Trust)
	fill(&s.Connect, def.Connect)
	fill(&s.PinChange, def.PinChange)
	if s.Type == "" {
		s.Type, _ = inferType(s.Command != "", s.URL != "")
	}
	if slices.Contains(s.Allow, "*") {
		s.Allow = nil // the same, also for names that hold a slash
	}

	fill(&s.Restart, def.Restart)
	fill(&s.Restart.Mode, def.Restart.Mode)
	fill(&s.Restart.Initial, def.Restart.Initial)
	fill(&s.Restart.Multiplier, def.Restart.Multiplier)
	fill(&s.Restart.Max, max(def.Restart.Max, s.Restart.Initial))
	fill(&s.Restart.ResetAfter, def.Restart.ResetAfter)
	fill(&s.Restart.Within, def.Restart.Within)
	fill(&s.Restart.Cooldown, def.Restart.Cooldown)
	fill(&s.Restart.MaxCooldown, max(def.Restart.MaxCooldown, s.Restart.Cooldown))

	fill(&s.Timeouts, def.Timeouts)
	fill(&s.Timeouts.Start, def.Timeouts.Start)
	fill(&s.Timeouts.FirstStart, max(def.Timeouts.FirstStart, s.Timeouts.Start))
	fill(&s.Timeouts.Call, def.Timeouts.Call)

	fill(&s.Limits.MaxReads, def.Limits.MaxReads)
	fill(&s.Limits.MaxSideEffects, def.Limits.MaxSideEffects)
	fill(&s.Limits.Queue, def.Limits.Queue)
	fill(&s.Limits.QueueBytes, def.Limits.QueueBytes)
	fill(&s.Limits.ResultBytes, def.Limits.ResultBytes)
	fill(&s.Limits.FrameBytes, max(def.Limits.FrameBytes, s.Limits.ResultBytes))
	fill(&s.Limits.Tools, def.Limits.Tools)
	fill(&s.Limits.Pages, def.Limits.Pages)

	fill(&s.Health, def.Health)
	fill(&s.Health.Failures, def.Health.Failures)

	if s.Layer == LayerCode || s.Layer == LayerDemo {
		if s.Cwd == "" {
			s.Cwd = workspace
		} else if !filepath.IsAbs(s.Cwd) {
			s.Cwd = filepath.Join(workspace, s.Cwd)
		}
		if !filepath.IsAbs(s.Command) && strings.ContainsRune(s.Command, '/') {
			s.Command = filepath.Join(workspace, s.Command)
		}
	}
	s.Secrets = collectSecrets(s, s.Secrets)
}

// fill sets what is still zero.
func fill[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// inferType tells the transport of an entry that names none (requirement A4); the
// text says why there is no answer.
func inferType(command, url bool) (Transport, string) {
	switch {
	case command && url:
		return "", "both command and url are given; say which one counts with type: stdio or type: http"
	case command:
		return Stdio, ""
	case url:
		return Auto, ""
	default:
		return "", "neither command nor url is given; a stdio server needs command, a remote one url"
	}
}

// denyAll is what a permission block or rule that cannot be read stands for: the gate
// fails closed.
func denyAll(source string) Rule {
	return Rule{Action: messages.Deny, Source: source}
}
