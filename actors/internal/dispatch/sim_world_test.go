package dispatch

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"mcpbridge/messages"
)

// attempt is one Exec as the simulated world sees it.
type attempt struct {
	messages.Exec
	run      int // the life of the bridge that it is of
	effect   messages.Effect
	lane     string // its key, as JSON
	harmless bool   // the operator said so: one repetition is allowed
	back     bool   // its worker is back, or its session is over
	over     bool   // the server certainly works on it no longer, or the bridge said that it might (possible_overlap)
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

// simCall is what the world remembers of a Submit.
type simCall struct {
	run   int
	scope keyScope // key "" = none
	args  string
	tool  messages.Tool
	dry   bool
}

// sim plays everybody around the Core: callers, workers, sessions, servers and the
// journal, each of whom does anything at any time, and the crash of the bridge. It
// checks what the Core promises.
type sim struct {
	*harness
	dice
	trace    func(string)
	count    map[string]int // what happened, to see that everything did
	servers  []*simServer
	tools    map[string]messages.Tool
	attempts []*attempt
	asked    map[string]*simCall // by id
	keyed    []messages.CallTool
	joined   map[string]string  // the first
	shared   []messages.Outcome // of this step, of calls that others joined
	ended    map[string]messages.Outcome
	turns    turns
	journal  *simJournal // nil for none
	run      int
	events   int // looked at
	n        int
	gens     uint64
	version  uint64
	known    bool // the tools are listed
	calm     bool // no more faults
}

var simTools = []string{"read", "hint", "put", "write", "write", "long", "file", "file"}

func newSim(t testing.TB, d dice) *sim {
	s := &sim{harness: newHarness(t, nil), dice: d, trace: func(string) {}, count: map[string]int{}, tools: map[string]messages.Tool{},
		asked: map[string]*simCall{}, joined: map[string]string{}, ended: map[string]messages.Outcome{}, turns: newTurns()}
	for i, name := range []string{"fs", "par", "web", "twin"} {
		l := messages.ServerLimits{MaxReads: 2, MaxSideEffects: 1, Queue: 5, QueueBytes: 1 << 20, CallTimeout: 40 * time.Second,
			AbandonAfter: 15 * time.Second, Serial: i == 1, Remote: i == 2}
		switch name {
		case "par":
			l.MaxSideEffects = 2
		case "web", "twin":
			l.LaneGroup = "shared"
		}
		s.servers = append(s.servers, &simServer{key: messages.Key{Server: name}, limits: l})
		file := tool("", "file", messages.SideEffect, messages.FromDefault)
		file.Limits.LaneKey = "path"
		for _, tl := range append(standard(), file) {
			e := tool(name, tl.RemoteName, tl.Effect, tl.EffectSource)
			e.Limits = tl.Limits
			s.tools[name+"/"+tl.RemoteName] = e
		}
	}
	return s
}

// begin starts the first life of the bridge.
func (s *sim) begin() {
	if s.roll(4) > 0 {
		s.journal = &simJournal{}
	}
	s.boot()
	s.list(s.roll(2) == 0)
}

func (s *sim) boot() {
	s.run++
	fresh := newHarness(s.t, func(c *Config) {
		c.ClientQueue, c.Journal, c.RunID = 12, s.journal != nil, fmt.Sprint("run", s.run)
	})
	h := s.harness
	h.core, h.wake = fresh.core, time.Time{}
	fresh.t = s.t
	h.onExecute, h.onSettle, h.onCommand, h.onStep = s.handedOut, s.settledNow, s.commanded, s.checkEntries
	early := s.journal.fences(s)
	if s.roll(2) == 0 {
		for _, m := range early {
			s.do(m)
		}
		early = nil
	}
	for _, v := range s.servers {
		v.up, v.gen, v.gone, v.state = false, 0, false, messages.StateIdle
		s.do(messages.ServerConfigured{Key: v.key, Limits: v.limits})
	}
	for _, m := range early {
		s.do(m)
	}
}

// do takes a step and looks at what the Core told the history.
func (s *sim) do(m messages.Message) {
	s.trace(fmt.Sprintf("%v %s", s.now.Sub(start), describe(m)))
	s.step(m)
	s.look()
	s.noteQueue()
	s.invariants()
}

func describe(m messages.Message) string {
	switch m := m.(type) {
	case messages.Submit:
		return fmt.Sprintf("submit %s %s %s key %q timeout %v client %s", m.Call.ID, m.Call.Tool, m.Call.Args, m.Call.IdempotencyKey, m.Call.Timeout, m.Call.Client)
	case messages.CallDone:
		return fmt.Sprintf("done %s#%d@%d %s", m.CallID, m.Attempt, m.Gen, m.Reply.Kind)
	case messages.CatalogueChanged:
		return fmt.Sprintf("catalogue %d", m.Catalogue.Version)
	case messages.PriorFound:
		return fmt.Sprintf("found %s %v", m.CallID, m.Entry != nil)
	case messages.DrainAll: // a channel's address is another one each time
		return "drain all"
	default:
		return fmt.Sprintf("%T %+v", m, m)
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
		for _, name := range slices.Sorted(maps.Keys(s.tools)) {
			tools = append(tools, s.tools[name])
		}
	}
	s.do(messages.CatalogueChanged{Catalogue: catalogue(s.version, names, tools...)})
}

func pick[T any](d dice, list []T) T { return list[d.roll(len(list))] }

func (s *sim) server() *simServer { return pick[*simServer](s, s.servers) }

func (s *sim) serverOf(k messages.Key) *simServer {
	return s.servers[slices.IndexFunc(s.servers, func(v *simServer) bool { return v.key == k })]
}

// act is one thing that happens. Most are the ordinary ones, or nothing would ever run.
func (s *sim) act() {
	switch r := s.roll(100); {
	case r < 26:
		if s.roll(20) == 0 {
			s.rush()
			return
		}
		s.submit()
	case r < 40:
		s.enter()
	case r < 56:
		s.reply()
	case r < 66:
		s.settleRecord()
	case r < 72:
		s.recover(s.server())
	case r < 77:
		s.cancel()
	case r < 84:
		s.pass(time.Duration(1+s.roll(s.longest())) * time.Millisecond)
		s.look()
	case r < 86:
		if a := s.open(); a != nil {
			s.do(messages.CallProgress{Key: a.Key, Gen: a.Gen, CallID: a.CallID})
		}
	case r < 88:
		v := s.server()
		v.up = false
		s.going(v)
		s.do(messages.SessionLost{Key: v.key, Gen: v.gen})
	case r < 91:
		s.upOrDown(s.server())
	case r < 94:
		if v := s.server(); s.roll(2) == 0 {
			s.set(v, messages.StateBackoff)
		} else {
			s.set(v, messages.State(s.roll(int(messages.StateBlocked)+1)))
		}
	case r < 95:
		s.list(s.roll(4) != 0)
	case r < 96:
		s.do(messages.DrainServer{Key: s.server().key})
	case r < 97:
		s.removeOrAdd(s.server())
	case r < 98:
		s.relimit(s.server())
	case r < 99:
		s.find()
	default:
		if s.roll(3) == 0 {
			s.crash()
		}
	}
}

func (s *sim) longest() int {
	if s.roll(50) == 0 {
		return 25 * 3600 * 1000 // a day: keys end
	}
	return 20_000
}

func (s *sim) submit() string {
	s.n++
	id := fmt.Sprint("c", s.n)
	v := s.server()
	name := v.key.Server + "/" + pick(s, append(simTools, "nothing"))
	m := s.makeCall(id, "", func(m *messages.Submit) {
		m.Call.Tool, m.Call.Client = name, pick(s, []string{"c", "d"})
		m.Call.Args = json.RawMessage(pick(s, []string{`{}`, `{"path":"a"}`, `{"path":"b"}`, `{"path":"\u0061"}`, `[]`}))
		m.Call.Timeout = time.Duration(s.roll(62)-1) * time.Second
		m.Call.DryRun = s.roll(20) == 0
		switch s.roll(6) {
		case 0:
			if len(s.keyed) > 0 { // the same again, or nearly
				old := pick(s, s.keyed[max(0, len(s.keyed)-6):])
				m.Call.Tool, m.Call.Client, m.Call.IdempotencyKey = old.Tool, old.Client, old.IdempotencyKey
				if s.roll(5) > 0 {
					m.Call.Args = old.Args
				}
			}
		case 1:
			m.Call.IdempotencyKey = pick(s, []string{"k1", "k2", "k2", "bad\n"})
			s.keyed = append(s.keyed, m.Call)
		}
		if s.roll(2) == 0 {
			m.ArgsDigest = plainDigest(m.Call.Args)
		}
	})
	s.submitCall(m)
	return id
}

func (s *sim) submitCall(m messages.Submit) {
	t := s.tools[m.Call.Tool]
	c := &simCall{run: s.run, args: string(m.Call.Args), tool: t, dry: m.Call.DryRun}
	if m.Call.IdempotencyKey != "" {
		c.scope = keyScope{m.Call.Client, t.Server, t.RemoteName, m.Call.IdempotencyKey}
		if s.journal != nil && s.known && t.Server != "" && s.roll(4) > 0 {
			m.PriorServer, m.PriorTool, m.Prior = t.Server, t.RemoteName, s.journal.find(c.scope)
			if s.roll(4) == 0 { // something happens between the question and the Submit
				s.reply()
				s.settleRecord()
			}
		}
	}
	s.asked[m.Call.ID] = c
	s.do(m)
}

// open picks an attempt whose worker is not back.
func (s *sim) open() *attempt {
	var list []*attempt
	for _, a := range s.attempts {
		if !a.back && a.run == s.run {
			list = append(list, a)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return pick[*attempt](s, list)
}

func (s *sim) enter() {
	if a := s.open(); a != nil && a.Boundary.Enter() {
		s.trace(fmt.Sprintf("%s#%d enters", a.CallID, a.Attempt))
	}
}

func (s *sim) reply() {
	if a := s.open(); a != nil {
		s.replyTo(a)
	}
}

func (s *sim) replyTo(a *attempt) {
	if !a.Boundary.Entered() && (s.calm || s.roll(2) == 0) {
		a.Boundary.Enter()
	}
	server := s.serverOf(a.Key)
	var lost *simServer
	r := messages.Reply{Kind: messages.ReplyNotEntered, Err: "refused"}
	if a.Boundary.Entered() {
		r.Kind = messages.ReplyResult
		if !s.calm {
			r.Kind = pick(s, []messages.ReplyKind{messages.ReplyResult, messages.ReplyResult, messages.ReplyError, messages.ReplyLost,
				messages.ReplyTooLarge, messages.ReplyProtocol})
		}
		r.Raw = okReply.Raw
	}
	if r.Kind == messages.ReplyLost {
		r.Proven = s.roll(4) == 0
		if !server.limits.Remote && server.gen == a.Gen { // stdio: the pipe is gone with it
			lost = server
		}
	}
	a.back = true
	a.over = a.over || r.Kind != messages.ReplyLost || r.Proven
	done := messages.CallDone{Key: a.Key, Gen: a.Gen, CallID: a.CallID, Attempt: a.Attempt, Reply: r}
	if lost != nil {
		lost.up = false
		s.going(lost)
	}
	_, over := s.ended[a.CallID]
	before := s.turns.late[a.CallID]
	s.do(done)
	if over {
		s.checkLate(a, r.Kind, before)
	}
	if s.roll(10) == 0 {
		s.do(done)
	}
	if lost != nil {
		s.do(messages.SessionLost{Key: lost.key, Gen: lost.gen})
	}
}

func (s *sim) cancel() {
	if s.n == 0 {
		return
	}
	id := fmt.Sprint("c", max(1, s.n-s.roll(8)))
	if list := s.core.calls; len(list) > 0 && s.roll(2) == 0 {
		id = pick(s, slices.Sorted(maps.Keys(list)))
	}
	s.do(messages.Cancel{CallID: id, Left: s.roll(2) == 0})
}

func (s *sim) upOrDown(v *simServer) {
	if v.gone {
		return
	}
	if v.gen != 0 && v.up || s.roll(2) == 0 {
		s.end(v, !v.limits.Remote && s.roll(6) != 0)
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
	s.going(v)
	s.do(messages.SessionDown{Key: v.key, Gen: v.gen, Proven: proven, Reason: "killed"})
}

func (s *sim) set(v *simServer, state messages.State) {
	v.state = state
	s.do(messages.ServerStateChanged{Key: v.key, State: state, Reason: "simulated"})
}

// recover puts right what is wrong with a server, so that there is work to do.
func (s *sim) recover(v *simServer) {
	if v.gone {
		s.removeOrAdd(v)
	}
	if !s.known {
		s.list(true)
	}
	if !v.up {
		s.start(v)
	}
	s.set(v, messages.StateReady)
}

func (s *sim) removeOrAdd(v *simServer) {
	switch {
	case v.gone:
		v.gone = false
		s.do(messages.ServerConfigured{Key: v.key, Limits: v.limits})
	case s.roll(3) == 0:
		v.gone = true
		s.do(messages.ServerRemoved{Key: v.key})
		s.end(v, true)
		v.gen = 0
	}
}

// relimit is a reload that changes how a server is scheduled. What runs, runs: a
// server is only changed while nothing does, so that the checks know what holds.
func (s *sim) relimit(v *simServer) {
	if sv := s.core.servers[v.key]; sv == nil || sv.lane.Active() > 0 {
		return
	}
	if v.gone || slices.ContainsFunc(s.attempts, func(a *attempt) bool { return a.Key == v.key && (!a.over || !a.back) }) {
		return
	}
	v.limits.Serial = s.roll(2) == 0
	v.limits.MaxSideEffects = 1 + s.roll(2)
	s.do(messages.ServerConfigured{Key: v.key, Limits: v.limits})
}
