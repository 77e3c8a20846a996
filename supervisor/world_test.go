package supervisor

import (
	"fmt"
	"slices"
	"time"

	"mcpbridge/config"
	"mcpbridge/messages"
)

// world is what a machine lives in, as plain data: the clock, the limiter's wishes,
// the sessions that exist, the timers that run, and what router and operator were
// told. Its check method holds what must be true after every event.
type world struct {
	m    *machine
	now  time.Time
	gens uint64

	wishes   []uint64 // asked for and neither granted nor withdrawn
	held     map[uint64]bool
	session  uint64 // the live one, 0 = none
	asked    bool   // it was asked to stop
	spawned  []uint64
	timers   map[timerKind]setTimer
	stale    []evTimer // of timers that were cancelled, replaced or have fired
	router   messages.State
	up       uint64 // the generation that the router may dispatch to
	answer   error
	answered bool
	over     int
	closing  bool
	removed  bool // before the event at hand
	said     []string
}

type setTimer struct {
	token uint64
	at    time.Time
}

func newWorld(cfg config.Server) *world {
	w := &world{now: start, held: map[uint64]bool{}, timers: map[timerKind]setTimer{}}
	w.m = newMachine(cfg, func() uint64 { w.gens++; return w.gens })
	return w
}

// send feeds the machine and carries its commands out; it returns what broke a rule.
func (w *world) send(e event) error {
	before := w.m.state
	treeAlive := w.m.treeAlive
	w.removed = w.m.leaving
	w.answered = false
	if _, ok := e.(evStopAll); ok {
		w.closing = true
	}
	for _, c := range w.m.step(w.now, middle, e) {
		if err := w.carryOut(c); err != nil {
			return fmt.Errorf("%T: %w", e, err)
		}
	}
	if err := w.left(before, treeAlive, e); err != nil {
		return err
	}
	if err := w.check(); err != nil {
		return fmt.Errorf("after %T%+v in %s: %w", e, e, before, err)
	}
	if _, ok := e.(evOperate); ok && !w.answered {
		return fmt.Errorf("%+v was not answered", e)
	}
	return nil
}

func (w *world) carryOut(c command) error {
	switch c := c.(type) {
	case cmdRequestSlot:
		if !slices.Contains(w.wishes, c.Gen) { // asked again: the limiter knows
			w.wishes = append(w.wishes, c.Gen)
		}
	case cmdReleaseSlot:
		delete(w.held, c.Gen)
		w.wishes = slices.DeleteFunc(w.wishes, func(g uint64) bool { return g == c.Gen })
	case cmdSpawn:
		switch {
		case w.session != 0:
			return fmt.Errorf("generation %d spawned while %d lives", c.Gen, w.session)
		case w.closing:
			return fmt.Errorf("spawned while the bridge closes")
		case w.m.leaving:
			return fmt.Errorf("spawned though it was removed")
		case !w.m.meant():
			return fmt.Errorf("spawned though its entry does not let it run")
		case len(w.spawned) > 0 && c.Gen <= w.spawned[len(w.spawned)-1]:
			return fmt.Errorf("generation %d after %v", c.Gen, w.spawned)
		case w.m.state != messages.StateStarting:
			return fmt.Errorf("spawned in state %s", w.m.state)
		}
		w.session, w.asked = c.Gen, false
		w.spawned = append(w.spawned, c.Gen)
	case cmdStopSession:
		if c.Gen != w.session {
			return fmt.Errorf("stop of generation %d, %d lives", c.Gen, w.session)
		}
		w.asked = true
	case cmdAbandon:
		if c.Gen != w.session {
			return fmt.Errorf("abandon of generation %d, %d lives", c.Gen, w.session)
		}
	case cmdSetTimer:
		if old, ok := w.timers[c.Kind]; ok {
			w.stale = append(w.stale, evTimer{c.Kind, old.token})
		}
		if c.After < 0 {
			return fmt.Errorf("a timer of %s", c.After)
		}
		w.timers[c.Kind] = setTimer{c.Token, w.now.Add(c.After)}
	case cmdCancelTimer:
		if old, ok := w.timers[c.Kind]; ok {
			w.stale = append(w.stale, evTimer{c.Kind, old.token})
		}
		delete(w.timers, c.Kind)
	case cmdRouter:
		switch m := c.Message.(type) {
		case messages.ServerStateChanged:
			w.router = m.State
		case messages.SessionDown:
			w.up = 0
		}
	case cmdSessionUp:
		if c.Gen != w.session {
			return fmt.Errorf("generation %d is up, %d lives", c.Gen, w.session)
		}
		w.up = c.Gen
	case cmdAnswer:
		w.answer, w.answered = c.Err, true
	case cmdOver:
		w.over++
	case cmdSay:
		w.said = append(w.said, c.Text)
	}
	return nil
}

