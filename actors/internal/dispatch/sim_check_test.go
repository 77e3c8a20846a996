package dispatch

import (
	"fmt"
	"strings"
	"time"

	"mcpbridge/actors/internal/lane"
	"mcpbridge/messages"
)

func (s *sim) look() {
	for ; s.events < len(s.harness.events); s.events++ {
		s.told(s.harness.events[s.events])
		switch e := s.harness.events[s.events]; e.Type {
		case messages.EventPossibleOverlap:
			s.count["overlap"]++
			for _, a := range s.attempts {
				a.over = a.over || a.CallID == e.CallID
			}
		case messages.EventCallJoined:
			s.joined[e.CallID] = e.Reason
		case messages.EventCallRequeued:
			s.count["requeued"]++
		}
	}
}

// holds reports whether an attempt may still be worked on, as far as the bridge can know.
func (s *sim) holds(o *attempt) bool {
	_, settled := s.ended[o.CallID]
	return !o.over && (!settled || o.Boundary.Entered() || !o.back)
}

func (s *sim) groupOf(k messages.Key) string { return s.serverOf(k).limits.LaneGroup }

// handedOut checks an attempt against all that are not over.
func (s *sim) handedOut(cmd Execute) {
	s.look() // what was said before it in the same step counts
	e := cmd.Exec
	t := s.tools[e.Key.Server+"/"+e.Remote]
	a := &attempt{Exec: e, run: s.run, effect: t.Effect, harmless: t.EffectSource == messages.FromConfig && t.Effect != messages.SideEffect}
	if t.Limits.LaneKey != "" {
		a.lane = lane.KeyOf(t.Limits.LaneKey, e.Args)
	}
	server := s.serverOf(e.Key)
	if _, dead := s.ended[e.CallID]; dead {
		s.t.Fatalf("%s is handed out after its outcome", e.CallID)
	}
	if e.Deadline.IsZero() || !e.Deadline.After(s.now) {
		s.t.Fatalf("%s is handed out after its deadline", e.CallID)
	}
	if !server.up || server.gen != e.Gen {
		s.t.Fatalf("%s is handed to a session that is not up", e.CallID)
	}
	s.checkRecord(a)
	s.checkLane(a, server)
	s.checkTwice(a)
	s.checkTurn(a)
	s.attempts = append(s.attempts, a)
}

func (s *sim) checkLane(a *attempt, server *simServer) {
	reads, calls := 0, map[string]bool{} // without a key; a repetition shares the place of the first attempt
	for _, o := range s.attempts {
		if o.CallID == a.CallID {
			if o.Boundary.Void() && !o.back {
				s.t.Fatalf("two attempts of %s can be sent", a.CallID)
			}
			continue
		}
		if o.effect == messages.ReadOnly {
			if o.Key != a.Key || o.back {
				continue
			}
			reads++
			if _, settled := s.ended[o.CallID]; a.effect != messages.ReadOnly && !server.limits.Serial && !settled {
				s.t.Fatalf("side effect %s beside read %s", a.CallID, o.CallID)
			}
			continue
		}
		if !s.holds(o) {
			continue
		}
		held := o.lane
		if o.run != s.run { // the journal does not know it
			held = ""
		}
		switch same := o.Key == a.Key; {
		case a.effect == messages.ReadOnly:
			if same && !server.limits.Serial {
				s.t.Fatalf("read %s beside side effect %s", a.CallID, o.CallID)
			}
		case !same:
			if g := server.limits.LaneGroup; g != "" && g == s.groupOf(o.Key) {
				s.t.Fatalf("side effect %s beside %s of its group", a.CallID, o.CallID)
			}
		case a.lane != "" && held != "" && a.lane != held:
			s.count["two keys at once"]++
		case a.lane == "" && held == "":
			calls[o.CallID] = true
		default:
			s.t.Fatalf("side effect %s (lane %s) beside %s (lane %s)", a.CallID, a.lane, o.CallID, o.lane)
		}
	}
	if a.effect == messages.ReadOnly && reads >= server.limits.MaxReads {
		s.t.Fatalf("%d reads beside %s", reads, a.CallID)
	}
	unkeyed := len(calls)
	if unkeyed >= server.limits.MaxSideEffects {
		s.t.Fatalf("%d side effects beside %s", unkeyed, a.CallID)
	}
	if unkeyed > 0 {
		s.count["two unkeyed at once"]++
	}
}

