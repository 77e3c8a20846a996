package config

// inactive warns about settings of an entry that are checked, but that nothing acts on
// yet: such a setting must not be relied upon in silence.
func (d *decoder) inactive(s *Server) {
	if at, ok := d.at["sessions"]; ok && s.PerClient {
		d.warnf(at, "is accepted, but has no effect yet: all clients share one session of the server")
	}
}
