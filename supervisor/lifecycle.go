package supervisor

import (
	"time"

	"mcpbridge/messages"
)

// The words between the life-cycle machine and its shell. Events go in, commands
// come out; the machine itself does nothing.

// event is the closed set of what can happen to a server.
type event interface{ event() }

type (
	// evBoot is the first event of every machine.
	evBoot struct{}
	// evSlot is the spawn limiter's grant.
	evSlot struct{ Gen uint64 }
	// evSpawned says that the process runs, or the connection is being made.
	evSpawned struct {
		Gen uint64
		PID int
	}
	// evReady says that handshake and first listing are done.
	evReady struct {
		Gen     uint64
		Info    messages.PeerInfo
		Listing messages.Listing
	}
	// evListed brings a later listing.
	evListed struct {
		Gen     uint64
		Listing messages.Listing
	}
	// evNoise counts stdout lines that were no JSON-RPC.
	evNoise struct {
		Gen      uint64
		Lines    uint64
		Degraded bool
	}
	// evLost says that the peer is gone; what is left of it is being ended.
	evLost struct{ Gen uint64 }
	// evDown says that the session actor is gone; Exit tells how.
	evDown struct {
		Gen  uint64
		Exit messages.Exit
	}
	// evTimer is a timer that was set by cmdSetTimer.
	evTimer struct {
		Kind  timerKind
		Token uint64
	}
	// evRecycle is the router's wish for a proof of death.
	evRecycle struct {
		Gen    uint64
		Reason string
	}
	// evDrained says that nothing is in flight any more.
	evDrained struct{}
	// evWake says that somebody waits for a server that is idle.
	evWake struct{}
	// evOperate is a person's wish; it is answered by cmdAnswer.
	evOperate struct{ Verb messages.Verb }
	// evStopAll is the end of the bridge; it is answered by cmdOver.
	evStopAll struct{ Ladder messages.Ladder }
)

func (evBoot) event()    {}
func (evSlot) event()    {}
func (evSpawned) event() {}
func (evReady) event()   {}
func (evListed) event()  {}
func (evNoise) event()   {}
func (evLost) event()    {}
func (evDown) event()    {}
func (evTimer) event()   {}
func (evRecycle) event() {}
func (evDrained) event() {}
func (evWake) event()    {}
func (evOperate) event() {}
func (evStopAll) event() {}

// timerKind names the timers of a server. At most one of a kind is live.
type timerKind string

const (
	timerRetry    timerKind = "retry"    // backoff is over
	timerCooldown timerKind = "cooldown" // quarantine is over
	timerStable   timerKind = "stable"   // reset_after of readiness
	timerDrain    timerKind = "drain"    // calls in flight had their time
	timerStart    timerKind = "start"    // a dial that answers nothing, not even that its budget is spent
	timerStop     timerKind = "stop"     // a session that does not end
	timerSlot     timerKind = "slot"     // a spawn slot that was asked for and not granted
)

// command is the closed set of what the machine asks its shell to do.
type command interface{ command() }

type (
	cmdRequestSlot struct{ Gen uint64 }
	cmdReleaseSlot struct{ Gen uint64 } // held or only wished for
	cmdSpawn       struct{ Gen uint64 }
	cmdStopSession struct {
		Gen    uint64
		Ladder messages.Ladder
		Reason string
	}
	// cmdAbandon ends a session actor that does not end by itself. The shell then
	// reports evDown with TreeAlive: nothing is proven.
	cmdAbandon  struct{ Gen uint64 }
	cmdSetTimer struct {
		Kind  timerKind
		Token uint64
		After time.Duration
	}
	cmdCancelTimer struct{ Kind timerKind }
	// cmdRouter sends a message to the router.
	cmdRouter struct{ Message messages.Message }
	// cmdSessionUp sends SessionUp to the router, with the session as sender.
	cmdSessionUp struct{ Gen uint64 }
	// cmdRegistry sends a message to the registry.
	cmdRegistry struct{ Message messages.Message }
	cmdEmit     struct{ Event messages.Event }
	// cmdSay writes a life-cycle line for `logs`.
	cmdSay struct {
		Text string
		Bad  bool // a person may have to do something about it
	}
	// cmdAnswer answers evOperate.
	cmdAnswer struct{ Err error }
	// cmdOver says that the server is down for good (after evStopAll).
	cmdOver struct{}
)

func (cmdRequestSlot) command() {}
func (cmdReleaseSlot) command() {}
func (cmdSpawn) command()       {}
func (cmdStopSession) command() {}
func (cmdAbandon) command()     {}
func (cmdSetTimer) command()    {}
func (cmdCancelTimer) command() {}
func (cmdRouter) command()      {}
func (cmdSessionUp) command()   {}
func (cmdRegistry) command()    {}
func (cmdEmit) command()        {}
func (cmdSay) command()         {}
func (cmdAnswer) command()      {}
func (cmdOver) command()        {}
