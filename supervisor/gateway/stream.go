package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpbridge/internal/rawjson"
)

const (
	maxStreamCalls = 256  // raw requests at once; more are read when one is done
	maxSDKRequests = 1024 // requests that the SDK works on; more are refused
)

// errGone ends a stream whose peer is not there any more, which is no failure.
var errGone = errors.New("the client is gone")

// ErrClosed is returned by ServeStream when the gateway was closed.
var ErrClosed = errors.New("the gateway is closed")

// stream is one client of ServeStream.
type stream struct {
	g      *Gateway
	scope  *scope
	client string
	out    *outbox
	ss     *mcp.ServerSession

	life  context.Context // of the stream
	here  context.Context // while the client has not said EOF: the calls' context
	calls inflight
	shown shown
	slots chan struct{} // semaphore of maxStreamCalls
	work  sync.WaitGroup

	incoming chan jsonrpc.Message // to the SDK's Read
	sdkGone  chan struct{}        // the SDK closed its side
	sdkOnce  sync.Once

	greeted atomic.Bool // the client has had its first response, or opened a subscription

	mu      sync.Mutex
	pending map[string]bool // requests that the SDK has not answered; never subscriptions
	idle    chan struct{}
	batches map[string]*batch
}

// ServeStream serves one client over rwc as newline-delimited JSON-RPC, both
// protocol eras on one connection, and closes rwc. client is who calls, as
// authenticated by the caller; view narrows the catalogue, "" for all of it.
//
// It returns nil when the client has sent EOF and everything is written, or when the
// client is gone, and an error when the client does not read what it asked for, when
// ctx ends or when the gateway is closed.
// At EOF calls in flight are answered for a while still; those that are not done by
// then are left: they settle at once, and their outcomes are written too. Closing rwc
// must end its reads and writes.
func (g *Gateway) ServeStream(ctx context.Context, rwc io.ReadWriteCloser, client, view string) error {
	defer rwc.Close()
	key := scopeKey{view: view}
	if why := g.checkScope(key); why != "" {
		return errors.New(why)
	}
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return ErrClosed
	}
	g.streams.Add(1)
	g.mu.Unlock()
	defer g.streams.Done()

	life, endLife := context.WithCancelCause(ctx)
	defer endLife(nil)
	defer context.AfterFunc(g.base, func() { endLife(ErrClosed) })()
	here, leave := context.WithCancel(life)
	defer leave()
	s := &stream{g: g, scope: g.scopeFor(key), client: client, out: newOutbox(rwc), life: life, here: here,
		slots: make(chan struct{}, maxStreamCalls), incoming: make(chan jsonrpc.Message),
		sdkGone: make(chan struct{}), batches: make(map[string]*batch), pending: make(map[string]bool)}
	written := make(chan struct{})
	go func() { defer close(written); s.out.run() }()

	sdkCtx := context.WithValue(context.WithoutCancel(life), requestKey{}, &request{client: client, scope: s.scope, life: here, shown: &s.shown})
	ss, err := s.scope.server.Connect(sdkCtx, (*streamTransport)(s), nil)
	if err != nil {
		s.out.fail(err)
		<-written
		return fmt.Errorf("start the session: %w", err)
	}
	s.ss = ss

	read := make(chan error, 1)
	go func() { read <- s.readAll(rwc) }()
	readDone := false
	select {
	case err = <-read:
		readDone = true
	case <-life.Done():
		err = context.Cause(life)
	case <-s.out.failed:
		err = s.out.reason()
	case <-s.sdkGone:
		err = errors.New("the session was ended")
	}

	if readDone && err == nil {
		s.finishCalls() // a client that pipes its requests in still reads the answers
	}
	leave() // the client has left its calls
	linger := lingerTimeout
	if readDone && err == nil {
		linger = eofTimeout
	}
	deadline := time.NewTimer(linger)
	defer deadline.Stop()
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.work.Wait()
		if readDone && err == nil {
			select {
			case <-s.sdkIdle():
			case <-life.Done():
			case <-s.out.failed:
			}
		}
		_ = ss.Close() // says how the peer went
		s.out.finish()
	}()
	select { // finish lets the writer end when it has written everything
	case <-written:
	case <-s.out.failed:
	case <-deadline.C:
	case <-life.Done():
		select {
		case <-written:
		case <-time.After(lingerTimeout):
		}
	}
	s.out.fail(errors.New("the stream is closed"))
	rwc.Close()
	<-written
	<-over
	if !readDone {
		if late := <-read; late != nil {
			g.log.Debug("a stream ended", "client", client, "error", late)
		}
	}
	if errors.Is(err, errGone) {
		return nil
	}
	return err
}

// readAll reads lines until EOF (nil) or an error.
func (s *stream) readAll(r io.Reader) error {
	br := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := readLine(br, int(s.g.opts.MaxBody))
		switch {
		case errors.Is(err, errLineTooLong):
			_ = s.respond("", errorBody(line, invalidRequest("the message is over the limit of %d bytes", s.g.opts.MaxBody)))
			continue
		case err != nil && !errors.Is(err, io.EOF):
			s.g.log.Debug("a stream's client is gone", "client", s.client, "error", err)
			return errGone
		}
		if start := rawjson.SkipSpace(line, 0); start < len(line) {
			s.message(line)
		}
		if end := errors.Is(err, io.EOF) || s.life.Err() != nil; end {
			return nil
		}
	}
}

