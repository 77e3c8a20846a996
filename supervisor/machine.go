package supervisor

import (
	"fmt"
	"time"

	"mcpbridge/config"
	"mcpbridge/internal/planted"
	"mcpbridge/messages"
)

// What the machine waits for beyond what was promised to it, before it helps itself.
const (
	startGrace = 15 * time.Second // beyond the start budget
	stopGrace  = 15 * time.Second // beyond the ladder
)

// reasonTreeAlive is the reason of a quarantine without a proof of death.
const reasonTreeAlive = "tree_alive"

// reasonAuth is the reason of a server that refused our credentials.
const reasonAuth = "auth"

// phase says what there is of an incarnation.
type phase uint8

const (
	phaseNone    phase = iota // nothing runs
	phaseWaiting              // a spawn slot was asked for
	phaseLive                 // a session actor exists
)

// goal says what follows once the live session is down.
type goal uint8

const (
	goalDecide goal = iota // it was not asked to end: the restart policy decides
	goalStop               // stay down
	goalStart              // begin the next generation (restart, recycle, start during a stop)
	goalReload             // do what the entry says that has come meanwhile
)

// machine is the life cycle of one server (semantics section 3; the diagram stands
// beside messages.State). It is pure: events in, commands out; time, randomness and
// generation numbers come in. It is not safe for concurrent use.
//
// Two things are kept apart: state is what people see and what decides whether calls
// may queue; phase is what exists. While a session is being replaced (restart,
// recycle) the state is already `starting`, so that queued calls survive, and the
// next generation begins only when the old one is down.
type machine struct {
	cfg       config.Server
	bridgeOff bool // enabled: false of the whole bridge
	nextGen   func() uint64
	pol       *policy

	state  messages.State
	reason string
	since  time.Time
	retry  time.Time

	gen       uint64 // wished for, live, or the last one
	phase     phase
	slot      bool // a slot is wished for or held
	stopping  bool // the live session was asked to end
	overdue   bool // … because it did not start in time, which is a failure
	lost      bool // the live session's peer is gone
	goal      goal
	goalWhy   string // the reason to show once the goal is reached
	treeAlive bool   // the last tree was not proven dead
	wasReady  bool   // the live session has been ready
	closing   bool
	next      *evReload // the entry that counts once the live session is down
	leaving   bool      // gone from the configuration
	removal   uint64    // which removal that was
	schedule  time.Time // an early try: when the one that it stands for was due

	token  uint64
	timers map[timerKind]uint64

	row     messages.ServerStatus // what the registry shows, apart from the fields above
	listing *messages.Listing     // the last good one
	stored  *stored               // of an earlier run, offered until the server lists itself
	noise   bool                  // degraded by noise
	spawns  int

	out []command
}

func newMachine(cfg config.Server, nextGen func() uint64) *machine {
	m := &machine{cfg: cfg, nextGen: nextGen, pol: newPolicy(cfg.Restart), timers: map[timerKind]uint64{}}
	m.row = messages.ServerStatus{Name: cfg.Name, Required: cfg.Required, Transport: shownTransport(cfg.Type), Source: cfg.Source}
	return m
}

// step takes one event and returns what is to be done about it, in order. random is
// from [0,1) and is used for the jitter of a restart.
func (m *machine) step(now time.Time, random float64, e event) []command {
	m.out = nil
	switch e := e.(type) {
	case evBoot:
		m.boot(now)
	case evSlot:
		m.slotGranted(e)
	case evSpawned:
		m.spawned(e)
	case evReady:
		m.ready(now, e)
	case evListed:
		if m.current(e.Gen) && !m.stopping {
			m.listed(e.Listing)
			m.show()
		}
	case evNoise:
		if m.current(e.Gen) {
			m.row.NoiseLines, m.noise = e.Lines, e.Degraded
			m.show()
		}
	case evLost:
		m.lose(now, e)
	case evDown:
		m.down(now, random, e)
	case evTimer:
		m.timer(now, e)
	case evRecycle:
		m.recycle(now, e)
	case evDrained:
		if m.state == messages.StateDraining {
			m.endDrain(now, "nothing is in flight")
		}
	case evWake:
		m.wake(now)
	case evOperate:
		m.do(cmdAnswer{m.operate(now, e.Verb)})
	case evApproved:
		m.approved(now, e.cfg)
	case evReload:
		m.reload(now, e)
	case evRemove:
		m.remove(now, e.removal)
	case evRetell:
		m.retell()
	case evStopAll:
		m.stopAll(now, e.Ladder)
	}
	return m.out
}

