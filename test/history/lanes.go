package history

import (
	"fmt"
	"time"

	"mcpbridge/messages"
)

// place names an execution for people.
func (s *span) place() string {
	end := "no end"
	if s.ended {
		end = fmt.Sprintf("ended %d", s.end)
	}
	return fmt.Sprintf("%s pid %d at %d, %s", s.Server, s.PID, s.MonoNS, end)
}

// effectful reports whether an execution belongs to the side-effect lane. The
// operator's word counts; of what nobody asked for, the server's own.
func (s *span) effectful() bool {
	if s.call != nil {
		return s.call.effectful()
	}
	return s.Class != "read"
}

// checkLanes is P4: a sweep over the executions of each lane in the order of their
// begins. An execution without an end lasts as long as its process is known to have
// lived.
func checkLanes(x *index, r *Report) {
	running := map[string][]*span{} // by server, or by group
	for _, s := range x.spans {
		srv := x.servers[s.Server]
		if srv == nil {
			r.add("history", "the witness speaks of server %s, which nobody configured", s.Server)
			continue
		}
		lane := s.Server
		if srv.Group != "" {
			lane = "group " + srv.Group
		}
		live := running[lane][:0]
		for _, o := range running[lane] {
			if o.end > s.MonoNS {
				live = append(live, o)
			}
		}
		r.did("P4")
		for _, o := range live {
			x.pair(srv, o, s, r)
		}
		running[lane] = append(live, s)
	}
}

// pair judges an execution that began while another was at work.
func (x *index) pair(srv *Server, old, s *span, r *Report) {
	if old.call != nil && old.call == s.call { // a repetition beside what is left of its first attempt
		return
	}
	both := old.effectful() && s.effectful()
	switch {
	case both && srv.MaxSideEffects > 1, both && srv.Keyed && apart(old, s):
	case both && srv.Remote:
		if !x.told(old, s) {
			r.add("P4", "lane of %s: %s still ran (%s) when %s began (%s), and the bridge never told of a possible overlap",
				s.Server, called(old), old.place(), called(s), s.place())
		}
	case both:
		r.add("P4", "lane of %s: %s still ran (%s) when %s began (%s)", s.Server, called(old), old.place(), called(s), s.place())
	case srv.Remote || srv.Serial || old.effectful() == s.effectful() || old.Server != s.Server:
	case x.abandoned(srv, old, s):
	default:
		r.add("P4", "%s is exclusive: %s still ran (%s) when %s began (%s)", s.Server, called(old), old.place(), called(s), s.place())
	}
}

// apart reports whether lane keys allow two side effects at once: a missing key
// takes all lanes.
func apart(a, b *span) bool {
	return a.call != nil && b.call != nil && a.call.LaneKey != "" && b.call.LaneKey != "" && a.call.LaneKey != b.call.LaneKey
}

// told reports whether the bridge said that it released a remote lane without proof,
// before the next one began. Where there is no journal, a new daemon knows nothing of
// the calls of the one before.
func (x *index) told(old, s *span) bool {
	if old.call == nil || s.call == nil {
		return false
	}
	for _, e := range old.call.overlapped {
		if x.mono(e.Time) <= s.MonoNS+int64(ClockSlack) {
			return true
		}
	}
	if x.Journal == nil && (old.call.run != s.call.run || old.call.run == nil) {
		return true
	}
	// The tail of a killed daemon's events may have held it.
	return s.call.run != nil && s.call.run.End == Killed && !s.call.complete(s.MonoNS)
}

// abandoned reports whether side effects may have passed a read that got its outcome
// long before: nobody waits for it, and abandon_after is over.
func (x *index) abandoned(srv *Server, old, s *span) bool {
	if old.effectful() || old.call == nil || s.call == nil {
		return false
	}
	var settled int64
	switch {
	case len(old.call.settled) > 0:
		settled = x.mono(old.call.settled[0].Time)
	case old.call.answered():
		settled = old.call.Returned
	default: // its daemon died with it
		return old.call.run != s.call.run || old.call.run == nil
	}
	return srv.AbandonAfter > 0 && s.MonoNS+int64(ClockSlack) >= settled+int64(srv.AbandonAfter)
}

func called(s *span) string {
	if s.call == nil {
		return "nonce " + s.Nonce
	}
	return s.call.name()
}

// serialLane is what the events say about one serial server while P5 reads them.
type serialLane struct {
	effects map[string]uint64 // running side effects and their generations
	reads   map[string]uint64 // reads that have a slot, or may still have one
	waiting map[string]bool   // accepted and not dispatched
	effect  map[string]bool   // waiting or running: is it a side effect?
	doubt   bool              // a reply was lost: nothing goes out until that is cleared up
}

// checkReads is P5. It looks at each read that is accepted while a side effect runs,
// a slot is free and no read waits: the next thing that is heard of a call of that
// server must be a dispatch, and its own before anything else. A read that waits all
// the same is a violation once the same incarnation takes another call: until then
// the session may have been on its way down.
func checkReads(x *index, r *Report) {
	for _, run := range x.runs {
		byServer := map[string][]messages.Event{}
		for _, e := range run.Events {
			if srv := x.servers[e.Server]; srv != nil && srv.Serial {
				byServer[e.Server] = append(byServer[e.Server], e)
			}
		}
		for name, events := range byServer {
			l := &serialLane{map[string]uint64{}, map[string]uint64{}, map[string]bool{}, map[string]bool{}, false}
			for i, e := range events {
				if e.Type == messages.EventCallAccepted && l.free(e, x.servers[name]) {
					x.atOnce(run, events[i:], l.generation(), r)
				}
				l.take(e)
			}
		}
	}
}

