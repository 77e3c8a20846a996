package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"mcpbridge/actors"
	"mcpbridge/actors/upstream"
	"mcpbridge/config"
	"mcpbridge/messages"
)

// Changes is what a reload did.
type Changes = config.Changes

// ReloadError says that a configuration was refused as a whole, and nothing has changed.
type ReloadError struct {
	Issues []messages.Issue // its errors
	Err    error            // it could not be read at all
}

// Error implements error.
func (e *ReloadError) Error() string {
	if e.Err != nil {
		return "nothing has changed: " + e.Err.Error()
	}
	text := fmt.Sprintf("nothing has changed: the configuration has %d errors: ", len(e.Issues))
	if len(e.Issues) == 1 {
		text = "nothing has changed: the configuration has an error: "
	}
	return text + e.Issues[0].String()
}

// Unwrap gives the reason.
func (e *ReloadError) Unwrap() error { return e.Err }

// refusedReload is what Status says about a reload that did not happen.
type refusedReload struct{ issues []messages.Issue }

// maxReloadIssues bounds how many errors of a refused configuration the status repeats.
const maxReloadIssues = 100

// Reload goes over to another configuration, as a start with it would, but for what can
// go on: a server whose entry is the same keeps its process and its calls, one whose
// process must be another is drained (timeouts.drain) and started anew, one that is gone
// is drained and leaves. Everything else that an entry says, permissions, views and the
// rest apply at once.
//
// It is strict (requirement A2): a configuration with any error is refused with a
// *ReloadError, nothing changes, and Status and the events say so until a reload
// succeeds. Reload returns when the configuration is in force; servers may still be
// draining or starting. Reloads that meet are done one after the other; ctx bounds the
// wait for that.
func (b *Bridge) Reload(ctx context.Context, cfg *config.Config) (Changes, error) {
	return b.ReloadFrom(ctx, func() (*config.Config, error) { return cfg, nil })
}

// ReloadFrom is Reload of what load returns. load runs when the reload's turn has come,
// so that of several the last one to read is the last one to apply. Its error refuses
// the reload.
func (b *Bridge) ReloadFrom(ctx context.Context, load func() (*config.Config, error)) (Changes, error) {
	if err := b.takeTurn(ctx); err != nil {
		return Changes{}, err
	}
	defer b.endTurn()
	if b.draining.Load() {
		return Changes{}, errClosing
	}
	given, err := load()
	if err != nil {
		return Changes{}, b.refuseReload(&ReloadError{Err: err})
	}
	cfg, err := prepare(given, options{reserved: b.given.reserved})
	if err != nil {
		return Changes{}, b.refuseReload(&ReloadError{Err: err})
	}
	for i := range cfg.Servers {
		b.checkLimits(cfg, &cfg.Servers[i])
	}
	if bad := cfg.Errors(); len(bad) > 0 {
		return Changes{}, b.refuseReload(&ReloadError{Issues: bad})
	}
	admitApproved(cfg, b.consent)
	running := b.Config()
	c := Changes{Difference: config.Diff(running, cfg), Restart: []config.Change{}}
	for _, x := range c.Settings {
		if x.ForStart() {
			c.Restart = append(c.Restart, x)
		}
	}
	c.Settings = slices.DeleteFunc(c.Settings, config.Change.ForStart)
	cfg.KeepStart(running)
	if err := b.apply(cfg, c, running.Enabled != cfg.Enabled); err != nil {
		return c, err
	}
	b.refused.Store(nil)
	b.log.Info("reloaded", "changes", c.Summary())
	b.hub.emit(messages.Event{Type: messages.EventReloaded, Message: c.Summary(), Count: len(c.Added) + len(c.Removed) + len(c.Changed)})
	return c, nil
}

// takeTurn waits for what changes the configuration to be done.
func (b *Bridge) takeTurn(ctx context.Context) error {
	select {
	case b.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-b.down:
		return errClosing
	}
}

func (b *Bridge) endTurn() { <-b.turn }

// refuseReload notes why a reload did not happen.
func (b *Bridge) refuseReload(e *ReloadError) error {
	at := time.Now().UTC().Format(time.RFC3339)
	head := messages.Issue{Stage: messages.StageConfig, Severity: messages.SeverityError,
		Message: "the reload at " + at + " was refused, and the configuration before it goes on; correct it, then `bridgectl reload`"}
	if e.Err != nil {
		head.Message += ": " + e.Err.Error()
	}
	b.refused.Store(&refusedReload{append([]messages.Issue{head}, e.Issues[:min(len(e.Issues), maxReloadIssues)]...)})
	b.log.Error("the reload was refused, and the configuration before it goes on", "err", e)
	b.hub.emit(messages.Event{Type: messages.EventReloadRefused, Message: e.Error(), Count: len(e.Issues)})
	return e
}