// checkRecord: a side effect is handed out only when its record is durable.
func (s *sim) checkRecord(a *attempt) {
	if s.journal == nil || a.effect == messages.ReadOnly {
		return
	}
	for _, r := range s.journal.log[:s.journal.durable] {
		d, ok := r.(messages.DispatchRecord)
		if ok && d.CallID == a.CallID && d.Attempt == a.Attempt && d.Generation == a.Gen && d.Server == a.Key.Server && d.Tool == a.Remote &&
			d.ArgsDigest == plainDigest(a.Args) && d.RunID == fmt.Sprint("run", s.run) {
			return
		}
	}
	s.t.Fatalf("%s#%d is handed out before its record is durable", a.CallID, a.Attempt)
}

// checkTwice: nothing is sent twice but what the operator declared harmless, neither
// by the bridge itself nor under one idempotency key.
func (s *sim) checkTwice(a *attempt) {
	entered := 0
	mine := s.asked[a.CallID]
	for _, o := range s.attempts {
		if !o.Boundary.Entered() {
			continue
		}
		if o.CallID == a.CallID {
			entered++
			continue
		}
		other := s.asked[o.CallID]
		if mine.scope.key == "" || other.scope != mine.scope || other.run != s.run && (s.journal == nil || a.effect == messages.ReadOnly) {
			continue
		}
		if s.now.Before(s.keyEnd(o)) {
			s.t.Fatalf("%s is sent again as %s under one key", o.CallID, a.CallID)
		}
	}
	if entered > 1 || entered == 1 && !a.harmless {
		s.t.Fatalf("%s (%s) is repeated after it may have been sent", a.CallID, a.effect)
	}
}

// keyEnd is until when the key of an attempt's call counts at the least.
func (s *sim) keyEnd(o *attempt) time.Time {
	at := o.Deadline.Add(-time.Hour) // every deadline here is shorter
	for _, r := range s.harness.events {
		if r.Type == messages.EventCallDispatched && r.CallID == o.CallID {
			at = r.Time
		}
	}
	return at.Add(keyLife - time.Minute)
}

func (s *sim) commanded(cmd Command) {
	switch cmd := cmd.(type) {
	case Record:
		s.trace(fmt.Sprintf("    record %s#%d", cmd.Record.CallID, cmd.Record.Attempt))
	case RecordOutcome:
		s.trace(fmt.Sprintf("    record outcome %s %s", cmd.Record.CallID, cmd.Record.Outcome))
		if cmd.Record.Outcome == messages.NotSent {
			for _, a := range s.attempts {
				if a.CallID == cmd.Record.CallID && (a.Boundary.Entered() || !a.back && a.Boundary.Enter()) {
					s.t.Fatalf("%s is recorded as not_sent, and was or can be sent", a.CallID)
				}
			}
		}
	case Execute:
		s.trace(fmt.Sprintf("    execute %s#%d@%d", cmd.Exec.CallID, cmd.Exec.Attempt, cmd.Exec.Gen))
	case Settle:
		s.trace(fmt.Sprintf("    settle %s %s/%s first %s", cmd.Outcome.CallID, cmd.Outcome.Kind, cmd.Outcome.Code, cmd.Outcome.FirstID))
	case Emit:
		s.trace("    " + cmd.Event.String())
	case AnswerDrained:
		s.checkDrained(func(*attempt) bool { return true }, "the bridge")
	case ToServers:
		if m, ok := cmd.Message.(messages.ServerDrained); ok {
			s.checkDrained(func(a *attempt) bool { return a.Key == m.Key && s.serverOf(m.Key).gen == a.Gen }, m.Key.String())
		}
	}
	if s.journal != nil {
		s.journal.take(cmd)
	}
}

