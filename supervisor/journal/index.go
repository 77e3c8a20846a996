package journal

import (
	"container/list"
	"time"
	"unique"

	"mcpbridge/messages"
)

// place is where a stored result lies.
type place struct {
	segment uint64
	off     int64
	n       int // of the whole frame; 0 = nowhere
}

type callID struct{ run, call string }

type scope struct{ client, server, tool, key string }

// entry is a call in the index. Names that repeat are held once.
type entry struct {
	id         callID
	scope      scope
	generation uint64
	attempt    int
	digest     string
	remote     bool
	dispatched time.Time

	settled time.Time // zero = open
	outcome messages.OutcomeKind
	code    messages.Code
	raw     rawKind
	held    []byte // the stored result as long as it is on no disk
	place   place
	dropped bool

	segment uint64        // that holds its latest dispatch
	node    *list.Element // in order
}

func (e *entry) open() bool { return e.settled.IsZero() }

// record is the dispatch of e as it was written.
func (e *entry) record() messages.DispatchRecord {
	return messages.DispatchRecord{CallID: e.id.call, RunID: e.id.run, Generation: e.generation, Attempt: e.attempt,
		Client: e.scope.client, Server: e.scope.server, Tool: e.scope.tool, ArgsDigest: e.digest,
		IdempotencyKey: e.scope.key, Remote: e.remote, At: e.dispatched}
}

// row is e as people see it, without its stored result.
func (e *entry) row() messages.JournalEntry {
	r := messages.JournalEntry{CallID: e.id.call, RunID: e.id.run, Generation: e.generation, Client: e.scope.client,
		Server: e.scope.server, Tool: e.scope.tool, IdempotencyKey: e.scope.key, Outcome: messages.OutcomeOpen,
		DispatchedAt: e.dispatched, ArgsDigest: e.digest, Remote: e.remote}
	if !e.open() {
		at := e.settled
		r.Outcome, r.Code, r.SettledAt, r.Dropped = e.outcome.String(), e.code, &at, e.dropped
	}
	return r
}

// index is what the journal knows without reading. It is guarded by Journal.mu.
type index struct {
	calls   map[callID]*entry
	keys    map[scope]*entry // the latest call of an idempotency key
	order   *list.List       // of *entry, latest dispatch last
	max     int
	trimAt  int
	evicted bool // some calls are on the disk only
	undated int  // outcomes whose dispatch is not here
}

func newIndex(limit int) *index {
	return &index{calls: map[callID]*entry{}, keys: map[scope]*entry{}, order: list.New(), max: limit, trimAt: limit}
}

func intern(s string) string { return unique.Make(s).Value() }

// dispatch notes that a call was dispatched; at is the segment that says so. The
// same dispatch written twice (carried on, or written again after a failure) says
// nothing new; another attempt opens the call again.
func (x *index) dispatch(d messages.DispatchRecord, segment uint64) {
	id := callID{intern(d.RunID), d.CallID}
	e := x.calls[id]
	if e == nil {
		e = &entry{id: id}
		x.calls[id] = e
		e.node = x.order.PushBack(e)
	} else {
		e.segment = segment
		if e.attempt == d.Attempt && e.generation == d.Generation && e.dispatched.Equal(d.At) {
			return
		}
		if x.keys[e.scope] == e {
			delete(x.keys, e.scope)
		}
		x.order.MoveToBack(e.node)
	}
	*e = entry{id: id, node: e.node, segment: segment, generation: d.Generation, attempt: d.Attempt, digest: d.ArgsDigest,
		remote: d.Remote, dispatched: d.At,
		scope: scope{intern(d.Client), intern(d.Server), intern(d.Tool), d.IdempotencyKey}}
	if d.IdempotencyKey != "" {
		x.keys[e.scope] = e
	}
}

// outcome notes how a call ended. p is where its result lies; the zero place says
// that it is on no disk yet.
func (x *index) outcome(o messages.OutcomeRecord, raw rawKind, p place) {
	e := x.calls[callID{o.RunID, o.CallID}]
	if e == nil {
		x.undated++ // refused at its dispatch, or dropped by retention
		return
	}
	e.settled, e.outcome, e.code, e.dropped = o.At, o.Outcome, o.Code, o.Dropped
	if e.settled.IsZero() { // never open again for want of a time
		e.settled = e.dispatched
	}
	if e.settled.IsZero() {
		e.settled = time.Unix(0, 0).UTC()
	}
	e.raw, e.held, e.place = raw, nil, place{}
	switch {
	case raw == rawNone:
	case p.n > 0:
		e.place = p
	case raw == rawError:
		e.held = o.RPCError
	default:
		e.held = o.Result
	}
}

// trim keeps the index within its bound: the oldest settled calls that no repeated
// key can ask for go first. They stay on the disk.
func (x *index) trim(now time.Time) {
	if len(x.calls) <= x.trimAt {
		return
	}
	target := x.max - x.max/10 // some room, so that this is not done for every call
	for n := x.order.Front(); n != nil && len(x.calls) > target; {
		e := n.Value.(*entry)
		n = n.Next()
		if !e.open() && (e.scope.key == "" || now.Sub(e.dispatched) > KeyWindow) {
			x.remove(e)
			x.evicted = true
		}
	}
	x.trimAt = max(x.max, len(x.calls)+len(x.calls)/5) // where little could go, look again later
}

func (x *index) remove(e *entry) {
	delete(x.calls, e.id)
	if x.keys[e.scope] == e {
		delete(x.keys, e.scope)
	}
	x.order.Remove(e.node)
}

// forget removes the settled calls that were dispatched in a segment up to n.
func (x *index) forget(n uint64) {
	for el := x.order.Front(); el != nil; {
		e := el.Value.(*entry)
		el = el.Next()
		if e.segment <= n && !e.open() {
			x.remove(e)
		}
	}
}

// openUpTo returns the open calls whose dispatch stands in a segment up to n.
func (x *index) openUpTo(n uint64) []messages.DispatchRecord {
	var out []messages.DispatchRecord
	for el := x.order.Front(); el != nil; el = el.Next() {
		if e := el.Value.(*entry); e.open() && e.segment <= n {
			out = append(out, e.record())
		}
	}
	return out
}

// newest calls f for every call, latest dispatch first, until it returns false.
func (x *index) newest(f func(*entry) bool) {
	for el := x.order.Back(); el != nil; el = el.Prev() {
		if !f(el.Value.(*entry)) {
			return
		}
	}
}