// reloadIssues is what Status says about a reload that did not happen.
func (b *Bridge) reloadIssues() []messages.Issue {
	if r := b.refused.Load(); r != nil {
		return r.issues
	}
	return nil
}

// apply goes over to cfg. Rules come first, so that nothing is judged by an old rule and
// a new definition; the servers come last, when everybody knows of them.
func (b *Bridge) apply(cfg *config.Config, c Changes, switched bool) error {
	servers := b.reloadOf(cfg, c, switched)
	b.cfg.Store(cfg)
	b.shownConfig.Store(cfg)
	b.noteLimits(cfg)
	b.gate.Replace(cfg)
	if b.given.startupWait == nil {
		b.wait.Store(int64(cfg.ListWait))
	}
	b.gateway.Reconfigure(b.discovery(cfg))
	b.send(b.refs.Router, messages.PatienceChanged{ListWait: cfg.ListWait, ClientQueue: cfg.Clients.Queue})
	b.send(b.refs.Router, messages.PolicyChanged{})
	judged, told, shown := make(chan struct{}), make(chan struct{}), make(chan struct{})
	b.system.Root.Send(b.refs.Registry, actors.Reconfigure{Config: cfg, Done: judged})
	if err := b.until(judged); err != nil {
		return err
	}
	servers.done = told
	b.system.Root.Send(b.refs.Servers, servers)
	if err := b.until(told); err != nil {
		return err
	}
	b.system.Root.Send(b.refs.Registry, actors.Reconfigure{Done: shown})
	return b.until(shown)
}

// until waits for one of the bridge's own actors, which neither block nor wait.
func (b *Bridge) until(done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-b.down:
		return errClosing
	}
}

// reloadOf gathers what the servers need to know. switched says that the whole bridge is
// switched on or off, which concerns all of them.
func (b *Bridge) reloadOf(cfg *config.Config, c Changes, switched bool) reloadServers {
	m := reloadServers{off: !cfg.Enabled, removed: c.Removed}
	for _, s := range cfg.Servers {
		e := serverEntry{cfg: s}
		i := slices.IndexFunc(c.Changed, func(x config.ServerChange) bool { return x.Server == s.Name })
		switch {
		case slices.Contains(c.Added, s.Name):
			e.known = b.recallOne(cfg, s)
			m.added = append(m.added, e)
		case i >= 0:
			if e.process = c.Changed[i].Process; e.process {
				e.known = b.recallOne(cfg, s)
			}
			m.changed = append(m.changed, e)
		case switched:
			m.changed = append(m.changed, e)
		}
	}
	return m
}

// noteLimits keeps what every result is held against.
func (b *Bridge) noteLimits(cfg *config.Config) {
	limits := make(map[string]int64, len(cfg.Servers))
	for _, s := range cfg.Servers {
		limits[s.Name] = s.Limits.ResultBytes
	}
	b.limits.Store(&limits)
}

// discovery is what the endpoint does by the configuration, unless the host has said it.
func (b *Bridge) discovery(cfg *config.Config) (config.Discovery, bool) {
	return cmp.Or(b.given.gateway.Discovery, cfg.Discovery), b.given.gateway.AskClient || cfg.AskVia == "client"
}

// checkLimits makes a configuration error of limits that cannot be kept here.
func (b *Bridge) checkLimits(cfg *config.Config, s *config.Server) {
	if s.Err != nil || s.Remote() {
		return
	}
	if err := b.owner.Check(upstream.Limits(*s)); err != nil {
		s.Err = &messages.Issue{Path: "mcp_servers." + s.Name + ".limits", Stage: messages.StageConfig,
			Severity: messages.SeverityError, Server: s.Name, Message: err.Error()}
		cfg.Issues = append(cfg.Issues[:len(cfg.Issues):len(cfg.Issues)], *s.Err)
	}
}

// IsReloadRefused tells a configuration that was refused from a bridge that is closing.
func IsReloadRefused(err error) bool {
	var e *ReloadError
	return errors.As(err, &e)
}
