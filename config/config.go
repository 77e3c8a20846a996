// Package config turns the operator's files into one checked, resolved value.
//
// Load reads the layers (requirements A1 to A6), reports every problem with its
// position, and starts nothing. A Config may also be built in code: call Normalize
// to fill in the defaults that Load would.
package config

import (
	"slices"
	"time"

	"mcpbridge/messages"
)

// Transport is how a server is reached.
type Transport string

// The transports. Auto is a URL without a type: Streamable HTTP, with the older
// HTTP+SSE as fallback.
const (
	Stdio Transport = "stdio"
	HTTP  Transport = "http"
	SSE   Transport = "sse"
	Auto  Transport = "auto"
)

// Trust says how far a server's own annotations are believed.
type Trust string

// TrustNone believes nothing, TrustAnnotations the hints, TrustReadOnly takes every
// tool that is not under effects as read-only (the operator's own word).
const (
	TrustNone        Trust = "none"
	TrustAnnotations Trust = "annotations"
	TrustReadOnly    Trust = "read_only"
)

// Connect says when a server is started.
type Connect string

// The connect modes of requirement A8.
const (
	ConnectStartup  Connect = "startup"
	ConnectLazy     Connect = "lazy"
	ConnectDisabled Connect = "disabled"
)

// RestartMode says which ends lead to a new start.
type RestartMode string

// The restart modes of semantics section 3.
const (
	RestartAlways    RestartMode = "always"
	RestartOnFailure RestartMode = "on_failure"
	RestartNever     RestartMode = "never"
)

// Layer says whose word a definition is. Project layers belong to whoever wrote the
// workspace and are not trusted (requirement A12).
type Layer string

// The layers, lowest precedence first; LayerCode is a server built by the host program.
const (
	LayerUser        Layer = "user"
	LayerProjectJSON Layer = "project_json"
	LayerProject     Layer = "project"
	LayerEnv         Layer = "env"
	LayerFile        Layer = "file"
	LayerDemo        Layer = "demo"
	LayerCode        Layer = "code"
)

// Config is everything that a bridge needs to run.
type Config struct {
	Enabled        bool
	Servers        []Server // sorted by name; broken and disabled ones too
	Permissions    []Rule   // the operator's rules, in order
	HasPermissions bool     // a permissions block was written (an empty one denies all)
	ProjectRules   []Rule   // deny and ask rules of the project layer, judged apart
	Views          map[string]View
	ListWait       time.Duration
	ClientInfo     ClientInfo
	ReservedNames  []string
	Clients        Clients
	Listen         string
	Auth           Auth
	TLS            TLS
	AllowedHosts   []string
	AllowedOrigins []string
	Log            Log
	Journal        Journal
	AskVia         string // none | client: whether `ask` asks the calling client by elicitation
	Discovery      Discovery
	Issues         []messages.Issue // every problem of every layer
	Files          []string         // the files that were read
	Hash           string           // hex digest over the resolved configuration
	Workspace      string
	// Origins tells where each top-level value was written (`list_wait` → file:line:col);
	// what is missing here has its default.
	Origins map[string]string

	// Foreign are the files that come from a workspace which is not trusted.
	Foreign map[string]bool `json:"-"`
}

// Errors are the problems for which the whole configuration is refused where it must have
// none, as at a reload: those of the operator's own files. Whoever wrote the workspace has
// no say in that; an error there costs what it is about.
func (c *Config) Errors() (out []messages.Issue) {
	for _, i := range c.Issues {
		if i.Severity == messages.SeverityError && !c.Foreign[i.File] {
			out = append(out, i)
		}
	}
	for _, s := range c.Servers {
		if s.Err == nil || c.Foreign[s.Err.File] {
			continue
		}
		if !slices.ContainsFunc(out, func(i messages.Issue) bool { return i.Server == s.Name }) {
			out = append(out, *s.Err)
		}
	}
	return out
}

