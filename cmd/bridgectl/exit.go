package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"mcpbridge/supervisor/control"
	"mcpbridge/supervisor/daemon"
)

// The exit codes of the contract; those of a call come from its outcome.
const (
	exitFailure     = 1
	exitUsage       = 2
	exitNotReady    = 3
	exitNoDaemon    = 4
	exitInterrupted = 130
)

// failure is an error with everything that a person and a script need to know.
type failure struct {
	exit   int
	code   string // of the JSON error
	err    error
	hint   string // what to do
	server string
	tool   string
	sent   bool // a call may have reached its server
	quiet  bool // everything has been said
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func usagef(format string, args ...any) error {
	return &failure{exit: exitUsage, code: "usage", err: fmt.Errorf(format, args...)}
}

// exitWith ends with a code and no further word.
func exitWith(code int) error {
	return &failure{exit: code, err: fmt.Errorf("exit %d", code), quiet: true}
}

const startHint = "start one with `bridgectl supervise`, or `bridgectl supervise --demo` to try it out; if it runs with another socket, give --control SOCK or set MCPBRIDGE_CONTROL"

// classify gives every error its exit code, code and hint.
func (a *app) classify(err error) *failure {
	var (
		f     *failure
		none  *control.NoDaemonError
		lost  *control.LostError
		api   *control.Error
		start *daemon.Error
	)
	switch {
	case errors.As(err, &f):
		return f
	case errors.As(err, &none):
		return &failure{exit: exitNoDaemon, code: "no_daemon", err: err, hint: startHint}
	case errors.As(err, &lost):
		return &failure{exit: exitNoDaemon, code: "unreachable", err: err, hint: "`bridgectl status` shows whether it is back"}
	case errors.As(err, &api):
		f := &failure{exit: exitFailure, code: api.Code, err: err, hint: api.Hint, server: api.Server}
		switch {
		case api.Code == control.CodeUnknownServer || api.Code == control.CodeBadRequest || api.Code == control.CodeBadConfig:
			f.exit = exitUsage
		case api.Status == http.StatusServiceUnavailable: // it is ending
			f.exit, f.code = exitNoDaemon, "unreachable"
		}
		return f
	case errors.As(err, &start) && start.Usage:
		return &failure{exit: exitUsage, code: "bad_configuration", err: err}
	case errors.Is(err, context.Canceled):
		return &failure{exit: exitInterrupted, code: "interrupted", err: errors.New("interrupted")}
	case !a.started:
		return &failure{exit: exitUsage, code: "usage", err: err, hint: "`bridgectl --help` lists the verbs, `bridgectl VERB --help` explains one"}
	default:
		return &failure{exit: exitFailure, code: "failed", err: err}
	}
}

// errorLine is the one-line JSON error of the contract.
type errorLine struct {
	Error struct {
		Code        string `json:"code"`
		Message     string `json:"message"`
		Server      string `json:"server"`
		Tool        string `json:"tool"`
		Sent        bool   `json:"sent"`
		SafeToRetry bool   `json:"safe_to_retry"`
		Hint        string `json:"hint"`
	} `json:"error"`
}

// finish tells what went wrong and returns the exit code.
func (a *app) finish(err error, asJSON bool) int {
	if err == nil {
		return 0
	}
	f := a.classify(err)
	if f.quiet {
		return f.exit
	}
	if asJSON {
		var l errorLine
		e := &l.Error
		e.Code, e.Message, e.Server, e.Tool, e.Hint = f.code, f.err.Error(), f.server, f.tool, f.hint
		e.Sent, e.SafeToRetry = f.sent, !f.sent
		_ = a.err.ndjson(l)
		return f.exit
	}
	a.err.line("bridgectl: %s", f.err)
	if f.hint != "" {
		a.err.line("  hint: %s", f.hint)
	}
	return f.exit
}
