package config

import (
	"fmt"
	"slices"
	"strings"
)

// startSettings are those top-level settings that hold for the life of a bridge.
var startSettings = []string{"listen", "auth", "tls", "allowed_hosts", "allowed_origins", "log", "journal"}

// ForStart reports whether a setting outside of the servers is read at the start alone.
func (c Change) ForStart() bool {
	first := c.Path[:strings.IndexAny(c.Path+".", ".[")]
	return slices.Contains(startSettings, first)
}

// KeepStart gives c the settings of running that hold for the life of a bridge.
func (c *Config) KeepStart(running *Config) {
	c.Listen, c.Auth, c.TLS, c.AllowedHosts, c.AllowedOrigins, c.Log, c.Journal =
		running.Listen, running.Auth, running.TLS, running.AllowedHosts, running.AllowedOrigins, running.Log, running.Journal
	c.Hash = c.hash()
}

// Places lists the files that Load looks for, whether they exist or not; a Load with the
// same options reads no other ones, but for those that ${file:…} names.
func (o LoadOptions) Places() (files []string) {
	for _, s := range o.sources(o.environment()) {
		if s.text == nil && s.file != "" {
			files = append(files, absolute(s.file))
		}
	}
	return files
}

// Changes is what a reload did. Servers that it does not name were not touched: their
// processes go on, and so do their calls.
type Changes struct {
	Difference
	// Restart are the settings that are read at the start alone. Nothing of them was
	// applied: they count from the next start of the bridge on.
	Restart []Change `json:"restart"`
}

// Lines renders the changes for people.
func (c Changes) Lines() []string {
	out := c.Difference.Lines()
	for _, x := range c.Restart {
		out = append(out, "  "+x.String()+" (needs a restart of the bridge)")
	}
	return out
}

// Summary is one line about the changes.
func (c Changes) Summary() string {
	anew := 0
	for _, x := range c.Changed {
		if x.Process {
			anew++
		}
	}
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{{len(c.Added), "added"}, {len(c.Removed), "removed"}, {anew, "started anew"}, {len(c.Changed) - anew, "changed in place"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	text := "servers: " + strings.Join(parts, ", ")
	if len(parts) == 0 {
		text = "no server has changed"
	}
	if n := len(c.Settings); n > 0 {
		text += fmt.Sprintf("; other settings changed: %d", n)
	}
	if len(c.Restart) > 0 {
		paths := make([]string, len(c.Restart))
		for i, x := range c.Restart {
			paths[i] = x.Path
		}
		text += "; these need a restart of the bridge: " + strings.Join(paths, ", ")
	}
	return text
}
