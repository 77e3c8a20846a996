package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// streamRetries is how often in a row the event stream of a session may fail to
// open before the server counts as unreachable.
const streamRetries = 5

// get opens an event stream, after lastID where there is one.
func (r *remote) get(ctx context.Context, lastID string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	r.setHeaders(req, "", "")
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	resp, err := r.client.Do(req)
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err
	}
	return resp, err
}

// eventStream keeps the standalone stream of a session open, on which the server
// says that its tools changed. A server need not offer one.
func (r *remote) eventStream() {
	lastID, opened, failures := "", false, 0
	for delay := r.tune.listenDelay; ; delay = min(delay*3/2, 30*time.Second) {
		resp, err := r.get(r.ctx, lastID)
		switch {
		case r.ctx.Err() != nil:
			if err == nil {
				_ = resp.Body.Close()
			}
			return
		case err != nil:
			if failures++; failures >= streamRetries && opened {
				r.fail(r.red.String("the server cannot be reached any more: " + err.Error()))
				return
			}
		case resp.StatusCode == http.StatusOK && mediaType(resp) == "text/event-stream":
			if opened {
				r.mux.onListChanged() // whatever changed in between was not heard
			}
			opened, failures = true, 0
			began := time.Now()
			er := newEventReader(resp.Body, r.max)
			er.lastID = lastID
			r.events(er)
			_ = resp.Body.Close()
			lastID = er.lastID
			if time.Since(began) > time.Minute {
				delay = r.tune.listenDelay
			}
			delay = max(delay, er.retry)
		default:
			_ = resp.Body.Close()
			if !r.streamRefused(resp.StatusCode, opened) {
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

// streamRefused judges an answer to GET that is no stream, and reports whether
// another try makes sense.
func (r *remote) streamRefused(status int, opened bool) bool {
	switch {
	case status == http.StatusUnauthorized && opened:
		r.block(status)
		return false
	case status == http.StatusNotFound && opened:
		r.fail("session ended by server")
		return false
	case status >= 500 || status == http.StatusTooManyRequests:
		return true
	default:
		return false // no stream on offer
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
		r.fault = &httpFault{"GET", status, err}
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
		fail(resp.StatusCode, statusError(resp.StatusCode))
		return
	}
	if t := mediaType(resp); t != "text/event-stream" {
		fail(resp.StatusCode, fmt.Errorf("content type %q instead of an event stream", t))
		return
	}
	er := newEventReader(resp.Body, r.max)
	ev, err := er.next()
	if err != nil || ev.name != "endpoint" || ev.data.over {
		fail(resp.StatusCode, errors.New("the event stream does not begin with the endpoint for requests"))
		return
	}
	to, err := r.url.Parse(string(ev.data.data))
	if err != nil || originOf(to) != originOf(r.url) {
		fail(resp.StatusCode, errors.New("the event stream names another origin for requests: not followed"))
		return
	}
	r.url = to // before anybody sends: opened orders it
	opened <- nil
	r.events(er)
	if r.ctx.Err() == nil {
		r.fail("the event stream ended")
	}
}