// Server is one entry of mcp_servers, resolved.
//
// The references of a server that must not start (disabled, blocked, broken) are not
// expanded: only a Startable value may be turned into a process or a connection.
type Server struct {
	Name   string
	Layer  Layer
	Source string // file:line:col of the entry, for people

	Type    Transport
	Command string
	Args    []string
	Env     map[string]string // configured variables only; the minimal base comes at spawn
	// InheritEnv names variables of the bridge's own environment to pass on beyond
	// the minimal base; InheritAll passes everything.
	InheritEnv []string
	InheritAll bool
	Cwd        string // absolute
	URL        string
	Headers    map[string]string

	Enabled    bool
	Required   bool
	Trust      Trust
	Effects    map[string]messages.Effect // by tool name or glob; an exact name wins, then the longest glob
	Allow      []string                   // tools.allow globs; empty = all
	Deny       []string                   // tools.deny globs
	Connect    Connect
	PerClient  bool
	Restart    Restart
	Timeouts   Timeouts
	Limits     Limits
	Serial     bool // isolation: serial
	LaneKey    map[string]string
	LaneGroup  string
	Abandon    map[string]string // tool → "never"
	KeepListed bool
	PinChange  string // block | warn | allow
	Health     Health

	// Err is set when the entry is broken (state config_error): the server is shown
	// and never started.
	Err *messages.Issue
	// Blocked is the reason for which the server waits for a person ("approval"), or "".
	Blocked string
	// Approval is the question that a blocked entry of a project puts to a person; nil
	// for every other.
	Approval *Approval
	// Secrets are the values that are redacted wherever this server's words or
	// errors about it are shown.
	Secrets []string
	// Written is the entry's text before references expanded; nil for a server built
	// in code.
	Written *Written
	// Origins tells where each field was written (`restart.burst` → file:line:col);
	// what is missing here has its default.
	Origins map[string]string
	// Notes tells how a value of another tool's file was understood (`timeouts.call` →
	// the unit that it has there).
	Notes map[string]string
}

// Written holds the fields that may carry references, as the file has them. Show
// prints these, so that a secret never leaves by that way.
type Written struct {
	Command string
	Args    []string
	Env     map[string]string
	Cwd     string
	URL     string
	Headers map[string]string
}

// Startable reports whether the server may be started as it is configured.
func (s Server) Startable() bool {
	return s.Err == nil && s.Enabled && s.Connect != ConnectDisabled && s.Blocked == ""
}

// Key is the server's shared instance.
func (s Server) Key() messages.Key { return messages.Key{Server: s.Name} }

// Remote reports whether the server is reached over HTTP.
func (s Server) Remote() bool { return s.Type != Stdio }

// Restart is the restart policy of one server.
type Restart struct {
	Mode        RestartMode
	Initial     time.Duration
	Multiplier  float64
	Max         time.Duration
	Jitter      float64 // ± share of the delay, 0 to 1
	ResetAfter  time.Duration
	Burst       int // failures within Within that are still tolerated; 0 = never quarantine
	Within      time.Duration
	Cooldown    time.Duration
	MaxCooldown time.Duration
}

// Timeouts of one server.
type Timeouts struct {
	Start        time.Duration
	FirstStart   time.Duration
	Call         time.Duration
	AbandonAfter time.Duration // 0 = never
	StdinClose   time.Duration
	SigTerm      time.Duration
	Drain        time.Duration
}

// Limits of one server; sizes in bytes.
type Limits struct {
	MaxReads       int
	MaxSideEffects int
	Queue          int
	QueueBytes     int64
	ResultBytes    int64
	FrameBytes     int64
	Tools          int
	Pages          int
	NoFile         int
	Memory         int64
	PIDs           int
}

// Health is the probing of a ready server.
type Health struct {
	ProbeEvery time.Duration
	Failures   int
}

// Rule is one permission rule. Empty fields match everything; all given ones must match.
type Rule struct {
	Server string           // exact name or glob
	Tool   string           // remote tool name or glob
	Effect *messages.Effect // nil = any
	Client string
	View   string
	Action messages.Permission
	Source string // `permissions[2]` with file and line, for refusals
}

// View binds a consumer to a part of the catalogue; empty lists match everything.
type View struct {
	Effects []messages.Effect
	Tools   []string // globs over endpoint names
	Servers []string
}

// ClientInfo is how the bridge introduces itself to servers.
type ClientInfo struct {
	Name    string
	Version string // "" = the bridge's own
}

// Discovery says when the endpoint offers search_tools and its sisters in place of
// the whole catalogue.
type Discovery struct {
	MetaTools  string // auto | always | never
	OverTokens int    // auto: from this estimated size of the catalogue
}

// Clients bounds what one client may have waiting over all servers.
type Clients struct{ Queue int }

// Auth of the endpoint.
type Auth struct {
	None   bool
	Tokens map[string]TokenRef // name → where the token is
}

// TokenRef says where a token is read from: exactly one field is set.
type TokenRef struct {
	File string
	Env  string
}

// TLS of the endpoint: file names.
type TLS struct{ Cert, Key, ClientCA string }

// Log of the daemon.
type Log struct {
	File    string
	MaxSize int64
	Keep    int
}

// Journal settings, used once the journal exists.
type Journal struct {
	Fsync   string
	Keep    time.Duration
	MaxSize int64
}

// Server finds a server by name.
func (c *Config) Server(name string) (Server, bool) {
	for _, s := range c.Servers {
		if s.Name == name {
			return s, true
		}
	}
	return Server{}, false
}
