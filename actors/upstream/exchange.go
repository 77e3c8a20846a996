package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"mcpbridge/messages"
)

// headerGrace is how long after a call's deadline the response headers may still
// come; then nothing waits for them and the connection is given up.
const headerGrace = 5 * time.Second

var errNoHeaders = errors.New("no response headers until after the call's deadline")

// send implements link: one POST and its answer. The call's boundary is passed
// when a connection is at hand, immediately before the request goes out on it.
func (r *remote) send(p *pending) {
	if wait := r.paused(); wait > 0 {
		r.mux.loseAs(p, messages.Reply{Err: "the server has too many requests and asked to wait", After: wait})
		return
	}
	ctx, cancel := context.WithCancelCause(r.ctx)
	defer cancel(nil)
	r.mu.Lock()
	r.aborts[p] = cancel
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.aborts, p)
		r.mu.Unlock()
	}()
	if p.ctx != nil {
		defer context.AfterFunc(p.ctx, func() { cancel(p.ctx.Err()) })()
	}
	if p.boundary != nil {
		voided := p.boundary.Voided()
		go func() {
			select {
			case <-voided:
				cancel(errors.New("the call was withdrawn before it was sent"))
			case <-ctx.Done():
			}
		}()
	}
	var headers *time.Timer
	if p.exec != nil && !p.exec.Deadline.IsZero() {
		headers = time.AfterFunc(time.Until(p.exec.Deadline)+headerGrace, func() { cancel(errNoHeaders) })
	}
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		if !r.mux.enter(p) {
			// A closed connection is what certainly keeps the bytes from leaving.
			_ = info.Conn.Close()
			cancel(errGone)
		}
	}})
	resp, err := r.post(traced, p.body, p.method, p.name, r.paramHeaders(p), p.exec != nil)
	if headers != nil {
		headers.Stop()
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		p.err = err
		r.mux.lose(p, r.red.String(err.Error()), false)
		if p.exec != nil && nobodyThere(err) {
			r.check("ping")
		}
		return
	}
	if reason, wanted := r.mux.cancelWanted(p); wanted {
		r.cancel(p, reason)
	}
	r.answer(ctx, p, resp)
}

// answer reads the response to a request until the request has its reply.
func (r *remote) answer(ctx context.Context, p *pending, resp *http.Response) {
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		r.refused(p, resp)
		return
	}
	if r.sse {
		return // the answer comes on the event stream
	}
	switch mediaType(resp) {
	case "application/json":
		if coded := resp.Header.Get("Content-Encoding"); coded != "" && !strings.EqualFold(coded, "identity") {
			r.mux.settle(p, messages.Reply{Kind: messages.ReplyProtocol, Err: "the answer has the content encoding " + r.shown(coded) + ", which was not asked for"})
			return
		}
		r.readJSON(resp, func(f frame) {
			if f.over {
				r.mux.settle(p, messages.Reply{Kind: messages.ReplyTooLarge, Err: "the answer is larger than limits.frame_bytes"})
				return
			}
			r.mux.inbound(f)
		}, func(err error) { r.mux.lose(p, r.red.String(err.Error()), false) })
		r.mux.settle(p, messages.Reply{Kind: messages.ReplyProtocol, Err: "the body of the response holds no answer to the call"})
	case "text/event-stream":
		r.streamed(ctx, p, resp)
	default:
		r.mux.settle(p, messages.Reply{Kind: messages.ReplyProtocol,
			Err: fmt.Sprintf("HTTP %d with content type %q instead of an answer", resp.StatusCode, r.shown(mediaType(resp)))})
	}
}

// streamed reads the answer off an event stream, which a server with sessions may
// break and let us take up again where it was.
func (r *remote) streamed(ctx context.Context, p *pending, resp *http.Response) {
	if p.opened != nil {
		p.opened()
	}
	for tries := 0; ; {
		er := newEventReader(resp.Body, r.max)
		got := 0
		for r.mux.waits(p) {
			ev, err := er.next()
			if err != nil {
				break
			}
			got++
			if ev.data.over {
				if !ev.data.found || ev.data.id == p.id {
					r.mux.settle(p, messages.Reply{Kind: messages.ReplyTooLarge, Err: "the answer is larger than limits.frame_bytes"})
				}
				continue
			}
			if ev.name == "" || ev.name == "message" {
				er.useful()
				r.mux.inbound(ev.data)
			}
		}
		if !r.mux.waits(p) {
			r.drain(resp.Body)
			return
		}
		_ = resp.Body.Close()
		if got > 0 {
			tries = 0
		}
		var err error
		if resp, err = r.resume(ctx, er, &tries); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			r.mux.lose(p, r.red.String(err.Error()), false)
			return
		}
		defer resp.Body.Close()
	}
}

