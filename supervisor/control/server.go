package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"
	"sync"
	"time"

	"mcpbridge/config"
	"mcpbridge/messages"
)

// Bridge is what the control API needs of the running bridge.
type Bridge interface {
	messages.Backend
	Operate(ctx context.Context, verb messages.Verb, name string) error
	Calls(ctx context.Context) ([]messages.CallInfo, error)
	JournalEntries(idOrKey string, limit int) ([]messages.JournalEntry, error)
	JournalReach() (since time.Time, damaged bool)
	Approvals(ctx context.Context) ([]messages.Approval, error)
	Approve(ctx context.Context, id string) (messages.Approval, error)
	Deny(ctx context.Context, id string) (messages.Approval, error)
	DefinitionChanges() []messages.DefinitionChange
	Permission(t messages.Tool, client, view string) (messages.Permission, string)
	Logs(server string, n int) []messages.LogLine
	SubscribeLogs(f func(messages.LogLine)) (stop func())
	Events(sinceSeq uint64) []messages.Event
	Config() *config.Config
}

// Options of a Server. All but ServeStream, Load and Reload must be set.
type Options struct {
	Bridge  Bridge
	Logger  *slog.Logger
	Version func() Version
	// Load reads the configuration again, as the bridge was started with it.
	Load func() (*config.Config, error)
	// Reload applies what Load gives. It refuses with an *Error.
	Reload func(ctx context.Context) (config.Changes, error)
	// ServeStream speaks MCP on a connection until it ends.
	ServeStream func(ctx context.Context, conn Conn, client, view string) error
}

// Conn is a hijacked connection: a byte stream with a half-close.
type Conn interface {
	net.Conn
	CloseWrite() error
}

// Server is the control API on one listener.
type Server struct {
	o    Options
	http *http.Server

	ctx     context.Context // ends with Close; follows and streams hang on it
	cancel  context.CancelFunc
	streams sync.WaitGroup
	served  chan struct{}
}

// Serve starts to serve on l, which it owns from here on, and returns at once.
func Serve(l net.Listener, o Options) *Server {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{o: o, ctx: ctx, cancel: cancel, served: make(chan struct{})}
	s.http = &http.Server{
		Handler:           s.routes(),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
	}
	go func() {
		defer close(s.served)
		if err := s.http.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
			o.Logger.Error("control socket closed", "err", err)
		}
	}()
	return s
}

// Shutdown lets answers that are being written finish until ctx is done, then ends
// everything that is left: follows, waits, streams.
func (s *Server) Shutdown(ctx context.Context) {
	s.cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		_ = s.http.Close()
	}
	s.streams.Wait()
	<-s.served
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/version", s.version)
	mux.HandleFunc("GET /v1/status", s.status)
	mux.HandleFunc("GET /v1/tools", s.tools)
	mux.HandleFunc("POST /v1/call", s.call)
	mux.HandleFunc("GET /v1/results/{id}", s.result)
	mux.HandleFunc("GET /v1/calls", s.calls)
	mux.HandleFunc("POST /v1/calls/{id}/cancel", s.cancelCall)
	mux.HandleFunc("GET /v1/journal", s.journal)
	mux.HandleFunc("GET /v1/approvals", s.approvals)
	mux.HandleFunc("POST /v1/approvals/{id}/{verb}", s.decide)
	mux.HandleFunc("GET /v1/definitions", s.definitions)
	mux.HandleFunc("POST /v1/servers/{name}/{verb}", s.operate)
	mux.HandleFunc("GET /v1/wait", s.wait)
	mux.HandleFunc("GET /v1/logs", s.logs)
	mux.HandleFunc("GET /v1/events", s.events)
	mux.HandleFunc("GET /v1/config", s.config)
	mux.HandleFunc("GET /v1/config/diff", s.configDiff)
	mux.HandleFunc("POST /v1/reload", s.reload)
	mux.HandleFunc("GET /v1/stream", s.stream)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, &Error{Code: CodeNotFound, Status: http.StatusNotFound, Message: fmt.Sprintf("the control API has no %s %s", r.Method, r.URL.Path),
			Hint: "bridgectl and the daemon may be of different versions: compare `bridgectl version`, and restart the daemon after an update"})
	})
	return mux
}

// encode writes v as one line of JSON; `<`, `>` and `&` stay as they are, so that a
// server's words keep their bytes.
func encode(w http.ResponseWriter, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = encode(w, v) // a client that left needs no answer
}

