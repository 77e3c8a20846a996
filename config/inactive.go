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
		{"limits.result_bytes", s.Limits.ResultBytes != def.Limits.ResultBytes, "results are passed on whole, up to frame_bytes"},
	} {
		d.warnInactive(f.path, f.set, f.why)
	}
}

// inactiveSections does the same for the settings beside the servers.
func (d *decoder) inactiveSections(c *Config) {
	def := Default()
	d.warnInactive("discovery", c.Discovery != def.Discovery, "the catalogue is always listed whole")
}

func (d *decoder) warnInactive(path string, set bool, why string) {
	if at, ok := d.at[path]; ok && set {
		d.warnf(at, "%s", noEffect+why)
	}
}
