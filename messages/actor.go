package messages

import (
	"encoding/json"
	"time"
)

// Message is the closed set of what the bridge's actors say to each other; doc.go
// tells who sends what to whom. Protoactor's own system messages come beside it.
type Message interface{ message() }

// ServerLimits are the scheduling facts of one server, as configured.
type ServerLimits struct {
	Remote         bool // HTTP: there is no proof of death
	MaxReads       int
	MaxSideEffects int
	Serial         bool // isolation: serial (reads may overlap a side effect)
	Queue          int  // calls that may wait
	QueueBytes     int64
	CallTimeout    time.Duration
	AbandonAfter   time.Duration // 0 = never
	ResultBytes    int64
	LaneGroup      string // servers of one group share one side-effect lane; "" for none
}

// Ladder is how a session is stopped: close stdin, wait StdinClose, SIGTERM the
// group, wait SigTerm, SIGKILL, and give Kill for the proof of death. A zero step
// is skipped at once.
type Ladder struct {
	StdinClose time.Duration
	SigTerm    time.Duration
	Kill       time.Duration
}

// --- to the router --------------------------------------------------------------

// Submit hands a call to the router. Reply has capacity one and receives exactly
// one Outcome.
type Submit struct {
	Call     CallTool
	Accepted time.Time
	Checked  CheckedArgs
	Reply    chan<- Outcome
	// ArgsDigest is the keyed digest of the arguments, computed by the caller's
	// goroutine on Checked.Args; "" lets the router compute it where it is needed.
	ArgsDigest string
	// Prior is what the journal knew of the call's idempotency key just before this
	// message was sent; nil for nothing. It counts only where the router itself, who
	// knows this run, has no word on the key. PriorServer and PriorTool (the server's
	// own name) say which tool it was asked about; the router asks again, by itself,
	// where that is not the tool that the call turns out to mean.
	Prior       *JournalEntry
	PriorServer string
	PriorTool   string
}

// CheckedArgs is the argument check, done by the caller's goroutine on the snapshot
// that it saw so that the router need not: it counts only while Version is the
// router's own catalogue version, and the router checks again otherwise.
type CheckedArgs struct {
	Version uint64          // 0 = not checked
	Args    json.RawMessage // normalised: a JSON object
	Err     string          // "" = fine
	LaneKey string          // the value that splits the lane, see Tool.Limits.LaneKey
}

// Cancel asks to end a call. With Left the caller is gone, so a call that was
// dispatched is settled at once; without it the server's answer still counts
// inside the deadline. Found (may be nil, capacity one) hears whether the id was known.
type Cancel struct {
	CallID string
	Left   bool
	Found  chan<- bool
}

// HoldFrom is the size in bytes from which on a result is counted until it is delivered.
const HoldFrom = 64 << 10

// Delivered says that the result of a call is out of the bridge's hands.
type Delivered struct{ CallID string }

// ServerConfigured tells the router that a server exists and how to schedule it.
type ServerConfigured struct {
	Key    Key
	Limits ServerLimits
}

// ServerRemoved tells the router that a server is gone from the configuration.
type ServerRemoved struct{ Key Key }

// ServerStateChanged follows each change of a server's life-cycle state.
type ServerStateChanged struct {
	Key       Key
	State     State
	Reason    string
	NextRetry time.Time
}

// SessionUp opens a server's lane. The sender of the message is the session itself. It
// goes by way of the registry, behind the listing that came with the session: no call is
// handed out before the router knows what the server offers now.
type SessionUp struct {
	Key Key
	Gen uint64
}

// SessionLost comes from the session as soon as its peer is gone: the router
// dispatches nothing more to it (its workers bring their own CallDone), and
// server/<name> no longer calls it ready.
type SessionLost struct {
	Key Key
	Gen uint64
}

// SessionDown comes from server/<name> when the incarnation is over. Proven says
// that its process tree is dead, so that fenced lanes open.
type SessionDown struct {
	Key    Key
	Gen    uint64
	Proven bool
	Reason string
}

// CallDone brings the reply of one attempt from its worker.
type CallDone struct {
	Key     Key
	Gen     uint64
	CallID  string
	Attempt int
	Reply   Reply
}

// CallProgress says that a server reported progress on a call.
type CallProgress struct {
	Key    Key
	Gen    uint64
	CallID string
}

