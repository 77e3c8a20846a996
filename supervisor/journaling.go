package supervisor

import (
	"crypto/rand"
	"time"

	"mcpbridge/actors"
	"mcpbridge/config"
	"mcpbridge/messages"
)

// journaling is what a bridge has to do with its journal, if it has one.
type journaling struct {
	journal messages.Journal        // nil for none
	digest  actors.Digest           // never nil once the bridge is open
	open    []messages.JournalEntry // of earlier runs
}

// WithJournal gives the bridge a journal of its side effects. digest is the keyed
// digest of arguments that its entries carry, the same in every run; open are the
// entries that earlier runs left open, and may be those that they settled as
// outcome_unknown shortly before they ended. The journal must outlive the bridge; without
// one, side effects are sent unrecorded and idempotency keys live as long as the run.
func WithJournal(j messages.Journal, digest actors.Digest, open []messages.JournalEntry) Option {
	return func(o *options) { o.journaling = journaling{journal: j, digest: digest, open: open} }
}

// complete makes a digest for this run where none outlives it.
func (j *journaling) complete() {
	if j.digest == nil {
		key := make([]byte, 32)
		_, _ = rand.Read(key) // never fails
		j.digest = actors.NewDigest(key)
	}
}

// fences are the entries whose servers may still work on them, and cannot be proven
// dead: open ones, whose lanes are held for abandon_after from now on, and those given
// up as outcome_unknown shortly before the end, for what is left of it.
func (j *journaling) fences(cfg *config.Config, gate *actors.Gate, now time.Time) (out []messages.FenceAtStart) {
	for _, e := range j.open {
		s, ok := cfg.Server(e.Server)
		from := now
		switch {
		case !ok || !e.Remote:
			continue
		case e.Outcome == messages.OutcomeOpen:
		case e.Outcome == messages.OutcomeUnknown.String() && e.SettledAt != nil:
			if from = *e.SettledAt; s.Timeouts.AbandonAfter <= 0 || gate.AbandonNever(e.Server, e.Tool) {
				continue // whether it has been answered since, nobody wrote down
			}
		default:
			continue
		}
		f := messages.FenceAtStart{Key: s.Key(), CallID: e.CallID, Tool: e.Tool, Client: e.Client, At: e.DispatchedAt}
		if s.Timeouts.AbandonAfter > 0 && !gate.AbandonNever(e.Server, e.Tool) {
			if f.Until = from.Add(s.Timeouts.AbandonAfter); !f.Until.After(now) {
				continue
			}
		}
		out = append(out, f)
	}
	return out
}

// readyToSubmit does for a Submit what the router has no time for: the argument check, the
// lane's key, the digest, and the look into the journal. Whether the call may be made
// at all is the router's to decide.
func (b *Bridge) readyToSubmit(m *messages.Submit) {
	call := m.Call
	cat := b.Catalogue()
	tool, ok := cat.Lookup(call.Tool)
	if call.Server != "" {
		tool, ok = cat.LookupRemote(call.Server, call.Tool)
	}
	if !ok {
		return
	}
	args, err := b.gate.CheckArgs(tool, call.Args)
	m.Checked = messages.CheckedArgs{Version: cat.Version, Args: args}
	if err != nil {
		m.Checked.Err = err.Error()
		return
	}
	m.Checked.LaneKey = b.gate.LaneKey(tool, args)
	recorded := b.journaling.journal != nil && tool.Effect != messages.ReadOnly
	if recorded || call.IdempotencyKey != "" {
		m.ArgsDigest = b.journaling.digest(args)
	}
	if recorded && call.IdempotencyKey != "" {
		if e, found := b.journaling.journal.Find(call.Client, tool.Server, tool.RemoteName, call.IdempotencyKey); found {
			m.Prior = &e
		}
		m.PriorServer, m.PriorTool = tool.Server, tool.RemoteName
	}
}
