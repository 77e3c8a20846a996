package supervisor

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"mcpbridge/config"
	"mcpbridge/messages"
	"mcpbridge/supervisor/consent"
)

// consentDir is where in the state directory a person's agreements are kept.
const consentDir = "consent"

// openConsent reads what was agreed to in earlier lives and applies it to the
// configuration, whose slices are the bridge's own.
func (b *Bridge) openConsent(stateDir string) {
	dir := ""
	if stateDir != "" {
		dir = filepath.Join(stateDir, consentDir)
	}
	b.consent = consent.Open(dir, b.log)
	cfg := b.cfg.Load()
	admitApproved(cfg, b.consent)
	b.shownConfig.Store(cfg)
}

// entryOf is a blocked server's entry as the store knows it.
func entryOf(s config.Server) consent.Entry {
	return consent.Entry{Name: s.Name, Place: s.Approval.Place, Text: s.Approval.Text}
}

// admitApproved resolves the servers of a project that a person has agreed to. That a
// server waits is told by its row of the status, and by nothing that would still say
// so later.
func admitApproved(cfg *config.Config, store *consent.Store) {
	for i, s := range cfg.Servers {
		if s.Approval != nil && store.Approved(entryOf(s)) {
			cfg.Servers[i] = s.Approval.Resolve()
		}
	}
	cfg.Issues = slices.DeleteFunc(slices.Clone(cfg.Issues), config.AwaitsApproval)
}

// Admit returns a configuration as this bridge would run it: servers of a project that a
// person has approved are resolved. It keeps the issues, and changes nothing in cfg.
func (b *Bridge) Admit(cfg *config.Config) *config.Config {
	c := *cfg
	c.Servers = slices.Clone(cfg.Servers)
	admitApproved(&c, b.consent)
	c.Issues = cfg.Issues
	return &c
}

// Approvals lists what waits for a person: servers of the project, definitions, calls.
func (b *Bridge) Approvals(ctx context.Context) ([]messages.Approval, error) {
	out := []messages.Approval{}
	for _, s := range b.blocked() {
		out = append(out, messages.Approval{ID: b.consent.ID(entryOf(s)), Kind: messages.ApproveServer, Server: s.Name,
			Entry: s.Approval.Shown, References: s.Approval.References, Source: s.Source, Replaces: s.Approval.Replaces})
	}
	for _, c := range b.consent.Pins().Changes(true) {
		out = append(out, definitionRow(c))
	}
	reply := make(chan []messages.Approval, 1)
	b.send(b.refs.Router, messages.QueryApprovals{Reply: reply})
	select {
	case calls := <-reply:
		return append(out, calls...), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-b.down:
		return nil, errClosing
	}
}

func definitionRow(c messages.DefinitionChange) messages.Approval {
	return messages.Approval{ID: c.ID, Kind: messages.ApproveDefinition, Server: c.Server, Tool: c.Name, RemoteTool: c.After.Tool, Change: &c}
}

// blocked are the servers of the project that wait for a person.
func (b *Bridge) blocked() (out []config.Server) {
	snap := b.snapshot.Load()
	for _, s := range b.cfg.Load().Servers {
		i := slices.IndexFunc(snap.Servers, func(v messages.ServerStatus) bool { return v.Name == s.Name })
		if s.Approval != nil && i >= 0 && snap.Servers[i].State == messages.StateBlocked && snap.Servers[i].Reason != reasonAuth && !b.refusedServers.has(b.consent.ID(entryOf(s))) {
			out = append(out, s)
		}
	}
	return out
}

// ErrUnknownApproval answers an id that nothing waits under: never, or not any more.
var ErrUnknownApproval = errors.New("nothing waits for approval under this id")

// Approve says yes to what Approvals showed under the id, and to nothing else: a call
// may be made once, a definition counts from now on, a server starts. It returns what
// was approved.
func (b *Bridge) Approve(ctx context.Context, id string) (messages.Approval, error) {
	return b.decide(ctx, id, true)
}

// Deny says no. A call that waits ends as denied, a definition or server stays as it
// is and is not asked about again in this life of the bridge.
func (b *Bridge) Deny(ctx context.Context, id string) (messages.Approval, error) {
	return b.decide(ctx, id, false)
}

