package upstream

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"mcpbridge/messages"
)

// remote is a link to a server over HTTP: Streamable HTTP, or the older HTTP+SSE
// where every answer comes on one event stream.
//
// It does not use the SDK's HTTP transport: wrapped, that neither sends the
// protocol header nor opens the event stream, and one odd answer ends its session.
type remote struct {
	o      *Options
	mux    *mux
	red    redactor
	tune   tuning
	client *http.Client
	host   string // of the configured URL, for hints
	max    int    // bytes of one message
	sse    bool   // HTTP+SSE

	ctx    context.Context // of everything that goes on with the server
	hangUp context.CancelFunc
	wg     sync.WaitGroup
	wake   chan struct{}
	broken chan struct{} // fail was called
	done   chan struct{}

	checking atomic.Bool

	mu       sync.Mutex
	url      *url.URL  // where requests go
	pause    time.Time // before it the server wants no request
	gentle   bool      // the end concerns the session only: exchanges under way may bring their answers
	asked    string    // the protocol revision that initialize asks for
	offered  []string  // those that the server named when it refused
	session  string
	protocol string
	plan     *stopPlan
	cause    string
	failed   bool
	blocked  bool
	closed   bool                 // nothing is spawned any more
	fault    *httpFault           // the last thing that went wrong for the SDK's session
	status   map[string]int       // last HTTP status by method of the SDK's requests
	aborts   map[*pending]abortFn // exchanges in progress
	params   map[string][]paramHeader
	diedAt   time.Time
}

type abortFn = context.CancelCauseFunc

// httpFault is a request that failed below JSON-RPC. status is 0 when there was no
// HTTP response at all.
type httpFault struct {
	method string
	status int
	err    error
	after  time.Duration // the server asked us to wait that long
}

func newRemote(o *Options, m *mux, red redactor, base *url.URL, maxFrame int) *remote {
	ctx, cancel := context.WithCancel(context.Background())
	lim := o.Server.Limits
	conns := max(lim.MaxReads, 1) + max(lim.MaxSideEffects, 1) + 8
	r := &remote{o: o, mux: m, red: red, tune: o.tuning(), client: newHTTPClient(ctx, base, o.Server.Headers, conns, o.tuning().connLife),
		url: base, host: base.Host, max: maxFrame, ctx: ctx, hangUp: cancel, wake: make(chan struct{}, 1), broken: make(chan struct{}),
		done: make(chan struct{}), status: map[string]int{}, aborts: map[*pending]abortFn{}}
	go r.run()
	return r
}

// negotiated implements link: the session is up, so its event stream is opened.
func (r *remote) negotiated(protocol string) {
	r.mu.Lock()
	r.protocol = protocol
	r.mu.Unlock()
	if !r.sse && protocol < stateless {
		r.spawn(r.eventStream)
	}
}

// spawn runs f in a goroutine that the end of the link waits for; false means that
// it has ended already.
func (r *remote) spawn(f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.wg.Add(1)
	go func() {
		defer r.wg.Done()
		f()
	}()
	return true
}

func (r *remote) ended() <-chan struct{} { return r.done }

// stop implements link. Calls in flight have the time of the first step, the
// goodbye to the server the second.
func (r *remote) stop(l messages.Ladder) {
	r.mux.stopNew("the server is being stopped")
	now := time.Now()
	p := &stopPlan{term: now.Add(l.StdinClose), proof: l.Kill}
	p.kill = p.term.Add(l.SigTerm)
	if p.proof <= 0 {
		p.proof = killProof
	}
	r.mu.Lock()
	if old := r.plan; old != nil {
		p.term, p.kill, p.proof = earlier(p.term, old.term), earlier(p.kill, old.kill), min(p.proof, old.proof)
	}
	r.plan = p
	if r.cause == "" {
		r.cause = "stopped"
	}
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// fail implements link: the session is over at once, without a goodbye.
func (r *remote) fail(cause string) { r.failAs(cause, false) }

// failAs is fail; a gentle end lets the exchanges under way bring their answers.
func (r *remote) failAs(cause string, gentle bool) {
	r.mux.stopNew(cause)
	r.mu.Lock()
	first := !r.failed
	r.failed = true
	if first {
		r.gentle = gentle
	}
	if first && r.cause == "" {
		r.cause = cause
	}
	r.mu.Unlock()
	if first {
		close(r.broken)
	}
}

// run waits for the end and tidies up, each step bounded.
func (r *remote) run() {
	defer close(r.done)
	r.await(func(p *stopPlan) time.Time { return p.term }, nil)
	r.mu.Lock()
	why, failed, gentle := r.cause, r.failed, r.gentle
	r.mu.Unlock()
	if failed && gentle {
		// Each exchange has a connection of its own, and most of them are about to hear
		// the same: what they bring is truer than that they are lost.
		select {
		case <-r.mux.stopNew(why):
		case <-time.After(r.tune.lastWords):
		}
	}
	r.mux.close("the session with the server ended: " + why)
	if !failed {
		r.goodbye()
	}
	r.hangUp()
	r.mu.Lock()
	r.closed = true
	r.diedAt = time.Now()
	proof := killProof
	if r.plan != nil {
		proof = r.plan.proof
	}
	r.mu.Unlock()
	idle := make(chan struct{})
	go func() {
		r.wg.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-time.After(proof):
	}
	r.client.CloseIdleConnections()
}

// await returns when the link failed, or, once it is being stopped, when finished
// (nil: no call is in flight) or the step's time is over.
func (r *remote) await(step func(*stopPlan) time.Time, finished <-chan struct{}) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	calm := finished
	for {
		r.mu.Lock()
		plan := r.plan
		r.mu.Unlock()
		wait := time.Hour
		if plan != nil {
			if wait = time.Until(step(plan)); wait <= 0 {
				return
			}
			if finished == nil {
				calm = r.mux.stopNew("the server is being stopped")
			}
		}
		timer.Reset(wait)
		select {
		case <-r.broken:
			return
		case <-calm:
			return
		case <-r.wake:
		case <-timer.C:
		}
	}
}

