package dispatch

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"mcpbridge/messages"
)

// attempt is one Exec as the simulated world sees it.
type attempt struct {
	messages.Exec
	effect   messages.Effect
	harmless bool // the operator said so: one repetition is allowed
	back     bool // its worker is back, or its session is over
	over     bool // the server certainly works on it no longer, or the bridge said that it might (possible_overlap)
}

// simServer is one server of the world.
type simServer struct {
	key    messages.Key
	limits messages.ServerLimits
	gen    uint64
	up     bool
	gone   bool // removed
	state  messages.State
}

// sim plays everybody around the Core: callers, workers, sessions and servers, each
// of whom does anything at any time. It checks what the Core promises.
type sim struct {
	*harness
	rt       *rapid.T
	servers  []*simServer
	tools    map[string]messages.Tool
	attempts []*attempt
	deadline map[string]time.Time // by call, for those that were taken
	events   int                  // looked at
	n        int
	gens     uint64
	version  uint64
	known    bool // the tools are listed
}

var simTools = []string{"read", "hint", "put", "write", "long"}

func newSim(t *testing.T, rt *rapid.T) *sim {
	s := &sim{harness: newHarness(t, func(c *Config) { c.ClientQueue = 12 }), rt: rt, tools: map[string]messages.Tool{}, deadline: map[string]time.Time{}}
	for i, name := range []string{"fs", "par", "web"} {
		l := messages.ServerLimits{MaxReads: 2, MaxSideEffects: 1, Queue: 5, QueueBytes: 1 << 20, CallTimeout: 40 * time.Second,
			AbandonAfter: 15 * time.Second, Serial: i == 1, Remote: i == 2}
		s.servers = append(s.servers, &simServer{key: messages.Key{Server: name}, limits: l})
		for _, tl := range standard() {
			e := tool(name, tl.RemoteName, tl.Effect, tl.EffectSource)
			e.Limits = tl.Limits
			s.tools[name+"/"+tl.RemoteName] = e
		}
	}
	s.onExecute, s.onSettle = s.handedOut, s.ended
	for _, v := range s.servers {
		s.do(messages.ServerConfigured{Key: v.key, Limits: v.limits})
	}
	s.list(rapid.Bool().Draw(rt, "known"))
	return s
}

// do takes a step and looks at what the Core told the history.
func (s *sim) do(m messages.Message) {
	s.step(m)
	s.look()
}

func (s *sim) look() {
	for ; s.events < len(s.harness.events); s.events++ {
		switch e := s.harness.events[s.events]; e.Type {
		case messages.EventPossibleOverlap:
			for _, a := range s.attempts {
				a.over = a.over || a.CallID == e.CallID
			}
		}
	}
}

func (s *sim) list(known bool) {
	s.known = known
	s.version++
	names := map[string]bool{}
	var tools []messages.Tool
	if known {
		for _, v := range s.servers {
			names[v.key.Server] = true
		}
		for _, t := range s.tools {
			tools = append(tools, t)
		}
	}
	s.do(messages.CatalogueChanged{Catalogue: catalogue(s.version, names, tools...)})
}

// handedOut checks an attempt against all that are not over.
func (s *sim) handedOut(cmd Execute) {
	s.look() // what was said before it in the same step counts
	e := cmd.Exec
	t := s.tools[e.Key.Server+"/"+e.Remote]
	a := &attempt{Exec: e, effect: t.Effect, harmless: t.EffectSource == messages.FromConfig && t.Effect != messages.SideEffect}
	if _, dead := s.settled[e.CallID]; dead {
		s.rt.Fatalf("%s is handed out after its outcome", e.CallID)
	}
	if e.Deadline.IsZero() || !e.Deadline.After(s.now) {
		s.rt.Fatalf("%s is handed out after its deadline", e.CallID)
	}
	server := s.servers[slices.IndexFunc(s.servers, func(v *simServer) bool { return v.key == e.Key })]
	if !server.up || server.gen != e.Gen {
		s.rt.Fatalf("%s is handed to a session that is not up", e.CallID)
	}
	reads, entered := 0, 0
	for _, o := range s.attempts {
		if o.CallID == e.CallID {
			if o.Boundary.Entered() {
				entered++
			} else if o.Boundary.Void() && !o.back {
				s.rt.Fatalf("two attempts of %s can be sent", e.CallID)
			}
			continue
		}
		if o.Key != e.Key {
			continue
		}
		_, settled := s.settled[o.CallID]
		if o.effect == messages.ReadOnly {
			if !o.back {
				reads++
			}
			if a.effect != messages.ReadOnly && !server.limits.Serial && !o.back && !settled {
				s.rt.Fatalf("side effect %s beside read %s", e.CallID, o.CallID)
			}
			continue
		}
		if o.over || settled && !o.Boundary.Entered() && o.back {
			continue
		}
		if a.effect != messages.ReadOnly || !server.limits.Serial {
			s.rt.Fatalf("%s (%s) beside side effect %s", e.CallID, a.effect, o.CallID)
		}
	}
	if a.effect == messages.ReadOnly && reads >= server.limits.MaxReads {
		s.rt.Fatalf("%d reads beside %s", reads, e.CallID)
	}
	if entered > 1 || entered == 1 && !a.harmless {
		s.rt.Fatalf("%s (%s) is repeated after it may have been sent", e.CallID, a.effect)
	}
	s.attempts = append(s.attempts, a)
}

