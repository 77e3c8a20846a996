package config

// A setting that is checked but that nothing acts on yet must not be relied upon in
// silence: who writes one hears so.

const noEffect = "is accepted, but has no effect yet: "

// inactive warns about the settings of an entry that differ from their default and
// that this version does not act on.
func (d *decoder) inactive(s *Server) {
	def := DefaultServer()
	for _, f := range []struct {
		path string
		set  bool
		why  string
	}{
		{"sessions", s.PerClient, "all clients share one session of the server"},
		{"pins", s.PinChange != def.PinChange, "changed definitions are taken over"},
	} {
		d.warnInactive(f.path, f.set, f.why)
	}
}

// inactiveSections does the same for the settings beside the servers.
func (d *decoder) inactiveSections(c *Config) {
	def := Default()
	d.warnInactive("ask_via", c.AskVia != def.AskVia, "a call that needs approval is refused")
}

func (d *decoder) warnInactive(path string, set bool, why string) {
	if at, ok := d.at[path]; ok && set {
		d.warnf(at, "%s", noEffect+why)
	}
}
