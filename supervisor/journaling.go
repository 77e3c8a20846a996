package supervisor

import (
	"crypto/rand"
	"errors"
	"log/slog"
	"path/filepath"
	"time"

	"mcpbridge/actors"
	"mcpbridge/config"
	"mcpbridge/internal/planted"
	"mcpbridge/messages"
	"mcpbridge/supervisor/journal"
)

// journaling is what a bridge has to do with its journal, if it has one.
type journaling struct {
	journal messages.Journal        // nil for none
	store   *journal.Journal        // the bridge's own one, which it closes; nil for none
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

// openIn opens the journal in the state directory, unless the host brought one of its own
// or there is no such directory. One that cannot be used is no reason not to start: side
// effects are refused with the reason, reads go on.
func (j *journaling) openIn(dir, runID string, cfg *config.Config, log *slog.Logger) {
	if j.journal != nil || dir == "" {
		return
	}
	store, err := journal.Open(journal.Options{
		Dir: filepath.Join(dir, "journal"), RunID: runID, Fsync: journal.Fsync(cfg.Journal.Fsync),
		Keep: cfg.Journal.Keep, MaxSize: cfg.Journal.MaxSize, Logger: log,
	})
	if err != nil {
		j.journal = refusing{err}
		return
	}
	j.journal, j.store, j.digest = store, store, actors.NewDigest(store.Key())
	j.open = store.OpenEntries()
	// What an earlier run had in flight when it ended is over for us: nobody reads an
	// answer any more.
	for _, e := range j.open {
		store.Outcome(messages.OutcomeRecord{CallID: e.CallID, RunID: e.RunID, Outcome: messages.OutcomeUnknown, Code: messages.CodeConnectionLost, At: time.Now()})
	}
	for _, e := range store.Entries(journal.Filter{Limit: recentEntries}) {
		if e.Remote && e.Outcome == messages.OutcomeUnknown.String() {
			j.open = append(j.open, e)
		}
	}
}

// recentEntries bounds how far back a start looks for calls that were given up shortly
// before the last end.
const recentEntries = 1000

// close closes the bridge's own journal.
func (j *journaling) close() error {
	if j.store == nil {
		return nil
	}
	return j.store.Close()
}

// issues tells what a person should know of the journal.
func (j *journaling) issues() []messages.Issue {
	issue := func(err error) messages.Issue {
		return messages.Issue{Stage: messages.StageRunning, Severity: messages.SeverityError, Path: "journal",
			Message: "side effects are refused, because they cannot be recorded: " + err.Error()}
	}
	if r, ok := j.journal.(refusing); ok {
		return []messages.Issue{issue(r.err)}
	}
	if j.store == nil {
		return nil
	}
	out := j.store.Issues()
	if err := j.store.Health(); err != nil {
		out = append(out, issue(err))
	}
	return out
}

// refusing stands for a journal that cannot be opened.
type refusing struct{ err error }

func (r refusing) Dispatch(_ messages.DispatchRecord, done func(error)) { done(r.err) }
func (r refusing) Outcome(messages.OutcomeRecord)                       {}
func (r refusing) Find(_, _, _, _ string) (messages.JournalEntry, bool) {
	return messages.JournalEntry{}, false
}

// ErrNoJournal is returned where a bridge keeps no journal: it has no state directory.
var ErrNoJournal = errors.New("this bridge keeps no journal: it has no state directory")

// JournalEntries returns past side effects, latest dispatch first, at most limit of them
// (0 = 100, at most 1000). idOrKey is a call id or an idempotency key; "" means all.
// A call that is in flight has the outcome "open". No entry means that the call was not
// dispatched, as long as the journal reaches back that far and is whole.
func (b *Bridge) JournalEntries(idOrKey string, limit int) ([]messages.JournalEntry, error) {
	j := b.journaling
	if r, ok := j.journal.(refusing); ok {
		return nil, r.err
	}
	if j.store == nil {
		return nil, ErrNoJournal
	}
	out := j.store.Entries(journal.Filter{CallID: idOrKey, Limit: limit})
	if idOrKey != "" && len(out) == 0 {
		out = j.store.Entries(journal.Filter{Key: idOrKey, Limit: limit})
	}
	// Just after a start, or on a slow disk, what an earlier run left open may not have
	// been written as settled yet. It is over all the same.
	for i := range out {
		if e := &out[i]; e.Outcome == messages.OutcomeOpen && e.RunID != b.runID {
			e.Outcome, e.Code = messages.OutcomeUnknown.String(), messages.CodeConnectionLost
		}
	}
	return out, nil
}

// JournalReach tells what it means that a call has no entry in the journal: settled calls
// up to since may have been removed by retention (zero: none was), and damaged says that
// records may be unreadable, so that even of a later call no entry proves nothing. Status
// names the places as issues. Both are zero where there is no journal.
func (b *Bridge) JournalReach() (since time.Time, damaged bool) {
	if s := b.journaling.store; s != nil {
		return s.Since(), s.Damaged()
	}
	return time.Time{}, false
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
		case planted.Is(planted.FenceAtStartForgotten):
			continue
		case e.Outcome == messages.OutcomeOpen:
		case e.Outcome == messages.OutcomeUnknown.String() && e.SettledAt != nil:
			if from = *e.SettledAt; s.Timeouts.AbandonAfter <= 0 || gate.AbandonNever(e.Server, e.Tool) {
				// Its entry is not open, and whether it has been answered since, nobody
				// wrote down: held again, it would be held at every start to come.
				continue
			}
		default:
			continue
		}
		f := messages.FenceAtStart{Key: s.Key(), CallID: e.CallID, Tool: e.Tool, Client: e.Client, At: e.DispatchedAt}
		if s.Timeouts.AbandonAfter > 0 && !gate.AbandonNever(e.Server, e.Tool) {
			if from.After(now) { // the clock was set back meanwhile
				from = now
			}
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