func (m *machine) do(c command) { m.out = append(m.out, c) }

func (m *machine) key() messages.Key { return m.cfg.Key() }

// current reports whether gen is the live incarnation.
func (m *machine) current(gen uint64) bool { return m.phase == phaseLive && m.gen == gen }

// setTimer starts a timer of a kind, in place of the one before.
func (m *machine) setTimer(k timerKind, after time.Duration) {
	m.token++
	m.timers[k] = m.token
	m.do(cmdSetTimer{k, m.token, after})
}

// cancel ends timers; a late message of theirs is then stale.
func (m *machine) cancel(kinds ...timerKind) {
	for _, k := range kinds {
		if _, ok := m.timers[k]; ok {
			delete(m.timers, k)
			m.do(cmdCancelTimer{k})
		}
	}
}

// enter changes the state and tells router, registry and history.
func (m *machine) enter(now time.Time, s messages.State, reason string, retry time.Time) {
	if m.state != s || m.since.IsZero() {
		m.since = now
	}
	m.state, m.reason, m.retry = s, reason, retry
	m.do(cmdRouter{messages.ServerStateChanged{Key: m.key(), State: s, Reason: reason, NextRetry: retry}})
	m.show()
	m.do(cmdEmit{m.about(messages.Event{Type: messages.EventServerState, State: s.String(), Reason: reason})})
}

// boot is the first event: what the configuration says decides.
func (m *machine) boot(now time.Time) {
	m.configure()
	switch {
	case m.cfg.Err != nil:
		m.row.Issues = []messages.Issue{*m.cfg.Err}
		why := configReason(m.cfg)
		m.enter(now, messages.StateConfigError, why, time.Time{})
		m.warn("not started: %s", why)
	case m.bridgeOff:
		m.enter(now, messages.StateDisabled, "the whole bridge is disabled", time.Time{})
	case m.cfg.Blocked != "":
		m.enter(now, messages.StateBlocked, m.cfg.Blocked, time.Time{})
		m.warn("not started: waits for %s", m.cfg.Blocked)
	case !m.cfg.Enabled:
		m.enter(now, messages.StateDisabled, "enabled: false", time.Time{})
	case m.cfg.Connect == config.ConnectDisabled:
		m.enter(now, messages.StateDisabled, "connect: disabled", time.Time{})
	case m.cfg.Connect == config.ConnectLazy:
		m.recall()
		m.enter(now, messages.StateIdle, "connect: lazy", time.Time{})
	default:
		m.recall()
		m.begin(now, "")
	}
}

// recall offers what the server listed in an earlier run.
func (m *machine) recall() {
	if m.stored != nil {
		m.row.Instructions = m.stored.instructions
		m.listed(m.stored.listing)
	}
}

// begin asks for the next generation. Nothing of the one before may exist.
func (m *machine) begin(now time.Time, reason string) {
	m.cancel(timerRetry, timerCooldown)
	if m.gen == 0 || !planted.Is(planted.GenerationKept) {
		m.gen = m.nextGen()
	}
	m.phase, m.slot = phaseWaiting, true
	m.stopping, m.overdue, m.wasReady, m.schedule = false, false, false, time.Time{}
	m.goal, m.goalWhy = goalDecide, ""
	m.enter(now, messages.StateStarting, reason, time.Time{})
	m.do(cmdRequestSlot{m.gen})
	m.setTimer(timerSlot, slotAgain)
}

func (m *machine) slotGranted(e evSlot) {
	if m.phase != phaseWaiting || m.gen != e.Gen {
		m.do(cmdReleaseSlot{e.Gen}) // withdrawn meanwhile
		return
	}
	m.cancel(timerSlot)
	m.phase = phaseLive
	m.spawns++
	m.noise, m.row.NoiseLines = false, 0
	m.setTimer(timerStart, max(m.cfg.Timeouts.Start, m.cfg.Timeouts.FirstStart)+startGrace)
	m.do(cmdSpawn{m.gen})
}

