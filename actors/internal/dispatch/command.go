package dispatch

import (
	"encoding/json"
	"time"

	"mcpbridge/messages"
)

// Command is one thing that the shell is to do. The set is closed.
type Command interface{ command() }

// Execute hands one attempt to a session. Exec.Progress is nil: the shell sets it
// to a function that passes the params on to OnProgress (nil = not wanted) and
// tells the core with a CallProgress that the call is alive.
type Execute struct {
	Session    SessionRef
	Exec       messages.Exec
	OnProgress func(params json.RawMessage)
}

// Record asks the journal to make a dispatch durable; the shell answers with a
// messages.Recorded that carries the token.
type Record struct {
	Token  uint64
	Record messages.DispatchRecord
}

// RecordOutcome gives the journal the outcome of a recorded call. Nobody waits for it.
type RecordOutcome struct{ Record messages.OutcomeRecord }

// FindPrior asks the journal about an idempotency key, off the router's goroutine;
// the shell answers with a messages.PriorFound that carries the token.
type FindPrior struct {
	Token                     uint64
	CallID                    string
	Client, Server, Tool, Key string
}

// ToSession sends a message to a session.
type ToSession struct {
	Session SessionRef
	Message messages.Message
}

// ToServers sends a message to `servers`: RecycleServer, ServerDrained, WakeServer.
type ToServers struct{ Message messages.Message }

// Settle gives a call its one outcome. Reply has room for it.
type Settle struct {
	Reply   chan<- messages.Outcome
	Outcome messages.Outcome
}

// Emit takes an event into the bridge's history.
type Emit struct{ Event messages.Event }

// WakeAt asks for a Tick at that time; it replaces the one asked for before.
type WakeAt struct{ At time.Time }

// AnswerCalls answers QueryCalls.
type AnswerCalls struct {
	Reply  chan<- messages.CallsReport
	Report messages.CallsReport
}

// AnswerFound answers Cancel.Found.
type AnswerFound struct {
	Reply chan<- bool
	Found bool
}

// AnswerDrained answers DrainAll.Done.
type AnswerDrained struct{ Done chan<- struct{} }

// AnswerApprovals answers QueryApprovals.
type AnswerApprovals struct {
	Reply     chan<- []messages.Approval
	Approvals []messages.Approval
}

// AnswerGrants answers TakeGrants.
type AnswerGrants struct {
	Reply  chan<- []messages.CallGrant
	Grants []messages.CallGrant
}

// AnswerDecided answers DecideApproval; nil for an id that means nothing.
type AnswerDecided struct {
	Reply    chan<- *messages.Approval
	Approval *messages.Approval
}

// Ask puts a question to the asker of the call, or (Of nil) to the bridge's approver,
// off the router's goroutine; the shell answers with a messages.Answered that
// carries the token. Deadline is the call's.
type Ask struct {
	Token    uint64
	CallID   string
	Approval messages.Approval
	Deadline time.Time
	Of       messages.Asker
}

// StopAsking ends the context of a question whose answer counts no more.
type StopAsking struct{ Token uint64 }

func (AnswerApprovals) command() {}
func (AnswerDecided) command()   {}
func (AnswerGrants) command()    {}
func (Ask) command()             {}
func (StopAsking) command()      {}

func (Execute) command()       {}
func (Record) command()        {}
func (RecordOutcome) command() {}
func (FindPrior) command()     {}
func (ToSession) command()     {}
func (ToServers) command()     {}
func (Settle) command()        {}
func (Emit) command()          {}
func (WakeAt) command()        {}
func (AnswerCalls) command()   {}
func (AnswerFound) command()   {}
func (AnswerDrained) command() {}
