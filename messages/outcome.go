package messages

import (
	"encoding/json"
	"time"
)

// OutcomeKind is what became of a call (semantics section 1). Every accepted call
// gets exactly one.
//
//	Submit ──► rejected                      never accepted
//	   │
//	   ▼ accepted
//	queued ──────────► not_sent              provably not one byte left
//	   │ boundary: pending → entered
//	   ▼
//	dispatched ──────► ok | tool_error       the server answered
//	   └─────────────► outcome_unknown       a byte may have left, no answer was read
type OutcomeKind uint8

// The five outcomes. The zero value claims the least.
const (
	OutcomeUnknown OutcomeKind = iota
	OK
	ToolError
	Rejected
	NotSent
)

var outcomeNames = [...]string{OutcomeUnknown: "outcome_unknown", OK: "ok", ToolError: "tool_error", Rejected: "rejected", NotSent: "not_sent"}

// String returns the word used in JSON.
func (o OutcomeKind) String() string { return enumName(outcomeNames[:], int(o), "outcome") }

// MarshalText implements encoding.TextMarshaler.
func (o OutcomeKind) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (o *OutcomeKind) UnmarshalText(b []byte) error {
	i, err := enumIndex(outcomeNames[:], string(b), "outcome")
	*o = OutcomeKind(i)
	return err
}

// Code says why a call ended as it did; empty for ok. See the table in errors.go.
type Code string

// The codes of the contract.
const (
	CodeNone                Code = ""
	CodeToolError           Code = "tool_error"
	CodeResultTooLarge      Code = "result_too_large"
	CodeProtocolError       Code = "protocol_error"
	CodeDenied              Code = "denied"
	CodeApprovalRequired    Code = "approval_required"
	CodeUnknownTool         Code = "unknown_tool"
	CodeToolChanged         Code = "tool_changed"
	CodeInvalidArguments    Code = "invalid_arguments"
	CodeIdempotencyConflict Code = "idempotency_conflict"
	CodeOverloaded          Code = "overloaded"
	CodeDraining            Code = "draining"
	CodeJournalUnavailable  Code = "journal_unavailable"
	CodeUnavailable         Code = "unavailable"
	CodeExpired             Code = "expired"
	CodeCancelled           Code = "cancelled"
	CodeTimeout             Code = "timeout"
	CodeConnectionLost      Code = "connection_lost"
	CodeInternal            Code = "internal"
)

// ResultScheme is how the URI of a result that was cut begins; its id follows.
const ResultScheme = "mcpbridge://results/"

// Outcome is the one answer to a call.
type Outcome struct {
	CallID string
	// FirstID is the call whose outcome this is, where an idempotency key joined the
	// two; "" for a call's own outcome.
	FirstID    string
	Tool       string // the full local name, or what the caller asked for where it is unknown
	Server     string
	RemoteTool string
	Effect     Effect
	Kind       OutcomeKind
	Code       Code
	Message    string // why, for people; "" for an ok, unless a key joined it to another call
	Hint       string // what to do about it; may be ""
	ApprovalID string // with CodeApprovalRequired: what `bridgectl approve` takes; "" where this call cannot be approved

	// Result holds the server's result object byte for byte (ok, and tool_error
	// with isError); RPCError the server's JSON-RPC error object byte for byte.
	// At most one is set.
	Result   json.RawMessage
	RPCError json.RawMessage
	// Truncated says that Result (or RPCError) was cut to limits.result_bytes; ResultURI
	// then names the resource under which the same client can read the whole for a while
	// (requirement D7).
	Truncated bool
	ResultURI string
	// Held is set when the router counts the result until it is delivered. Bridge.Call
	// sees to that by itself, unless the caller asked for it with CallTool.Keeps.
	Held bool

	Attempt        int    // 1 for the first dispatch; 0 when never dispatched
	Generation     uint64 // of the incarnation that was asked; 0 when none was
	Queued         time.Duration
	Ran            time.Duration
	Deadline       time.Time
	DeadlineSource DeadlineSource
	RetryAfter     time.Duration // with CodeOverloaded: when another try is worth it
}

// DeadlineSource says whose deadline governed the call (requirement D3).
type DeadlineSource string

// The two owners of a deadline.
const (
	DeadlineCaller DeadlineSource = "caller"
	DeadlineConfig DeadlineSource = "config"
)

// Sent reports whether at least one byte of the call may have left for the server.
// A dry run is ok without an attempt.
func (o Outcome) Sent() bool {
	switch o.Kind {
	case OK:
		return o.Attempt > 0
	case ToolError, OutcomeUnknown:
		return true
	default:
		return false
	}
}

// SafeToRetry follows the table of semantics section 1: nothing was sent, or the
// outcome is unknown and the tool is read-only or idempotent.
func (o Outcome) SafeToRetry() bool {
	switch o.Kind {
	case Rejected, NotSent:
		return true
	case OutcomeUnknown:
		return o.Effect != SideEffect
	default:
		return false
	}
}