// settledNow checks an outcome.
func (s *sim) settledNow(o messages.Outcome) {
	s.count[o.Kind.String()]++
	if !o.Deadline.IsZero() && s.now.After(o.Deadline) && o.Attempt > 0 && o.FirstID == "" {
		s.t.Fatalf("%s is settled %v after its deadline", o.CallID, s.now.Sub(o.Deadline))
	}
	if o.Code == messages.CodeIdempotencyConflict {
		s.count["conflict"]++
	}
	s.ended[o.CallID] = o
	s.look()
	s.checkTimes(o)
	if o.FirstID != "" {
		s.checkShared(o)
		return
	}
	if o.Kind == messages.NotSent || o.Kind == messages.Rejected {
		s.look()
		if first := s.joined[o.CallID]; first != "" {
			if f, ended := s.ended[first]; !ended || f.Sent() {
				s.t.Fatalf("%s left %s/%s while the call that it joined goes on", o.CallID, o.Kind, o.Code)
			}
			s.count["ran anew"]++
		}
		for _, a := range s.attempts {
			if a.CallID == o.CallID && (a.Boundary.Entered() || a.Boundary.Enter()) {
				s.t.Fatalf("%s is %s/%s and was or can be sent", o.CallID, o.Kind, o.Code)
			}
		}
	}
	if s.wasJoined(o.CallID) { // the last of those who joined may leave it in this very step
		s.shared = append(s.shared, o)
		return
	}
	s.checkClosed(o)
}

// wasJoined says that another call joined it, so that its work may have gone on when its
// own caller had left.
func (s *sim) wasJoined(id string) bool {
	for _, first := range s.joined {
		if first == id {
			return true
		}
	}
	return false
}

// checkEntries looks, at the end of a step, at the entries of calls that others joined.
func (s *sim) checkEntries() {
	for _, o := range s.shared {
		if cl := s.core.calls[o.CallID]; cl != nil && cl.carried {
			continue // its work goes on, and its entry says so
		}
		s.checkClosed(o)
	}
	s.shared = nil
}

// checkShared: who got the outcome of another call sent nothing, and has its key and
// its arguments.
func (s *sim) checkShared(o messages.Outcome) {
	mine, first := s.asked[o.CallID], s.asked[o.FirstID]
	s.count["stored"]++
	if mine.scope.key == "" || mine.scope != first.scope || mine.args != first.args {
		s.t.Fatalf("%s got the outcome of %s, which is another call", o.CallID, o.FirstID)
	}
	for _, a := range s.attempts {
		if a.CallID == o.CallID {
			s.t.Fatalf("%s was sent and got the outcome of %s", o.CallID, o.FirstID)
		}
	}
	f, ended := s.ended[o.FirstID]
	switch {
	case ended && (first.run == s.run || s.wasJoined(o.FirstID)) && f.Kind == messages.OutcomeUnknown && (f.Code == messages.CodeTimeout || f.Code == messages.CodeCancelled) &&
		o.Kind != messages.NotSent && o.Kind != messages.Rejected: // its caller had left, and the work went on
		if o.Kind != f.Kind {
			s.count["carried on"]++
		}
	case ended && first.run == s.run && f.Kind != o.Kind:
		s.t.Fatalf("%s is %s and %s is %s", o.FirstID, f.Kind, o.CallID, o.Kind)
	case !ended && first.run == s.run:
		s.t.Fatalf("%s got the outcome of %s, which has none", o.CallID, o.FirstID)
	case ended && first.run != s.run && f.Kind != o.Kind && o.Kind != messages.OutcomeUnknown: // its outcome may have been lost with the crash
		s.t.Fatalf("%s was %s and is %s after the crash", o.FirstID, f.Kind, o.Kind)
	}
}

// checkClosed: the journal agrees with what the caller heard.
func (s *sim) checkClosed(o messages.Outcome) {
	if s.journal == nil {
		return
	}
	e := entryOf(s.journal.log, o.CallID)
	if e == nil {
		for _, a := range s.attempts {
			if a.CallID == o.CallID && a.effect != messages.ReadOnly {
				s.t.Fatalf("%s was handed out and is not in the journal", o.CallID)
			}
		}
		return
	}
	want := o.Kind
	if want == messages.Rejected {
		want = messages.NotSent
	}
	if e.Outcome != want.String() {
		s.t.Fatalf("%s is %s, and %s in the journal", o.CallID, o.Kind, e.Outcome)
	}
}

