package actors

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"mcpbridge/config"
	"mcpbridge/messages"
)

// serverRow is what the registry knows of one instance, its tools apart.
type serverRow struct {
	status messages.ServerStatus
	issues []messages.Issue // of the status itself, put in form
}

// configuredRow is a server before anybody reported of it: those that are never
// started stay like this.
func configuredRow(cfg *config.Config, s config.Server, now time.Time) serverRow {
	status := messages.ServerStatus{Name: s.Name, Required: s.Required, Transport: string(s.Type), Since: now, Source: s.Source}
	switch {
	case s.Err != nil:
		status.State, status.Reason = messages.StateConfigError, configMessage(s.Name, *s.Err)
		status.Issues = []messages.Issue{*s.Err}
	case !cfg.Enabled:
		status.State, status.Reason = messages.StateDisabled, "the whole bridge is disabled"
	case s.Blocked != "":
		status.State, status.Reason = messages.StateBlocked, s.Blocked
	case !s.Enabled:
		status.State, status.Reason = messages.StateDisabled, "enabled: false"
	case s.Connect == config.ConnectDisabled:
		status.State, status.Reason = messages.StateDisabled, "connect: disabled"
	case s.Connect == config.ConnectLazy:
		status.State, status.Reason = messages.StateIdle, "connect: lazy"
	default:
		status.State = messages.StateStarting
	}
	return serverRow{status: status, issues: serverIssues(status)}
}

// serverIssues are the issues that come with a status, and the one that explains
// why a configured server is not connected (requirement B5).
func serverIssues(status messages.ServerStatus) []messages.Issue {
	var out []messages.Issue
	for _, i := range status.Issues {
		if i.Stage == "" || i.Stage == messages.StageConfig {
			i.Stage, i.Message = messages.StageConfig, configMessage(status.Name, i)
		}
		i.Severity = cmp.Or(i.Severity, messages.SeverityWarning)
		i.Server = status.Name
		out = append(out, i)
	}
	if i, ok := notConnected(status); ok {
		out = append(out, i)
	}
	return out
}

// configMessage puts the field in front of a configuration issue's message:
// `headers.Authorization: NOT_SET is not set`.
func configMessage(server string, i messages.Issue) string {
	field, ok := strings.CutPrefix(i.Path, "mcp_servers."+server+".")
	if !ok || strings.HasPrefix(i.Message, field+":") {
		return i.Message
	}
	return field + ": " + i.Message
}

// notConnected explains a valid server that is not connected.
func notConnected(s messages.ServerStatus) (messages.Issue, bool) {
	i := messages.Issue{Stage: messages.StageConnect, Severity: messages.SeverityWarning, Server: s.Name}
	reason := ""
	if s.Reason != "" {
		reason = ": " + s.Reason
	}
	switch s.State {
	case messages.StateReady, messages.StateConfigError:
		return i, false
	case messages.StateIdle:
		switch {
		case s.LastExit == nil:
			i.Message = "not started" + reason + "; a call starts it"
		case s.LastExit.Clean:
			i.Stage, i.Message = messages.StageRunning, "ended by itself"+reason+"; a call starts it"
		default:
			i.Severity, i.Message = messages.SeverityError, "failed, and is not started again by itself; a call, or `bridgectl start "+s.Name+"`, starts it"
		}
	case messages.StateStarting:
		i.Message = "still starting"
	case messages.StateBackoff:
		i.Severity, i.Message = messages.SeverityError, "failed, and is started again by itself"
	case messages.StateQuarantined:
		i.Severity = messages.SeverityError
		i.Message = fmt.Sprintf("quarantined%s; `bridgectl reset %s` tries at once", reason, s.Name)
	case messages.StateDisabled:
		i.Stage, i.Message = messages.StageConfig, "disabled"+reason
	case messages.StateBlocked:
		i.Severity, i.Stage, i.Message = messages.SeverityError, messages.StageConfig, "waits for a person"+reason
	default:
		i.Stage, i.Message = messages.StageRunning, s.State.String()+reason
	}
	if e := s.LastExit; e != nil && !(s.State == messages.StateIdle && e.Clean) {
		switch s.State {
		case messages.StateIdle, messages.StateStarting, messages.StateBackoff, messages.StateQuarantined, messages.StateBlocked:
			i.Stage = cmp.Or(e.Stage, i.Stage)
			if !strings.Contains(i.Message, e.Reason) { // the reason of the state often is the reason of the end
				i.Message += "; last end: " + e.Reason
			}
			if e.Hint != "" && !strings.Contains(i.Message, e.Hint) {
				i.Message += " (" + e.Hint + ")"
			}
		}
	}
	return i, true
}

// publish makes a snapshot of everything and hands it out. Its slices are new: the
// reader's to keep, and never touched again.
func (r *registry) publish() {
	s := &messages.Snapshot{Catalogue: r.current, Issues: slices.Clone(r.cfg.Config.Issues), Servers: make([]messages.ServerStatus, 0, len(r.rows))}
	valid, connected := map[string]bool{}, map[string]bool{}
	for key, row := range r.rows {
		v := row.status
		v.Instances = slices.Clone(v.Instances)
		v.Tools = r.merged.Registered[key.Server]
		v.Issues = distinct(row.issues, r.parts[key.Server].Issues, r.merged.Issues[key.Server])
		s.Servers = append(s.Servers, v)
		valid[key.Server] = valid[key.Server] || v.State != messages.StateConfigError
		connected[key.Server] = connected[key.Server] || v.State == messages.StateReady
	}
	slices.SortFunc(s.Servers, func(a, b messages.ServerStatus) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Instance, b.Instance))
	})
	s.Counts = messages.Counts{Configured: countTrue(valid), Connected: countTrue(connected)}
	for _, part := range r.parts {
		s.Counts.Discovered += part.Discovered
		s.Counts.Adapted += part.Adapted
	}
	for _, n := range r.merged.Registered {
		s.Counts.Registered += n
	}
	r.cfg.Publish(s)
}

func countTrue(set map[string]bool) (n int) {
	for _, yes := range set {
		if yes {
			n++
		}
	}
	return n
}

// distinct joins lists of issues; the same one from two sides counts once.
func distinct(lists ...[]messages.Issue) []messages.Issue {
	var out []messages.Issue
	seen := map[messages.Issue]bool{}
	for _, list := range lists {
		for _, i := range list {
			if !seen[i] {
				seen[i] = true
				out = append(out, i)
			}
		}
	}
	return out
}
