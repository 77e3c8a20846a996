package dispatch

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"mcpbridge/actors/internal/lane"
	"mcpbridge/messages"
)

// turns is what the simulation remembers to judge order, fairness and the accounts of
// time. It looks at the Core after each step and never into a lane.
type turns struct {
	step     int
	queued   map[string]int          // when a call was first seen in line or beyond, by step
	placed   map[string]int          // when it was first seen with a place
	passed   map[[2]string]int       // how often a client was served while that call headed another's line
	handed   map[string][]int64      // when the attempts of a call were handed out
	accepted map[string]int64        // when it was accepted
	ended    map[messages.Key]uint64 // the newest incarnation whose end was told, or is about to be
	late     map[string]int          // late replies that were told
	closed   bool                    // the drain has begun
}

func newTurns() turns {
	return turns{queued: map[string]int{}, placed: map[string]int{}, passed: map[[2]string]int{}, handed: map[string][]int64{}, accepted: map[string]int64{},
		ended: map[messages.Key]uint64{}, late: map[string]int{}}
}

// sameLine reports whether two calls stand in one line, where one may not pass the other.
func sameLine(a, b *call) bool {
	return a.server == b.server && laneOf(a.effect) == laneOf(b.effect) && a.laneKey == b.laneKey
}

// neverServed reports whether the call waits for its first turn.
func neverServed(cl *call) bool { return cl.state == queued && cl.attempt == 0 && !cl.held }

// noteQueue remembers since when everybody has been admitted.
func (s *sim) noteQueue() {
	s.turns.step++
	for id, cl := range s.core.calls {
		switch cl.state {
		case queued, recording, running:
			if _, known := s.turns.queued[id]; !known {
				s.turns.queued[id] = s.turns.step
			}
			if _, known := s.turns.placed[id]; !known && cl.state != queued {
				s.turns.placed[id] = s.turns.step
			}
		case checking, waiting, joined, fenced:
		}
	}
}

// unfairness is how many calls of one client may be given a place while the first of
// another waits: two by the turns, whose ties go to who came first, and one for a turn that
// was lost with a failed record.
const unfairness = 3

// checkTurn: within a client whoever came first is served first, and no client is
// served again and again while another waits.
func (s *sim) checkTurn(a *attempt) {
	s.turns.handed[a.CallID] = append(s.turns.handed[a.CallID], s.now.UnixNano())
	cl := s.core.calls[a.CallID]
	if cl == nil || a.Attempt > 1 {
		return
	}
	since, ok := s.turns.queued[a.CallID]
	if !ok {
		since = s.turns.step + 1
	}
	heads := map[string]*call{}
	for _, id := range slices.Sorted(maps.Keys(s.core.calls)) { // the same order each time
		o := s.core.calls[id]
		if !neverServed(o) || o.server != cl.server {
			continue
		}
		at, ok := s.turns.queued[id]
		if !ok {
			continue
		}
		if o.req.Client == cl.req.Client {
			if at < since && sameLine(o, cl) {
				s.t.Fatalf("%s is handed out before %s of the same client, which came first", a.CallID, id)
			}
			continue
		}
		if h := heads[o.req.Client]; h == nil || at < s.turns.queued[h.id] {
			heads[o.req.Client] = o
		}
	}
	for _, who := range slices.Sorted(maps.Keys(heads)) {
		h := heads[who]
		if at, ok := s.turns.placed[a.CallID]; !sameLine(h, cl) || ok && at <= s.turns.queued[h.id] {
			continue // it had its place before the other came
		}
		k := [2]string{h.id, cl.req.Client}
		if s.turns.passed[k]++; s.turns.passed[k] > unfairness {
			s.t.Fatalf("%s of client %s is handed out, and %s of client %s is passed for the %dth time", a.CallID, cl.req.Client, h.id, h.req.Client, s.turns.passed[k])
		}
	}
}

// going notes that an incarnation is over, or on its way.
func (s *sim) going(v *simServer) { s.turns.ended[v.key] = max(s.turns.ended[v.key], v.gen) }