// Recorded answers a DispatchRecord: the call may be handed out, or with Err, which
// says why it is not durable, must not be. Token tells the answer from one to an
// earlier call that had the same id.
type Recorded struct {
	CallID  string
	Attempt int
	Token   uint64
	Err     string
}

// PriorFound answers the router's own question to the journal about a key.
type PriorFound struct {
	CallID string
	Token  uint64
	Entry  *JournalEntry // nil for nothing
}

// FenceAtStart says that the journal has an open side effect of an earlier life of
// the bridge, of a server without a proof of death: its lane is held until Until
// (zero = until the server is stopped), and then released with a possible_overlap.
// It must be sent before the first SessionUp of that server to be of use, and may
// be sent before the server is configured.
type FenceAtStart struct {
	Key    Key
	CallID string
	Tool   string // the server's own name
	Client string
	At     time.Time // when it was dispatched
	Until  time.Time
}

// QueryApprovals asks for the calls that wait for a person.
type QueryApprovals struct{ Reply chan<- []Approval }

// DecideApproval is a person's answer to one of them. Reply (capacity one) hears
// what was decided, or nil for an id that is not known (any longer).
type DecideApproval struct {
	ID      string
	Approve bool
	Reply   chan<- *Approval
}

// TakeGrants asks for the grants that were not used, and takes them from the router.
type TakeGrants struct{ Reply chan<- []CallGrant }

// RestoreGrants brings those of an earlier life.
type RestoreGrants struct{ Grants []CallGrant }

// Answered brings what an asker said about a call, to the question with the token.
// Cannot says that there was nobody to ask; Err is why a no is a failure.
type Answered struct {
	CallID string
	Token  uint64
	Yes    bool
	Cannot bool
	Err    string
}

// PolicyChanged says that the gate's rules are others now: what waits is judged
// again before it is sent.
type PolicyChanged struct{}

// PatienceChanged brings other bounds for calls to come: how long one waits for a
// server's first list, and how many one client may have waiting (0 = the default).
type PatienceChanged struct {
	ListWait    time.Duration
	ClientQueue int
}

// CatalogueChanged brings the registry's newest snapshot.
type CatalogueChanged struct{ Catalogue *Catalogue }

// DrainServer asks the router to settle a server's queue as not sent and to answer
// ServerDrained when nothing is in flight.
type DrainServer struct{ Key Key }

// DrainAll is DrainServer for everything, and closes the door: later calls are
// rejected as draining. Done (capacity one) hears when nothing is in flight.
type DrainAll struct{ Done chan<- struct{} }

// QueryCalls asks for the in-flight and queued calls, and per key for the two counts.
type QueryCalls struct{ Reply chan<- CallsReport }

// CallsReport answers QueryCalls.
type CallsReport struct {
	Calls    []CallInfo
	InFlight map[Key]int
	Queued   map[Key]int
}

// Tick is the router's own timer.
type Tick struct{}

// --- from the router ------------------------------------------------------------

// Execute asks a session for one attempt of a call.
type Execute struct{ Exec Exec }

// CancelExec asks a session to tell its server that a call is no longer wanted.
// The worker goes on waiting: its CallDone opens the lane.
type CancelExec struct {
	Key     Key
	Gen     uint64
	CallID  string
	Attempt int
	Reason  string
}

// RecycleServer asks for the end of one incarnation, which proves that an
// abandoned call runs no longer. It is no failure of the restart policy.
type RecycleServer struct {
	Key    Key
	Gen    uint64
	Reason string
}

// ServerDrained answers DrainServer.
type ServerDrained struct{ Key Key }

// WakeServer says that a call waits for a server that is idle.
type WakeServer struct{ Key Key }

// Retell says that somebody lost a message to a bug: every server is to tell router and
// registry again what they should know of it.
type Retell struct{}

// --- session and server ---------------------------------------------------------

// SessionSpawned says that the process runs (or the connection is being made):
// the spawn slot is free and the start budget counts.
type SessionSpawned struct {
	Key Key
	Gen uint64
	PID int
}

// SessionReady says that the handshake and the first full listing are done.
type SessionReady struct {
	Key     Key
	Gen     uint64
	Info    PeerInfo
	Listing Listing
}