func (b *Bridge) decide(ctx context.Context, id string, yes bool) (messages.Approval, error) {
	if row, found, err := b.decideBlocked(ctx, id, yes); found || err != nil {
		return row, err
	}
	if c, ok := b.consent.Pins().Decide(id, yes, time.Now()); ok {
		b.log.Info("a definition was judged", "server", c.Server, "tool", c.After.Tool, "approved", yes, "digest", c.After.Digest)
		if yes {
			b.send(b.refs.Registry, messages.PinsChanged{Server: c.Server})
		}
		return definitionRow(c), nil
	}
	reply := make(chan *messages.Approval, 1)
	b.send(b.refs.Router, messages.DecideApproval{ID: id, Approve: yes, Reply: reply})
	select {
	case a := <-reply:
		if a == nil {
			return messages.Approval{}, fmt.Errorf("%w: %q", ErrUnknownApproval, id)
		}
		return *a, nil
	case <-ctx.Done():
		return messages.Approval{}, ctx.Err()
	case <-b.down:
		return messages.Approval{}, errClosing
	}
}

// decideBlocked judges a project's server, if that is what waits under the id. No reload
// comes between the look and the deed.
func (b *Bridge) decideBlocked(ctx context.Context, id string, yes bool) (row messages.Approval, found bool, err error) {
	if err := b.takeTurn(ctx); err != nil {
		return row, false, err
	}
	defer b.endTurn()
	for _, s := range b.blocked() {
		if b.consent.ID(entryOf(s)) == id {
			row, err = b.decideServer(ctx, s, id, yes)
			return row, true, err
		}
	}
	return row, false, nil
}

// decideServer lets a project's server run, or leaves it blocked.
func (b *Bridge) decideServer(ctx context.Context, s config.Server, id string, yes bool) (messages.Approval, error) {
	row := messages.Approval{ID: id, Kind: messages.ApproveServer, Server: s.Name, Entry: s.Approval.Shown, References: s.Approval.References, Source: s.Source, Replaces: s.Approval.Replaces}
	b.log.Info("a project's server was judged", "server", s.Name, "approved", yes)
	if !yes {
		b.refusedServers.add(id)
		return row, nil
	}
	b.consent.Approve(entryOf(s), time.Now())
	resolved := s.Approval.Resolve()
	b.showApproved(resolved)
	done := make(chan struct{})
	b.system.Root.Send(b.refs.Servers, approvedServer{cfg: resolved, done: done})
	select {
	case <-done:
		return row, nil
	case <-ctx.Done():
		return row, ctx.Err()
	case <-b.down:
		return row, errClosing
	}
}

// showApproved puts a server that was approved into what Config returns.
func (b *Bridge) showApproved(s config.Server) {
	for {
		old := b.shownConfig.Load()
		c := *old
		c.Servers = slices.Clone(c.Servers)
		for i := range c.Servers {
			if c.Servers[i].Name == s.Name {
				c.Servers[i] = s
			}
		}
		if b.shownConfig.CompareAndSwap(old, &c) {
			return
		}
	}
}

// DefinitionChanges lists every definition that nobody has approved, those that a
// person has said no to as well.
func (b *Bridge) DefinitionChanges() []messages.DefinitionChange {
	return b.consent.Pins().Changes(false)
}

// Permission is the gate's answer for a tool, a client and a view, and the rule that
// gave it: the same that a call gets.
func (b *Bridge) Permission(t messages.Tool, client, view string) (messages.Permission, string) {
	return b.gate.Decide(t, client, view)
}

// keepGrants saves the calls that were approved and not made. The router forgets them
// with its answer.
func (b *Bridge) keepGrants() {
	reply := make(chan []messages.CallGrant, 1)
	b.send(b.refs.Router, messages.TakeGrants{Reply: reply})
	timer := time.NewTimer(treeGrace)
	defer timer.Stop()
	select {
	case grants := <-reply:
		if err := b.consent.KeepGrants(grants); err != nil {
			b.log.Warn("approved calls will be asked about again", "err", err)
		}
	case <-timer.C:
	case <-b.down:
	}
}

// approvedServer hands a project's server that may run now to its supervisor. It is no
// part of the message set: configuration never passes there.
type approvedServer struct {
	cfg  config.Server
	done chan<- struct{}
}

// evApproved says that a person has agreed to the entry of a blocked server.
type evApproved struct{ cfg config.Server }

func (evApproved) event() {}

// approved takes the entry, its references expanded, and begins as if it had been
// there from the start.
func (m *machine) approved(now time.Time, cfg config.Server) {
	if m.state != messages.StateBlocked || m.reason == reasonAuth || m.closing {
		return
	}
	m.cfg, m.pol = cfg, newPolicy(cfg.Restart)
	m.row.Transport = shownTransport(cfg.Type)
	m.say("approved by a person")
	m.boot(now)
}