// generation is the one whose side effect runs.
func (l *serialLane) generation() (gen uint64) {
	for _, g := range l.effects {
		gen = max(gen, g)
	}
	return gen
}

func (l *serialLane) free(e messages.Event, srv *Server) bool {
	if l.doubt || e.Effect != messages.ReadOnly.String() || len(l.effects) == 0 || len(l.reads) >= srv.MaxReads {
		return false
	}
	for id := range l.waiting {
		if !l.effect[id] {
			return false
		}
	}
	return true
}

// take books an event.
func (l *serialLane) take(e messages.Event) {
	id := e.CallID
	switch e.Type {
	case messages.EventCallAccepted:
		l.waiting[id], l.effect[id] = true, e.Effect != messages.ReadOnly.String()
	case messages.EventCallDispatched:
		delete(l.waiting, id)
		if l.effect[id] {
			l.effects[id] = e.Generation
		} else {
			l.reads[id] = e.Generation
		}
	case messages.EventCallRequeued:
		delete(l.effects, id)
		delete(l.reads, id)
		l.waiting[id] = true
	case messages.EventCallSettled:
		delete(l.waiting, id)
		delete(l.effects, id)
		if e.Outcome == messages.OK.String() || e.Outcome == messages.ToolError.String() {
			delete(l.reads, id) // any other keeps its slot until its worker is back, which nobody tells
		}
		delete(l.effect, id)
		l.doubt = l.doubt || e.Code == messages.CodeConnectionLost
	case messages.EventServerReady:
		l.doubt = false
	case messages.EventServerExited:
		for id, gen := range l.reads {
			if gen <= e.Generation && !l.waiting[id] {
				delete(l.reads, id)
			}
		}
	default:
	}
}

// atOnce looks at what follows the accepted read events[0].
func (x *index) atOnce(run *runView, events []messages.Event, gen uint64, r *Report) {
	read := events[0]
	first := true // nothing but dispatches was heard of the server's calls since
	for _, e := range events[1:] {
		switch e.Type {
		case messages.EventCallDispatched:
			switch {
			case e.CallID == read.CallID && first:
				r.did("P5")
				return
			case first && e.CallID != read.CallID: // the same step may start others, too
			case e.Generation == gen:
				r.did("P5")
				r.add("P5", "run %s: read %s of %s was accepted (event %d) while a side effect ran in generation %d and a slot was free, and was not dispatched before event %d (%s of %s)",
					run.ID, read.CallID, read.Server, read.Seq, gen, e.Seq, e.Type, e.CallID)
				return
			default:
				return
			}
		case messages.EventCallRequeued, messages.EventServerExited, messages.EventServerState, messages.EventServerRecycled:
			return // the session was on its way down
		case messages.EventCallSettled:
			if e.Code == messages.CodeConnectionLost || e.CallID == read.CallID && e.Code == messages.CodeUnavailable {
				return
			}
			first = false
		default:
			if e.CallID != "" {
				first = false
			}
		}
	}
}

// checkOrder is P6. The ledger of a lane is an append-only list of distinct entries,
// so its one possible linearisation is the order in which the entries were made, and
// the witness saw that order. A history of it is linearisable exactly when no entry
// stands behind one that was asked for only after the first was answered; which one
// pass decides, where a search over all orders (as porcupine does, to which the tests
// compare this) would need exponential time to come to the same word.
func checkOrder(x *index, r *Report) {
	latest := map[string]*callView{} // by server: of the entries so far, the one that was asked for last
	for _, s := range x.spans {
		c := s.call
		if c == nil || !s.effectful() || c.spans[0] != s {
			continue
		}
		r.did("P6")
		prev := latest[s.Server]
		if prev != nil && c.answeredBy() < prev.Invoked {
			r.add("P6", "server %s: %s was answered %s before %s was asked for, and began after it (%s)",
				s.Server, c.name(), time.Duration(prev.Invoked-c.answeredBy()), prev.name(), s.place())
		}
		if prev == nil || c.Invoked > prev.Invoked {
			latest[s.Server] = c
		}
	}
	checkArrival(x, r)
}

// answeredBy is when the server's answer was known; a call without one may still
// take effect at any later time.
func (c *callView) answeredBy() int64 {
	if c.Outcome == messages.OK.String() || c.Outcome == messages.ToolError.String() {
		return c.Returned
	}
	return 1<<63 - 1
}

// checkArrival is the bridge's side of P6: within one client, the side effects of a
// lane of one place are dispatched in the order in which they were accepted. One that
// was put back in line stands where it stood and is not looked at again.
func checkArrival(x *index, r *Report) {
	for _, run := range x.runs {
		type line struct{ server, client string }
		accepted := map[string]uint64{} // call id → seq
		last := map[line]messages.Event{}
		for _, e := range run.Events {
			srv := x.servers[e.Server]
			if srv == nil || srv.MaxSideEffects > 1 || srv.Keyed || srv.Group != "" {
				continue
			}
			c := x.calls[e.CallID]
			if c == nil || !c.made || !c.effectful() {
				continue
			}
			switch e.Type {
			case messages.EventCallAccepted:
				accepted[e.CallID] = e.Seq
			case messages.EventCallDispatched:
				seq, ok := accepted[e.CallID]
				if !ok || len(c.requeues) > 0 {
					continue
				}
				r.did("P6")
				k := line{e.Server, c.Client}
				if prev, ok := last[k]; ok && accepted[prev.CallID] > seq {
					r.add("P6", "run %s: %s was accepted (event %d) before %s (event %d) of the same client, and dispatched after it (event %d)",
						run.ID, c.name(), seq, x.calls[prev.CallID].name(), accepted[prev.CallID], e.Seq)
				}
				last[k] = e
			default:
			}
		}
	}
}
