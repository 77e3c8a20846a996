package lane

import "mcpbridge/internal/planted"

// line is where calls wait: a queue for each client, and the clients in the order
// in which they are served.
//
// Each client has the number of its next turn. A call that is started costs a turn;
// who joins the line is served in the turn after the present one, so that neither a
// long queue nor many short visits bring more than a share. The n-th call of a
// client stands where its n-th turn from now will be: that is the order of the line.
// Ahead of them all stand those that were started before and came back, the oldest
// first: they have had their turn.
type line struct {
	returned    list
	clients     map[string]*queue
	first, last *queue // by the order of their heads
	spare       *queue // to use again
	round       int64  // the turn of the call that was started last
}

// queue is what one client has waiting in a line, in the order of admission.
type queue struct {
	list
	client string
	round  int64 // the turn of its head
	next   *queue
	prev   *queue
}

func (q *queue) before(o *queue) bool {
	return q.round < o.round || q.round == o.round && q.head.seq < o.head.seq
}

// head is the call that is first in line; nil when nobody waits.
func (ln *line) head() *entry {
	switch {
	case ln.returned.head != nil:
		return ln.returned.head
	case ln.first != nil:
		return ln.first.head
	}
	return nil
}

// push adds a call behind all others of its client.
func (ln *line) push(e *entry) {
	q := ln.clients[e.item.Client]
	if q != nil {
		e.queue = q
		if planted.Is(planted.LaneLIFO) {
			q.insertAfter(nil, e)
			return
		}
		q.pushBack(e)
		return
	}
	if q, ln.spare = ln.spare, nil; q == nil {
		q = &queue{}
	}
	*q = queue{client: e.item.Client, round: ln.round + 1}
	if ln.clients == nil {
		ln.clients = map[string]*queue{}
	}
	ln.clients[q.client] = q
	e.queue = q
	q.pushBack(e)
	ln.insert(q)
}

// take starts a call: its client has had a turn.
func (ln *line) take(e *entry) {
	if q := e.queue; q != nil {
		ln.round = max(ln.round, q.round)
		if planted.Is(planted.UnfairClients) {
			ln.leave(e, q.round)
			return
		}
		ln.leave(e, q.round+1)
		return
	}
	ln.returned.remove(e)
}

// drop takes a call out that is not served.
func (ln *line) drop(e *entry) {
	if q := e.queue; q != nil {
		ln.leave(e, q.round)
		return
	}
	ln.returned.remove(e)
}

// leave takes a call out of its client's queue, whose head is next in that round.
func (ln *line) leave(e *entry, round int64) {
	q := e.queue
	e.queue = nil
	ln.unlink(q)
	q.remove(e)
	if q.n == 0 {
		delete(ln.clients, q.client)
		ln.spare = q
		return
	}
	q.round = round
	ln.insert(q)
}

// putBack takes a call back that was started.
func (ln *line) putBack(e *entry) { ln.returned.insertBySeq(e) }

// insert puts a queue where its head belongs, which is near the end as a rule.
func (ln *line) insert(q *queue) {
	at := ln.last
	for at != nil && q.before(at) {
		at = at.prev
	}
	q.prev = at
	if at == nil {
		q.next, ln.first = ln.first, q
	} else {
		q.next, at.next = at.next, q
	}
	if q.next == nil {
		ln.last = q
	} else {
		q.next.prev = q
	}
}

func (ln *line) unlink(q *queue) {
	if q.prev == nil {
		ln.first = q.next
	} else {
		q.prev.next = q.next
	}
	if q.next == nil {
		ln.last = q.prev
	} else {
		q.next.prev = q.prev
	}
	q.prev, q.next = nil, nil
}

// cursor is how far a walk has come in one client's queue.
type cursor struct {
	at    *entry
	round int64
}

// walk visits the calls of a line in its order until f returns false. f must not
// change the line.
func (l *Lane) walk(ln *line, f func(*entry) bool) {
	for e := ln.returned.head; e != nil; e = e.next {
		if !f(e) {
			return
		}
	}
	if ln.first == ln.last { // one client, or none
		if ln.first != nil {
			for e := ln.first.head; e != nil && f(e); e = e.next {
			}
		}
		return
	}
	cs := l.cursors[:0]
	next := ln.first // the first client that the walk has not come to
	for {
		best := -1
		for i, c := range cs {
			if best < 0 || c.round < cs[best].round || c.round == cs[best].round && c.at.seq < cs[best].at.seq {
				best = i
			}
		}
		if next != nil && (best < 0 || next.round < cs[best].round || next.round == cs[best].round && next.head.seq < cs[best].at.seq) {
			cs = append(cs, cursor{next.head, next.round})
			best, next = len(cs)-1, next.next
		}
		if best < 0 {
			break
		}
		c := &cs[best]
		if !f(c.at) {
			break
		}
		if c.at, c.round = c.at.next, c.round+1; c.at == nil {
			cs[best] = cs[len(cs)-1]
			cs = cs[:len(cs)-1]
		}
	}
	clear(cs)
	l.cursors = cs[:0]
}
