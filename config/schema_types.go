package config

// The types below are the shape of a file, for the JSON Schema alone: the loader reads nodes,
// because it needs their places. A test holds both to the same keys.

type (
	durationText  string
	sizeText      string
	effectName    string
	onOff         bool
	textList      []string
	textMap       map[string]string
	nonNegative   int
	positive      int
	abandonText   string
	inheritChoice string
)

type fileShape struct {
	Schema        string                 `json:"$schema,omitempty" jsonschema:"where this schema is, for editors"`
	Version       int                    `json:"version,omitempty" jsonschema:"the format of this file: 1"`
	Servers       map[string]serverShape `json:"mcp_servers,omitempty" jsonschema:"the servers by name"`
	Permissions   []ruleShape            `json:"permissions,omitempty" jsonschema:"who may call what: the first rule that matches counts, what none matches is denied; without this block reads are allowed and everything else asks"`
	AskVia        askViaWord             `json:"ask_via,omitempty" jsonschema:"how a call that needs approval asks: not at all, or through the calling client"`
	Views         map[string]viewShape   `json:"views,omitempty" jsonschema:"parts of the catalogue that a consumer may be bound to"`
	Defaults      defaultsShape          `json:"defaults,omitempty" jsonschema:"what holds for every server that does not say otherwise; merged one level deep"`
	Enabled       onOff                  `json:"enabled,omitempty" jsonschema:"false: no server is started or connected to"`
	Discovery     discoveryShape         `json:"discovery,omitempty" jsonschema:"search_tools, describe_tool and call_tool in place of a large catalogue"`
	Clients       clientsShape           `json:"clients,omitempty" jsonschema:"bounds for one client over all servers"`
	Listen        string                 `json:"listen,omitempty" jsonschema:"HOST:PORT of the endpoint; port 0 is any"`
	Auth          authShape              `json:"auth,omitempty" jsonschema:"tokens of the endpoint"`
	TLS           tlsShape               `json:"tls,omitempty" jsonschema:"certificate files of the endpoint"`
	AllowedHosts  textList               `json:"allowed_hosts,omitempty" jsonschema:"Host headers that are accepted besides the own address"`
	AllowedOrigin textList               `json:"allowed_origins,omitempty" jsonschema:"Origin headers that are accepted"`
	ListWait      durationText           `json:"list_wait,omitempty" jsonschema:"how long a first list waits for servers never seen before"`
	ClientInfo    clientInfoShape        `json:"client_info,omitempty" jsonschema:"how the bridge introduces itself to servers"`
	ReservedNames textList               `json:"reserved_names,omitempty" jsonschema:"tool names that are kept free"`
	Journal       journalShape           `json:"journal,omitempty" jsonschema:"the record of side effects"`
	Log           logShape               `json:"log,omitempty" jsonschema:"the log of the daemon"`
}

type serverShape struct {
	Type       transportWord `json:"type,omitempty" jsonschema:"how the server is reached; inferred from command or url when absent"`
	Command    string        `json:"command,omitempty" jsonschema:"the program of a stdio server; no shell reads it"`
	Args       textList      `json:"args,omitempty" jsonschema:"its arguments; command lines are public, so no secrets here"`
	Env        textMap       `json:"env,omitempty" jsonschema:"variables of the process, on top of a minimal base; ${NAME}, ${NAME:-default} and ${file:/path} are replaced"`
	InheritEnv inheritChoice `json:"inherit_env,omitempty" jsonschema:"variables of the bridge to pass on, or all"`
	Cwd        string        `json:"cwd,omitempty" jsonschema:"working directory; default and base of relative paths: the workspace for project layers, else the file's folder"`
	URL        string        `json:"url,omitempty" jsonschema:"address of a remote server"`
	Headers    textMap       `json:"headers,omitempty" jsonschema:"headers of every request to a remote server"`
	commonShape
}

