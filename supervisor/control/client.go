package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"mcpbridge/messages"
)

// NoDaemonError says that nobody serves on the socket.
type NoDaemonError struct {
	Path string
	Err  error
}

// Error implements error.
func (e *NoDaemonError) Error() string {
	return fmt.Sprintf("no bridge answers on %s: %v", e.Path, e.Err)
}

// Unwrap gives the reason.
func (e *NoDaemonError) Unwrap() error { return e.Err }

// LostError says that the daemon went away in the middle of an answer.
type LostError struct{ Err error }

// Error implements error.
func (e *LostError) Error() string {
	return fmt.Sprintf("the bridge went away before it answered: %v", e.Err)
}

// Unwrap gives the reason.
func (e *LostError) Unwrap() error { return e.Err }

// Client talks to the daemon behind one socket. It may be used from any number of
// goroutines; Close frees idle connections.
type Client struct {
	path string
	http *http.Client
	tr   *http.Transport
}

// NewClient returns a client for the socket at path. Nothing is connected yet.
func NewClient(path string) *Client {
	tr := &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, path) },
		DisableCompression: true,
	}
	return &Client{path: path, http: &http.Client{Transport: tr}, tr: tr}
}

// Path is the socket's path.
func (c *Client) Path() string { return c.path }

// Close frees what is idle.
func (c *Client) Close() { c.tr.CloseIdleConnections() }

// do sends one request and returns the answer of a 2xx; the body is the caller's.
func (c *Client) do(ctx context.Context, method, path string, q url.Values, body any) (*http.Response, error) {
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encode request: %w", err)
		}
		r = bytes.NewReader(b)
	}
	u := "http://mcpbridge" + path
	if len(q) > 0 {
		u += "?" + q.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, u, r)
	if err != nil {
		return nil, err
	}
	// A request is never sent twice by the transport, which would for some methods.
	req.GetBody = nil
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.classify(ctx, err)
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, readError(resp)
}

// classify tells "nobody is there" from "it left" from "the caller gave up".
func (c *Client) classify(ctx context.Context, err error) error {
	var none *NoDaemonError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &none):
		return none
	default:
		return &LostError{unwrapURL(err)}
	}
}

func unwrapURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

func readError(resp *http.Response) error {
	var body struct{ Error *Error }
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil && json.Unmarshal(raw, &body) == nil && body.Error != nil {
		body.Error.Status = resp.StatusCode
		return body.Error
	}
	return &Error{Code: CodeFailed, Status: resp.StatusCode, Message: fmt.Sprintf("the bridge answered %s", resp.Status)}
}

// get decodes one JSON answer.
func (c *Client) get(ctx context.Context, method, path string, q url.Values, body, out any) error {
	resp, err := c.do(ctx, method, path, q, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return c.classify(ctx, err)
	}
	_, _ = io.Copy(io.Discard, resp.Body) // so that the connection can be used again
	return nil
}

// Version asks who is there.
func (c *Client) Version(ctx context.Context) (v Version, err error) {
	return v, c.get(ctx, http.MethodGet, "/v1/version", nil, nil, &v)
}

// Status returns the state of the bridge and the named servers (none: all).
func (c *Client) Status(ctx context.Context, servers ...string) (st messages.Status, err error) {
	return st, c.get(ctx, http.MethodGet, "/v1/status", url.Values{"server": servers}, nil, &st)
}

// ToolsQuery narrows Tools; empty fields match everything.
type ToolsQuery struct {
	Name    string // exactly this tool, under any of its names, on offer or not
	Pattern string
	Server  string
	Effect  string
	View    string
	All     bool // also what is known and not on offer
}

// Tools lists the catalogue.
func (c *Client) Tools(ctx context.Context, t ToolsQuery) (out Tools, err error) {
	q := url.Values{}
	for k, v := range map[string]string{"name": t.Name, "pattern": t.Pattern, "server": t.Server, "effect": t.Effect, "view": t.View} {
		if v != "" {
			q.Set(k, v)
		}
	}
	if t.All {
		q.Set("all", "true")
	}
	return out, c.get(ctx, http.MethodGet, "/v1/tools", q, nil, &out)
}

// Call runs one call and returns its outcome. progress may be nil. Cancelling ctx
// closes the connection: the caller has left.
func (c *Client) Call(ctx context.Context, req CallRequest, progress func(json.RawMessage)) (messages.Outcome, error) {
	req.Progress = progress != nil
	resp, err := c.do(ctx, http.MethodPost, "/v1/call", nil, req)
	if err != nil {
		return messages.Outcome{}, err
	}
	defer resp.Body.Close()
	for d := json.NewDecoder(resp.Body); ; {
		var f CallFrame
		if err := d.Decode(&f); err != nil {
			return messages.Outcome{}, c.classify(ctx, err)
		}
		switch {
		case f.Outcome != nil:
			return *f.Outcome, nil
		case progress != nil && len(f.Progress) > 0:
			progress(f.Progress)
		}
	}
}

