package supervisor

import (
	"context"
	"os"
	"slices"
	"time"

	"mcpbridge/messages"
)

// statusWait bounds the question for the calls; the router never takes that long.
const statusWait = 5 * time.Second

// Status returns a copy of the bridge's state: the registry's newest rows, with the
// router's counts of calls.
func (b *Bridge) Status() messages.Status {
	ctx, cancel := context.WithTimeout(context.Background(), statusWait)
	defer cancel()
	calls, err := b.report(ctx)
	if err != nil {
		b.log.Error("the router does not answer; the counts of calls are missing", "err", err)
	}
	snap := b.snapshot.Load()
	st := messages.Status{
		Bridge: messages.BridgeStatus{
			PID: os.Getpid(), RunID: b.runID, URL: *b.url.Load(), ConfigHash: b.cfg.Load().Hash, Version: b.version,
			UptimeMS: time.Since(b.began).Milliseconds(), Draining: b.draining.Load(), Counts: snap.Counts,
			Ownership: b.owner.State(),
		},
		Servers: make([]messages.ServerStatus, 0, len(snap.Servers)),
		Issues:  slices.Concat(snap.Issues, b.journaling.issues(), b.consent.Issues(), b.given.issues, b.reloadIssues()),
	}
	for _, s := range snap.Servers {
		key := messages.Key{Server: s.Name, Instance: s.Instance}
		s.InFlight, s.Queued = calls.InFlight[key], calls.Queued[key]
		ownership(&s, st.Bridge.Ownership)
		s.Issues, s.Instances = slices.Clone(s.Issues), slices.Clone(s.Instances)
		if s.LastExit != nil {
			e := *s.LastExit
			e.StderrTail = slices.Clone(e.StderrTail)
			s.LastExit = &e
		}
		if s.NextRetry != nil {
			t := *s.NextRetry
			s.NextRetry = &t
		}
		st.Servers = append(st.Servers, s)
	}
	return st
}

// Ready tells whether the bridge is fit for work: every required server is ready, and
// nothing is draining. The names are of those that are not.
func (b *Bridge) Ready() (bool, []string) {
	var missing []string
	snap := b.snapshot.Load()
	for _, c := range b.cfg.Load().Servers {
		if !c.Required {
			continue
		}
		i := slices.IndexFunc(snap.Servers, func(s messages.ServerStatus) bool { return s.Name == c.Name })
		if i < 0 || snap.Servers[i].State != messages.StateReady {
			missing = append(missing, c.Name)
		}
	}
	return len(missing) == 0 && !b.draining.Load(), missing
}

// WaitListed blocks until every server that is coming up and whose tools nobody has
// ever seen has listed them or failed, until ctx ends, or until list_wait is over for each of
// them, counted from when it began: a server that hangs delays nobody after that.
// server narrows it to one; "" means all. A lazy server whose tools nobody has seen
// is woken. For a server that listed in an earlier run nobody waits: what it listed then
// is offered until it lists again.
func (b *Bridge) WaitListed(ctx context.Context, server string) { b.waitListed(ctx, server, false) }

// waitListed is WaitListed, and with all it waits for servers that are known, too.
func (b *Bridge) waitListed(ctx context.Context, server string, all bool) {
	if b.wait.Load() <= 0 {
		return
	}
	woken := map[string]time.Time{}
	for {
		next := b.changed.after() // before the look, so that no change is missed
		patience := b.unlisted(server, all, woken)
		if patience <= 0 {
			return
		}
		timer := time.NewTimer(patience)
		select {
		case <-next:
		case <-timer.C:
		case <-ctx.Done():
		case <-b.down:
		}
		timer.Stop()
		if ctx.Err() != nil || b.isDown() {
			return
		}
	}
}

func (b *Bridge) isDown() bool {
	select {
	case <-b.down:
		return true
	default:
		return false
	}
}

// unlisted says how long a first list that is still to come may be waited for, and
// wakes who sleeps; 0 = nothing is to come.
func (b *Bridge) unlisted(server string, all bool, woken map[string]time.Time) (patience time.Duration) {
	snap := b.snapshot.Load()
	for _, s := range snap.Servers {
		if server != "" && s.Name != server || s.LastExit != nil {
			continue // another one, or it has failed already
		}
		switch s.State {
		case messages.StateStarting: // its tools come a moment before it is ready
			if !all && snap.Catalogue.Knows(s.Name) {
				continue
			}
			patience = max(patience, time.Duration(b.wait.Load())-time.Since(s.Since))
		case messages.StateIdle:
			if snap.Catalogue.Knows(s.Name) {
				continue
			}
			at, ok := woken[s.Name]
			if !ok {
				at = time.Now()
				woken[s.Name] = at
				b.send(b.refs.Servers, messages.WakeServer{Key: messages.Key{Server: s.Name, Instance: s.Instance}})
			}
			patience = max(patience, time.Duration(b.wait.Load())-time.Since(at))
		}
	}
	return patience
}
