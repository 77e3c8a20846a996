package messages

import (
	"encoding/json"
	"time"
)

// State is the life-cycle state of one server instance (semantics section 3).
//
//	         start                 connect failed | exited | start budget spent
//	idle ───────────► starting ──────────────────────────────┐
//	 ▲                    │ ready                             ▼
//	 │ lazy idle          ▼        exited | probe failed    decide ──► backoff ──due──► starting
//	 └──────────────── ready ──────────────────────────────►   │
//	                      │ stable for reset_after: forget      ├──► quarantined ──cooldown──► starting (one try)
//	                      │ failures                            │         └── reset (operator) ──► starting
//	                      │                                     └──► idle (clean exit under on_failure, or never)
//	any ──stop──► draining ──in flight 0 or drain deadline──► stopping ──► stopped
//	disabled · config_error · blocked{approval | auth}: not started until a person changes something
type State uint8

// The states; the zero value has no process.
const (
	StateIdle State = iota
	StateStarting
	StateReady
	StateBackoff
	StateQuarantined
	StateDraining
	StateStopping
	StateStopped
	StateDisabled
	StateConfigError
	StateBlocked
)

var stateNames = [...]string{
	StateIdle: "idle", StateStarting: "starting", StateReady: "ready", StateBackoff: "backoff",
	StateQuarantined: "quarantined", StateDraining: "draining", StateStopping: "stopping", StateStopped: "stopped",
	StateDisabled: "disabled", StateConfigError: "config_error", StateBlocked: "blocked",
}

// String returns the word used in JSON.
func (s State) String() string { return enumName(stateNames[:], int(s), "state") }

// MarshalText implements encoding.TextMarshaler.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *State) UnmarshalText(b []byte) error {
	i, err := enumIndex(stateNames[:], string(b), "state")
	*s = State(i)
	return err
}

// Lists reports whether a server's known tools stay on offer in this state: calls
// queue for a server that is about to come (back), and leave with one that is not.
func (s State) Lists() bool {
	switch s {
	case StateIdle, StateStarting, StateReady, StateBackoff:
		return true
	default:
		return false
	}
}

// Accepts reports whether calls may queue for a server in this state.
func (s State) Accepts() bool { return s.Lists() }

// Exit tells how one incarnation ended.
type Exit struct {
	Reason     string    `json:"reason"` // "signal: killed", "exit status 2", "eof", "start budget 30s spent", …
	Stage      Stage     `json:"stage"`
	At         time.Time `json:"at"`
	StderrTail []string  `json:"stderr_tail"` // the last lines, redacted
	Hint       string    `json:"hint,omitempty"`
	Clean      bool      `json:"clean"` // exit status 0 without being asked
	// Permanent failures (no such command, permission, no common protocol version)
	// quarantine at once: trying again cannot help.
	Permanent bool `json:"permanent,omitempty"`
	// Blocked is set by an HTTP 401/403: the server waits for a person.
	Blocked bool `json:"-"`
	// RetryAfter is how long the server asked to be left alone.
	RetryAfter time.Duration `json:"-"`
	// TreeAlive is set when the process tree could not be proven dead.
	TreeAlive bool `json:"-"`
	// SkipProbe is what a failed start advises for the next one, as in PeerInfo.
	SkipProbe bool `json:"-"`
}

// PeerInfo is what a handshake taught about a server.
type PeerInfo struct {
	Transport    string // stdio | http | sse
	Protocol     string // negotiated revision
	PID          int    // 0 for HTTP
	ServerName   string
	ServerVer    string
	Instructions string
	HasTools     bool
	// SkipProbe is set when asking for the newest revision first cost this server
	// time or its life: the next generation goes straight to initialize.
	SkipProbe bool
}