// Calls lists the calls that are in flight or queued.
func (c *Client) Calls(ctx context.Context) (out Calls, err error) {
	return out, c.get(ctx, http.MethodGet, "/v1/calls", nil, nil, &out)
}

// Cancel asks to cancel a call.
func (c *Client) Cancel(ctx context.Context, id string) error {
	var ignored json.RawMessage
	return c.get(ctx, http.MethodPost, "/v1/calls/"+url.PathEscape(id)+"/cancel", nil, nil, &ignored)
}

// Operate applies a verb to a server.
func (c *Client) Operate(ctx context.Context, verb messages.Verb, server string) error {
	var ignored json.RawMessage
	return c.get(ctx, http.MethodPost, "/v1/servers/"+url.PathEscape(server)+"/"+string(verb), nil, nil, &ignored)
}

// Wait blocks until the target is reached, cannot be reached, or time is up.
func (c *Client) Wait(ctx context.Context, w WaitRequest) (res WaitResult, err error) {
	q := url.Values{"server": w.Servers, "for": {string(w.For)}}
	if w.Timeout > 0 {
		q.Set("timeout", w.Timeout.String())
	}
	for name, gen := range w.After {
		q.Add("after", name+"="+strconv.FormatUint(gen, 10))
	}
	return res, c.get(ctx, http.MethodGet, "/v1/wait", q, nil, &res)
}

// Window is the part of a history that is wanted.
type Window struct {
	Servers []string
	Types   []string // events only
	N       int      // the last N; negative = all that is kept
	Since   time.Time
	Follow  bool
}

func (w Window) query() url.Values {
	q := url.Values{"server": w.Servers, "type": w.Types}
	if w.N >= 0 {
		q.Set("n", strconv.Itoa(w.N))
	}
	if !w.Since.IsZero() {
		q.Set("since", w.Since.Format(time.RFC3339Nano))
	}
	if w.Follow {
		q.Set("follow", "true")
	}
	return q
}

// Events calls f for each event of the window until it is over or ctx is done.
func (c *Client) Events(ctx context.Context, w Window, f func(messages.Event) error) error {
	return ndjson(ctx, c, "/v1/events", w, f)
}

// Logs calls f for each line of the window until it is over or ctx is done.
func (c *Client) Logs(ctx context.Context, w Window, f func(messages.LogLine) error) error {
	return ndjson(ctx, c, "/v1/logs", w, f)
}

func ndjson[T any](ctx context.Context, c *Client, path string, w Window, f func(T) error) error {
	resp, err := c.do(ctx, http.MethodGet, path, w.query(), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	for d := json.NewDecoder(resp.Body); ; {
		var v T
		switch err := d.Decode(&v); {
		case errors.Is(err, io.EOF) && ctx.Err() == nil && !w.Follow:
			return nil
		case err != nil:
			return c.classify(ctx, err)
		}
		if err := f(v); err != nil {
			return err
		}
	}
}

// Config returns what the bridge runs with, secrets masked; with origin, every value
// tells where it was written.
func (c *Client) Config(ctx context.Context, origin bool) (out Config, err error) {
	return out, c.get(ctx, http.MethodGet, "/v1/config", url.Values{"origin": {strconv.FormatBool(origin)}}, nil, &out)
}

// ConfigDiff tells what the configuration files say now and the bridge does not do yet.
func (c *Client) ConfigDiff(ctx context.Context) (out ConfigDiff, err error) {
	return out, c.get(ctx, http.MethodGet, "/v1/config/diff", nil, nil, &out)
}

// Reload makes the bridge apply its configuration files as they are now.
func (c *Client) Reload(ctx context.Context) (out Reload, err error) {
	return out, c.get(ctx, http.MethodPost, "/v1/reload", nil, nil, &out)
}

// Stream opens a newline-delimited MCP connection to the bridge.
func (c *Client) Stream(ctx context.Context, view string) (Conn, error) {
	conn, err := dial(ctx, c.path)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	target := "/v1/stream"
	if view != "" {
		target += "?" + url.Values{"view": {view}}.Encode()
	}
	head := strings.Join([]string{"GET " + target + " HTTP/1.1", "Host: mcpbridge", "Connection: Upgrade", "Upgrade: " + upgrade, "", ""}, "\r\n")
	if _, err := io.WriteString(conn, head); err != nil {
		_ = conn.Close()
		return nil, c.classify(ctx, err)
	}
	br := bufio.NewReader(conn)
	resp, err := http.ReadResponse(br, &http.Request{Method: http.MethodGet}) //nolint:bodyclose // a 101 has no body: what follows is the stream; readError closes the others
	if err != nil {
		_ = conn.Close()
		return nil, c.classify(ctx, err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		defer conn.Close()
		return nil, readError(resp)
	}
	return &streamConn{Conn: conn, r: br}, nil
}
