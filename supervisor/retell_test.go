package supervisor

import (
	"slices"
	"testing"
	"time"

	"mcpbridge/messages"
)

// TestAskedAgain: a wish or a grant that got lost is made up for, and one that was only
// slow is granted once.
func TestAskedAgain(t *testing.T) {
	l := newLimiter()
	l.request(wish(1))
	l.request(wish(1))
	if g, _ := l.next(start); len(g) != 1 {
		t.Fatalf("granted %v", g)
	}
	l.request(wish(1)) // the grant is on its way
	if g, _ := l.next(start.Add(time.Millisecond)); len(g) != 0 {
		t.Errorf("granted twice: %v", g)
	}
	late := start.Add(slotAgain) // it got lost
	if _, again := l.next(late); !again.IsZero() {
		t.Errorf("the slot is still held")
	}
	l.request(wish(1))
	if g, _ := l.next(late); len(g) != 1 {
		t.Errorf("not granted again: %v", g)
	}

	s := tell(t, nil).is(messages.StateStarting, "")
	for range 3 {
		if err := s.w.fire(timerSlot); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.w.wishes); n != 1 {
		t.Errorf("%d wishes", n)
	}
	s.do(s.w.bringUp()).is(messages.StateReady, "")
}

// TestToldAgain: in every state the server says again what router and registry must know,
// and says nothing that is not so.
func TestToldAgain(t *testing.T) {
	again := func(s story) (out []messages.Message) {
		for _, c := range s.w.m.step(s.w.now, 0, evRetell{}) {
			switch c := c.(type) {
			case cmdRouter:
				out = append(out, c.Message)
			case cmdRegistry:
				out = append(out, c.Message)
			case cmdSessionUp:
				out = append(out, messages.SessionUp{Gen: c.Gen})
			default:
				t.Errorf("%T is no word of what is", c)
			}
		}
		return out
	}
	has := func(list []messages.Message, is func(messages.Message) bool) bool {
		return slices.ContainsFunc(list, is)
	}
	state := func(want messages.State) func(messages.Message) bool {
		return func(m messages.Message) bool { c, ok := m.(messages.ServerStateChanged); return ok && c.State == want }
	}
	configured := func(m messages.Message) bool { _, ok := m.(messages.ServerConfigured); return ok }
	isUp := func(m messages.Message) bool { _, ok := m.(messages.SessionUp); return ok }
	lost := func(m messages.Message) bool { _, ok := m.(messages.SessionLost); return ok }
	down := func(m messages.Message) bool { _, ok := m.(messages.SessionDown); return ok }
	drain := func(m messages.Message) bool { _, ok := m.(messages.DrainServer); return ok }
	for _, tc := range []struct {
		name  string
		story func() story
		state messages.State
		says  []func(messages.Message) bool
		not   []func(messages.Message) bool
	}{
		{"starting", func() story { return tell(t, nil) }, messages.StateStarting, nil, []func(messages.Message) bool{isUp, lost, down}},
		{"ready", func() story { return up(t) }, messages.StateReady, []func(messages.Message) bool{isUp}, []func(messages.Message) bool{lost, down, drain}},
		{"draining", func() story { return up(t).verb(messages.VerbDrain, "") }, messages.StateDraining, []func(messages.Message) bool{isUp, drain}, []func(messages.Message) bool{down}},
		{"lost", func() story { s := up(t); return s.do(s.w.send(evLost{s.w.m.gen})) }, messages.StateStarting, []func(messages.Message) bool{lost}, []func(messages.Message) bool{isUp, down}},
		{"backoff", func() story {
			s := up(t)
			s.do(s.w.end(crash("signal: killed"))).do(s.w.bringUp())
			return s.do(s.w.end(crash("signal: killed")))
		}, messages.StateBackoff, []func(messages.Message) bool{down}, []func(messages.Message) bool{isUp, lost}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			said := again(tc.story())
			for i, f := range append(tc.says, configured, state(tc.state)) {
				if !has(said, f) {
					t.Errorf("word %d is missing in %+v", i, said)
				}
			}
			for i, f := range tc.not {
				if has(said, f) {
					t.Errorf("word %d is wrong in %+v", i, said)
				}
			}
		})
	}
}