// left holds the rules about leaving a state in which nothing runs.
func (w *world) left(before messages.State, treeAlive bool, e event) error {
	if before == w.m.state {
		return nil
	}
	op, operated := e.(evOperate)
	_, stopAll := e.(evStopAll)
	timer, isTimer := e.(evTimer)
	switch e := e.(type) {
	case evRemove:
		return nil
	case evReload:
		if treeAlive && w.m.state == messages.StateStarting {
			return fmt.Errorf("a reload started a server whose last tree was not proven dead")
		}
		if before == messages.StateStopped && w.m.state == messages.StateStarting && !w.removed {
			return fmt.Errorf("a reload started what an operator had stopped: %+v", e)
		}
		return nil
	}
	ok := true
	switch before {
	case messages.StateDisabled, messages.StateConfigError:
		ok = false
	case messages.StateStopped:
		ok = operated && op.Verb != messages.VerbStop && op.Verb != messages.VerbDrain
		if treeAlive && w.m.state == messages.StateStarting {
			ok = operated && op.Verb == messages.VerbReset
		}
	case messages.StateBlocked:
		_, approved := e.(evApproved)
		ok = operated && op.Verb == messages.VerbReset || approved
	case messages.StateQuarantined:
		down := w.m.state == messages.StateStopped && (stopAll || operated && (op.Verb == messages.VerbStop || op.Verb == messages.VerbDrain))
		ok = down || operated && op.Verb == messages.VerbReset || isTimer && timer.Kind == timerCooldown && !treeAlive
	case messages.StateIdle:
		_, woken := e.(evWake)
		_, booted := e.(evBoot)
		ok = operated || woken || stopAll || booted
	}
	if !ok {
		return fmt.Errorf("%T%+v led from %s to %s", e, e, before, w.m.state)
	}
	return nil
}

// check holds what is always true, above all that there is a way forward.
func (w *world) check() error {
	m := w.m
	has := func(k timerKind) bool { _, ok := w.timers[k]; return ok }
	if w.router != m.state {
		return fmt.Errorf("the router thinks %s, it is %s", w.router, m.state)
	}
	if (m.phase == phaseLive) != (w.session != 0) {
		return fmt.Errorf("phase %d with session %d", m.phase, w.session)
	}
	if len(w.wishes) > 1 || len(w.wishes) == 1 && (m.phase != phaseWaiting || w.wishes[0] != m.gen) {
		return fmt.Errorf("wishes %v in phase %d of generation %d", w.wishes, m.phase, m.gen)
	}
	if len(w.held) > 0 && w.session == 0 {
		return fmt.Errorf("slots %v are held by nobody", w.held)
	}
	if w.asked && w.session != 0 && !has(timerStop) && !w.closing {
		// An abandoned session is gone the moment the shell stops it.
		if last := len(w.stale); last == 0 || w.stale[last-1].Kind != timerStop {
			return fmt.Errorf("asked to stop, and nobody waits for it")
		}
	}
	// An abandoned session is gone the moment the shell stops it.
	abandoned := len(w.stale) > 0 && w.stale[len(w.stale)-1].Kind == timerStop
	var ok bool
	switch m.state {
	case messages.StateStarting:
		ok = m.phase == phaseWaiting && len(w.wishes) == 1 || m.phase == phaseLive && (has(timerStart) || w.asked || m.lost && (has(timerStop) || abandoned))
	case messages.StateReady:
		ok = w.up == w.session && w.session != 0 && !w.asked
	case messages.StateBackoff:
		ok = m.phase == phaseNone && has(timerRetry) && m.retry.Equal(w.timers[timerRetry].at)
	case messages.StateQuarantined:
		ok = m.phase == phaseNone && (has(timerCooldown) || m.treeAlive)
	case messages.StateDraining:
		ok = m.phase == phaseLive && has(timerDrain)
	case messages.StateStopping:
		ok = m.phase == phaseLive && w.asked
	default:
		ok = m.phase == phaseNone && w.session == 0 && len(w.timers) == 0
	}
	if !ok {
		return fmt.Errorf("no way forward in %s: phase %d, wishes %v, session %d, timers %v", m.state, m.phase, w.wishes, w.session, w.timers)
	}
	if w.closing && w.session == 0 && w.over == 0 {
		return fmt.Errorf("the bridge closes and nobody hears that it is over")
	}
	return nil
}

// The moves of the world around the machine.

func (w *world) grant() error {
	gen := w.wishes[0]
	w.wishes = w.wishes[1:]
	w.held[gen] = true
	return w.send(evSlot{gen})
}

func (w *world) spawn() error { return w.send(evSpawned{w.session, 4711}) }

func (w *world) ready() error {
	return w.send(evReady{Gen: w.session, Info: messages.PeerInfo{PID: 4711, Transport: "stdio", Protocol: "2025-11-25"},
		Listing: messages.Listing{Tools: []messages.ToolDef{{Name: "echo"}}, Discovered: 1}})
}

func (w *world) end(exit messages.Exit) error {
	gen := w.session
	w.session, w.asked = 0, false
	return w.send(evDown{gen, exit})
}

// fire lets time pass until a timer is due, and fires it.
func (w *world) fire(k timerKind) error {
	t, ok := w.timers[k]
	if !ok {
		return fmt.Errorf("no timer %s: there are %v", k, w.timers)
	}
	if t.at.After(w.now) {
		w.now = t.at
	}
	delete(w.timers, k)
	e := evTimer{k, t.token}
	w.stale = append(w.stale, e)
	return w.send(e)
}

// bringUp leads a starting machine to ready.
func (w *world) bringUp() error {
	for _, f := range []func() error{w.grant, w.spawn, w.ready} {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}
