package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"mcpbridge/supervisor/control"
	"mcpbridge/supervisor/daemon"
)

const (
	startWithin  = 30 * time.Second      // a daemon serves long before that; its servers need not
	startRetry   = 25 * time.Millisecond // how often the socket is tried until then
	answerWithin = 60 * time.Second      // for answers still to come when stdin has ended
	daemonLog    = "daemon.log"          // of a daemon that stdio started, in the state directory
	logTail      = 2 << 10               // how much of it is read when the start fails
	keepLog      = 10 << 20              // a larger one is put aside before the next start
	raceGrace    = 3 * time.Second       // for the daemon of another stdio to come up
)

func (a *app) stdioCmd() *cobra.Command {
	var o daemon.Options
	var view string
	cmd := &cobra.Command{
		Use:   "stdio",
		Short: "Speak MCP on stdin and stdout, for clients that start their servers",
		Long: `Speak MCP on stdin and stdout. It joins the running bridge, or starts one that goes on
in the background (its log is daemon.log in the state directory); several may run and
share the bridge. It ends when stdin ends.

The configuration flags count only when a bridge is started: one that runs keeps its own.

Exit codes: 0 stdin ended · 1 the bridge went away or could not be started · 2 usage.`,
		Example: `  {"mcpServers": {"bridge": {"command": "bridgectl", "args": ["stdio"]}}}
  bridgectl stdio --view plan`,
		Args: cobra.NoArgs,
	}
	addSuperviseFlags(cmd, &o)
	cmd.Flags().StringVar(&view, "view", "", "only what this view of the configuration admits")
	cmd.RunE = func(*cobra.Command, []string) error {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		c, err := a.client()
		if err != nil {
			return err
		}
		defer c.Close()
		conn, err := c.Stream(ctx, view)
		var none *control.NoDaemonError
		if errors.As(err, &none) {
			conn, err = a.startAndJoin(ctx, c, o, view)
		}
		if err != nil {
			return err
		}
		return a.pipe(ctx, conn)
	}
	return cmd
}

// pipe carries bytes both ways until stdin ends or the daemon goes away.
func (a *app) pipe(ctx context.Context, conn control.Conn) error {
	defer conn.Close()
	up, down := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := io.Copy(conn, a.in)
		up <- err
	}()
	go func() {
		_, err := io.Copy(a.stdout, conn)
		down <- err
	}()
	gone := func(err error) error {
		why := "the bridge went away"
		if err != nil {
			why += ": " + err.Error()
		}
		return &failure{exit: exitFailure, code: "unreachable", err: errors.New(why), hint: "start the client's connection anew; `bridgectl stdio` then joins or starts a bridge"}
	}
	select {
	case <-ctx.Done():
		return exitWith(exitInterrupted)
	case err := <-down:
		return gone(err)
	case err := <-up:
		if err != nil {
			return gone(err)
		}
	}
	// The client has said its last word; what it asked before is still answered.
	if err := conn.CloseWrite(); err != nil {
		return nil
	}
	late := time.NewTimer(answerWithin)
	defer late.Stop()
	select {
	case err := <-down:
		if err != nil {
			return gone(err)
		}
	case <-late.C:
	case <-ctx.Done():
	}
	return nil
}

// startAndJoin starts a daemon in a session of its own and waits until it serves.
// When several stdio start at once, one daemon gets the state directory and all join it.
func (a *app) startAndJoin(ctx context.Context, c *control.Client, o daemon.Options, view string) (control.Conn, error) {
	o.StateDir, o.Control = a.stateDir, a.control
	plan, err := daemon.Prepare(daemon.Options{ConfigFile: o.ConfigFile, Workspace: o.Workspace, TrustProject: o.TrustProject,
		Demo: o.Demo, Listen: o.Listen, StateDir: o.StateDir, Control: o.Control, Env: a.env})
	if err != nil {
		return nil, err
	}
	child, err := startDetached(o, plan)
	if err != nil {
		return nil, fmt.Errorf("start a bridge: %w", err)
	}
	log := filepath.Join(plan.StateDir, daemonLog)
	exited := make(chan error, 1)
	go func() { exited <- child.Wait() }()
	failed := func(format string, args ...any) error {
		return &failure{exit: exitFailure, code: "unreachable", err: fmt.Errorf(format, args...), hint: "see " + log}
	}

	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	retry := time.NewTicker(startRetry)
	defer retry.Stop()
	var givenUp <-chan time.Time
	for {
		conn, err := c.Stream(ctx, view)
		var none *control.NoDaemonError
		if err == nil {
			// Of several that start at once only one got the state directory.
			if v, err := c.Version(ctx); err == nil && v.PID == child.Process.Pid {
				a.err.line("no bridge was running: started one, pid %d, which goes on in the background; its log is %s", v.PID, log)
			}
			return conn, nil
		}
		if !errors.As(err, &none) {
			return nil, err
		}
		select {
		case <-retry.C:
		case err := <-exited:
			if child.ProcessState.ExitCode() != exitFailure {
				return nil, failed("the bridge that was started ended at once (%v): %s", err, tail(log))
			}
			// Perhaps another one was faster with the state directory and is coming up.
			givenUp = time.After(raceGrace)
		case <-givenUp:
			return nil, failed("the bridge that was started ended at once: %s", tail(log))
		case <-ctx.Done():
			return nil, failed("the bridge that was started does not serve: %w", ctx.Err())
		}
	}
}

// startDetached runs `supervise` in a session of its own, with its log in the state
// directory, so that it outlives this process and its terminal.
func startDetached(o daemon.Options, plan daemon.Plan) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if err := daemon.MakeStateDir(plan.StateDir); err != nil {
		return nil, err
	}
	path := filepath.Join(plan.StateDir, daemonLog)
	if fi, err := os.Lstat(path); err == nil && fi.Size() > keepLog {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, err
		}
	}
	log, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	args := []string{"supervise", "--state-dir", plan.StateDir, "--control", plan.Control}
	for flag, v := range map[string]string{"--config": o.ConfigFile, "--workspace": o.Workspace, "--listen": o.Listen} {
		if v != "" {
			args = append(args, flag, v)
		}
	}
	if o.Demo {
		args = append(args, "--demo")
	}
	if o.TrustProject {
		args = append(args, "--trust-project")
	}
	cmd := exec.Command(self, args...)
	cmd.Stderr = log
	cmd.SysProcAttr = detached()
	return cmd, cmd.Start()
}

// tail is the end of the log, which says why a start failed.
func tail(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b[max(0, len(b)-logTail):])), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], " / ")
}
