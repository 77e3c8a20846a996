package upstream

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpbridge/config"
	"mcpbridge/messages"
)

const (
	defaultBudget = 30 * time.Second
	// legacy is what a session is pinned to when asking for newer revisions hurts.
	legacy       = "2025-11-25"
	defaultFrame = 32 << 20
)

// Dial starts the server and brings it to the point where its tools are listed.
// Cancelling ctx ends the attempt. An error is always a *Failure, and what was
// started is gone again by then; ctx plays no part in the peer's later life.
func Dial(ctx context.Context, o Options) (Peer, messages.Listing, error) {
	if o.Budget <= 0 {
		o.Budget = defaultBudget
	}
	red := config.NewRedactor(o.Server.Secrets)
	d := &dialer{o: &o, red: red, pinned: o.SkipProbe, skipProbe: o.SkipProbe}
	var p *peer
	var l messages.Listing
	var f *Failure
	if o.Server.Remote() {
		p, l, f = d.http(ctx)
	} else {
		p, l, f = d.stdio(ctx)
	}
	if f != nil {
		f.Exit.Reason = red.String(f.Exit.Reason)
		f.Exit.Hint = red.String(f.Exit.Hint)
		if f.Exit.At.IsZero() {
			f.Exit.At = time.Now()
		}
		// A start that needed two processes is not repeated with two; the one after
		// it asks again, since nothing was learnt if that fails as well.
		f.Exit.SkipProbe = d.skipProbe && !o.SkipProbe
		return nil, messages.Listing{}, f
	}
	return p, l, nil
}

// dialer is one Dial in progress.
type dialer struct {
	o         *Options
	red       redactor
	pinned    bool   // straight to initialize
	skipProbe bool   // what PeerInfo will say
	version   string // of the older handshake, where the server named one; "" = legacy
	ctx       context.Context
	cancel    context.CancelFunc
}

// revision is what initialize asks for.
func (d *dialer) revision() string {
	if d.version != "" {
		return d.version
	}
	return legacy
}

// errBudget is the cause of a context whose start budget is spent.
var errBudget = errors.New("start budget spent")

// spawned reports the spawn and starts the budget, once.
func (d *dialer) spawned(ctx context.Context, pid int) {
	d.o.OnSpawned(pid)
	if d.ctx == nil {
		d.ctx, d.cancel = context.WithTimeoutCause(ctx, d.o.Budget, errBudget)
	}
}

func (d *dialer) close() {
	if d.cancel != nil {
		d.cancel()
	}
}

func (d *dialer) frameBytes() int {
	if n := d.o.Server.Limits.FrameBytes; n > 0 {
		return int(n)
	}
	return defaultFrame
}

// stdio starts the process, twice where the first died of server/discover.
func (d *dialer) stdio(ctx context.Context) (*peer, messages.Listing, *Failure) {
	defer d.close()
	s := d.o.Server
	if d.o.Spawner == nil {
		return nil, messages.Listing{}, spawnFailure(errSpawnerClosed)
	}
	env := newEnvironment(s, os.Environ(), runtime.GOOS, d.o.StateDir, d.o.RunID, d.o.Gen)
	path, err := lookCommand(s.Command, s.Cwd, env)
	if err != nil {
		return nil, messages.Listing{}, spawnFailure(err)
	}
	for {
		if ctx.Err() != nil {
			return nil, messages.Listing{}, &Failure{messages.Exit{Stage: messages.StageSpawn, Reason: "the start was cancelled"}}
		}
		c, err := startChild(d.o.Spawner, d.o.Gen, path, append([]string{s.Command}, s.Args...), s.Cwd, env, Limits(s))
		if err != nil {
			return nil, messages.Listing{}, spawnFailure(startError(err, path, s.Cwd))
		}
		m := newMux(d.o.OnListChanged, newNoise(d.o.OnNoise))
		l := newStdio(c, m, &stderrLog{red: d.red, emit: d.o.OnStderr}, d.frameBytes(), d.o.tuning())
		d.spawned(ctx, c.pid())
		p, listing, f := d.establish(m, l, messages.PeerInfo{Transport: "stdio", PID: c.pid()}, d.o.tuning().probeStdio)
		if f == nil {
			return p, listing, nil
		}
		// The process is gone here. One that said nothing but was asked for
		// server/discover may just not survive the question.
		// Nor may one that was late with its answer stand the second handshake.
		m.mu.Lock()
		hurt := m.probeSilent || m.probed && !m.answered && l.diedAlone()
		m.mu.Unlock()
		if !d.pinned && hurt && d.ctx.Err() == nil && !f.Exit.TreeAlive {
			d.pinned, d.skipProbe = true, true
			continue
		}
		return nil, messages.Listing{}, f
	}
}