// invariants hold after every step.
func (s *sim) invariants() {
	for id, cl := range s.core.calls {
		if !cl.settled && (cl.deadline.IsZero() || s.now.After(cl.deadline)) {
			s.t.Fatalf("%s is open %v after its deadline", id, s.now.Sub(cl.deadline))
		}
		if cl.state == joined {
			s.count["joined"]++
		}
		if cl.carried && (cl.state != fenced || len(cl.joiners) == 0 || cl.keyed == nil || cl.alarm.index >= 0) {
			s.t.Fatalf("%s is carried on for %d others, %s", id, len(cl.joiners), s.core.info(cl).State)
		}
		if cl.state == joined && (cl.first.settled != cl.first.carried || cl.settled) {
			s.t.Fatalf("%s waits for %s, which has its outcome", id, cl.first.id)
		}
	}
	s.checkIdleReads()
	for _, sv := range s.core.order {
		if it, ok := sv.lane.Next(); ok {
			s.t.Fatalf("%s could start, and was not started", it.ID)
		}
	}
	if s.journal == nil {
		return
	}
	// What waits was not sent, and the journal is told so at once.
	for id, cl := range s.core.calls {
		if cl.state == queued && !cl.retried {
			if e := entryOf(s.journal.log, id); e != nil && e.Outcome == messages.OutcomeOpen {
				s.t.Fatalf("%s waits, and stands open in the journal", id)
			}
		}
		if cl.state == recording && !cl.server.accepts() {
			s.t.Fatalf("%s is to be sent to a server that takes no calls", id)
		}
	}
	// Were the bridge killed now, the journal would not deny what may have left.
	for _, a := range s.attempts {
		if _, over := s.ended[a.CallID]; over || a.effect == messages.ReadOnly || a.run != s.run || !a.Boundary.Entered() {
			continue
		}
		if e := entryOf(s.journal.log[:s.journal.durable], a.CallID); e == nil || e.Outcome == messages.NotSent.String() {
			s.t.Fatalf("%s may have been sent, and the journal denies it", a.CallID)
		}
	}
}

// recoverAll is the liveness mode: the faults stop, and whoever calls then gets an answer.
func (s *sim) recoverAll() {
	s.calm = true
	s.trace("calm")
	for round := 0; ; round++ {
		if round > 200 {
			s.t.Fatal("the workers never come home")
		}
		s.flush()
		if s.open() == nil {
			break
		}
	}
	for _, v := range s.servers { // an operator stops and starts: what is held for ever is let go
		s.end(v, !v.limits.Remote)
		s.set(v, messages.StateStopped)
		s.recover(v)
	}
	s.pass(10 * time.Minute)
	s.look()
	s.flush()
	for _, v := range s.servers {
		s.recover(v)
	}
	s.list(true)
	var ids []string
	for _, v := range s.servers {
		for _, t := range []string{"read", "write", "file", "put"} {
			s.n++
			id := fmt.Sprint("c", s.n)
			ids = append(ids, id)
			s.submitCall(s.makeCall(id, "", func(m *messages.Submit) { m.Call.Tool = v.key.Server + "/" + t }))
		}
	}
	for range 40 {
		s.flush()
	}
	for _, id := range ids {
		if o, ok := s.ended[id]; !ok || o.Kind != messages.OK {
			s.t.Fatalf("nothing fails any more, and %s is %s/%s %s %v", id, o.Kind, o.Code, o.Message, s.core.report().Calls)
		}
	}
}

// flush lets journal and workers answer.
func (s *sim) flush() {
	for s.journal != nil && len(s.journal.pending) > 0 {
		s.settleRecord()
	}
	for s.journal != nil && len(s.journal.finds) > 0 {
		s.find()
	}
	for _, a := range s.attempts {
		if !a.back && a.run == s.run {
			s.replyTo(a)
		}
	}
}

// close lets everything end: every call must be settled and nothing be left.
func (s *sim) close() {
	s.pass(10 * time.Minute)
	s.look()
	for id, c := range s.asked {
		if _, ok := s.ended[id]; !ok && c.run == s.run {
			s.t.Fatalf("%s never got an outcome", id)
		}
	}
	for _, v := range s.servers {
		s.end(v, true)
		s.set(v, messages.StateStopped)
	}
	s.pass(10 * time.Minute)
	s.wantIdle()
	for _, m := range s.harness.servers {
		if r, ok := m.(messages.RecycleServer); ok && strings.TrimSpace(r.Reason) == "" {
			s.t.Fatal("a recycle without a reason")
		}
	}
}
