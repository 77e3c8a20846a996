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
	cfg := b.cfg.Load()
	for _, s := range cfg.Servers {
		l := upstream.Limits(s)
		want.Wanted = own.Limits{NoFile: max(want.Wanted.NoFile, l.NoFile), Memory: max(want.Wanted.Memory, l.Memory), PIDs: max(want.Wanted.PIDs, l.PIDs)}
	}
	var err error
	if b.owner, err = own.Open(want); err != nil {
		return err
	}
	for i := range cfg.Servers {
		b.checkLimits(cfg, &cfg.Servers[i])
	}
	return nil
}

// ownership fills in how a server's processes are held.
func ownership(s *messages.ServerStatus, o messages.Ownership) {
	if cmp.Or(s.Transport, string(config.Stdio)) == string(config.Stdio) {
		s.Ownership = o.Rung
	}
}
