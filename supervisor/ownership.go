package supervisor

import (
	"cmp"

	"mcpbridge/actors/upstream"
	"mcpbridge/actors/upstream/own"
	"mcpbridge/config"
	"mcpbridge/messages"
)

// OwnershipVar is the environment variable by which a person makes the daemon take a lower
// rung than it could (see WithOwnershipRung).
const OwnershipVar = own.ForceVar

// openOwner chooses how processes are owned, and makes a configuration error of every
// limit that cannot be kept here: a server runs within its limits or not at all.
func (b *Bridge) openOwner(o options) error {
	want := o.ownership
	want.RunID, want.StateDir, want.Logger = b.runID, o.stateDir, b.log
	want.Notice = func(state, reason string) {
		b.hub.emit(messages.Event{Type: messages.EventOwnership, State: state, Reason: reason})
	}
	for _, s := range b.cfg.Servers {
		l := upstream.Limits(s)
		want.Wanted = own.Limits{NoFile: max(want.Wanted.NoFile, l.NoFile), Memory: max(want.Wanted.Memory, l.Memory), PIDs: max(want.Wanted.PIDs, l.PIDs)}
	}
	var err error
	if b.owner, err = own.Open(want); err != nil {
		return err
	}
	for i := range b.cfg.Servers {
		b.checkLimits(&b.cfg.Servers[i])
	}
	return nil
}

func (b *Bridge) checkLimits(s *config.Server) {
	if s.Err != nil || s.Remote() {
		return
	}
	if err := b.owner.Check(upstream.Limits(*s)); err != nil {
		s.Err = &messages.Issue{Path: "mcp_servers." + s.Name + ".limits", Stage: messages.StageConfig,
			Severity: messages.SeverityError, Server: s.Name, Message: err.Error()}
		b.cfg.Issues = append(b.cfg.Issues[:len(b.cfg.Issues):len(b.cfg.Issues)], *s.Err)
	}
}

// ownership fills in how a server's processes are held.
func ownership(s *messages.ServerStatus, o messages.Ownership) {
	if cmp.Or(s.Transport, string(config.Stdio)) == string(config.Stdio) {
		s.Ownership = o.Rung
	}
}
