package messages

import (
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// EventType names what happened. The set is closed.
type EventType string

// Life cycle, catalogue and call events. Together they are the bridge's history:
// from it a checker can tell what was promised to whom, and when.
const (
	EventServerState     EventType = "server_state"      // State, Reason, Generation
	EventServerSpawned   EventType = "server_spawned"    // Generation, PID
	EventServerReady     EventType = "server_ready"      // Generation, PID, Count = tools
	EventServerExited    EventType = "server_exited"     // Generation, Reason, Stage
	EventServerRecycled  EventType = "server_recycled"   // Generation, Reason
	EventServerIssue     EventType = "server_issue"      // Stage, Tool, Message
	EventCatalogue       EventType = "catalogue_changed" // Count = tools on offer, Version
	EventCallAccepted    EventType = "call_accepted"     // CallID, Tool, Effect, Client, Deadline
	EventCallDispatched  EventType = "call_dispatched"   // CallID, Attempt, Generation
	EventCallRequeued    EventType = "call_requeued"     // CallID, Attempt, Reason
	EventCallCancel      EventType = "call_cancel"       // CallID: somebody asked
	EventCallSettled     EventType = "call_settled"      // CallID, Tool, Effect, Client, Outcome, Code, Attempt, Generation, QueuedMS, RanMS
	EventCallJoined      EventType = "call_joined"       // CallID, Reason = the call whose outcome it gets: nothing is sent for it, unless that one leaves before it was sent
	EventReplyLate       EventType = "reply_late"        // CallID, Generation: dropped
	EventLaneHeld        EventType = "lane_held"         // CallID, Generation: fenced
	EventLaneReleased    EventType = "lane_released"     // CallID, Reason
	EventPossibleOverlap EventType = "possible_overlap"  // CallID, Generation, Reason: an HTTP lane was released without proof
	EventDraining        EventType = "bridge_draining"
	EventOwnership       EventType = "ownership"      // State = guardian running, guardian down, rung …; Reason: who looks after processes has changed
	EventReloaded        EventType = "reloaded"       // Message: another configuration is in force
	EventReloadRefused   EventType = "reload_refused" // Message: the one before goes on
	EventGap             EventType = "gap"            // Count events were dropped for this subscriber
)

// What a person was asked, and said. Reason is the approval's id.
const (
	EventApprovalAsked   EventType = "approval_requested" // CallID, Server, Tool, Effect, Client
	EventApprovalDecided EventType = "approval_decided"   // Server, Tool, Client, Outcome = approved | denied
)

// Event is one thing that happened. Only the fields that its type names are set.
// It never carries arguments, results or secrets.
type Event struct {
	Seq        uint64     `json:"seq"`
	Time       time.Time  `json:"time"`
	Type       EventType  `json:"type"`
	Server     string     `json:"server,omitempty"`
	Instance   string     `json:"instance,omitempty"`
	Generation uint64     `json:"generation,omitempty"`
	PID        int        `json:"pid,omitempty"`
	State      string     `json:"state,omitempty"`
	Reason     string     `json:"reason,omitempty"`
	Stage      Stage      `json:"stage,omitempty"`
	CallID     string     `json:"call_id,omitempty"`
	Tool       string     `json:"tool,omitempty"`
	Effect     string     `json:"effect,omitempty"`
	Client     string     `json:"client,omitempty"`
	Attempt    int        `json:"attempt,omitempty"`
	Outcome    string     `json:"outcome,omitempty"`
	Code       Code       `json:"code,omitempty"`
	Deadline   *time.Time `json:"deadline,omitempty"`
	QueuedMS   float64    `json:"queued_ms,omitempty"`
	RanMS      float64    `json:"ran_ms,omitempty"`
	Count      int        `json:"count,omitempty"`
	Version    uint64     `json:"version,omitempty"`
	Message    string     `json:"message,omitempty"`
}

// String renders the event as one line for people.
func (e Event) String() string {
	var b strings.Builder
	b.WriteString(string(e.Type))
	for _, f := range e.fields() {
		fmt.Fprintf(&b, " %s=%v", f.Key, f.Value)
	}
	return b.String()
}

// LogValue implements slog.LogValuer.
func (e Event) LogValue() slog.Value {
	return slog.GroupValue(append([]slog.Attr{slog.String("type", string(e.Type))}, e.fields()...)...)
}

// fields lists what is set, in a fixed order.
func (e Event) fields() []slog.Attr {
	var out []slog.Attr
	str := func(k, v string) {
		if v != "" {
			out = append(out, slog.String(k, v))
		}
	}
	num := func(k string, v int64) {
		if v != 0 {
			out = append(out, slog.Int64(k, v))
		}
	}
	str("server", e.Server)
	str("instance", e.Instance)
	num("generation", int64(e.Generation))
	num("pid", int64(e.PID))
	str("state", e.State)
	str("reason", e.Reason)
	str("stage", string(e.Stage))
	str("call_id", e.CallID)
	str("tool", e.Tool)
	str("effect", e.Effect)
	str("client", e.Client)
	num("attempt", int64(e.Attempt))
	str("outcome", e.Outcome)
	str("code", string(e.Code))
	if e.QueuedMS > 0 {
		out = append(out, slog.Float64("queued_ms", e.QueuedMS))
	}
	if e.RanMS > 0 {
		out = append(out, slog.Float64("ran_ms", e.RanMS))
	}
	num("count", int64(e.Count))
	num("version", int64(e.Version))
	str("message", e.Message)
	return out
}

// LogLine is one line for `bridgectl logs`: a server's stderr after redaction, or
// a life-cycle line of the bridge about it.
type LogLine struct {
	Seq    uint64    `json:"seq"`
	Time   time.Time `json:"time"`
	Server string    `json:"server"`
	Source string    `json:"source"` // "stderr" | "bridge"
	Text   string    `json:"text"`
}
