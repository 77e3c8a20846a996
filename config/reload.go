package config

import (
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
