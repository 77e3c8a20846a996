// Package daemon is the bridge as a program of its own: state directory, lock, token,
// TCP listener, control socket, signals, and the order in which they come and go.
//
// # Contract
//
// Run blocks until the bridge has ended. The endpoint and the control socket serve
// before any server is ready; the ready file is written once they do. SIGTERM and
// SIGINT (or the end of the context) drain: calls in flight get their time, every
// process is ended, and Run returns nil within nine seconds with the default
// timeouts. A second signal skips the grace.
//
// SIGHUP, the reload verb and, with Options.Watch, a change of the configuration files
// apply the configuration again, one after the other. It is strict: a configuration with
// any error changes nothing, and status, events and log say so.
//
// One daemon runs on a state directory. Nothing that a server does ends the daemon;
// of the configuration only a file named by --config that cannot be read or parsed
// does, and an endpoint that would be open to strangers.
package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"mcpbridge/config"
	"mcpbridge/messages"
	"mcpbridge/supervisor"
	"mcpbridge/supervisor/control"
	"mcpbridge/supervisor/gateway"
	"mcpbridge/supervisor/metrics"
)

const (
	// closeWithin bounds the end of the bridge, endWithin what the listeners then may
	// take to write out answers: together a little under nine seconds.
	closeWithin = 8600 * time.Millisecond
	endWithin   = 250 * time.Millisecond
)

// daemon holds what runs, for its orderly end.
type daemon struct {
	o       Options
	plan    Plan
	log     *slog.Logger
	state   *state
	bridge  *supervisor.Bridge
	front   *front
	http    *http.Server
	control *control.Server
	broken  chan error  // the TCP listener ended by itself
	reloads chan string // capacity one: why to reload
	places  *places
	watch   *watch // nil without --watch
}

// Run prepares, starts, serves and ends the bridge.
func Run(ctx context.Context, o Options) error {
	// A compatibility switch of the MCP library that loosens checks: no child gets it.
	_ = os.Unsetenv("MCPGODEBUG")
	files := newPlaces(o) // before they are read, so that no later change of theirs is missed
	plan, err := Prepare(o)
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	// Whoever reads our log may go away, which is no reason to die: with a handler, the
	// write fails and that is all.
	pipes := make(chan os.Signal, 1)
	signal.Notify(pipes, syscall.SIGPIPE)
	defer signal.Stop(pipes)

	st, err := openState(plan.StateDir)
	if err != nil {
		return err
	}
	defer st.close()
	handler, logs, err := newLogHandler(plan, o.LogFormat, o.Stderr)
	if err != nil {
		return err
	}
	defer logs.Close()
	d := &daemon{o: o, plan: plan, log: slog.New(handler), state: st, broken: make(chan error, 1), reloads: make(chan string, 1), places: files}
	if o.Watch {
		if d.watch, err = openWatch(files); err != nil {
			return err
		}
		defer d.watch.close()
	}
	if err := d.start(ctx, handler); err != nil {
		return err
	}
	defer d.removeReady()
	if err := d.announce(); err != nil {
		return errors.Join(err, d.stop(ctx, signals))
	}
	stopReloads := d.startReloads(ctx)
	failed := d.serve(ctx, signals)
	stopReloads()
	return errors.Join(failed, d.stop(ctx, signals))
}

// start brings everything up, or leaves nothing behind.
func (d *daemon) start(ctx context.Context, handler slog.Handler) (err error) {
	if d.plan.ReadyFile != "" {
		// The file of an earlier life must not be taken for ours.
		if err := os.Remove(d.plan.ReadyFile); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("ready file: %w", err)
		}
	}
	var clients *auth
	var own []messages.Issue // `status` shows them, too
	if !d.plan.Config.Auth.None {
		var issues []messages.Issue
		if clients, issues, err = loadAuth(d.plan.StateDir, d.plan.Config, d.o.Env); err != nil {
			return err
		}
		d.plan.Issues = append(d.plan.Issues, issues...)
		own = issues
	}
	tcp, port, err := d.listen()
	if err != nil {
		return err
	}
	d.plan.URL = d.plan.url(port)
	unix, err := control.Listen(d.plan.Control, d.log)
	if err != nil {
		_ = tcp.Close()
		return err
	}
	gw := gateway.Options{Version: d.o.Version, AllowedHosts: d.plan.hosts(port), AllowedOrigins: d.plan.Config.AllowedOrigins}
	d.front = &front{hosts: gw.AllowedHosts, origins: gw.AllowedOrigins, loopback: d.plan.Loopback}
	if clients != nil {
		gw.Authenticate = clients.authenticate
		if !d.plan.Loopback {
			d.front.authenticate = clients.authenticate
		}
	}
	collector := metrics.New(metrics.Options{Version: d.o.Version})
	d.bridge, err = supervisor.Open(context.WithoutCancel(ctx), d.plan.Config, append(d.ownership(),
		supervisor.WithLogHandler(handler), supervisor.WithStateDir(d.plan.StateDir), supervisor.WithVersion(d.o.Version),
		supervisor.WithURL(d.plan.URL), supervisor.WithIssues(own...), supervisor.WithEventHook(collector.Observe), supervisor.WithGatewayOptions(gw))...)
	if err != nil {
		return errors.Join(err, tcp.Close(), unix.Close())
	}
	collector.Bind(d.bridge.Status)
	d.plan.Issues = stillTrue(d.plan.Issues, d.bridge.Status())
	d.front.bridge = d.bridge
	d.http = newHTTPServer(d.front.handler(d.bridge.Handler(), collector.Handler()), d.log)
	go func() {
		if err := d.http.Serve(tcp); !errors.Is(err, http.ErrServerClosed) {
			d.broken <- fmt.Errorf("endpoint %s: %w", d.plan.URL, err)
		}
	}()
	d.control = control.Serve(unix, d.controlOptions(time.Now()))
	return nil
}

