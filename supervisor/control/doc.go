// Package control is the control API of a running bridge: JSON over HTTP under
// /v1/… on a unix socket that only the same user can open, and the typed client
// that every verb of bridgectl uses.
//
// # The API
//
//	GET  /v1/version                      Version
//	GET  /v1/status?server=               messages.Status, narrowed to the named servers
//	GET  /v1/tools?pattern=&server=&effect=&view=&all=   Tools
//	POST /v1/call                         CallRequest → NDJSON of CallFrame; the last one holds the outcome
//	GET  /v1/calls                        Calls
//	POST /v1/calls/{id}/cancel
//	GET  /v1/journal?id=&n=               Journal: past side effects, of a call id or an idempotency key
//	GET  /v1/approvals                    Approvals: calls, definitions and servers that wait for a person
//	POST /v1/approvals/{id}/{verb}        approve or deny; messages.Approval
//	GET  /v1/definitions?pattern=         Definitions: what nobody has approved
//	POST /v1/servers/{name}/{verb}        start, stop, restart, reset, drain
//	GET  /v1/wait?server=&for=&timeout=&after=           WaitResult, when reached or when time is up
//	GET  /v1/logs?server=&n=&since=&follow=              NDJSON of messages.LogLine
//	GET  /v1/events?server=&type=&n=&since=&seq=&follow= NDJSON of messages.Event
//	GET  /v1/config?origin=               Config: what the bridge runs with, secrets masked
//	GET  /v1/config/diff                  ConfigDiff: what today's files would change
//	POST /v1/reload                       Reload: apply today's files; refused as a whole if they have an error
//	GET  /v1/stream?view=                 upgrade to newline-delimited MCP (bridgectl stdio)
//	GET  /debug/pprof/…                   Go's profiles
//
// A failure is a status code of 4xx or 5xx with an Error in {"error": …}.
//
// Every call that comes through here belongs to the client `local`. A caller that
// closes the connection before the outcome has left, and its call is treated so.
//
// Whoever may open the socket may do everything: the socket is the authorisation.
package control

import (
	"encoding/json"
	"time"

	"mcpbridge/config"
	"mcpbridge/messages"
)

// LocalClient is the name under which every call over the control socket runs.
const LocalClient = "local"

// Version answers GET /v1/version.
type Version struct {
	Version   string    `json:"version"`
	Go        string    `json:"go"`
	PID       int       `json:"pid"`
	RunID     string    `json:"run_id"`
	URL       string    `json:"url"`
	Control   string    `json:"control"`
	StateDir  string    `json:"state_dir"`
	TokenFile string    `json:"token_file"` // "" with auth none
	Started   time.Time `json:"started"`
}

// Tools answers GET /v1/tools; it is `tools -o json`.
type Tools struct {
	Version uint64          `json:"version"`
	Tools   []messages.Tool `json:"tools"`
}

// Calls answers GET /v1/calls; it is `calls -o json`.
type Calls struct {
	Calls []messages.CallInfo `json:"calls"`
}

// CallRequest is one call. Args is the arguments' text as the caller wrote it, so
// that the bridge judges broken JSON too (invalid_arguments) and not the way there.
type CallRequest struct {
	ID       string   `json:"id,omitempty"`
	Tool     string   `json:"tool"`
	Args     string   `json:"args,omitempty"`
	Timeout  Duration `json:"timeout,omitempty"`
	View     string   `json:"view,omitempty"`
	DryRun   bool     `json:"dry_run,omitempty"`
	Progress bool     `json:"progress,omitempty"` // send progress frames
	// IdempotencyKey makes repetitions of the call safe, whichever process makes them: see
	// messages.CallTool. "" for none; CheckKey tells what is allowed.
	IdempotencyKey string `json:"idempotency_key,omitempty"`
}

// CallFrame is one line of the answer to a call: progress (the params of the
// server's notification), or the outcome, which is the last line.
type CallFrame struct {
	Progress json.RawMessage   `json:"progress,omitempty"`
	Outcome  *messages.Outcome `json:"outcome,omitempty"`
}

// Config answers GET /v1/config.
type Config struct {
	YAML string `json:"yaml"` // as `config show` prints it
}

// ConfigDiff answers GET /v1/config/diff: what a start with today's files would change.
type ConfigDiff struct {
	config.Difference
	Issues []messages.Issue `json:"issues"` // of the files as they are now
	Files  []string         `json:"files"`
}

// Reload answers POST /v1/reload: what it changed.
type Reload struct {
	config.Changes
	Issues []messages.Issue `json:"issues"` // warnings of the files as they are now
	Files  []string         `json:"files"`
}

// Target is a state that can be waited for.
type Target string

// The targets of `bridgectl wait --for`.
const (
	ForReady       Target = "ready"
	ForStopped     Target = "stopped"
	ForQuarantined Target = "quarantined"
)

// WaitRequest describes what to wait for.
type WaitRequest struct {
	Servers []string // empty: every server that is meant to run
	For     Target
	Timeout time.Duration // 0 = as long as the connection lives
	// After asks for an incarnation newer than the given generation, by server.
	After map[string]uint64
}

// WaitResult answers GET /v1/wait.
type WaitResult struct {
	Reached bool                    `json:"reached"`
	For     Target                  `json:"for"`
	Servers []messages.ServerStatus `json:"servers"`
	Missing []Missing               `json:"missing"` // who is not there, and why
}

// Missing is one server that did not reach the target.
type Missing struct {
	Server   string         `json:"server"`
	State    messages.State `json:"state"`
	Reason   string         `json:"reason"`
	Hopeless bool           `json:"hopeless"` // nothing but a person will change this
}

// The codes of Error.
const (
	CodeUnknownServer   = "unknown_server"
	CodeUnknownCall     = "unknown_call"
	CodeBadRequest      = "bad_request"
	CodeUnknownApproval = "unknown_approval"
	CodeRefused         = "refused"
	CodeNotFound        = "not_found"
	CodeNoJournal       = "journal_unavailable"
	CodeFailed          = "failed"
	CodeBadConfig       = "bad_configuration"
)

// Error is how the control API says no.
type Error struct {
	Code    string   `json:"code"`
	Message string   `json:"message"`
	Server  string   `json:"server,omitempty"`
	Hint    string   `json:"hint,omitempty"`
	Known   []string `json:"known,omitempty"` // with unknown_server: the configured names
	// Issues are, with bad_configuration of a reload, the errors of the configuration.
	Issues []messages.Issue `json:"issues,omitempty"`
	Status int              `json:"-"`
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Duration is a time.Duration that is a Go duration text in JSON ("1.5s").
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}