func spawnFailure(err error) *Failure {
	x := messages.Exit{Stage: messages.StageSpawn, Reason: err.Error()}
	var ce *commandError
	if errors.As(err, &ce) {
		x.Permanent, x.Hint = true, ce.hint
	}
	return &Failure{x}
}

// establish does the handshake and the first listing on a link, and ends the link
// when either fails.
func (d *dialer) establish(m *mux, l link, info messages.PeerInfo, probe time.Duration) (*peer, messages.Listing, *Failure) {
	client := mcp.NewClient(d.o.implementation(), &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}})
	opts := &mcp.ClientSessionOptions{}
	if d.pinned {
		opts.ProtocolVersion = d.revision()
	}
	type result struct {
		sess *mcp.ClientSession
		err  error
	}
	connected := make(chan result, 1)
	go func() {
		sess, err := client.Connect(d.ctx, &sdkConn{mux: m, link: l, probe: probe}, opts)
		connected <- result{sess, err}
	}()
	var r result
	select {
	case r = <-connected:
		if r.err == nil {
			break
		}
		return nil, messages.Listing{}, d.failed(m, l, messages.StageHandshake, r.err)
	case <-d.ctx.Done():
		f := d.failed(m, l, messages.StageHandshake, context.Cause(d.ctx))
		// With the link gone Connect cannot wait for anything any more.
		if r = <-connected; r.sess != nil {
			_ = r.sess.Close()
		}
		return nil, messages.Listing{}, f
	}
	res := r.sess.InitializeResult()
	info.Protocol = res.ProtocolVersion
	info.Instructions = res.Instructions
	if res.ServerInfo != nil {
		info.ServerName, info.ServerVer = res.ServerInfo.Name, res.ServerInfo.Version
	}
	info.HasTools = res.Capabilities != nil && res.Capabilities.Tools != nil
	m.mu.Lock()
	info.SkipProbe = d.skipProbe || m.probeSilent
	m.mu.Unlock()
	p := newPeer(d.o, d.red, m, l, r.sess, info)
	listing, err := p.List(d.ctx)
	if err != nil {
		if d.ctx.Err() != nil {
			err = context.Cause(d.ctx)
		}
		f := d.failed(m, l, messages.StageListTools, err)
		<-p.done
		return nil, messages.Listing{}, f
	}
	return p, listing, nil
}

// failed ends the link and says why. A link that went by itself is the reason,
// whatever the error looked like from above.
func (d *dialer) failed(m *mux, l link, stage messages.Stage, err error) *Failure {
	gone := false
	// Most likely it is dead, and that is not known yet. The SDK passes on the words only.
	if strings.Contains(err.Error(), errStdinClosed.Error()) {
		select {
		case <-m.gone:
		case <-time.After(d.o.tuning().eofGrace):
		}
	}
	select {
	case <-m.gone: // it is ending by itself, and how it does is what we want to know
		gone = true
	default:
		l.stop(messages.Ladder{SigTerm: time.Second, Kill: killProof})
	}
	<-l.ended()
	x := l.exit()
	x.Stage, x.Clean = stage, false
	switch {
	case x.Blocked || x.Stage != stage:
	case gone:
		x.Hint = d.byHand()
		if stage == messages.StageHandshake {
			x.Reason += " before the handshake was finished"
		} else {
			x.Reason += " before the tools were listed"
		}
	case errors.Is(err, errBudget):
		x.Reason = fmt.Sprintf("start budget %s spent", d.o.Budget)
		x.Hint = "raise timeouts.start (timeouts.first_start for a server that downloads itself first)"
		if stage == messages.StageHandshake {
			x.Reason += " without an answer to the handshake"
			if d.o.Server.Remote() {
				x.Hint = "check that url is the server's MCP endpoint and can be reached from here, or raise timeouts.start"
			} else {
				x.Hint += ", and check that the command is an MCP server on stdio"
			}
		}
	case errors.Is(err, context.Canceled):
		x.Reason = "the start was cancelled"
	case strings.Contains(err.Error(), "protocol version"):
		x.Reason = err.Error()
		x.Hint = "bridge and server have no protocol revision in common: update the server (known: " + strings.Join(mcp.SupportedProtocolVersions(), ", ") + ")"
		x.Permanent = true
	default:
		x.Reason = err.Error()
	}
	return &Failure{x}
}

// byHand suggests to look at the server without the bridge. Arguments may hold
// secrets, which the caller redacts.
func (d *dialer) byHand() string {
	if d.o.Server.Remote() {
		return ""
	}
	return "run it by hand to see more: " + strings.Join(append([]string{d.o.Server.Command}, d.o.Server.Args...), " ")
}