// Failed reports whether the outcome is anything but ok.
func (o Outcome) Failed() bool { return o.Kind != OK }

// errorJSON is the error object of `call -o json` and of the stderr line.
type errorJSON struct {
	Code        Code            `json:"code"`
	Message     string          `json:"message"`
	Server      string          `json:"server"`
	Tool        string          `json:"tool"`
	Sent        bool            `json:"sent"`
	SafeToRetry bool            `json:"safe_to_retry"`
	Hint        string          `json:"hint"`
	ApprovalID  string          `json:"approval_id,omitempty"`
	RetryAfter  float64         `json:"retry_after_ms,omitempty"`
	RPCError    json.RawMessage `json:"rpc_error,omitempty"`
}

// outcomeJSON is the object of `call -o json` (contract, section JSON).
type outcomeJSON struct {
	CallID         string          `json:"call_id"`
	Tool           string          `json:"tool"`
	Server         string          `json:"server"`
	RemoteTool     string          `json:"remote_tool"`
	Effect         Effect          `json:"effect"`
	Outcome        OutcomeKind     `json:"outcome"`
	Result         json.RawMessage `json:"result"`
	Text           string          `json:"text"`
	ContentCounts  map[string]int  `json:"content_counts"`
	Truncated      bool            `json:"truncated"`
	ResultURI      string          `json:"result_uri,omitempty"`
	Error          *errorJSON      `json:"error"`
	Sent           bool            `json:"sent"`
	SafeToRetry    bool            `json:"safe_to_retry"`
	Attempt        int             `json:"attempt"`
	Generation     uint64          `json:"generation"`
	QueuedMS       float64         `json:"queued_ms"`
	RanMS          float64         `json:"ran_ms"`
	Deadline       *time.Time      `json:"deadline"`
	DeadlineSource DeadlineSource  `json:"deadline_source"`
	FirstID        string          `json:"first_call_id,omitempty"`
	Note           string          `json:"note,omitempty"` // what the bridge has to say about an ok
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// errorObject is nil for ok.
func (o Outcome) errorObject() *errorJSON {
	if o.Kind == OK {
		return nil
	}
	return &errorJSON{o.Code, o.ErrorText(), o.Server, o.Tool, o.Sent(), o.SafeToRetry(), o.Hint, o.ApprovalID, ms(o.RetryAfter), o.RPCError}
}

// MarshalJSON renders the outcome as `call -o json` shows it.
func (o Outcome) MarshalJSON() ([]byte, error) {
	j := outcomeJSON{CallID: o.CallID, Tool: o.Tool, Server: o.Server, RemoteTool: o.RemoteTool, Effect: o.Effect,
		Outcome: o.Kind, Result: orNull(o.Result), Text: o.Text(), ContentCounts: o.ContentCounts(), Truncated: o.Truncated, ResultURI: o.ResultURI,
		Error: o.errorObject(), Sent: o.Sent(), SafeToRetry: o.SafeToRetry(), Attempt: o.Attempt, Generation: o.Generation,
		QueuedMS: ms(o.Queued), RanMS: ms(o.Ran), DeadlineSource: o.DeadlineSource, FirstID: o.FirstID}
	if o.Kind == OK {
		j.Note = o.Message
	}
	if !o.Deadline.IsZero() {
		j.Deadline = &o.Deadline
	}
	return marshalRaw(j)
}

// UnmarshalJSON reads what MarshalJSON wrote (used by the control client).
func (o *Outcome) UnmarshalJSON(b []byte) error {
	var j outcomeJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	*o = Outcome{CallID: j.CallID, Tool: j.Tool, Server: j.Server, RemoteTool: j.RemoteTool, Effect: j.Effect, Kind: j.Outcome,
		Result: fromNull(j.Result), Truncated: j.Truncated, ResultURI: j.ResultURI, Attempt: j.Attempt, Generation: j.Generation,
		Queued: time.Duration(j.QueuedMS * 1e6), Ran: time.Duration(j.RanMS * 1e6), DeadlineSource: j.DeadlineSource, FirstID: j.FirstID, Message: j.Note}
	if j.Deadline != nil {
		o.Deadline = *j.Deadline
	}
	if e := j.Error; e != nil {
		o.Code, o.Message, o.Hint, o.ApprovalID, o.RPCError = e.Code, e.Message, e.Hint, e.ApprovalID, e.RPCError
		o.RetryAfter = time.Duration(e.RetryAfter * 1e6)
	}
	return nil
}

// ErrorLine returns the one-line error object for stderr, or nil for ok:
// {"error":{"code","message","server","tool","sent","safe_to_retry","hint"}}.
func (o Outcome) ErrorLine() json.RawMessage {
	e := o.errorObject()
	if e == nil {
		return nil
	}
	b, err := marshalRaw(map[string]any{"error": e})
	if err != nil { // cannot happen: every field marshals
		return json.RawMessage(`{"error":{"code":"internal"}}`)
	}
	return b
}
