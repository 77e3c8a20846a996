package supervisor

import (
	"fmt"
	"strings"

	"mcpbridge/config"
	"mcpbridge/messages"
)

// What the machine tells people: events, status rows and lines for `logs`.

// about fills in whom an event is about.
func (m *machine) about(e messages.Event) messages.Event {
	e.Server, e.Instance = m.cfg.Name, m.key().Instance
	if e.Generation == 0 {
		e.Generation = m.gen
	}
	return e
}

// show sends the newest row to the registry.
func (m *machine) show() {
	r := m.row
	r.State, r.Reason, r.Since, r.Generation = m.state, m.reason, m.since, m.gen
	r.Restarts = max(m.spawns-1, 0)
	r.Degraded = m.phase == phaseLive && (m.noise || m.listing != nil && m.listing.Truncated)
	if !m.retry.IsZero() {
		t := m.retry
		r.NextRetry = &t
	}
	m.do(cmdRegistry{messages.ServerChanged{Status: r}})
}

func (m *machine) say(format string, args ...any) { m.do(cmdSay{Text: fmt.Sprintf(format, args...)}) }

// warn says what a person should hear of even when nothing else is logged.
func (m *machine) warn(format string, args ...any) {
	m.do(cmdSay{Text: fmt.Sprintf(format, args...), Bad: true})
}

// configReason says what is wrong with an entry, with the field in front:
// `headers.Authorization: NOT_SET is not set`.
func configReason(s config.Server) string {
	field, ok := strings.CutPrefix(s.Err.Path, "mcp_servers."+s.Name+".")
	if !ok || strings.HasPrefix(s.Err.Message, field+":") {
		return s.Err.Message
	}
	return field + ": " + s.Err.Message
}

// shownTransport is what a server is reached by, as far as is known before it answers.
func shownTransport(t config.Transport) string {
	if t == config.Auto {
		return string(config.HTTP)
	}
	return string(t)
}

func withHint(e messages.Exit) string {
	if e.Hint == "" {
		return e.Reason
	}
	return e.Reason + "; " + e.Hint
}