// checkTimes: waiting and running are told apart, and are all the time that there was.
func (s *sim) checkTimes(o messages.Outcome) {
	from, ok := s.turns.accepted[o.CallID]
	if !ok || o.FirstID != "" {
		return
	}
	all, took := s.now.UnixNano()-from, o.Queued+o.Ran
	if int64(took) != all {
		s.t.Fatalf("%s waited %v and ran %v, and it took %v", o.CallID, o.Queued, o.Ran, time.Duration(all))
	}
	if at := s.turns.handed[o.CallID]; len(at) == 1 && o.Kind != messages.NotSent && int64(o.Ran) > s.now.UnixNano()-at[0] {
		s.t.Fatalf("%s ran %v, and was handed out later", o.CallID, o.Ran)
	}
}

// told looks at an event with the eyes of order and proof.
func (s *sim) told(e messages.Event) {
	switch e.Type {
	case messages.EventCallAccepted:
		s.turns.accepted[e.CallID] = e.Time.UnixNano()
		if s.turns.closed {
			s.t.Fatalf("%s is accepted after the drain has begun", e.CallID)
		}
	case messages.EventCallDispatched:
		if s.turns.closed {
			s.t.Fatalf("%s is handed out after the drain has begun", e.CallID)
		}
	case messages.EventReplyLate:
		s.turns.late[e.CallID]++
	case messages.EventPossibleOverlap:
		v := s.serverOf(messages.Key{Server: e.Server})
		if !v.limits.Remote && e.Generation != 0 && s.turns.ended[v.key] < e.Generation {
			s.t.Fatalf("%s gives its lane up without proof, and generation %d of %s lives: its end is the proof", e.CallID, e.Generation, e.Server)
		}
	default:
	}
}

// checkLate: an answer that comes after the outcome is told of.
func (s *sim) checkLate(a *attempt, kind messages.ReplyKind, before int) {
	switch kind {
	case messages.ReplyResult, messages.ReplyError, messages.ReplyTooLarge:
		if s.turns.late[a.CallID] == before {
			s.t.Fatalf("the answer to %s#%d came after its outcome, and nobody was told", a.CallID, a.Attempt)
		}
	default:
	}
}

// checkIdleReads: where reads overlap side effects, one that waits finds all slots taken.
func (s *sim) checkIdleReads() {
	for _, sv := range s.core.order {
		if !sv.limits.Serial || !sv.open() {
			continue
		}
		var waits *call
		taken, doubt := 0, false
		for _, cl := range s.core.calls {
			switch {
			case cl.server != sv || laneOf(cl.effect) != lane.Read:
			case cl.state == queued:
				doubt = doubt || cl.held
				waits = cl
			case cl.state == running, cl.state == fenced:
				taken++
			}
		}
		if waits != nil && !doubt && taken < sv.limits.MaxReads {
			s.t.Fatalf("read %s waits, and %d of %d slots of a serial server are taken", waits.id, taken, sv.limits.MaxReads)
		}
	}
}

// checkDrained: who is told that nothing is in flight any more is told the truth.
func (s *sim) checkDrained(of func(*attempt) bool, what string) {
	for _, a := range s.attempts {
		if _, over := s.ended[a.CallID]; !over && a.run == s.run && !a.back && of(a) {
			s.t.Fatalf("%s is told to be drained, and %s is in flight", what, a.CallID)
		}
	}
}

// rush is a client that calls again and again, and another that calls between: both
// want one place.
func (s *sim) rush() {
	v, tool := s.server(), pick(s, []string{"read", "write"})
	s.count["rush"]++
	for i := range 8 {
		s.n++
		who := "c"
		if i%4 == 3 {
			who = "d"
		}
		s.submitCall(s.makeCall(fmt.Sprint("c", s.n), "", func(m *messages.Submit) {
			m.Call.Tool, m.Call.Client = v.key.Server+"/"+tool, who
		}))
		s.settleRecord()
		if i > 2 {
			s.reply()
		}
	}
}

// drain is the end of a bridge that is asked to end: what waits is settled at once, new
// calls are refused, and those in flight have their time.
func (s *sim) drain() {
	s.trace("drain")
	s.count["drain"]++
	done := make(chan struct{}, 1)
	s.turns.closed = true
	before := s.drained
	s.do(messages.DrainAll{Done: done})
	for id, cl := range s.core.calls {
		if !cl.settled && cl.state != running && cl.state != joined {
			s.t.Fatalf("%s waits on after the drain has begun", id)
		}
	}
	for range 10 {
		s.submit()
		s.enter()
		s.settleRecord()
		s.reply()
	}
	for range 40 {
		s.flush()
	}
	if s.drained == before {
		s.t.Fatalf("nothing is in flight, and the drain is not over: %v", s.core.report().Calls)
	}
}