// resume opens a broken stream of an answer again. Reading on is no resending.
func (r *remote) resume(ctx context.Context, er *eventReader, tries *int) (*http.Response, error) {
	r.mu.Lock()
	protocol := r.protocol
	r.mu.Unlock()
	if er.lastID == "" || protocol >= stateless {
		return nil, errors.New("the stream of the answer ended without it")
	}
	for ; *tries < 5; *tries++ {
		wait := max(er.retry, time.Duration(*tries)*r.tune.listenDelay)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(wait):
		}
		resp, err := r.get(ctx, er.lastID)
		if err != nil {
			continue
		}
		if resp.StatusCode == http.StatusOK && mediaType(resp) == "text/event-stream" {
			*tries++
			return resp, nil
		}
		r.streamRefused(resp)
		return nil, fmt.Errorf("the stream of the answer broke and could not be resumed: %s", describe(resp, r.red))
	}
	return nil, errors.New("the stream of the answer broke and could not be resumed")
}

// drain reads the rest of a body that is as good as over, so that its connection
// can be used again.
func (r *remote) drain(body io.ReadCloser) {
	if !r.spawn(func() {
		t := time.AfterFunc(time.Second, func() { _ = body.Close() })
		_, _ = io.CopyN(io.Discard, body, 64<<10)
		t.Stop()
		_ = body.Close()
	}) {
		_ = body.Close()
	}
}

// sdkExchange does the exchange of one request of the SDK.
func (r *remote) sdkExchange(id int64, method string, body []byte) {
	var after time.Duration
	fail := func(status int, err error) {
		r.mu.Lock()
		if r.ctx.Err() == nil { // else it only failed because we hung up
			r.fault = &httpFault{method, status, err, after}
		}
		r.mu.Unlock()
		r.mux.sdkAnswer(id, nil, &jsonrpc.Error{Code: codeNotDelivered, Message: r.red.String(err.Error())})
	}
	resp, err := r.post(r.ctx, body, method, "", nil, false)
	if err != nil {
		fail(0, err)
		return
	}
	defer resp.Body.Close()
	r.mu.Lock()
	r.status[method] = resp.StatusCode
	r.mu.Unlock()
	if resp.StatusCode >= 300 {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
		r.refusesInitialize(method, resp.StatusCode, b)
		after = r.slowDown(resp)
		if raw := errorBody(b, id); raw != nil && !wantsCredentials(resp.StatusCode) {
			if r.mux.sdkAnswer(id, nil, sdkError(&envelope{err: raw})) {
				return
			}
		}
		fail(resp.StatusCode, errors.New(describe(resp, r.red)))
		return
	}
	if r.sse {
		return
	}
	switch mediaType(resp) {
	case "application/json":
		r.readJSON(resp, func(f frame) {
			if !f.over && method == "initialize" {
				r.refusesInitialize(method, resp.StatusCode, errorBody(f.data, id))
			}
			r.mux.inbound(f)
		}, func(err error) { fail(resp.StatusCode, err) })
		fail(resp.StatusCode, errors.New("the body of the response holds no answer to "+method))
	case "text/event-stream":
		er := newEventReader(resp.Body, r.max)
		for {
			ev, err := er.next()
			if err != nil {
				fail(resp.StatusCode, errors.New("the event stream ended without an answer to "+method))
				return
			}
			if ev.name == "" || ev.name == "message" {
				er.useful()
				if method == "initialize" && !ev.data.over {
					r.refusesInitialize(method, resp.StatusCode, errorBody(ev.data.data, id))
				}
				r.mux.inbound(ev.data)
			}
			if !r.mux.sdkWaits(id) {
				r.drain(resp.Body)
				return
			}
		}
	default:
		fail(resp.StatusCode, fmt.Errorf("HTTP %d with content type %q instead of an answer to %s", resp.StatusCode, r.shown(mediaType(resp)), method))
	}
}

func mediaType(resp *http.Response) string {
	t, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		t, _, _ = strings.Cut(resp.Header.Get("Content-Type"), ";")
	}
	return strings.ToLower(strings.TrimSpace(t))
}