// finishCalls waits for the calls that were asked before EOF.
func (s *stream) finishCalls() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.work.Wait()
	}()
	late := time.NewTimer(s.g.eofGrace)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
	case <-s.life.Done():
	case <-s.out.failed:
	case <-s.sdkGone:
	}
}

// message handles one line; a panic costs that line only.
func (s *stream) message(line []byte) {
	env, isBatch, werr := parseEnvelope(line)
	defer func() {
		if p := recover(); p != nil {
			s.g.log.Error("panic in a stream", "method", env.method, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			if len(env.id) > 0 {
				_ = s.respond("", errorBody(env.id, &wireError{Code: codeInternal, Message: "internal error of the bridge"}))
			}
		}
	}()
	switch {
	case werr != nil:
		_ = s.respond("", errorBody(env.id, werr))
	case isBatch:
		s.batch(line)
	default:
		s.dispatch(env)
	}
}

// dispatch takes lists, calls and the cancellation of calls; the rest is the SDK's.
func (s *stream) dispatch(env envelope) {
	switch env.method {
	case "tools/call", "tools/list", "resources/read":
		if key, ok := idKey(env.id); ok {
			if modern, ok := s.ready(env); ok {
				s.raw(env, key, modern)
				return
			}
		}
	case "notifications/cancelled":
		if s.g.cancelled(&s.calls, env.params) {
			return
		}
	}
	if s.g.questions.take(s, env) {
		return
	}
	msg, err := jsonrpc.DecodeMessage(env.raw)
	if err != nil {
		key, _ := idKey(env.id)
		_ = s.respond(key, errorBody(env.id, invalidRequest("%v", err)))
		return
	}
	if req, ok := msg.(*jsonrpc.Request); ok && req.IsCall() && !s.enter(req) {
		key, _ := idKey(env.id)
		_ = s.respond(key, errorBody(env.id, &wireError{Code: codeBusy, Message: "too many requests in flight"}))
		return
	}
	select {
	case s.incoming <- msg:
	case <-s.sdkGone:
	case <-s.life.Done():
	}
}

// ready tells the era of a tools request, and whether the session is far enough to
// answer it without the SDK.
func (s *stream) ready(env envelope) (modern, ok bool) {
	meta, _ := rawjson.Lookup(env.params, "_meta")
	version, has := rawjson.Lookup(meta, mcp.MetaKeyProtocolVersion)
	if has && isModern(unquoteIf(version)) {
		return true, modernMeta(meta, "")
	}
	return false, s.ss.InitializeParams() != nil
}

// raw answers a list or a call in a goroutine of its own.
func (s *stream) raw(env envelope, key string, modern bool) {
	select {
	case s.slots <- struct{}{}:
	case <-s.out.failed:
		return
	case <-s.life.Done():
		return
	}
	done := func() { <-s.slots }
	if env.method != "tools/call" {
		s.spawn(env, key, done, func() answer {
			var body []byte
			var werr *wireError
			if env.method == "tools/list" {
				body, werr = s.scope.listPage(s.life, caller{client: s.client, shown: &s.shown}, env.params, modern)
			} else {
				body, werr = s.scope.readResult(s.client, env.params, modern)
			}
			if werr != nil {
				return errorAnswer(env.id, werr)
			}
			return answer{head: appendHead(nil, env.id, "result"), body: body, tail: []byte("}")}
		})
		return
	}
	c, werr := parseCall(env.id, env.params, modern)
	if werr != nil {
		done()
		_ = s.respond(key, errorBody(env.id, werr))
		return
	}
	ctx, cancel := context.WithCancel(s.here)
	callID := newCallID()
	if !s.calls.add(key, &flight{callID: callID, leave: cancel}) {
		cancel()
		done()
		_ = s.respond(key, errorBody(env.id, invalidRequest("a request with this id is still in flight")))
		return
	}
	s.spawn(env, key, func() { s.calls.remove(key); cancel(); done() }, func() answer {
		who := caller{client: s.client, shown: &s.shown}
		if s.g.askClient.Load() && !modern && canElicit(s.ss) {
			who.ask = s.g.asker(s, func(m []byte) { _ = s.out.push(append(rawjson.OneLine(m), '\n'), false) })
		}
		return s.scope.perform(ctx, c, callID, who, func(n []byte) { s.out.offer(append(rawjson.OneLine(n), '\n')) })
	})
}

// spawn runs work and writes its answer; done is called when it is written, or
// cannot be. A panic becomes an internal error.
func (s *stream) spawn(env envelope, key string, done func(), work func() answer) {
	s.work.Add(1)
	go func() {
		defer s.work.Done()
		defer done()
		a := func() (a answer) {
			defer func() {
				if p := recover(); p != nil {
					s.g.log.Error("panic in a request", "method", env.method, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
					a = errorAnswer(env.id, &wireError{Code: codeInternal, Message: "internal error of the bridge"})
				}
			}()
			return work()
		}()
		// The id is free before the client can see the answer and use it again.
		s.calls.remove(key)
		_ = s.respondLine(key, outLine{a.line(), func() { s.g.delivered(a) }}, true)
	}()
}
