package dispatch

import (
	"fmt"
	"slices"
	"time"

	"mcpbridge/messages"
)

// simJournal is a log in which the records of one moment become durable in order. A
// crash cuts it anywhere behind what was promised.
type simJournal struct {
	log     []any // messages.DispatchRecord or messages.OutcomeRecord
	durable int   // of the log
	pending []pendingRecord
	finds   []FindPrior
}

type pendingRecord struct {
	Record
	at int // in the log
}

func (j *simJournal) take(cmd Command) {
	switch cmd := cmd.(type) {
	case Record:
		j.log = append(j.log, cmd.Record)
		j.pending = append(j.pending, pendingRecord{cmd, len(j.log)})
	case RecordOutcome:
		j.log = append(j.log, cmd.Record)
	case FindPrior:
		j.finds = append(j.finds, cmd)
	}
}

// entry is what a log says of a call: nil for nothing.
func entryOf(log []any, id string) *messages.JournalEntry {
	var e *messages.JournalEntry
	for _, r := range log {
		switch r := r.(type) {
		case messages.DispatchRecord:
			if r.CallID == id {
				e = &messages.JournalEntry{CallID: id, RunID: r.RunID, Generation: r.Generation, Client: r.Client, Server: r.Server, Tool: r.Tool,
					IdempotencyKey: r.IdempotencyKey, Outcome: messages.OutcomeOpen, DispatchedAt: r.At, ArgsDigest: r.ArgsDigest, Remote: r.Remote}
			}
		case messages.OutcomeRecord:
			if r.CallID == id && e != nil {
				at := r.At
				e.Outcome, e.Code, e.SettledAt, e.Result, e.RPCError, e.Dropped = r.Outcome.String(), r.Code, &at, r.Result, r.RPCError, r.Dropped
			}
		}
	}
	return e
}

func (j *simJournal) find(k keyScope) *messages.JournalEntry {
	for _, r := range slices.Backward(j.log) {
		if d, ok := r.(messages.DispatchRecord); ok && (keyScope{d.Client, d.Server, d.Tool, d.IdempotencyKey}) == k {
			return entryOf(j.log, d.CallID)
		}
	}
	return nil
}

// fences are the open entries of servers that nobody can prove dead.
func (j *simJournal) fences(s *sim) (out []messages.Message) {
	if j == nil {
		return nil
	}
	seen := map[string]bool{}
	for _, r := range j.log {
		d, ok := r.(messages.DispatchRecord)
		if !ok || seen[d.CallID] {
			continue
		}
		seen[d.CallID] = true
		e := entryOf(j.log, d.CallID)
		if e.Outcome != messages.OutcomeOpen || !e.Remote || e.RunID == fmt.Sprint("run", s.run) {
			continue
		}
		m := messages.FenceAtStart{Key: messages.Key{Server: e.Server}, CallID: e.CallID, Tool: e.Tool, Client: e.Client, At: e.DispatchedAt,
			Until: s.now.Add(15 * time.Second)}
		if e.Tool == "long" {
			m.Until = time.Time{}
		}
		out = append(out, m)
		s.count["fenced at start"]++
	}
	return out
}

// settleRecord makes the oldest pending records durable, or fails one. A failed one
// may be on the disk all the same.
func (s *sim) settleRecord() {
	j := s.journal
	if j == nil || len(j.pending) == 0 {
		return
	}
	n := 1 + s.roll(min(len(j.pending), 3)) // a group commit
	for _, p := range j.pending[:n] {
		m := messages.Recorded{CallID: p.Record.Record.CallID, Attempt: p.Record.Record.Attempt, Token: p.Token}
		j.pending = j.pending[1:]
		if !s.calm && s.roll(8) == 0 {
			m.Err = "no space left on device"
			s.count["record failed"]++
			if s.roll(2) == 0 {
				j.log[p.at-1] = nil
			}
		} else {
			j.durable = max(j.durable, p.at)
			s.count["recorded"]++
		}
		s.do(m)
	}
}

// find answers the router's own questions.
func (s *sim) find() {
	j := s.journal
	if j == nil || len(j.finds) == 0 {
		return
	}
	f := j.finds[0]
	j.finds = j.finds[1:]
	s.count["found late"]++
	s.do(messages.PriorFound{CallID: f.CallID, Token: f.Token, Entry: j.find(keyScope{f.Client, f.Server, f.Tool, f.Key})})
}

// crash is kill -9 and a new start: callers and connections are gone, the processes
// are dead, what the journal had promised is there, and of the rest some.
func (s *sim) crash() {
	s.count["restart"]++
	s.trace("crash")
	for _, a := range s.attempts {
		if a.run != s.run {
			continue
		}
		a.Boundary.Void()
		a.back = true
		// A remote server works on; the bridge knows only what stands open in its
		// journal. A call that was given up before may go on unnoticed.
		_, given := s.ended[a.CallID]
		a.over = a.over || !s.serverOf(a.Key).limits.Remote || !a.Boundary.Entered() || s.journal == nil || given ||
			a.effect == messages.ReadOnly
	}
	if j := s.journal; j != nil {
		j.log = j.log[:j.durable+s.roll(len(j.log)-j.durable+1)]
		j.durable, j.pending, j.finds = len(j.log), nil, nil
		for _, a := range s.attempts { // the outcome was on the disk, or came late: then it stands open
			if e := entryOf(j.log, a.CallID); !a.over && (e == nil || e.Outcome != messages.OutcomeOpen) {
				a.over = true
			}
		}
	}
	s.boot()
	s.known = false
	s.list(s.roll(2) == 0)
}