// ownership says how processes are held on to.
func (d *daemon) ownership() []supervisor.Option {
	opts := []supervisor.Option{supervisor.WithGuardian(d.o.Guardian)}
	if rung, ok := d.o.Env(supervisor.OwnershipVar); ok {
		opts = append(opts, supervisor.WithOwnershipRung(rung))
	}
	if d.o.Alone {
		opts = append(opts, supervisor.WithAdoption())
	}
	return opts
}

// stillTrue leaves out that a server of the workspace waits for approval where somebody
// has approved it in an earlier life.
func stillTrue(issues []messages.Issue, st messages.Status) []messages.Issue {
	return slices.DeleteFunc(issues, func(i messages.Issue) bool {
		row, ok := st.Server(i.Server)
		return ok && config.AwaitsApproval(i) && row.State != messages.StateBlocked
	})
}

// listen opens the TCP listener, with TLS where it is configured.
func (d *daemon) listen() (l net.Listener, port string, err error) {
	var conf *tls.Config
	if d.plan.TLS {
		if conf, err = tlsConfig(d.plan); err != nil {
			return nil, "", err
		}
	}
	l, err = net.Listen("tcp", d.plan.Listen)
	if err != nil {
		if inUse(err) {
			return nil, "", fmt.Errorf("%s is in use by another program, perhaps a bridge of another state directory (bridgectl status): end it, or choose another address with --listen (127.0.0.1:0 takes any free port)", d.plan.Listen)
		}
		return nil, "", fmt.Errorf("listen on %s: %w", d.plan.Listen, err)
	}
	port = strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	if conf != nil {
		l = tls.NewListener(l, conf)
	}
	return l, port, nil
}

func tlsConfig(p Plan) (*tls.Config, error) {
	c := p.Config.TLS
	pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
	if err != nil {
		return nil, usage("tls: %w", err)
	}
	conf := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if c.ClientCA == "" {
		return conf, nil
	}
	pem, err := os.ReadFile(c.ClientCA)
	if err != nil {
		return nil, usage("tls: client_ca: %w", err)
	}
	conf.ClientCAs = x509.NewCertPool()
	if !conf.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, usage("tls: client_ca %s holds no certificate", c.ClientCA)
	}
	conf.ClientAuth = tls.RequireAndVerifyClientCert
	return conf, nil
}

func (d *daemon) controlOptions(started time.Time) control.Options {
	return control.Options{
		Bridge: d.bridge,
		Logger: d.log,
		Version: func() control.Version {
			return control.Version{Version: d.o.Version, Go: runtime.Version(), PID: os.Getpid(), RunID: d.bridge.RunID(), URL: d.plan.URL,
				Control: d.plan.Control, StateDir: d.plan.StateDir, TokenFile: d.plan.TokenFile, Started: started}
		},
		Load: func() (*config.Config, error) {
			var p Plan
			if err := p.load(d.o); err != nil {
				return nil, err
			}
			return d.bridge.Admit(p.Config), nil
		},
		Reload: func(ctx context.Context) (config.Changes, error) { return d.reload(ctx, "bridgectl reload") },
		ServeStream: func(ctx context.Context, conn control.Conn, client, view string) error {
			return d.bridge.Gateway().ServeStream(ctx, conn, client, view)
		},
	}
}

// announce tells the person first, and then whoever waits for the ready file.
func (d *daemon) announce() error {
	if d.o.Started != nil {
		d.o.Started(d.plan)
	}
	if d.plan.ReadyFile == "" {
		return nil
	}
	return writeReady(d.plan.ReadyFile, Ready{PID: os.Getpid(), URL: d.plan.URL, Control: d.plan.Control, TokenFile: d.plan.TokenFile})
}

func (d *daemon) removeReady() {
	if d.plan.ReadyFile != "" {
		removeReady(d.plan.ReadyFile)
	}
}

// serve waits for a reason to end.
func (d *daemon) serve(ctx context.Context, signals <-chan os.Signal) error {
	for {
		select {
		case <-ctx.Done():
			d.log.Info("draining", "reason", context.Cause(ctx))
			return nil
		case err := <-d.broken:
			return err
		case s := <-signals:
			if s == syscall.SIGHUP {
				d.askReload("SIGHUP")
				continue
			}
			d.log.Info("draining; a second signal skips the grace", "signal", s)
			return nil
		}
	}
}

// stop ends the bridge first, while its answers can still go out, then the listeners.
func (d *daemon) stop(ctx context.Context, signals <-chan os.Signal) error {
	d.front.draining.Store(true)
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
	defer cancel()
	over := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		for {
			select {
			case s := <-signals:
				if s != syscall.SIGHUP {
					d.log.Warn("ending at once", "signal", s)
					cancel()
				}
			case <-over:
				return
			}
		}
	})
	err := d.bridge.Close(grace)
	close(over)
	watch.Wait()
	if err != nil {
		err = fmt.Errorf("end of the bridge: %w", err)
		if errors.Is(err, context.Canceled) { // it was asked to hurry, and did
			err = nil
		}
	}
	end, done := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer done()
	var listeners sync.WaitGroup
	listeners.Go(func() {
		if d.http.Shutdown(end) != nil {
			_ = d.http.Close()
		}
	})
	listeners.Go(func() { d.control.Shutdown(end) })
	listeners.Wait()
	d.log.Info("ended")
	return err
}
