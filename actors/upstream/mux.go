package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"mcpbridge/internal/planted"
	"mcpbridge/internal/rawjson"
	"mcpbridge/messages"
)

// firstRawID is where our own request ids begin; the SDK counts its own from 1.
const firstRawID int64 = 1_000_000_000

// maxServerRequests bounds the server's requests that wait for the SDK's answer:
// its queue is unbounded, so what comes beyond is dropped as noise.
const maxServerRequests = 64

// codeNotDelivered is the SDK's code for a request that its transport could not
// deliver: the request fails, the connection stays.
const codeNotDelivered = -32005

// callKey names one attempt of a call, for Cancel.
type callKey struct {
	id      string
	attempt int
}

// pending is one request of our own that waits for its reply.
type pending struct {
	id       int64
	method   string
	name     string // of the tool, for tools/call
	body     []byte // the whole message with its newline
	boundary *messages.Boundary
	progress func(json.RawMessage)
	ctx      context.Context // nil for calls: the router owns their deadline
	exec     *messages.Exec  // nil for everything but calls
	opened   func()          // the stream of the answer is open; nil for not wanted
	key      callKey
	reply    chan messages.Reply // capacity one; settled exactly once
	err      error               // what went wrong below HTTP; written before the reply

	// Under mux.mu.
	entered   bool
	writing   bool // entered, and its writer has not said how much of it has left
	cancelled bool
	reason    string
}

// mux tells the messages of one connection apart: answers to our own requests, the
// few notifications that the bridge wants, and what the SDK's session is for. It
// owns the table of requests in flight, and settles each of them exactly once.
type mux struct {
	onListChanged func()
	noise         *noise
	stray         atomic.Uint64 // answers that nobody waits for
	serverReqs    atomic.Int32
	born          time.Time
	heard         atomic.Int64 // when the last message came, in nanoseconds after born

	sdk     chan jsonrpc.Message
	sdkGone chan struct{} // the SDK reads no more
	sdkOnce sync.Once
	gone    chan struct{}

	mu     sync.Mutex
	nextID int64
	table  map[int64]*pending
	calls  map[callKey]*pending
	sdkIDs map[int64]string // requests of the SDK in flight, by method
	over   bool
	ending string        // why it is over
	refuse string        // not "": no new request may leave, and why
	era    []byte        // see peer.era; set before the session is in service
	calm   chan struct{} // closed when no call is in flight; made by stopNew

	// What the handshake did, for whoever judges its failure.
	probed      bool   // server/discover was sent
	probeSilent bool   // and was not answered in time
	answered    bool   // the server answered some request of the SDK
	protocol    string // what initialize agreed on
}

func newMux(onListChanged func(), n *noise) *mux {
	return &mux{onListChanged: onListChanged, noise: n, born: time.Now(),
		sdk: make(chan jsonrpc.Message, maxServerRequests), sdkGone: make(chan struct{}), gone: make(chan struct{}),
		nextID: firstRawID, table: map[int64]*pending{}, calls: map[callKey]*pending{}, sdkIDs: map[int64]string{}}
}

// touch notes that the server said something.
func (m *mux) touch() { m.heard.Store(int64(time.Since(m.born))) }

// lastHeard is when it did so last.
func (m *mux) lastHeard() time.Time { return m.born.Add(time.Duration(m.heard.Load())) }

// add registers a request and gives it its id; an error means that it cannot be sent.
func (m *mux) add(p *pending) error {
	p.reply = make(chan messages.Reply, 1)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over {
		return errGone
	}
	if m.refuse != "" {
		return errors.New(m.refuse)
	}
	p.id = m.nextID
	if planted.Is(planted.ReplyToWrongCall) {
		p.id = firstRawID + int64(len(m.table))
	}
	m.nextID++
	m.table[p.id] = p
	if p.exec != nil {
		m.calls[p.key] = p
	}
	return nil
}

// enter is the last question before the first byte: false means that the request
// must not be written, and has its reply already.
func (m *mux) enter(p *pending) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.table[p.id] != p:
		return false
	case p.entered: // a second connection for the same request, after a redirect
		return true
	case m.refuse != "":
		m.settleLocked(p, messages.Reply{Kind: messages.ReplyNotEntered, Err: m.refuse})
		return false
	case p.boundary != nil && !p.boundary.Enter():
		m.settleLocked(p, messages.Reply{Kind: messages.ReplyNotEntered, Err: "the call was withdrawn before it was sent"})
		return false
	}
	p.entered = true
	return true
}

// settle gives a request its one reply; a second one is dropped.
func (m *mux) settle(p *pending, r messages.Reply) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.table[p.id] != p {
		return false
	}
	m.settleLocked(p, r)
	return true
}

func (m *mux) settleLocked(p *pending, r messages.Reply) {
	switch r.Kind {
	case messages.ReplyResult, messages.ReplyError, messages.ReplyTooLarge, messages.ReplyProtocol:
		m.touch() // not everything that HTTP brings passes through inbound
	}
	delete(m.table, p.id)
	if p.exec != nil && m.calls[p.key] == p {
		delete(m.calls, p.key)
	}
	p.reply <- r
	m.calmLocked()
}