// ToolsListed brings a later listing, after list_changed. Failed says that there is
// none: Listing is the one before, with an issue.
type ToolsListed struct {
	Key     Key
	Gen     uint64
	Listing Listing
	Failed  bool
}

// SessionNoise counts stdout lines that were no JSON-RPC, since the session began.
type SessionNoise struct {
	Key      Key
	Gen      uint64
	Lines    uint64
	Degraded bool // too much of it
}

// SessionEnded tells how a session ended that was asked to.
type SessionEnded struct {
	Key  Key
	Gen  uint64
	Exit Exit
}

// StopSession asks a session to end by the ladder. A second one may only shorten it.
type StopSession struct {
	Gen    uint64
	Ladder Ladder
	Reason string
}

// SlotRequest asks the spawn limiter for a slot. SlotGrant and SlotRelease are its
// other two words.
type SlotRequest struct {
	Key Key
	Gen uint64
}

// SlotGrant allows one spawn.
type SlotGrant struct {
	Key Key
	Gen uint64
}

// SlotRelease gives the slot back.
type SlotRelease struct {
	Key Key
	Gen uint64
}

// Verb is what an operator may ask of a server.
type Verb string

// The verbs of the contract.
const (
	VerbStart   Verb = "start"
	VerbStop    Verb = "stop"
	VerbRestart Verb = "restart"
	VerbReset   Verb = "reset"
	VerbDrain   Verb = "drain"
)

// Operate carries an operator's wish to one server. Reply has capacity one and
// hears nil, or why it cannot be.
type Operate struct {
	Name  string
	Verb  Verb
	Reply chan<- error
}

// ServerTimer is a timer of server/<name>. Token tells a live timer from a stale one.
type ServerTimer struct {
	Key   Key
	Kind  string
	Token uint64
}

// StopAll asks `servers` to end every server by the ladder; Done (capacity one)
// hears when no session is left.
type StopAll struct {
	Ladder Ladder
	Done   chan<- struct{}
}

// --- to the registry ------------------------------------------------------------

// ServerChanged brings a server's newest status row.
type ServerChanged struct{ Status ServerStatus }

// ListingChanged brings a server's newest definitions.
type ListingChanged struct {
	Key     Key
	Listing Listing
}

// ServerGone takes a server out of status and catalogue.
type ServerGone struct{ Key Key }

// PinsChanged says that a person has judged definitions of a server.
type PinsChanged struct{ Server string }

// Snapshot is what the registry publishes: everything that a question about the
// bridge needs, immutable.
type Snapshot struct {
	Catalogue *Catalogue
	Servers   []ServerStatus
	Issues    []Issue
	Counts    Counts
}

func (Submit) message()             {}
func (Cancel) message()             {}
func (Delivered) message()          {}
func (ServerConfigured) message()   {}
func (ServerRemoved) message()      {}
func (ServerStateChanged) message() {}
func (SessionUp) message()          {}
func (SessionLost) message()        {}
func (SessionDown) message()        {}
func (CallDone) message()           {}
func (CallProgress) message()       {}
func (Recorded) message()           {}
func (PriorFound) message()         {}
func (FenceAtStart) message()       {}
func (QueryApprovals) message()     {}
func (DecideApproval) message()     {}
func (Answered) message()           {}
func (TakeGrants) message()         {}
func (RestoreGrants) message()      {}
func (PolicyChanged) message()      {}
func (PatienceChanged) message()    {}
func (PinsChanged) message()        {}
func (CatalogueChanged) message()   {}
func (DrainServer) message()        {}
func (DrainAll) message()           {}
func (QueryCalls) message()         {}
func (Tick) message()               {}
func (Execute) message()            {}
func (CancelExec) message()         {}
func (RecycleServer) message()      {}
func (ServerDrained) message()      {}
func (WakeServer) message()         {}
func (Retell) message()             {}
func (SessionSpawned) message()     {}
func (SessionReady) message()       {}
func (ToolsListed) message()        {}
func (SessionNoise) message()       {}
func (SessionEnded) message()       {}
func (StopSession) message()        {}
func (SlotRequest) message()        {}
func (SlotGrant) message()          {}
func (SlotRelease) message()        {}
func (Operate) message()            {}
func (ServerTimer) message()        {}
func (StopAll) message()            {}
func (ServerChanged) message()      {}
func (ListingChanged) message()     {}
func (ServerGone) message()         {}
