package upstream

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"mcpbridge/internal/planted"
	"mcpbridge/messages"
)

var (
	errGone = errors.New("the connection to the server is gone")
	// errProbeSilent is the answer that we give the SDK in the name of a server
	// that does not answer server/discover.
	errProbeSilent = &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "no answer to server/discover"}
)

// link is one way to reach a server. Whatever happens to a request, the link
// settles it in the mux.
type link interface {
	// send takes a request to the server. It returns when the request is written
	// (stdio) or answered (HTTP).
	send(p *pending)
	// sdkSend takes a message of the SDK's session to the server.
	sdkSend(ctx context.Context, msg jsonrpc.Message) error
	// cancel tells the server that p is no longer wanted; it does not wait.
	cancel(p *pending, reason string)
	// negotiated tells the protocol revision once it is known.
	negotiated(protocol string)
	// listed tells the newest definitions.
	listed(tools []messages.ToolDef)
	// fail ends the connection because of something that the server did.
	fail(cause string)
	stop(l messages.Ladder)
	ended() <-chan struct{}
	exit() messages.Exit
}

// stdio is a link over the pipes of a child process.
type stdio struct {
	*child
	mux  *mux
	log  *stderrLog
	tune tuning
	max  int

	// lock is held while a message is written; a channel, so that waiting for it
	// can end early.
	lock chan struct{}
}

// newStdio takes a started child into service. started is called once its readers run.
func newStdio(c *child, m *mux, log *stderrLog, maxFrame int, tune tuning) *stdio {
	s := &stdio{child: c, mux: m, log: log, max: maxFrame, tune: tune, lock: make(chan struct{}, 1)}
	c.pipes.Add(2)
	go s.readStdout()
	go func() {
		defer c.pipes.Done()
		log.read(c.stderr)
	}()
	go c.run(func() { m.close(s.lastWords()) })
	return s
}

// readStdout feeds the mux until nothing can come any more.
func (s *stdio) readStdout() {
	r := newLineReader(s.stdout, s.max)
	for {
		f, err := r.next()
		if err != nil {
			break
		}
		s.mux.inbound(f)
	}
	// No reply can come any more, whatever the process still does: calls end now,
	// and the process, unless it is ending anyway, has a moment to exit by itself.
	s.mux.close(s.lastWords())
	s.child.stop(s.grace(), "", "closed its stdout")
	s.pipes.Done()
}

// grace is the ladder for a process that is of no use any more and may be ending.
func (s *stdio) grace() messages.Ladder {
	return messages.Ladder{StdinClose: s.tune.eofGrace, SigTerm: s.tune.eofGrace, Kill: killProof}
}

// lastWords says why calls in flight are lost.
func (s *stdio) lastWords() string {
	s.child.mu.Lock()
	cause := s.cause
	s.child.mu.Unlock()
	if cause != "" {
		return "the server's process ended: " + cause
	}
	return "the server's process ended or closed its stdout"
}

func (s *stdio) negotiated(string) {}

func (s *stdio) listed([]messages.ToolDef) {}

// errStdinClosed is a write to a process that reads no more: it is dead or dying.
var errStdinClosed = errors.New("the server closed its stdin")

// diedAlone reports, once the link has ended, whether nobody made the process end.
func (s *stdio) diedAlone() bool {
	s.child.mu.Lock()
	defer s.child.mu.Unlock()
	return s.cause == ""
}

func (s *stdio) ended() <-chan struct{} { return s.done }

// stop implements link: new requests are refused from now on, those in flight go
// on until the process ends.
func (s *stdio) stop(l messages.Ladder) {
	cause := "stopped"
	select {
	case <-s.dead:
		cause = ""
	case <-s.mux.gone:
		cause = ""
	default:
	}
	s.mux.stopNew("the server is being stopped")
	s.child.stop(l, cause, "")
}

// fail kills the process at once.
func (s *stdio) fail(cause string) {
	s.mux.stopNew(cause)
	s.child.stop(messages.Ladder{Kill: killProof}, cause, "")
}

func (s *stdio) exit() messages.Exit {
	reason, clean := s.child.ended()
	s.child.mu.Lock()
	defer s.child.mu.Unlock()
	at := s.diedAt
	if at.IsZero() {
		at = time.Now()
	}
	e := messages.Exit{Reason: reason, Stage: messages.StageRunning, At: at, Clean: clean,
		StderrTail: s.log.tail(), TreeAlive: s.treeUp}
	if left := s.child.tree.Left(); s.treeUp && left != "" {
		e.Hint = "left over: " + left
	}
	return e
}

// send implements link.
func (s *stdio) send(p *pending) {
	if planted.Is(planted.WaiterLeaked) && p.boundary != nil {
		go func() { <-p.boundary.Voided() }()
	}
	if !s.acquire(p) {
		return
	}
	if !s.mux.enterWriting(p) {
		<-s.lock
		return
	}
	limit := time.Now().Add(s.tune.minWrite)
	if p.exec != nil && p.exec.Deadline.After(limit) {
		limit = p.exec.Deadline
	}
	n, err := s.write(p.body, limit)
	<-s.lock
	if s.mux.wrote(p, n, err); err != nil {
		return
	}
	if reason, wanted := s.mux.cancelWanted(p); wanted {
		s.cancel(p, reason)
	}
}

// acquire waits for the write lock as long as the request is wanted.
func (s *stdio) acquire(p *pending) bool {
	select {
	case s.lock <- struct{}{}:
		return true
	default:
	}
	var voided, cancelled <-chan struct{}
	if p.boundary != nil {
		voided = p.boundary.Voided()
	}
	if p.ctx != nil {
		cancelled = p.ctx.Done()
	}
	select {
	case s.lock <- struct{}{}:
		return true
	case <-voided:
		s.mux.lose(p, "the call was withdrawn before it was sent", true)
	case <-cancelled:
		s.mux.lose(p, p.ctx.Err().Error(), true)
	case <-s.mux.gone: // settled already
	}
	return false
}

// write needs the lock. A message that is cut short makes the stream unusable, and
// a server that takes nothing for that long is stuck: both end the process.
func (s *stdio) write(b []byte, limit time.Time) (int, error) {
	_ = s.stdin.SetWriteDeadline(limit)
	n, err := s.stdin.Write(b)
	switch {
	case err == nil:
		return n, nil
	case errors.Is(err, os.ErrClosed):
		err = errors.New("the server is being stopped")
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("the server does not read its stdin: %d of %d bytes written", n, len(b))
		s.fail("does not read its stdin")
	case errors.Is(err, syscall.EPIPE):
		err = errStdinClosed
		s.mux.stopNew(err.Error())
		// Answers that are on their way still count.
		s.child.stop(s.grace(), "", "closed its stdin")
	default:
		s.fail("stdin: " + err.Error())
	}
	return n, err
}

// sdkSend implements link.
func (s *stdio) sdkSend(ctx context.Context, msg jsonrpc.Message) error {
	b, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	return s.control(ctx, append(b, '\n'))
}

// control writes a message that is no request of ours.
func (s *stdio) control(ctx context.Context, b []byte) error {
	select {
	case s.lock <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.mux.gone:
		return errGone
	}
	defer func() { <-s.lock }()
	_, err := s.write(b, time.Now().Add(s.tune.controlWrite))
	return err
}

// cancel implements link.
func (s *stdio) cancel(p *pending, reason string) {
	go func() { _ = s.control(context.Background(), appendCancelled(nil, p.id, reason)) }()
}