// releaseSlot gives the slot back, once.
func (m *machine) releaseSlot() {
	m.cancel(timerSlot)
	if m.slot {
		m.slot = false
		m.do(cmdReleaseSlot{m.gen})
	}
}

func (m *machine) spawned(e evSpawned) {
	if !m.current(e.Gen) {
		return
	}
	m.releaseSlot()
	m.row.PID = e.PID
	m.do(cmdEmit{m.about(messages.Event{Type: messages.EventServerSpawned, PID: e.PID})})
	m.show()
	if e.PID > 0 {
		m.say("started: generation %d, pid %d", m.gen, e.PID)
	} else {
		m.say("connecting: generation %d", m.gen)
	}
}

func (m *machine) ready(now time.Time, e evReady) {
	if !m.current(e.Gen) || m.stopping || m.lost {
		return
	}
	m.releaseSlot()
	m.cancel(timerStart)
	if planted.Is(planted.BackoffResetAtReady) {
		m.pol.forget()
	}
	m.wasReady = true
	m.row.PID, m.row.Protocol, m.row.Instructions = e.Info.PID, e.Info.Protocol, e.Info.Instructions
	m.row.Issues = nil // what was damaged is written anew
	if e.Info.Transport != "" {
		m.row.Transport = e.Info.Transport
	}
	m.listed(e.Listing) // before the state, so that whoever sees `ready` sees the tools
	m.enter(now, messages.StateReady, "", time.Time{})
	m.do(cmdSessionUp{m.gen})
	m.setTimer(timerStable, m.pol.cfg.ResetAfter)
	n := len(e.Listing.Tools)
	m.do(cmdEmit{m.about(messages.Event{Type: messages.EventServerReady, PID: e.Info.PID, Count: n})})
	m.say("ready: generation %d, %d tools", m.gen, n)
}

// listed takes a listing over.
func (m *machine) listed(l messages.Listing) {
	m.listing = &l
	m.row.Tools = len(l.Tools)
	m.do(cmdRegistry{messages.ListingChanged{Key: m.key(), Listing: l}})
}

// lose is the first word of an end: nobody may take the server for ready any more,
// though the next generation waits for the proof that this one is dead.
func (m *machine) lose(now time.Time, e evLost) {
	if !m.current(e.Gen) || m.stopping || m.state != messages.StateReady {
		return
	}
	m.lost = true
	m.cancel(timerStable)
	m.setTimer(timerStop, stopGrace)
	if planted.Is(planted.SuccessorTooEarly) {
		m.lost = false
		m.cancel(timerStop)
		m.begin(now, "the connection was lost")
		return
	}
	m.enter(now, messages.StateStarting, "the connection was lost; what is left of the process is being ended", time.Time{})
}

// down is the one end of every incarnation.
func (m *machine) down(now time.Time, random float64, e evDown) {
	if !m.current(e.Gen) {
		return
	}
	exit := e.Exit
	exit.Clean = exit.Clean && m.wasReady // before that it is no clean end
	if m.overdue {
		exit.Reason, exit.Stage = "no answer within the start budget", messages.StageHandshake
	}
	m.phase = phaseNone
	m.releaseSlot()
	m.cancel(timerStart, timerStable, timerStop, timerDrain)
	m.row.PID = 0
	m.row.LastExit = &exit
	m.do(cmdRouter{m.downOf(exit)})
	m.do(cmdEmit{m.about(messages.Event{Type: messages.EventServerExited, Reason: exit.Reason, Stage: exit.Stage})})
	asked := m.stopping && !m.overdue
	m.stopping, m.lost = false, false
	m.adoptNext()

	switch {
	case exit.TreeAlive:
		m.treeAlive = true
		m.warn("generation %d ended (%s), but its processes could not be proven dead: no next one until `bridgectl reset %s`", m.gen, withHint(exit), m.cfg.Name)
		m.enter(now, messages.StateQuarantined, reasonTreeAlive, time.Time{})
		if m.closing {
			m.do(cmdOver{})
		}
	case m.closing:
		m.enter(now, messages.StateStopped, "the bridge closes", time.Time{})
		m.do(cmdOver{})
	case m.leaving:
		m.leave(now)
	case m.goal == goalReload, !m.meant():
		m.boot(now)
	case m.goal == goalStop:
		m.say("stopped: generation %d", m.gen)
		m.enter(now, messages.StateStopped, m.goalWhy, time.Time{})
	case m.goal == goalStart && asked:
		m.begin(now, m.goalWhy)
	case exit.Blocked:
		m.warn("waits for a person: %s", withHint(exit))
		m.enter(now, messages.StateBlocked, reasonAuth, time.Time{})
	case m.failedEarly(now, exit):
	default:
		m.decide(now, m.pol.ended(now, random, exit), exit)
	}
}