// goodbye ends the session at the server; it is as patient as the second step.
func (r *remote) goodbye() {
	r.mu.Lock()
	session := r.session
	r.mu.Unlock()
	if r.sse || session == "" {
		return
	}
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	said := make(chan struct{})
	r.spawn(func() {
		defer close(said)
		if resp, err := r.do(r.bare(ctx, http.MethodDelete, nil), false); err == nil {
			_ = resp.Body.Close()
		}
	})
	r.await(func(p *stopPlan) time.Time { return p.kill }, said)
}

func (r *remote) exit() messages.Exit {
	r.mu.Lock()
	defer r.mu.Unlock()
	return messages.Exit{Reason: r.red.String(r.cause), Stage: messages.StageRunning, At: r.diedAt, Blocked: r.blocked}
}

// setHeaders adds what the protocol asks for; method and name are those of a request.
func (r *remote) setHeaders(req *http.Request, method, name string) {
	r.mu.Lock()
	session, protocol := r.session, r.protocol
	r.mu.Unlock()
	if protocol == "" {
		r.mux.mu.Lock()
		protocol = r.mux.protocol
		r.mux.mu.Unlock()
	}
	if protocol == "" && method == "server/discover" {
		protocol = stateless
	}
	if protocol != "" && method != "initialize" {
		req.Header.Set("Mcp-Protocol-Version", protocol)
	}
	if session != "" {
		req.Header.Set("Mcp-Session-Id", session)
	}
	if protocol >= stateless && method != "" {
		req.Header.Set("Mcp-Method", method)
		if name != "" {
			req.Header.Set("Mcp-Name", headerValue(name))
		}
	}
}

// post sends one message and returns the response, whatever its status. With once it
// leaves a single time, whatever the response.
func (r *remote) post(ctx context.Context, body []byte, method, name string, extra http.Header, once bool) (*http.Response, error) {
	body = bytes.TrimSuffix(body, []byte{'\n'})
	resp, err := r.do(func(u *url.URL) (*http.Request, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		r.setHeaders(req, method, name)
		for k, v := range extra {
			req.Header[k] = v
		}
		return req, nil
	}, once)
	if err != nil {
		return nil, err
	}
	if id := resp.Header.Get("Mcp-Session-Id"); id != "" && method == "initialize" {
		r.mu.Lock()
		r.session = id
		r.mu.Unlock()
	}
	return resp, nil
}

// sdkSend implements link. Requests are exchanged in the background, and what goes
// wrong with one comes back as its answer: the connection itself is fine.
func (r *remote) sdkSend(ctx context.Context, msg jsonrpc.Message) error {
	body, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	if req, ok := msg.(*jsonrpc.Request); ok && req.IsCall() {
		id, _ := req.ID.Raw().(int64)
		if !r.spawn(func() { r.sdkExchange(id, req.Method, body) }) {
			return errGone
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.tune.controlWrite)
	defer cancel()
	resp, err := r.post(ctx, body, "", "", nil, false)
	if err == nil {
		_ = resp.Body.Close()
		if resp.StatusCode >= 300 {
			err = statusError(resp.StatusCode)
		}
	}
	if err != nil {
		return &jsonrpc.Error{Code: codeNotDelivered, Message: r.red.String(err.Error())}
	}
	return nil
}

// abandoned is how long an exchange may go on after its call was cancelled; until
// then a late answer still tells that the server is done with it.
const abandoned = 30 * time.Second

// cancelWrite bounds a cancel notification: a peer that takes none must not collect
// them, each with a connection.
const cancelWrite = 5 * time.Second

var errCancelled = errors.New("cancelled: the stream of the answer was closed")

// cancel implements link. Without sessions closing the stream is the cancel.
func (r *remote) cancel(p *pending, reason string) {
	r.mu.Lock()
	protocol := r.protocol
	r.mu.Unlock()
	if protocol >= stateless {
		r.abort(p, errCancelled)
		return
	}
	r.spawn(func() {
		ctx, cancel := context.WithTimeout(r.ctx, cancelWrite)
		defer cancel()
		if resp, err := r.post(ctx, appendCancelled(nil, p.id, reason), "", "", nil, false); err == nil {
			_ = resp.Body.Close()
		}
	})
	time.AfterFunc(abandoned, func() { r.abort(p, errCancelled) })
}

// abort ends the exchange of a request, if it still goes on.
func (r *remote) abort(p *pending, cause error) {
	r.mu.Lock()
	f := r.aborts[p]
	r.mu.Unlock()
	if f != nil {
		f(cause)
	}
}