// commonShape is what an entry and the defaults have in common.
type commonShape struct {
	Enabled    onOff                  `json:"enabled,omitempty" jsonschema:"false: shown, never started"`
	Required   onOff                  `json:"required,omitempty" jsonschema:"/readyz waits for this server"`
	Trust      trustWord              `json:"trust,omitempty" jsonschema:"how far the server's own hints are believed"`
	ReadOnly   onOff                  `json:"read_only,omitempty" jsonschema:"old spelling of trust: read_only"`
	Effects    map[string]effectName  `json:"effects,omitempty" jsonschema:"what a tool may do, by name or glob"`
	Tools      toolsShape             `json:"tools,omitempty" jsonschema:"which tools are offered, by name or glob"`
	Connect    connectWord            `json:"connect,omitempty" jsonschema:"when the server is started"`
	Sessions   sessionsWord           `json:"sessions,omitempty" jsonschema:"one process for all clients, or one each"`
	Restart    restartShape           `json:"restart,omitempty" jsonschema:"when and how a server is started again"`
	Timeouts   timeoutsShape          `json:"timeouts,omitempty" jsonschema:"how long things may take"`
	Limits     limitsShape            `json:"limits,omitempty" jsonschema:"how much of things there may be"`
	Isolation  isolationWord          `json:"isolation,omitempty" jsonschema:"reads beside a side effect, or everything one by one"`
	LaneKey    textMap                `json:"lane_key,omitempty" jsonschema:"the argument that splits the lane of a tool, such as args.path"`
	LaneGroup  string                 `json:"lane_group,omitempty" jsonschema:"servers of one group share a lane"`
	Abandon    map[string]abandonText `json:"abandon,omitempty" jsonschema:"tools that are never given up"`
	KeepListed onOff                  `json:"keep_listed,omitempty" jsonschema:"keep tools listed while the server is quarantined or stopped"`
	Pins       pinsShape              `json:"pins,omitempty" jsonschema:"what happens when a tool's definition changes"`
	Health     healthShape            `json:"health,omitempty" jsonschema:"probing of a ready server"`
}

// defaultsShape leaves out what belongs to one server.
type defaultsShape struct {
	Env        textMap       `json:"env,omitempty" jsonschema:"variables of every process"`
	InheritEnv inheritChoice `json:"inherit_env,omitempty" jsonschema:"variables of the bridge to pass on, or all"`
	Cwd        string        `json:"cwd,omitempty" jsonschema:"working directory"`
	Headers    textMap       `json:"headers,omitempty" jsonschema:"headers of every request"`
	commonShape
}

type (
	transportWord string
	trustWord     string
	connectWord   string
	sessionsWord  string
	isolationWord string
	restartWord   string
	pinWord       string
	actionWord    string
	askViaWord    string
	metaWord      string
	fsyncWord     string
)

type toolsShape struct {
	Allow textList `json:"allow,omitempty" jsonschema:"globs; default all"`
	Deny  textList `json:"deny,omitempty" jsonschema:"globs; these are hidden"`
}

type restartShape struct {
	Mode       restartWord     `json:"mode,omitempty"`
	Backoff    backoffShape    `json:"backoff,omitempty" jsonschema:"the pause before a new start"`
	ResetAfter durationText    `json:"reset_after,omitempty" jsonschema:"a life this long makes the next pause short again"`
	Burst      nonNegative     `json:"burst,omitempty" jsonschema:"failures within that are tolerated; 0 never quarantines"`
	Within     durationText    `json:"within,omitempty"`
	Quarantine quarantineShape `json:"quarantine,omitempty" jsonschema:"the pause after too many failures"`
}

type backoffShape struct {
	Initial    durationText `json:"initial,omitempty"`
	Multiplier float64      `json:"multiplier,omitempty"`
	Max        durationText `json:"max,omitempty"`
	Jitter     float64      `json:"jitter,omitempty" jsonschema:"share of the pause, 0 to 1"`
}

type quarantineShape struct {
	Cooldown    durationText `json:"cooldown,omitempty"`
	MaxCooldown durationText `json:"max_cooldown,omitempty"`
}

