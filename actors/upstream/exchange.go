package upstream

import (
	"bytes"
	"context"
	"encoding/json"
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
	resp, err := r.post(traced, p.body, p.method, p.name, r.paramHeaders(p))
	if headers != nil {
		headers.Stop()
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		r.mux.lose(p, r.red.String(err.Error()), false)
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
			Err: fmt.Sprintf("HTTP %d with content type %q instead of an answer", resp.StatusCode, mediaType(resp))})
	}
}

// streamed reads the answer off an event stream, which a server with sessions may
// break and let us take up again where it was.
func (r *remote) streamed(ctx context.Context, p *pending, resp *http.Response) {
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
				if id, ok := sniffID(ev.data.data, ev.data.end); !ok || id == p.id {
					r.mux.settle(p, messages.Reply{Kind: messages.ReplyTooLarge, Err: "the answer is larger than limits.frame_bytes"})
				}
				continue
			}
			if ev.name == "" || ev.name == "message" {
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
		_ = resp.Body.Close()
		return nil, fmt.Errorf("the stream of the answer broke and could not be resumed: %w", statusError(resp.StatusCode))
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

// readJSON hands over the body as one frame.
func (r *remote) readJSON(resp *http.Response, use func(frame), bad func(error)) {
	b, err := io.ReadAll(io.LimitReader(resp.Body, int64(r.max)+1))
	switch {
	case err != nil:
		bad(fmt.Errorf("the answer broke off: %w", err))
	case len(b) > r.max:
		use(oversized(b))
	default:
		// A body is one message however it is laid out.
		use(frame{data: b, owned: true})
	}
}

// refused settles a request that got an HTTP error. A JSON-RPC error in the body is
// the server's answer; what the status says of the session counts for all.
func (r *remote) refused(p *pending, resp *http.Response) {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	err := statusError(resp.StatusCode)
	if raw := errorBody(body, p.id); raw != nil {
		r.mux.settle(p, messages.Reply{Kind: messages.ReplyError, Raw: raw})
	} else {
		r.mux.lose(p, err.Error(), provesRefusal(resp.StatusCode))
	}
	r.mu.Lock()
	session := r.session
	r.mu.Unlock()
	switch {
	case resp.StatusCode == http.StatusNotFound && session != "":
		r.fail("session ended by server")
	case resp.StatusCode == http.StatusUnauthorized:
		r.block(resp.StatusCode)
	}
}

// provesRefusal reports whether an HTTP error means that the server did not take the
// request up. Those of a client do, but for the two by which a proxy in between says that
// it waited no longer.
func provesRefusal(status int) bool {
	const clientClosedRequest = 499 // nginx
	return status < 500 && status != http.StatusRequestTimeout && status != clientClosedRequest
}

// block ends the session because the server wants other credentials.
func (r *remote) block(status int) {
	r.mu.Lock()
	r.blocked = true
	r.mu.Unlock()
	r.fail(statusError(status).Error())
}

// errorBody finds the JSON-RPC error in the body of a refused request. Its id may
// be missing: a server that refuses may not have read so far.
func errorBody(body []byte, id int64) json.RawMessage {
	body = bytes.TrimSpace(body)
	if !json.Valid(body) {
		return nil
	}
	var raw, version json.RawMessage
	fits := true
	eachField(body, func(k, v []byte) {
		switch string(k) {
		case "jsonrpc":
			version = v
		case "error":
			raw = v
		case "id":
			if n, ok := asID(v); ok && n != id {
				fits = false
			}
		}
	})
	if !isObject(raw) || version == nil || !fits {
		return nil
	}
	return raw
}

// sdkExchange does the exchange of one request of the SDK.
func (r *remote) sdkExchange(id int64, method string, body []byte) {
	fail := func(status int, err error) {
		r.mu.Lock()
		if r.ctx.Err() == nil { // else it only failed because we hung up
			r.fault = &httpFault{method, status, err}
		}
		r.mu.Unlock()
		r.mux.sdkAnswer(id, nil, &jsonrpc.Error{Code: codeNotDelivered, Message: r.red.String(err.Error())})
	}
	resp, err := r.post(r.ctx, body, method, "", nil)
	if err != nil {
		fail(0, err)
		return
	}
	defer resp.Body.Close()
	r.mu.Lock()
	r.status[method] = resp.StatusCode
	r.mu.Unlock()
	if resp.StatusCode >= 300 {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		if raw := errorBody(b, id); raw != nil {
			if r.mux.sdkAnswer(id, nil, sdkError(&envelope{err: raw})) {
				return
			}
		}
		fail(resp.StatusCode, statusError(resp.StatusCode))
		return
	}
	if r.sse {
		return
	}
	switch mediaType(resp) {
	case "application/json":
		r.readJSON(resp, r.mux.inbound, func(err error) { fail(resp.StatusCode, err) })
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
				r.mux.inbound(ev.data)
			}
			if !r.mux.sdkWaits(id) {
				r.drain(resp.Body)
				return
			}
		}
	default:
		fail(resp.StatusCode, fmt.Errorf("HTTP %d with content type %q instead of an answer to %s", resp.StatusCode, mediaType(resp), method))
	}
}

func mediaType(resp *http.Response) string {
	t, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		t, _, _ = strings.Cut(resp.Header.Get("Content-Type"), ";")
	}
	return strings.ToLower(strings.TrimSpace(t))
}
