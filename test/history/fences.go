package history

import (
	"mcpbridge/messages"
)

// fences is the bridge's own account of one lane of one place: who has it, in the
// order of the events.
type fences struct {
	x    *index
	r    *Report
	run  *runView
	srv  *Server
	gone map[uint64]int64 // generations whose end is told anywhere in the run, and when
	has  map[string]*tenant
	late map[string]bool // calls whose late reply, or possible overlap, was told
}

// tenant is a side effect that has the place.
type tenant struct {
	gen   uint64
	state string // "runs", "is fenced", or "ended without an answer or a fence"
}

const (
	runs   = "runs"
	fenced = "is fenced"
	owes   = "ended without an answer, and was not fenced"
)

// answeredLate is the reason of a release by a late reply, which is counted as such.
const answeredLate = "the server answered"

// checkFences is the other half of P4. At the witness a lane that is given up too
// soon shows only when the server is slow enough; in the events it shows each time:
//
//	dispatched ──► answered, put back in line ─────────────────────► free
//	    └─► unknown ─► lane_held ─► late reply, death, told overlap ─► lane_released
//
// and no other side effect is dispatched on the way. A remote server that answers that
// it will not look at a request has not to be waited for; the bridge does not tell why a
// connection was lost, so that only a call that began is taken for one to be fenced. A death frees a lane of stdio:
// its next generation may start. Nothing of this is looked at where keys, groups or
// several places make the lane another one.
func checkFences(x *index, r *Report) {
	for _, run := range x.runs {
		lanes := map[string]*fences{}
		for i := range x.Servers {
			if s := &x.Servers[i]; s.MaxSideEffects <= 1 && !s.Keyed && s.Group == "" {
				lanes[s.Name] = &fences{x, r, run, s, map[uint64]int64{}, map[string]*tenant{}, map[string]bool{}}
			}
		}
		for _, e := range run.Events {
			if f := lanes[e.Server]; f != nil && e.Type == messages.EventServerExited {
				f.gone[e.Generation] = x.mono(e.Time)
			}
		}
		for _, e := range run.Events {
			c := x.calls[e.CallID]
			if f := lanes[e.Server]; f != nil && c != nil && c.effectful() {
				f.take(e, c)
			}
		}
	}
}

func (f *fences) take(e messages.Event, c *callView) {
	t := f.has[e.CallID]
	switch e.Type {
	case messages.EventCallDispatched:
		f.r.did("P4")
		f.dispatch(e, c)
		f.has[e.CallID] = &tenant{e.Generation, runs}
	case messages.EventCallRequeued:
		delete(f.has, e.CallID)
	case messages.EventCallSettled:
		switch {
		case t == nil || t.state == fenced:
		case e.Code == messages.CodeConnectionLost && f.srv.Remote && c.begins() == 0:
			delete(f.has, e.CallID) // a server that refused the request (an unknown session) is proof
		case e.Outcome == messages.OutcomeUnknown.String() && e.Code != messages.CodeProtocolError:
			t.state = owes
		default:
			delete(f.has, e.CallID)
		}
	case messages.EventLaneHeld:
		if t == nil {
			t = &tenant{gen: e.Generation}
			f.has[e.CallID] = t
		}
		t.state = fenced
	case messages.EventReplyLate:
		f.late[e.CallID] = true
	case messages.EventPossibleOverlap: // where there is proof to be had, it is no excuse
		f.late[e.CallID] = f.late[e.CallID] || f.srv.Remote
	case messages.EventLaneReleased:
		f.released(e, c, t)
		delete(f.has, e.CallID)
	default:
	}
}

// dispatch looks at who has the lane when another side effect is sent.
func (f *fences) dispatch(e messages.Event, c *callView) {
	for id, t := range f.has {
		dead := !f.srv.Remote && t.gen < e.Generation
		if id == e.CallID || dead && t.state != fenced {
			continue
		}
		f.r.add("P4", "run %s, lane of %s: %s was dispatched (event %d, generation %d) while %s %s (generation %d)",
			f.run.ID, f.srv.Name, c.name(), e.Seq, e.Generation, f.x.calls[id].name(), t.state, t.gen)
		delete(f.has, id) // once is enough
	}
}

// released asks for the proof with which a fence was opened.
func (f *fences) released(e messages.Event, c *callView, t *tenant) {
	if t == nil || f.late[e.CallID] {
		return
	}
	if e.Reason == answeredLate {
		f.r.add("P4", "run %s, lane of %s: %s was released (event %d) because its server answered, and no event tells of the reply",
			f.run.ID, f.srv.Name, c.name(), e.Seq)
		return
	}
	if f.srv.Remote {
		f.r.add("P4", "run %s, lane of %s: %s was released (event %d, %q) without a late reply, and no possible overlap was told",
			f.run.ID, f.srv.Name, c.name(), e.Seq, e.Reason)
		return
	}
	at := f.x.mono(e.Time)
	if gone, ok := f.gone[t.gen]; (!ok || gone > at+int64(ClockSlack)) && c.complete(at) {
		f.r.add("P4", "run %s, lane of %s: %s was released (event %d, %q) without a late reply, and generation %d had not ended",
			f.run.ID, f.srv.Name, c.name(), e.Seq, e.Reason, t.gen)
	}
}
