package daemon

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"

	"mcpbridge/config"
	"mcpbridge/messages"
	"mcpbridge/supervisor/control"
	"mcpbridge/supervisor/demo"
)

// Options are what `bridgectl supervise` is asked for.
type Options struct {
	ConfigFile   string // only this file
	Workspace    string
	TrustProject bool
	Watch        bool   // reload when the configuration files change
	Demo         bool   // the embedded demo server instead of a configuration
	Executable   string // path of this binary, for Demo
	Guardian     string // path of bridgectl, which becomes the guardian; "" = none
	Alone        bool   // this process is the daemon's alone: every child of it is the bridge's

	Listen    string // "" = the configuration's
	StateDir  string // "" = the user's default
	Control   string // "" = the default, see control.Path
	ReadyFile string // "" = none

	LogLevel  string // debug | info | warn | error; "" = info
	LogFormat string // text | json; "" = text
	Version   string

	Stderr io.Writer                            // log lines, unless the configuration names a file
	Env    func(string) (value string, ok bool) // os.LookupEnv
	// Started is called once, when the endpoint serves; it tells the person.
	Started func(Plan)
}

// Plan is what a start comes to: every choice made, nothing done yet.
type Plan struct {
	Config    *config.Config
	Listen    string // HOST:PORT as asked; port 0 = any
	URL       string // of the aggregated endpoint; the port is 0 until it is known
	StateDir  string
	Control   string
	TokenFile string // "" with auth none
	ReadyFile string
	TLS       bool
	Loopback  bool
	Issues    []messages.Issue // every problem that does not keep the bridge from starting

	level slog.Level
}

