package upstream

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpbridge/messages"
)

// stateless is the first protocol revision without sessions.
const stateless = "2026-07-28"

// peer implements Peer over either link.
type peer struct {
	o    *Options
	red  redactor
	mux  *mux
	link link
	sess *mcp.ClientSession
	info messages.PeerInfo
	era  []byte // what every request of a 2026-07-28 session carries in _meta
	done chan struct{}

	noPing atomic.Bool // the server does not know ping, or ignores it
}

// newPeer takes a connection whose handshake is done into service.
func newPeer(o *Options, red redactor, m *mux, l link, sess *mcp.ClientSession, info messages.PeerInfo) *peer {
	p := &peer{o: o, red: red, mux: m, link: l, sess: sess, info: info, done: make(chan struct{})}
	if info.Protocol >= stateless {
		p.era = eraMeta(info.Protocol, o.implementation())
		m.mu.Lock()
		m.era = p.era
		m.mu.Unlock()
	}
	l.negotiated(info.Protocol)
	listen := make(chan struct{})
	go func() {
		defer close(listen)
		p.listen()
	}()
	go func() {
		defer close(p.done)
		<-l.ended()
		_ = sess.Close() // the connection is gone: this only ends the SDK's goroutines
		<-listen
	}()
	return p
}

// eraMeta renders what injectRequestMeta of the SDK adds to its own requests.
func eraMeta(protocol string, impl *mcp.Implementation) []byte {
	v, _ := json.Marshal(protocol)
	i, _ := json.Marshal(impl)
	b := append([]byte(`,"`+mcp.MetaKeyProtocolVersion+`":`), v...)
	b = append(append(b, `,"`+mcp.MetaKeyClientInfo+`":`...), i...)
	return append(b, `,"`+mcp.MetaKeyClientCapabilities+`":{}`...)
}

// Info implements Peer.
func (p *peer) Info() messages.PeerInfo { return p.info }

// Gone implements Peer.
func (p *peer) Gone() <-chan struct{} { return p.mux.gone }

// Done implements Peer.
func (p *peer) Done() <-chan struct{} { return p.done }

// Exit implements Peer.
func (p *peer) Exit() messages.Exit { return p.link.exit() }

// Stop implements Peer.
func (p *peer) Stop(l messages.Ladder) { p.link.stop(l) }

// Call implements Peer.
func (p *peer) Call(exec messages.Exec) messages.Reply {
	q := &pending{method: "tools/call", name: exec.Remote, boundary: exec.Boundary, progress: exec.Progress,
		exec: &exec, key: callKey{exec.CallID, exec.Attempt}}
	if err := p.mux.add(q); err != nil {
		return messages.Reply{Kind: messages.ReplyNotEntered, Err: err.Error()}
	}
	q.body = appendCall(make([]byte, 0, 256+len(exec.Args)+len(exec.Meta)+len(p.era)), q.id, &exec, p.era)
	p.link.send(q)
	return <-q.reply
}

// Cancel implements Peer.
func (p *peer) Cancel(callID string, attempt int, reason string) {
	if q := p.mux.cancelling(callID, attempt, reason); q != nil {
		p.link.cancel(q, reason)
	}
}

// listen keeps the subscription to list changes of a 2026-07-28 session open for
// as long as the session lives: the server forgets it with the stream.
func (p *peer) listen() {
	if !p.listens() {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-p.mux.gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	tune := p.o.tuning()
	missed := false // a stream was lost, or never came up, and with it whatever changed
	for delay := tune.listenDelay; ; delay = min(2*delay, time.Minute) {
		began := time.Now()
		q := &pending{method: "subscriptions/listen", ctx: ctx, opened: func() {
			if missed {
				p.o.OnListChanged()
			}
		}}
		r, err := p.ask(ctx, q, `,"notifications":{"toolsListChanged":true}`)
		if ctx.Err() != nil {
			return
		}
		if err == nil && r.Kind == messages.ReplyError {
			p.o.Logger.Debug("server refuses subscriptions", "server", p.o.Server.Name, "error", p.rpcError(q.method, r))
			return
		}
		missed = true
		if time.Since(began) > time.Minute {
			delay = tune.listenDelay
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(delay, r.After)):
		}
	}
}

func (p *peer) listens() bool {
	res := p.sess.InitializeResult()
	return p.info.Protocol >= stateless && p.info.HasTools && res != nil && res.Capabilities.Tools.ListChanged
}

// implementation is how the bridge introduces itself (requirement B10).
func (o *Options) implementation() *mcp.Implementation {
	i := &mcp.Implementation{Name: o.ClientInfo.Name, Version: o.ClientInfo.Version}
	if strings.TrimSpace(i.Name) == "" {
		i.Name = "mcpbridge"
	}
	if i.Version == "" {
		i.Version = o.Version
	}
	if i.Version == "" {
		i.Version = "dev"
	}
	return i
}

func (o *Options) tuning() tuning {
	if o.tune != nil {
		return *o.tune
	}
	return defaultTuning
}