type timeoutsShape struct {
	Start        durationText `json:"start,omitempty" jsonschema:"handshake and first list"`
	FirstStart   durationText `json:"first_start,omitempty" jsonschema:"the same, the first time a command line runs"`
	Call         durationText `json:"call,omitempty" jsonschema:"one call; 0 is the default"`
	AbandonAfter abandonAfter `json:"abandon_after,omitempty" jsonschema:"when a timed-out side effect ends the process; never keeps waiting"`
	StdinClose   durationText `json:"stdin_close,omitempty" jsonschema:"after stdin was closed"`
	SigTerm      durationText `json:"sigterm,omitempty" jsonschema:"after SIGTERM"`
	Drain        durationText `json:"drain,omitempty" jsonschema:"for calls that run when a server is stopped"`
}

type abandonAfter string

type limitsShape struct {
	MaxReads       positive    `json:"max_reads,omitempty" jsonschema:"reads that run side by side"`
	MaxSideEffects positive    `json:"max_side_effects,omitempty" jsonschema:"side effects that run side by side"`
	Queue          positive    `json:"queue,omitempty" jsonschema:"calls that wait"`
	QueueBytes     sizeText    `json:"queue_bytes,omitempty"`
	ResultBytes    sizeText    `json:"result_bytes,omitempty"`
	FrameBytes     sizeText    `json:"frame_bytes,omitempty"`
	Tools          positive    `json:"tools,omitempty"`
	Pages          positive    `json:"pages,omitempty"`
	NoFile         nonNegative `json:"nofile,omitempty" jsonschema:"open files of the process; 0 = as the bridge"`
	Memory         sizeText    `json:"memory,omitempty" jsonschema:"memory of the process; 0 = no limit"`
	PIDs           nonNegative `json:"pids,omitempty" jsonschema:"processes below the server; 0 = no limit"`
}

type pinsShape struct {
	OnChange pinWord `json:"on_change,omitempty"`
}

type healthShape struct {
	ProbeEvery durationText `json:"probe_every,omitempty" jsonschema:"0 never probes"`
	Failures   positive     `json:"failures,omitempty"`
}

type ruleShape struct {
	Server string     `json:"server,omitempty" jsonschema:"name or glob"`
	Tool   string     `json:"tool,omitempty" jsonschema:"the server's own name of a tool, or a glob"`
	Effect effectName `json:"effect,omitempty"`
	Client string     `json:"client,omitempty" jsonschema:"the name of the client's token"`
	View   string     `json:"view,omitempty"`
	Action actionWord `json:"action"`
}

type viewShape struct {
	Effects []effectName `json:"effects,omitempty"`
	Tools   textList     `json:"tools,omitempty" jsonschema:"globs over endpoint names"`
	Servers textList     `json:"servers,omitempty"`
}

type discoveryShape struct {
	MetaTools  metaWord `json:"meta_tools,omitempty"`
	OverTokens positive `json:"over_tokens,omitempty" jsonschema:"auto: from this estimated size of the catalogue"`
}

type clientsShape struct {
	Queue positive `json:"queue,omitempty"`
}

type authShape struct {
	None   onOff                 `json:"none,omitempty" jsonschema:"true: no token is asked for, on loopback only"`
	Tokens map[string]tokenShape `json:"tokens,omitempty" jsonschema:"client names, and where their tokens are"`
}

type tokenShape struct {
	File string `json:"file,omitempty"`
	Env  string `json:"env,omitempty"`
}

type tlsShape struct {
	Cert     string `json:"cert,omitempty"`
	Key      string `json:"key,omitempty"`
	ClientCA string `json:"client_ca,omitempty"`
}

type clientInfoShape struct {
	Name    string `json:"name,omitempty"`
	Version string `json:"version,omitempty"`
}

type journalShape struct {
	Fsync   fsyncWord    `json:"fsync,omitempty"`
	Keep    durationText `json:"keep,omitempty"`
	MaxSize sizeText     `json:"max_size,omitempty"`
}

type logShape struct {
	File    string   `json:"file,omitempty"`
	MaxSize sizeText `json:"max_size,omitempty"`
	Keep    positive `json:"keep,omitempty"`
}