// Error is a start that did not happen. Usage tells a mistake in flags or
// configuration (exit code 2) from a failure of the moment (exit code 1).
type Error struct {
	Err   error
	Usage bool
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap gives the reason.
func (e *Error) Unwrap() error { return e.Err }

func usage(format string, args ...any) error {
	return &Error{Err: fmt.Errorf(format, args...), Usage: true}
}

// Prepare reads the configuration and makes every choice. It starts nothing and
// writes nothing.
func Prepare(o Options) (Plan, error) {
	p := Plan{ReadyFile: o.ReadyFile}
	if o.Demo && o.ConfigFile != "" {
		return p, usage("--demo brings its own configuration: give it or --config, not both")
	}
	if err := p.level.UnmarshalText([]byte(orElse(o.LogLevel, "info"))); err != nil || strings.ContainsAny(o.LogLevel, "+-") {
		return p, usage("--log-level is %q: debug, info, warn or error", o.LogLevel)
	}
	if f := orElse(o.LogFormat, "text"); f != "text" && f != "json" {
		return p, usage("--log-format is %q: text or json", o.LogFormat)
	}
	if o.Demo && o.Watch {
		return p, usage("--watch: the demo's configuration is in no file that could change; give it or --demo, not both")
	}
	if o.ReadyFile != "" {
		if fi, err := os.Stat(filepath.Dir(o.ReadyFile)); err != nil || !fi.IsDir() {
			return p, usage("--ready-file %s: the directory does not exist", o.ReadyFile)
		}
		// It is replaced at the start and removed at the end: nothing else may be there.
		if fi, err := os.Lstat(o.ReadyFile); err == nil && !fi.Mode().IsRegular() {
			return p, usage("--ready-file %s: there is something else than a file, which is left alone: name another one", o.ReadyFile)
		}
	}
	if err := p.load(o); err != nil {
		return p, err
	}
	p.Issues = append(p.Issues, p.Config.Issues...)
	if err := p.places(o); err != nil {
		return p, err
	}
	return p, p.endpoint(o)
}

func orElse(s, d string) string {
	if s == "" {
		return d
	}
	return s
}

// sources says where the configuration comes from.
func (o Options) sources() config.LoadOptions {
	return config.LoadOptions{File: o.ConfigFile, Workspace: o.Workspace, TrustProject: o.TrustProject, Env: o.Env}
}

func (p *Plan) load(o Options) error {
	if o.Demo {
		p.Config = demo.Config(o.Executable)
		return nil
	}
	c, err := config.Load(o.sources())
	if err != nil {
		return &Error{Err: err, Usage: true}
	}
	p.Config = c
	return nil
}

// places finds the directories and files.
func (p *Plan) places(o Options) error {
	dir, err := StateDir(o.StateDir, o.Env)
	if err != nil {
		return err
	}
	p.StateDir = dir
	if p.Control, err = filepath.Abs(control.Path(o.Control, dir, o.Env)); err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	if !p.Config.Auth.None {
		p.TokenFile = filepath.Join(dir, tokenName)
	}
	return nil
}

// StateDir is the daemon's state directory: the flag, or mcpbridge in the user's
// state directory.
func StateDir(flag string, env func(string) (string, bool)) (string, error) {
	if flag != "" {
		return filepath.Abs(flag)
	}
	if v, _ := env("XDG_STATE_HOME"); v != "" && filepath.IsAbs(v) {
		return filepath.Join(v, "mcpbridge"), nil
	}
	home, _ := env("HOME")
	if home == "" {
		var err error
		if home, err = os.UserHomeDir(); err != nil {
			return "", usage("no place for the state: neither XDG_STATE_HOME nor HOME is set; give --state-dir DIR")
		}
	}
	return filepath.Join(home, ".local", "state", "mcpbridge"), nil
}

// endpoint checks where the bridge is to listen and that it may.
func (p *Plan) endpoint(o Options) error {
	c := p.Config
	p.Listen = orElse(o.Listen, orElse(c.Listen, "127.0.0.1:7332"))
	host, port, err := net.SplitHostPort(p.Listen)
	if err != nil {
		return usage("listen address %q: give HOST:PORT, such as 127.0.0.1:7332 (%w)", p.Listen, err)
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return usage("listen address %q: %w", p.Listen, err)
	}
	p.Loopback = isLoopback(host)
	p.TLS = c.TLS.Cert != "" || c.TLS.Key != ""
	if p.TLS && (c.TLS.Cert == "" || c.TLS.Key == "") {
		return usage("tls: cert and key belong together; one of them is missing")
	}
	if c.TLS.ClientCA != "" && !p.TLS {
		return usage("tls: client_ca needs cert and key")
	}
	if !p.Loopback {
		if c.Auth.None {
			return usage("listen address %s is not loopback, and auth: {none: true} would let everybody in: remove it, or listen on 127.0.0.1", p.Listen)
		}
		if !p.TLS {
			return usage("listen address %s is not loopback, and without TLS the token would travel in the clear: set tls: {cert: FILE, key: FILE}, or listen on 127.0.0.1", p.Listen)
		}
	}
	p.URL = p.url(port)
	return nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// url is the endpoint's address for people and clients.
func (p *Plan) url(port string) string {
	host, _, _ := net.SplitHostPort(p.Listen)
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	scheme := "http"
	if p.TLS {
		scheme = "https"
	}
	return scheme + "://" + net.JoinHostPort(host, port) + "/mcp"
}

// hosts are the Host headers that the endpoint answers to.
func (p *Plan) hosts(port string) []string {
	host, _, _ := net.SplitHostPort(p.Listen)
	ip := net.ParseIP(host)
	anywhere := host == "" || ip != nil && ip.IsUnspecified()
	var out []string
	if p.Loopback || anywhere {
		for _, h := range []string{"127.0.0.1", "localhost", "::1"} {
			out = append(out, net.JoinHostPort(h, port))
		}
	}
	if host != "" && !anywhere {
		out = append(out, net.JoinHostPort(host, port))
	}
	return append(out, p.Config.AllowedHosts...)
}

// IsUsage tells whether a start failed for its flags or configuration.
func IsUsage(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Usage
}