// decide carries out the policy's word.
func (m *machine) decide(now time.Time, d decision, exit messages.Exit) {
	what := fmt.Sprintf("generation %d failed (%s): %s", m.gen, exit.Stage, withHint(exit))
	if planted.Is(planted.BackoffIgnored) {
		d.Delay = 0
	}
	switch d.Action {
	case actRestart:
		if d.Delay <= 0 {
			m.warn("%s; restarting at once", what)
			m.begin(now, d.Reason)
			return
		}
		m.warn("%s; next try in %s", what, d.Delay.Round(time.Millisecond))
		m.enter(now, messages.StateBackoff, d.Reason, now.Add(d.Delay))
		m.setTimer(timerRetry, d.Delay)
	case actQuarantine:
		m.warn("%s; quarantined (%s), one try in %s, or `bridgectl reset %s`", what, d.Reason, d.Delay, m.cfg.Name)
		m.enter(now, messages.StateQuarantined, d.Reason, now.Add(d.Delay))
		m.setTimer(timerCooldown, d.Delay)
	default:
		m.say("generation %d ended (%s): not restarted until it is asked for", m.gen, exit.Reason)
		m.enter(now, messages.StateIdle, d.Reason, time.Time{})
	}
}

// timer takes a timer's message; one that was cancelled or replaced is stale.
func (m *machine) timer(now time.Time, e evTimer) {
	if token, ok := m.timers[e.Kind]; !ok || token != e.Token {
		return
	}
	delete(m.timers, e.Kind)
	switch e.Kind {
	case timerRetry:
		if m.state == messages.StateBackoff || planted.Is(planted.StoppedRevived) && m.phase == phaseNone {
			m.tryAgain(now)
		}
	case timerCooldown:
		if m.state == messages.StateQuarantined && !m.treeAlive {
			m.pol.tryOnce()
			m.begin(now, "one try after the cool-down")
		}
	case timerStable:
		if m.state == messages.StateReady {
			m.pol.forget()
		}
	case timerDrain:
		if m.state == messages.StateDraining {
			m.endDrain(now, "the time to drain is over")
		}
	case timerStart:
		if m.phase == phaseLive && !m.stopping {
			m.overdue = true
			m.stopSession(m.ladder(), "the start did not end within its budget")
		}
	case timerSlot:
		if m.phase == phaseWaiting {
			m.do(cmdRequestSlot{m.gen})
			m.setTimer(timerSlot, slotAgain)
		}
	case timerStop:
		if m.phase == phaseLive {
			m.do(cmdAbandon{m.gen})
		}
	}
}

// ladder is the server's own stop ladder.
func (m *machine) ladder() messages.Ladder {
	return messages.Ladder{StdinClose: m.cfg.Timeouts.StdinClose, SigTerm: m.cfg.Timeouts.SigTerm, Kill: killWait}
}

// killWait is how long a proof of death may take after SIGKILL.
const killWait = 2 * time.Second

// stopSession asks the live session to end; a second time only shortens.
func (m *machine) stopSession(l messages.Ladder, reason string) {
	m.stopping = true
	m.cancel(timerStart, timerStable, timerDrain)
	m.setTimer(timerStop, l.StdinClose+l.SigTerm+l.Kill+stopGrace)
	m.do(cmdStopSession{m.gen, l, reason})
}