// calmLocked tells whoever waits for it that no call is in flight.
func (m *mux) calmLocked() {
	if m.calm != nil && len(m.calls) == 0 {
		select {
		case <-m.calm:
		default:
			close(m.calm)
		}
	}
}

// enterWriting is enter for a request whose writer tells what became of it by wrote.
func (m *mux) enterWriting(p *pending) bool {
	m.mu.Lock()
	p.writing = true // before it has entered nobody looks
	m.mu.Unlock()
	return m.enter(p)
}

// wrote tells how many bytes of a request were written. Only its writer knows whether it
// has left at all, so that the end of the connection leaves the verdict to it.
func (m *mux) wrote(p *pending, n int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p.writing = false
	switch {
	case m.table[p.id] != p:
	case err != nil && n == 0:
		m.settleLocked(p, messages.Reply{Kind: messages.ReplyUnsent, Err: err.Error()})
	case err != nil:
		m.loseLocked(p, err.Error(), false)
	case m.over:
		m.loseLocked(p, m.ending, false)
	}
}

// lose settles a request that will get no answer: as not entered where that is
// certain, else as lost.
func (m *mux) lose(p *pending, why string, proven bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.table[p.id] == p {
		m.loseLocked(p, why, proven)
	}
}

func (m *mux) loseLocked(p *pending, why string, proven bool) {
	if !p.entered {
		m.settleLocked(p, messages.Reply{Kind: messages.ReplyNotEntered, Err: why})
		return
	}
	m.settleLocked(p, messages.Reply{Kind: messages.ReplyLost, Err: why, Proven: proven})
}

// loseAs settles a request that will get no answer: as lost, or as not entered where
// that is certain.
func (m *mux) loseAs(p *pending, r messages.Reply) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.table[p.id] != p {
		return
	}
	if r.Kind = messages.ReplyLost; !p.entered {
		r.Kind, r.Proven = messages.ReplyNotEntered, false
	}
	m.settleLocked(p, r)
}

// abandon takes a request back that nobody waits for any more.
func (m *mux) abandon(p *pending) (waited, entered bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.table[p.id] != p {
		return false, false
	}
	m.settleLocked(p, messages.Reply{Kind: messages.ReplyNotEntered})
	return true, p.entered
}

// waits reports whether the request still has no reply.
func (m *mux) waits(p *pending) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.table[p.id] == p
}

// stopNew refuses every request that has not begun to leave. The channel is closed
// when no call is in flight.
func (m *mux) stopNew(why string) <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refuse == "" {
		m.refuse = why
		m.calm = make(chan struct{})
	}
	m.calmLocked()
	return m.calm
}

// close ends the connection: no reply can come any more.
func (m *mux) close(why string) {
	m.noise.stop()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over {
		return
	}
	m.over = true
	m.ending = why
	for _, p := range m.table {
		if !p.entered || !p.writing {
			m.loseLocked(p, why, false)
		}
	}
	close(m.gone)
}

// cancelling marks a call as cancelled. It returns the request when the server
// should be told now; one that is not written yet is told right after its request.
func (m *mux) cancelling(callID string, attempt int, reason string) *pending {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.calls[callKey{callID, attempt}]
	if p == nil || p.cancelled {
		return nil
	}
	p.cancelled, p.reason = true, reason
	if !p.entered {
		return nil
	}
	return p
}

// cancelWanted reports whether a cancel came while the request was being written,
// and its reason.
func (m *mux) cancelWanted(p *pending) (string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return p.reason, p.cancelled && m.table[p.id] == p
}

// toSDK hands a message to the SDK's session. It waits for the session to take it,
// which it does at once as long as it lives.
func (m *mux) toSDK(msg jsonrpc.Message) {
	select {
	case m.sdk <- msg:
	case <-m.sdkGone:
	}
}

// sdkRequest notes that the SDK sends a request.
func (m *mux) sdkRequest(id int64, method string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sdkIDs[id] = method
	m.probed = m.probed || method == "server/discover"
}

// sdkAnswer gives the SDK the answer to one of its requests, once; answers that it
// does not wait for are dropped. It reports whether this one was wanted.
func (m *mux) sdkAnswer(id int64, result []byte, rpcErr *jsonrpc.Error) bool {
	m.mu.Lock()
	method, ok := m.sdkIDs[id]
	delete(m.sdkIDs, id)
	if ok {
		switch {
		case rpcErr == errProbeSilent:
			m.probeSilent = true
		case rpcErr == nil || rpcErr.Code != codeNotDelivered:
			m.answered = true
		}
		if method == "initialize" && rpcErr == nil {
			rawjson.Fields(result, func(k, v []byte) {
				if string(k) == "protocolVersion" {
					m.protocol, _ = asString(v)
				}
			})
		}
	}
	m.mu.Unlock()
	if !ok {
		return false
	}
	jid, _ := jsonrpc.MakeID(float64(id))
	resp := &jsonrpc.Response{ID: jid, Result: result}
	if rpcErr != nil {
		resp.Error = rpcErr
	}
	m.toSDK(resp)
	return true
}

// sdkWaits reports whether the SDK's request still has no answer.
func (m *mux) sdkWaits(id int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.sdkIDs[id]
	return ok
}

// sdkClosed is called when the SDK's session reads no more.
func (m *mux) sdkClosed() { m.sdkOnce.Do(func() { close(m.sdkGone) }) }
