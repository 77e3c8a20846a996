package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// get opens an event stream, after lastID where there is one.
func (r *remote) get(ctx context.Context, lastID string) (*http.Response, error) {
	return r.do(r.bare(ctx, http.MethodGet, func(h http.Header) {
		h.Set("Accept", "text/event-stream")
		h.Set("Accept-Encoding", "identity") // a stream without end must not be a bomb as well
		if lastID != "" {
			h.Set("Last-Event-ID", lastID)
		}
	}), false)
}

// eventStream keeps the standalone stream of a session open, on which the server
// says that its tools changed. A server need not offer one, and the calls do not
// depend on it: it is tried again for as long as that makes sense, ever less eagerly,
// and its loss is only a reason to ask whether the server is still there.
func (r *remote) eventStream() {
	lastID, opened := "", false
	for delay := r.tune.listenDelay; ; delay = min(delay*3/2, 30*time.Second) {
		resp, err := r.get(r.ctx, lastID)
		switch {
		case r.ctx.Err() != nil:
			if err == nil {
				_ = resp.Body.Close()
			}
			return
		case err != nil:
			var redirect *errRedirect
			if errors.As(err, &redirect) {
				return // no stream on offer
			}
			if nobodyThere(err) {
				r.check("ping")
			}
		case resp.StatusCode == http.StatusOK && mediaType(resp) == "text/event-stream":
			if opened {
				r.mux.onListChanged() // whatever changed in between was not heard
			}
			opened = true
			began := time.Now()
			er := newEventReader(resp.Body, r.max)
			er.lastID = lastID
			r.events(er)
			_ = resp.Body.Close()
			lastID = er.lastID
			if time.Since(began) > time.Minute {
				delay = r.tune.listenDelay
			}
			delay = min(max(delay, er.retry), maxPause)
			if r.ctx.Err() == nil {
				r.check("ping")
			}
		default:
			again := r.streamRefused(resp)
			delay = max(delay, pauseOf(resp, time.Now()))
			if !again {
				return
			}
		}
		select {
		case <-r.ctx.Done():
			return
		case <-time.After(delay):
		}
	}
}

// streamRefused judges an answer to GET that is no stream, closes it, and reports
// whether another try makes sense.
func (r *remote) streamRefused(resp *http.Response) bool {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	_ = resp.Body.Close()
	switch status := resp.StatusCode; {
	case status >= 500 || status == http.StatusTooManyRequests:
		return true
	case status == http.StatusMethodNotAllowed:
		return false // no stream on offer
	case status == http.StatusUnauthorized || r.sessionLost(status, body):
		// A server that has no stream may say so in many ways. Whether it means the
		// session is asked where it counts.
		r.check("ping")
		return false
	default:
		return false
	}
}

// events feeds a stream to the mux until it ends.
func (r *remote) events(er *eventReader) {
	for {
		ev, err := er.next()
		if err != nil {
			return
		}
		if ev.name == "" || ev.name == "message" {
			er.useful()
			r.mux.inbound(ev.data)
		}
	}
}

// openSSE opens the one stream of HTTP+SSE and learns where requests go.
func (r *remote) openSSE(ctx context.Context) error {
	r.sse = true
	opened := make(chan error, 1)
	if !r.spawn(func() { r.runSSE(opened) }) {
		return errGone
	}
	select {
	case err := <-opened:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-r.mux.gone:
		return errGone
	}
}

func (r *remote) runSSE(opened chan<- error) {
	fail := func(status int, err error) {
		r.mu.Lock()
		r.fault = &httpFault{method: "GET", status: status, err: err}
		r.mu.Unlock()
		opened <- err
	}
	resp, err := r.get(r.ctx, "")
	if err != nil {
		fail(0, err)
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		fail(resp.StatusCode, errors.New(describe(resp, r.red)))
		return
	}
	if t := mediaType(resp); t != "text/event-stream" {
		fail(resp.StatusCode, fmt.Errorf("content type %q instead of an event stream", r.shown(t)))
		return
	}
	er := newEventReader(resp.Body, r.max)
	ev, err := er.next()
	if err != nil || ev.name != "endpoint" || ev.data.over {
		fail(resp.StatusCode, errors.New("the event stream does not begin with the endpoint for requests"))
		return
	}
	from := resp.Request.URL
	to, err := from.Parse(strings.TrimSpace(string(ev.data.data)))
	switch {
	case err != nil || to.Host == "":
		fail(resp.StatusCode, errors.New("the event stream names no address for requests"))
		return
	case originOf(to) != originOf(from):
		fail(resp.StatusCode, fmt.Errorf("the event stream names another origin for requests, %s: not followed", r.shown(originOf(to))))
		return
	}
	to.User, to.Fragment = from.User, ""
	r.moveTo(to)
	opened <- nil
	r.events(er)
	if r.ctx.Err() == nil {
		r.fail("the event stream ended")
	}
}