func fail(w http.ResponseWriter, e *Error) {
	if e.Status == 0 {
		e.Status = http.StatusBadRequest
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.Status)
	_ = encode(w, map[string]*Error{"error": e})
}

// names are the configured servers, sorted.
func (s *Server) names() []string {
	var out []string
	for _, v := range s.o.Bridge.Config().Servers {
		out = append(out, v.Name)
	}
	slices.Sort(out)
	return out
}

// known checks names that a person gave.
func (s *Server) known(names ...string) *Error {
	all := s.names()
	for _, n := range names {
		if slices.Contains(all, n) {
			continue
		}
		if _, leaving := s.o.Bridge.Status().Server(n); leaving { // removed, and not gone yet
			continue
		}
		e := &Error{Code: CodeUnknownServer, Status: http.StatusNotFound, Server: n, Known: all, Message: fmt.Sprintf("no server is called %q", n)}
		switch near := nearest(n, all, 1); {
		case len(all) == 0:
			e.Hint = "no server is configured; `bridgectl config init` writes a starter file"
		case len(near) == 1:
			e.Hint = fmt.Sprintf("did you mean %q? known: %s", near[0], strings.Join(all, ", "))
		default:
			e.Hint = "known: " + strings.Join(all, ", ")
		}
		return e
	}
	return nil
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) { reply(w, s.o.Version()) }

func (s *Server) status(w http.ResponseWriter, r *http.Request) {
	want := r.URL.Query()["server"]
	if e := s.known(want...); e != nil {
		fail(w, e)
		return
	}
	st := s.o.Bridge.Status()
	if len(want) > 0 {
		st.Servers = slices.DeleteFunc(st.Servers, func(v messages.ServerStatus) bool { return !slices.Contains(want, v.Name) })
	}
	reply(w, st)
}

func (s *Server) calls(w http.ResponseWriter, r *http.Request) {
	list, err := s.o.Bridge.Calls(r.Context())
	if err != nil {
		fail(w, &Error{Code: CodeFailed, Status: http.StatusServiceUnavailable, Message: err.Error()})
		return
	}
	if list == nil {
		list = []messages.CallInfo{}
	}
	for i := range list {
		if list[i].BlockedBy == nil {
			list[i].BlockedBy = []string{}
		}
	}
	reply(w, Calls{list})
}

func (s *Server) cancelCall(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	if !s.o.Bridge.CancelCall(id) {
		fail(w, &Error{Code: CodeUnknownCall, Status: http.StatusNotFound, Message: fmt.Sprintf("no call %q is queued or running", id),
			Hint: "`bridgectl calls` lists them; a call that has its outcome cannot be cancelled"})
		return
	}
	reply(w, map[string]string{"cancelled": id})
}

func (s *Server) operate(w http.ResponseWriter, r *http.Request) {
	name, verb := r.PathValue("name"), messages.Verb(r.PathValue("verb"))
	if e := s.known(name); e != nil {
		fail(w, e)
		return
	}
	switch verb {
	case messages.VerbStart, messages.VerbStop, messages.VerbRestart, messages.VerbReset, messages.VerbDrain:
	default:
		fail(w, &Error{Code: CodeBadRequest, Message: fmt.Sprintf("unknown verb %q: start, stop, restart, reset or drain", verb)})
		return
	}
	if err := s.o.Bridge.Operate(r.Context(), verb, name); err != nil {
		fail(w, &Error{Code: CodeRefused, Status: http.StatusConflict, Server: name, Message: fmt.Sprintf("%s %s: %v", verb, name, err)})
		return
	}
	reply(w, map[string]string{"server": name, "verb": string(verb)})
}

// config shows what the bridge runs with, which is not always what the files say now.
func (s *Server) config(w http.ResponseWriter, r *http.Request) {
	reply(w, Config{YAML: config.Show(s.o.Bridge.Config(), r.URL.Query().Get("origin") == "true")})
}

// configDiff tells what the files say now and the bridge does not do yet.
func (s *Server) configDiff(w http.ResponseWriter, _ *http.Request) {
	if s.o.Load == nil {
		fail(w, &Error{Code: CodeRefused, Status: http.StatusConflict, Message: "this bridge was not started from configuration files"})
		return
	}
	now, err := s.o.Load()
	if err != nil {
		fail(w, &Error{Code: CodeBadConfig, Status: http.StatusConflict, Message: err.Error()})
		return
	}
	reply(w, ConfigDiff{Difference: config.Diff(s.o.Bridge.Config(), now), Issues: append([]messages.Issue{}, now.Issues...), Files: append([]string{}, now.Files...)})
}
