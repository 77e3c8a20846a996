package messages

import (
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"
)

// CallTool is a caller's wish, as it comes through the endpoint, the control
// socket or the library.
type CallTool struct {
	// ID names the call everywhere; the bridge assigns one when it is empty.
	ID string
	// Tool is the full name (mcp__fs__read_file), the endpoint name
	// (fs__read_file) or server/tool (fs/read_file). With Server set it is the
	// server's own name for the tool.
	Tool   string
	Server string
	// Args is the arguments object as the caller wrote it; nil, empty and null
	// mean {} (requirement D1).
	Args json.RawMessage
	// Meta is the caller's _meta object for the server, without the keys that
	// belong to the two hops themselves (progressToken, io.modelcontextprotocol/*,
	// mcpbridge/*); nil for none.
	Meta json.RawMessage
	// Timeout is relative to now, Deadline absolute; the earlier one counts, and
	// the configured call timeout where it is earlier than both. Zero = not given.
	// A negative Timeout is invalid_arguments.
	Timeout  time.Duration
	Deadline time.Time
	// Client is who calls: the token's name, `local` for the control socket,
	// `library`, or `anonymous`. It authorises nothing by itself.
	Client string
	// View binds the call to a view of the catalogue; "" for all.
	View string
	// IdempotencyKey makes repetitions of one call safe (semantics section 1): 1 to 256
	// printable characters, "" for none. Its scope is client, server and tool.
	IdempotencyKey string
	// OnProgress receives the params object of each notifications/progress of the
	// server, byte for byte but for the progressToken, in order, before the
	// outcome. It must not block; nil for not wanted.
	OnProgress func(params json.RawMessage)
	// Keeps says that the caller goes on holding the result after Call has returned, to
	// write it to somebody, and says Backend.Delivered when an Outcome that is Held is
	// out of its hands: until then it counts against the server that sent it.
	Keeps bool
	// Digest is the definition that the caller has seen (Tool.Digest): a tool that has
	// another one by now is not called (tool_changed). "" for whatever it is.
	Digest string
	// Ask puts a call that needs approval to whoever calls, and returns the answer; nil
	// for nobody there. It runs on a goroutine of its own, ctx ends with the call, and an
	// error is a no, but for ErrCannotAsk. An approver of the bridge comes before it.
	Ask Asker
	// DryRun asks for the decision only: the outcome is ok with a Result that
	// describes gate and lane, and nothing is sent.
	DryRun bool
}

// Boundary is the one compare-and-swap between "not one byte has left" and "a byte
// may have left" (semantics section 1). A worker calls Enter immediately before
// the first byte can leave; whoever wants to settle the call as not sent calls
// Void. Exactly one of them wins, once. The zero value is pending.
//
//	pending ──Enter──► entered
//	   └─────Void────► void
type Boundary struct {
	state  atomic.Uint32
	mu     sync.Mutex    // orders Void and Voided; Enter never takes it
	voided chan struct{} // made by the first Voided
}

const (
	boundaryPending uint32 = iota
	boundaryEntered
	boundaryVoid
)

// Enter moves pending → entered; false means that the call is void and must not be written.
func (b *Boundary) Enter() bool { return b.state.CompareAndSwap(boundaryPending, boundaryEntered) }

// Void moves pending → void; false means that a byte may have left already.
func (b *Boundary) Void() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.state.CompareAndSwap(boundaryPending, boundaryVoid) {
		return false
	}
	if b.voided != nil {
		close(b.voided)
	}
	return true
}

// Voided is closed once the call is void, so that a worker that waits for its turn
// to write can give up. It costs an allocation: ask only when there is a wait.
func (b *Boundary) Voided() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.voided == nil {
		b.voided = make(chan struct{})
		if b.state.Load() == boundaryVoid {
			close(b.voided)
		}
	}
	return b.voided
}

// Entered reports whether a byte may have left.
func (b *Boundary) Entered() bool { return b.state.Load() == boundaryEntered }

// Exec is one attempt of a call, handed by the router to a session.
type Exec struct {
	Key      Key
	Gen      uint64 // the incarnation that is asked; others drop it
	CallID   string
	Attempt  int // from 1
	Remote   string
	Args     json.RawMessage // a JSON object, already checked
	Meta     json.RawMessage // a JSON object, or nil
	Boundary *Boundary
	Progress func(params json.RawMessage) // never nil; called by the reader, must not block
	Deadline time.Time                    // for HTTP header time-outs only: the router owns the deadline
}

// ReplyKind tells how one attempt ended below the router.
type ReplyKind uint8

// The kinds of reply. Every Exec gets exactly one.
const (
	// ReplyNotEntered: the boundary was not passed: not one byte left.
	ReplyNotEntered ReplyKind = iota
	// ReplyResult: the server sent a result; Raw is the result object.
	ReplyResult
	// ReplyError: the server sent a JSON-RPC error; Raw is the error object.
	ReplyError
	// ReplyLost: entered, and no answer can come any more (crash, reset, closed stream).
	ReplyLost
	// ReplyTooLarge: the answer came but was over the frame cap; the session lives.
	ReplyTooLarge
	// ReplyProtocol: an answer came that is no answer (neither result nor error).
	ReplyProtocol
	// ReplyUnsent: entered, and then not one byte could be written: the server took
	// nothing of it, which is as certain as if the boundary had not been passed.
	ReplyUnsent
)

var replyNames = [...]string{ReplyNotEntered: "not_entered", ReplyResult: "result", ReplyError: "error",
	ReplyLost: "lost", ReplyTooLarge: "too_large", ReplyProtocol: "protocol", ReplyUnsent: "unsent"}

// String names the kind for logs and tests.
func (k ReplyKind) String() string { return enumName(replyNames[:], int(k), "reply") }

// Reply is what a session's worker brings back.
type Reply struct {
	Kind ReplyKind
	Raw  json.RawMessage
	Err  string // why, for NotEntered, Lost, TooLarge and Protocol; redacted
	// Proven is set with ReplyLost when the server certainly works no longer on
	// the call (its process tree is dead, or never was reached).
	Proven bool
	// After is how long the server asked to be left alone, with NotEntered and Lost.
	After time.Duration
}

// CallState says where a call is.
type CallState string

// A call is queued, then running; `waiting` is a call for a server that has not
// listed its tools yet, `recording` one that is sent as soon as the journal has it,
// `joined` one that waits for the outcome of another with its idempotency key,
// `fenced` one whose outcome was given but whose lane is held.
const (
	CallWaiting CallState = "waiting"
	CallQueued  CallState = "queued"
	CallRunning CallState = "running"
	CallFenced  CallState = "fenced"

	CallRecording CallState = "recording"
	CallJoined    CallState = "joined"
)

// CallInfo is a row of `calls -o json`.
type CallInfo struct {
	CallID     string    `json:"call_id"`
	Tool       string    `json:"tool"`
	Server     string    `json:"server"`
	State      CallState `json:"state"`
	Lane       string    `json:"lane"` // "read" | "side_effect"
	Position   int       `json:"position"`
	AgeMS      float64   `json:"age_ms"`
	BlockedBy  []string  `json:"blocked_by"`
	Client     string    `json:"client"`
	Generation uint64    `json:"generation"`
	Attempt    int       `json:"attempt"`
	// LaneKey is the value (as JSON) that splits the lane, LaneGroup the servers that
	// share it; "" where there is none.
	LaneKey   string `json:"lane_key,omitempty"`
	LaneGroup string `json:"lane_group,omitempty"`
}