// ended checks an outcome.
func (s *sim) ended(o messages.Outcome) {
	if !o.Deadline.IsZero() && s.now.After(o.Deadline) && o.Attempt > 0 {
		s.rt.Fatalf("%s is settled %v after its deadline", o.CallID, s.now.Sub(o.Deadline))
	}
	if o.Kind != messages.NotSent && o.Kind != messages.Rejected || strings.Contains(o.Message, "is under way") { // a twin: the id is another's
		return
	}
	for _, a := range s.attempts {
		if a.CallID == o.CallID && (a.Boundary.Entered() || a.Boundary.Enter()) {
			s.rt.Fatalf("%s is %s/%s and was or can be sent", o.CallID, o.Kind, o.Code)
		}
	}
}

func (s *sim) server() *simServer { return rapid.SampledFrom(s.servers).Draw(s.rt, "server") }

func (s *sim) Submit(t *rapid.T) {
	s.n++
	id := fmt.Sprint("c", s.n)
	name := s.server().key.Server + "/" + rapid.SampledFrom(append(simTools, "nothing")).Draw(t, "tool")
	m := s.makeCall(id, "", func(m *messages.Submit) {
		m.Call.Tool, m.Call.Client = name, rapid.SampledFrom([]string{"c", "d"}).Draw(t, "client")
		m.Call.Timeout = time.Duration(rapid.IntRange(-1, 60).Draw(t, "timeout")) * time.Second
		m.Call.DryRun = rapid.IntRange(0, 19).Draw(t, "dry") == 0
		if rapid.IntRange(0, 9).Draw(t, "twin") == 0 && s.n > 1 {
			m.Call.ID = fmt.Sprint("c", s.n-1)
		}
	})
	if m.Call.ID != id { // the twin's outcome carries the other's id: it is either refused or, that one over, a call of its own
		if _, over := s.settled[m.Call.ID]; over {
			m.Call.ID = id
		}
	}
	s.do(m)
}

// open picks an attempt whose worker is not back.
func (s *sim) open(t *rapid.T) *attempt {
	var list []*attempt
	for _, a := range s.attempts {
		if !a.back {
			list = append(list, a)
		}
	}
	if len(list) == 0 {
		t.Skip("no worker is out")
	}
	return rapid.SampledFrom(list).Draw(t, "attempt")
}

func (s *sim) Enter(t *rapid.T) { s.open(t).Boundary.Enter() }

func (s *sim) Reply(t *rapid.T) {
	a := s.open(t)
	if !a.Boundary.Entered() && rapid.Bool().Draw(t, "enter") {
		a.Boundary.Enter()
	}
	server := s.servers[slices.IndexFunc(s.servers, func(v *simServer) bool { return v.key == a.Key })]
	var lost *simServer
	r := messages.Reply{Kind: messages.ReplyNotEntered, Err: "refused"}
	if a.Boundary.Entered() {
		r.Kind = rapid.SampledFrom([]messages.ReplyKind{messages.ReplyResult, messages.ReplyError, messages.ReplyLost, messages.ReplyTooLarge, messages.ReplyProtocol}).Draw(t, "reply")
		r.Raw = okReply.Raw
	}
	if r.Kind == messages.ReplyLost {
		r.Proven = rapid.IntRange(0, 3).Draw(t, "proven") == 0
		if !server.limits.Remote && server.gen == a.Gen { // stdio: the pipe is gone with it
			lost = server
		}
	}
	a.back = true
	a.over = a.over || r.Kind != messages.ReplyLost || r.Proven
	done := messages.CallDone{Key: a.Key, Gen: a.Gen, CallID: a.CallID, Attempt: a.Attempt, Reply: r}
	if lost != nil {
		lost.up = false
	}
	s.do(done)
	if rapid.IntRange(0, 9).Draw(t, "again") == 0 {
		s.do(done)
	}
	if lost != nil {
		s.do(messages.SessionLost{Key: lost.key, Gen: lost.gen})
	}
}

func (s *sim) Cancel(t *rapid.T) {
	if s.n == 0 {
		t.Skip("no call")
	}
	id := fmt.Sprint("c", rapid.IntRange(max(1, s.n-8), s.n).Draw(t, "call"))
	if list := s.core.calls; len(list) > 0 && rapid.Bool().Draw(t, "open") {
		id = rapid.SampledFrom(slices.Sorted(maps.Keys(list))).Draw(t, "id")
	}
	s.do(messages.Cancel{CallID: id, Left: rapid.Bool().Draw(t, "left")})
}

