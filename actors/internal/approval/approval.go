// Package approval is the queue of calls that wait for a person, as a pure table:
// time comes in with every question, and nothing runs beside.
//
// # Contract
//
//	Ask ──► pending ──Decide yes──► granted ──Take──► gone
//	           │  └────Decide no───► gone      └─ 10 min ─► gone
//	           └─ 10 min ─► gone
//
// A grant is for one call: the same client, server, tool, definition and arguments,
// once, within ten minutes of the answer. Asking again for the same finds the same
// question. What one client asks never pushes out what another asks: it has a bound
// of its own, and beyond it its oldest question goes.
package approval

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"slices"
	"strconv"
	"strings"
	"time"

	"mcpbridge/messages"
)

const (
	// Life is how long a question waits, and a grant after its answer.
	Life = 10 * time.Minute
	// MaxArgs is how many bytes of arguments a question may carry: what is too much to
	// be looked at cannot be approved.
	MaxArgs = 256 << 10

	perClient      = 64
	perClientBytes = 4 << 20
	clientsMost    = 256
)

// Call is what a grant is for. Definition and Args are digests.
type Call struct {
	Client, Server, Tool, Definition, Args string
}

type entry struct {
	call    Call
	shown   messages.Approval
	granted bool
	until   time.Time
	seq     uint64
}

// Table holds questions and grants. Make one with New; it is not safe for
// concurrent use.
type Table struct {
	seed   string
	seq    uint64
	byCall map[Call]*entry
	byID   map[string]*entry
}

// New returns an empty table. Ids are made from the seed, which must differ between
// lives of the bridge: an id of an earlier one must never mean anything else.
func New(seed string) *Table {
	return &Table{seed: seed, byCall: map[Call]*entry{}, byID: map[string]*entry{}}
}

func (t *Table) newID() string {
	t.seq++
	sum := sha256.Sum256([]byte(t.seed + "\x00" + strconv.FormatUint(t.seq, 10)))
	return "call-" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:]))[:10]
}

// Ask finds or opens the question about a call. ok is false where the arguments are
// too many to be looked at.
func (t *Table) Ask(now time.Time, c Call, shown messages.Approval) (q messages.Approval, ok bool) {
	if len(shown.Args) > MaxArgs {
		return messages.Approval{}, false
	}
	t.expire(now)
	e := t.byCall[c]
	if e == nil {
		t.makeRoom(c.Client, len(shown.Args))
		e = &entry{call: c, shown: shown, seq: t.seq + 1}
		e.shown.ID, e.shown.Kind = t.newID(), messages.ApproveCall
		t.byCall[c], t.byID[e.shown.ID] = e, e
	}
	if !e.granted { // a grant does not live longer because it is asked for
		e.until = now.Add(Life)
	}
	return e.row(), true
}

func (e *entry) row() messages.Approval {
	a, until := e.shown, e.until
	a.ExpiresAt = &until
	return a
}

// Granted reports whether a person's yes waits for the call.
func (t *Table) Granted(now time.Time, c Call) bool {
	t.expire(now)
	e := t.byCall[c]
	return e != nil && e.granted
}

// Take uses the grant up.
func (t *Table) Take(now time.Time, c Call) bool {
	if !t.Granted(now, c) {
		return false
	}
	t.drop(t.byCall[c])
	return true
}

// Decide answers the question with the id. A no to a grant that was not used takes
// it back. known is false for an id that means nothing (any more).
func (t *Table) Decide(now time.Time, id string, yes bool) (a messages.Approval, known bool) {
	t.expire(now)
	e := t.byID[id]
	if e == nil {
		return messages.Approval{}, false
	}
	if !yes {
		t.drop(e)
		return e.row(), true
	}
	if !e.granted { // a second yes gives no more time
		e.granted, e.until = true, now.Add(Life)
	}
	return e.row(), true
}

// Pending lists the open questions, oldest first.
func (t *Table) Pending(now time.Time) []messages.Approval {
	t.expire(now)
	var open []*entry
	for _, e := range t.byID {
		if !e.granted {
			open = append(open, e)
		}
	}
	slices.SortFunc(open, func(a, b *entry) int { return cmp.Compare(a.seq, b.seq) })
	out := make([]messages.Approval, 0, len(open))
	for _, e := range open {
		out = append(out, e.row())
	}
	return out
}

// TakeAll takes every grant that was not used out of the table: nobody can use it
// here any more.
func (t *Table) TakeAll(now time.Time) (out []messages.CallGrant) {
	t.expire(now)
	for _, e := range t.byID {
		if e.granted {
			c := e.call
			out = append(out, messages.CallGrant{Client: c.Client, Server: c.Server, Tool: c.Tool, Definition: c.Definition, Args: c.Args, Until: e.until})
			t.drop(e)
		}
	}
	slices.SortFunc(out, func(a, b messages.CallGrant) int { return a.Until.Compare(b.Until) })
	return out
}

// Restore puts a grant of an earlier life back.
func (t *Table) Restore(now time.Time, g messages.CallGrant) {
	c := Call{g.Client, g.Server, g.Tool, g.Definition, g.Args}
	if t.byCall[c] != nil || !g.Until.After(now) || g.Until.After(now.Add(Life)) {
		return
	}
	t.makeRoom(c.Client, 0)
	e := &entry{call: c, granted: true, until: g.Until, seq: t.seq + 1,
		shown: messages.Approval{Kind: messages.ApproveCall, Server: c.Server, Client: c.Client, RemoteTool: c.Tool}}
	e.shown.ID = t.newID()
	t.byCall[c], t.byID[e.shown.ID] = e, e
}

// Forget drops everything about a server: another one may have its name next.
func (t *Table) Forget(server string) {
	for _, e := range t.byID {
		if e.call.Server == server {
			t.drop(e)
		}
	}
}

func (t *Table) drop(e *entry) {
	delete(t.byCall, e.call)
	delete(t.byID, e.shown.ID)
}

func (t *Table) expire(now time.Time) {
	for _, e := range t.byID {
		if !e.until.After(now) {
			t.drop(e)
		}
	}
}

// makeRoom keeps a client, and the number of clients, within bounds. Open questions
// go before grants: those were somebody's work.
func (t *Table) makeRoom(client string, size int) {
	clients := map[string]bool{}
	var own []*entry
	bytes := size
	for _, e := range t.byID {
		clients[e.call.Client] = true
		if e.call.Client == client {
			own = append(own, e)
			bytes += len(e.shown.Args)
		}
	}
	oldestFirst := func(a, b *entry) int {
		if a.granted != b.granted {
			if a.granted {
				return 1
			}
			return -1
		}
		return cmp.Compare(a.seq, b.seq)
	}
	slices.SortFunc(own, oldestFirst)
	for len(own) > 0 && (len(own) >= perClient || bytes > perClientBytes) {
		bytes -= len(own[0].shown.Args)
		t.drop(own[0])
		own = own[1:]
	}
	if clients[client] || len(clients) < clientsMost {
		return
	}
	var all []*entry // more names than any configuration has: somebody makes them up
	for _, e := range t.byID {
		all = append(all, e)
	}
	t.drop(slices.MinFunc(all, oldestFirst))
}
