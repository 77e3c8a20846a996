package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpbridge/config"
	"mcpbridge/messages"
)

// Options configure a Gateway; the zero value is usable.
type Options struct {
	// Name and Version are what the bridge calls itself towards clients.
	Name, Version string
	// Authenticate says who sends a request. Not ok is answered 401. It must
	// compare tokens in constant time. nil means that everybody is "anonymous".
	Authenticate func(*http.Request) (client string, ok bool)
	// AllowedHosts are Host values that are accepted beside those of package doc:
	// `name` for any port, `name:port` for one.
	AllowedHosts []string
	// AllowedOrigins are Origin values that are accepted beside loopback ones,
	// such as `https://app.example`.
	AllowedOrigins []string
	// AskClient lets a call that needs approval be put to the client that makes it, by
	// elicitation, where it declared that it can be asked (ask_via: client).
	AskClient bool
	// MaxBody bounds a request body and a line of ServeStream; 0 means 8 MiB.
	MaxBody int64
	// Discovery says when /mcp lists search_tools, describe_tool and call_tool in place
	// of the catalogue; the zero value never does.
	Discovery config.Discovery
}

// Anonymous is the client name of a request that needs no token.
const Anonymous = "anonymous"

const (
	defaultMaxBody = 8 << 20
	pageSize       = 1000 // tools in one page of tools/list
	maxSessions    = 256  // of one client; the one that is idle longest is ended first
	sessionIdle    = time.Hour
	reapEvery      = time.Minute
	settleDelay    = 50 * time.Millisecond // catalogue changes within it cost one notification
	plainGrace     = 10 * time.Second      // a call that takes longer is answered as a stream
	keepAliveEvery = 15 * time.Second
	bodyTimeout    = 30 * time.Second
	writeTimeout   = 30 * time.Second
	lingerTimeout  = 2 * time.Second  // for what is still to be written when a stream is ended
	callsAtEOF     = 50 * time.Second // for calls to end by themselves when a client has sent EOF
	eofTimeout     = 10 * time.Second // for what is still to be written after that
)

// Gateway serves the catalogue of one backend. Make it with New; end it with Close.
type Gateway struct {
	backend messages.Backend
	opts    Options
	impl    *mcp.Implementation
	log     *slog.Logger
	guard   *guard
	mux     *http.ServeMux

	// base ends with Close: every call, stream and session hangs on it.
	base   context.Context
	cancel context.CancelFunc

	stateful  http.Handler // protocol 2024-11-05 … 2025-11-25
	stateless http.Handler // protocol 2026-07-28 and later

	mu     sync.Mutex
	closed bool
	scopes map[scopeKey]*scope
	// shownStateless is what clients without sessions were shown.
	shownStateless map[statelessKey]*shown

	questions questions

	sessions *sessionTable
	dirty    chan struct{} // capacity one: the catalogue may have changed
	stale    chan struct{} // the same, for indexLoop
	want     versionMark
	finder   *finder
	stopSub  func()
	loops    sync.WaitGroup // notifier, indexer and reaper
	streams  sync.WaitGroup // ServeStream

	// What Reconfigure may change.
	discovery atomic.Pointer[config.Discovery]
	askClient atomic.Bool

	// The clocks of a call's answer and of a stream's events; tests shorten them.
	grace, keepAlive, eofGrace, unread time.Duration
}

// New makes a gateway over backend and starts to follow its catalogue.
func New(backend messages.Backend, o Options) *Gateway {
	if o.Name == "" {
		o.Name = "mcpbridge"
	}
	if o.Version == "" {
		o.Version = "dev"
	}
	if o.MaxBody <= 0 {
		o.MaxBody = defaultMaxBody
	}
	g := &Gateway{
		backend: backend, opts: o, log: backend.Logger(),
		impl:   &mcp.Implementation{Name: o.Name, Version: o.Version},
		guard:  newGuard(o),
		scopes: make(map[scopeKey]*scope),
		dirty:  make(chan struct{}, 1), stale: make(chan struct{}, 1), finder: newFinder(),
		grace: plainGrace, keepAlive: keepAliveEvery, eofGrace: callsAtEOF, unread: writeTimeout,
	}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	g.Reconfigure(o.Discovery, o.AskClient)
	g.base, g.cancel = context.WithCancel(context.Background())
	g.sessions = newSessionTable(g.base, maxSessions)

	server := func(r *http.Request) *mcp.Server { return requestOf(r.Context()).scope.server }
	quiet := slog.New(quietHandler{g.log.Handler()})
	g.stateful = mcp.NewStreamableHTTPHandler(server, &mcp.StreamableHTTPOptions{
		Logger: quiet, DisableLocalhostProtection: true, MaxRequestBodyBytes: -1})
	g.stateless = mcp.NewStreamableHTTPHandler(server, &mcp.StreamableHTTPOptions{
		Logger: quiet, DisableLocalhostProtection: true, MaxRequestBodyBytes: -1,
		Stateless: true, PropagateRequestCancellation: true})

	g.mux = http.NewServeMux()
	g.mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) { g.serve(w, r, "") })
	g.mux.HandleFunc("/servers/{name}/mcp", func(w http.ResponseWriter, r *http.Request) { g.serve(w, r, r.PathValue("name")) })
	g.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, http.StatusNotFound, nil, &wireError{Code: codeInvalidRequest,
			Message: "nothing is served at this path; use /mcp or /servers/NAME/mcp"})
	})

	g.loops.Add(3)
	go func() { defer g.loops.Done(); g.notifyLoop() }()
	go func() { defer g.loops.Done(); g.indexLoop() }()
	go func() { defer g.loops.Done(); g.reapLoop() }()
	g.stopSub = backend.Subscribe(g.onEvent)
	return g
}

// Reconfigure replaces Options.Discovery and Options.AskClient for every question from now
// on. That the list may be another one, clients hear with the next catalogue event.
func (g *Gateway) Reconfigure(d config.Discovery, askClient bool) {
	g.discovery.Store(&d)
	g.askClient.Store(askClient)
}

// Handler serves /mcp and /servers/{name}/mcp with token, Host and Origin checks;
// every other path is 404.
func (g *Gateway) Handler() http.Handler { return http.HandlerFunc(g.serveHTTP) }

// Close ends every call, session and stream, so that http.Server.Shutdown and each
// ServeStream return; later requests are answered 503. Calls that are still running
// are left as by a caller who goes away: settle them first (Bridge.Drain) to give
// them time. Close returns when all is over or ctx ends. It may be called again.
func (g *Gateway) Close(ctx context.Context) error {
	g.mu.Lock()
	first := !g.closed
	g.closed = true
	g.mu.Unlock()
	if first {
		g.stopSub()
	}
	g.cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.sessions.closeAll()
		g.loops.Wait()
		g.streams.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// isClosed reports whether Close was called.
func (g *Gateway) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// quietHandler passes the SDK's log lines on as debug lines: it logs each client's
// mistakes as errors, and each stateless request as an event.
type quietHandler struct{ slog.Handler }

func (h quietHandler) Enabled(ctx context.Context, _ slog.Level) bool {
	return h.Handler.Enabled(ctx, slog.LevelDebug)
}

func (h quietHandler) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelDebug
	return h.Handler.Handle(ctx, r)
}

func (h quietHandler) WithAttrs(a []slog.Attr) slog.Handler {
	return quietHandler{h.Handler.WithAttrs(a)}
}
func (h quietHandler) WithGroup(n string) slog.Handler { return quietHandler{h.Handler.WithGroup(n)} }