func (s *sim) Pass(t *rapid.T) {
	s.pass(time.Duration(rapid.IntRange(1, 20_000).Draw(t, "ms")) * time.Millisecond)
	s.look()
}

func (s *sim) Progress(t *rapid.T) {
	a := s.open(t)
	s.do(messages.CallProgress{Key: a.Key, Gen: a.Gen, CallID: a.CallID})
}

func (s *sim) Lost(*rapid.T) {
	v := s.server()
	v.up = false
	s.do(messages.SessionLost{Key: v.key, Gen: v.gen})
}

func (s *sim) UpOrDown(t *rapid.T) {
	v := s.server()
	if v.gone {
		t.Skip("removed")
	}
	if v.gen != 0 && v.up || rapid.Bool().Draw(t, "down") {
		s.end(v, !v.limits.Remote && rapid.IntRange(0, 5).Draw(t, "proven") != 0)
		return
	}
	s.start(v)
}

func (s *sim) start(v *simServer) {
	if v.gen != 0 {
		s.end(v, !v.limits.Remote)
	}
	s.gens++
	v.gen, v.up = s.gens, true
	s.do(messages.SessionUp{Key: v.key, Gen: v.gen})
	s.set(v, messages.StateReady)
}

func (s *sim) end(v *simServer, proven bool) {
	v.up = false
	for _, a := range s.attempts {
		if a.Key == v.key && a.Gen == v.gen {
			a.back = true
			// What was not entered never will be: the step below voids it.
			a.over = a.over || proven || !a.Boundary.Entered()
		}
	}
	s.do(messages.SessionDown{Key: v.key, Gen: v.gen, Proven: proven, Reason: "killed"})
}

func (s *sim) set(v *simServer, state messages.State) {
	v.state = state
	s.do(messages.ServerStateChanged{Key: v.key, State: state, Reason: "simulated"})
}

func (s *sim) State(t *rapid.T) {
	if v := s.server(); rapid.Bool().Draw(t, "harmless") {
		s.set(v, messages.StateBackoff)
		return
	}
	s.set(s.server(), messages.State(rapid.IntRange(0, int(messages.StateBlocked)).Draw(t, "state")))
}

// Recover puts right what is wrong with a server, so that there is work to do.
func (s *sim) Recover(*rapid.T) {
	v := s.server()
	if v.gone {
		v.gone = false
		s.do(messages.ServerConfigured{Key: v.key, Limits: v.limits})
	}
	if !s.known {
		s.list(true)
	}
	if !v.up {
		s.start(v)
	}
	s.set(v, messages.StateReady)
}

func (s *sim) List(t *rapid.T) { s.list(rapid.IntRange(0, 3).Draw(t, "known") != 0) }

func (s *sim) Drain(*rapid.T) { s.do(messages.DrainServer{Key: s.server().key}) }

func (s *sim) RemoveOrAdd(t *rapid.T) {
	v := s.server()
	switch {
	case v.gone:
		v.gone = false
		s.do(messages.ServerConfigured{Key: v.key, Limits: v.limits})
	case rapid.IntRange(0, 3).Draw(t, "remove") == 0:
		v.gone = true
		s.do(messages.ServerRemoved{Key: v.key})
		s.end(v, true)
		v.gen = 0
	}
}

// Check: nobody who has a deadline is open beyond it.
func (s *sim) Check(t *rapid.T) {
	for _, cl := range s.core.calls {
		if !cl.settled && (cl.deadline.IsZero() || s.now.After(cl.deadline)) {
			t.Fatalf("%s is open %v after its deadline", cl.id, s.now.Sub(cl.deadline))
		}
	}
}

// close lets everything end: every call must be settled and nothing be left.
func (s *sim) close() {
	s.pass(10 * time.Minute)
	s.look()
	for _, id := range s.ids {
		if _, ok := s.settled[id]; !ok {
			s.rt.Fatalf("%s never got an outcome", id)
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
			s.rt.Fatal("a recycle without a reason")
		}
	}
}

func TestSimulation(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newSim(t, rt)
		// Most steps are the ordinary ones, or nothing would ever run.
		actions := rapid.StateMachineActions(s)
		for name, f := range map[string]func(*rapid.T){"Submit": s.Submit, "Reply": s.Reply, "Enter": s.Enter, "Recover": s.Recover, "Cancel": s.Cancel} {
			for i := range 4 {
				actions[fmt.Sprint(name, i)] = f
			}
		}
		for range 6 { // long histories find more than many short ones
			rt.Repeat(actions)
		}
		s.close()
	})
}