// ServerStatus is one server's row of `status -o json`. Values are copies.
type ServerStatus struct {
	Name       string     `json:"name"`
	Instance   string     `json:"instance,omitempty"`
	State      State      `json:"state"`
	Reason     string     `json:"reason"`
	Degraded   bool       `json:"degraded"`
	Required   bool       `json:"required"`
	Generation uint64     `json:"generation"`
	PID        int        `json:"pid"`
	Transport  string     `json:"transport"`
	Protocol   string     `json:"protocol"`
	Since      time.Time  `json:"since"`
	Restarts   int        `json:"restarts"` // spawns after the first
	LastExit   *Exit      `json:"last_exit"`
	NextRetry  *time.Time `json:"next_retry"`
	Tools      int        `json:"tools"`
	InFlight   int        `json:"inflight"`
	Queued     int        `json:"queued"`
	NoiseLines uint64     `json:"noise_lines"`
	Instances  []string   `json:"instances"`
	Issues     []Issue    `json:"issues"`
	Source     string     `json:"source,omitempty"` // where the definition came from
	// Ownership is the rung that its processes are held by; "" for a remote server.
	Ownership string `json:"ownership,omitempty"`
	// Instructions are the server's own words on how to use it, cut where they are long.
	Instructions string `json:"instructions,omitempty"`
}

// Counts are the exact counters of requirement B5.
type Counts struct {
	Configured int `json:"configured"` // valid after the merge
	Connected  int `json:"connected"`
	Discovered int `json:"discovered"` // raw list entries
	Adapted    int `json:"adapted"`    // given a local definition
	Registered int `json:"registered"` // in the catalogue, on offer
}

// BridgeStatus is the head of `status -o json`.
type BridgeStatus struct {
	PID        int    `json:"pid"`
	RunID      string `json:"run_id"`
	URL        string `json:"url"`
	ConfigHash string `json:"config_hash"`
	UptimeMS   int64  `json:"uptime_ms"`
	Version    string `json:"version,omitempty"`
	Draining   bool   `json:"draining,omitempty"`
	// Ownership says how it holds on to the processes that it starts.
	Ownership Ownership `json:"ownership"`
	Counts    Counts    `json:"counts"`
}

// Status is `status -o json`: a copy that the caller owns.
type Status struct {
	Bridge  BridgeStatus   `json:"bridge"`
	Servers []ServerStatus `json:"servers"`
	Issues  []Issue        `json:"issues"`
}

// MarshalJSON makes absent lists empty ones: `[]`, never null.
func (s Status) MarshalJSON() ([]byte, error) {
	type plain Status
	p := plain(s)
	if p.Servers == nil {
		p.Servers = []ServerStatus{}
	}
	if p.Issues == nil {
		p.Issues = []Issue{}
	}
	for i := range p.Servers {
		v := &p.Servers[i]
		if v.Issues == nil {
			v.Issues = []Issue{}
		}
		if v.Instances == nil {
			v.Instances = []string{}
		}
		if v.LastExit != nil && v.LastExit.StderrTail == nil {
			e := *v.LastExit
			e.StderrTail = []string{}
			v.LastExit = &e
		}
	}
	return json.Marshal(p)
}

// Server finds a row by name.
func (s Status) Server(name string) (ServerStatus, bool) {
	for _, v := range s.Servers {
		if v.Name == name {
			return v, true
		}
	}
	return ServerStatus{}, false
}

// Ownership says how a bridge holds on to the processes that it starts: with what they are
// found and killed, what enforces their limits, and who does it when the bridge is killed.
type Ownership struct {
	Rung   string `json:"rung"`             // cgroup | subreaper | markers | group | job
	Reason string `json:"reason,omitempty"` // why it is no stronger one
	Forced bool   `json:"forced,omitempty"` // somebody asked for this rung
	Adopts bool   `json:"adopts"`           // orphans become children of the bridge, which reaps them
	Memory string `json:"memory"`           // what enforces limits.memory: cgroup | process | none
	PIDs   string `json:"pids"`             // what enforces limits.pids: cgroup | cgroup v1 | none
	// Guardian is starting, running or down; none where there is none to be.
	Guardian       string `json:"guardian"`
	GuardianPID    int    `json:"guardian_pid,omitempty"`
	GuardianReason string `json:"guardian_reason,omitempty"`
}
