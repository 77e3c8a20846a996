package gateway

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpbridge/internal/rawjson"
)

const (
	headerSession  = "Mcp-Session-Id"
	headerProtocol = "Mcp-Protocol-Version"
	headerMethod   = "Mcp-Method"
	headerName     = "Mcp-Name"
)

// request is what the gateway knows about the request that a context belongs to.
type request struct {
	client string
	scope  *scope
	life   context.Context // of the stream that it came by; nil for HTTP
	shown  *shown          // … and what it was shown
}

type requestKey struct{}

// requestOf never returns nil: a context of another origin has no client.
func requestOf(ctx context.Context) *request {
	if rq, ok := ctx.Value(requestKey{}).(*request); ok {
		return rq
	}
	return &request{}
}

// serveHTTP lets a request in. Host and Origin come first, so that a web page
// learns nothing from the rest; then the token; only then does the path matter.
func (g *Gateway) serveHTTP(rw http.ResponseWriter, r *http.Request) {
	w := &tracked{ResponseWriter: rw}
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			panic(p)
		}
		g.log.Error("panic in a request", "path", r.URL.Path, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		if w.begun.Load() {
			panic(http.ErrAbortHandler) // the client must not take half an answer for a whole one
		}
		writeError(w, http.StatusInternalServerError, nil, &wireError{Code: codeInternal, Message: "internal error of the bridge"})
	}()
	if err := g.guard.check(r); err != nil {
		writeError(w, http.StatusForbidden, nil, invalidRequest("%v", err))
		return
	}
	client, ok := Anonymous, true
	if g.opts.Authenticate != nil {
		client, ok = g.opts.Authenticate(r)
	}
	if !ok {
		w.Header().Set("WWW-Authenticate", "Bearer")
		writeError(w, http.StatusUnauthorized, nil, invalidRequest("a valid token is needed: send `Authorization: Bearer TOKEN` with the bridge's token"))
		return
	}
	if g.isClosed() {
		w.Header().Set("Connection", "close")
		writeError(w, http.StatusServiceUnavailable, nil, &wireError{Code: codeBusy, Message: "the bridge is shutting down"})
		return
	}
	r = r.WithContext(context.WithValue(r.Context(), requestKey{}, &request{client: client}))
	g.mux.ServeHTTP(w, r)
}

// serve answers a request to one of the two endpoints; server is "" for /mcp.
func (g *Gateway) serve(w http.ResponseWriter, r *http.Request, server string) {
	switch r.Method {
	case http.MethodPost, http.MethodGet, http.MethodDelete:
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		writeError(w, http.StatusMethodNotAllowed, nil, invalidRequest("the method %s is not served here", r.Method))
		return
	}
	view, err := viewOf(r.URL)
	if err != nil {
		writeError(w, http.StatusBadRequest, nil, invalidRequest("%v", err))
		return
	}
	key := scopeKey{server, view}
	if why := g.checkScope(key); why != "" {
		writeError(w, http.StatusNotFound, nil, invalidRequest("%s", why))
		return
	}
	rq := &request{client: requestOf(r.Context()).client, scope: g.scopeFor(key)}
	ctx, cancel := context.WithCancel(context.WithValue(r.Context(), requestKey{}, rq))
	defer cancel()
	defer context.AfterFunc(g.base, cancel)()
	r = r.WithContext(ctx)

	var sess *session
	modern := isModern(r.Header.Get(headerProtocol))
	if id := r.Header.Get(headerSession); id != "" && !modern {
		if sess = g.sessions.get(id, rq.client, rq.scope); sess == nil {
			writeError(w, http.StatusNotFound, nil, invalidRequest("session not found"))
			return
		}
		defer sess.touch()()
	}
	if r.Method == http.MethodPost {
		g.servePost(w, r, rq, sess, modern)
		return
	}
	if r.Method == http.MethodDelete && sess != nil {
		sess.end()
	}
	g.serveSDK(w, r, modern)
}

// viewOf reads ?view=NAME. A query that cannot be read, or an empty name, must not
// end up as "everything".
func viewOf(u *url.URL) (string, error) {
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return "", errors.New("the query string cannot be read")
	}
	switch views := q["view"]; len(views) {
	case 0:
		return "", nil
	case 1:
		if views[0] != "" {
			return views[0], nil
		}
	}
	return "", errors.New("view must be given once, with a name: /mcp?view=NAME")
}

// serveSDK hands a request to the SDK's handler of its era.
func (g *Gateway) serveSDK(w http.ResponseWriter, r *http.Request, modern bool) {
	sw := newStreamWriter(w, g.keepAlive, g.unread)
	defer sw.close()
	if modern {
		g.stateless.ServeHTTP(sw, r)
	} else {
		g.stateful.ServeHTTP(sw, r)
	}
}

// servePost takes tools/call, tools/list and the cancellation of our calls out of
// the stream of requests; the rest is the SDK's, and so is every request whose
// session, headers or _meta are not as they should be: it words those refusals.
func (g *Gateway) servePost(w http.ResponseWriter, r *http.Request, rq *request, sess *session, modern bool) {
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		writeError(w, http.StatusUnsupportedMediaType, nil, invalidRequest("Content-Type must be application/json"))
		return
	}
	if !acceptsBoth(r.Header.Values("Accept")) {
		g.serveSDK(w, r, modern) // answers 400 without reading on
		return
	}
	body, id, status, werr := g.readBody(w, r)
	if werr != nil {
		writeError(w, status, id, werr)
		return
	}
	env, batch, werr := parseEnvelope(body)
	if werr != nil {
		writeError(w, http.StatusBadRequest, env.id, werr)
		return
	}
	if sess != nil && !batch && g.questions.take(sess, env) {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	raw := false
	if batch && noBatches(r.Header, sess) {
		writeError(w, http.StatusBadRequest, nil, invalidRequest("JSON-RPC batches are not part of this protocol revision; send one message a request"))
		return
	}
	switch env.method {
	case "tools/call", "tools/list", "resources/read":
		raw = !batch && ready(r.Header, env, sess, modern)
	case "notifications/cancelled":
		if sess != nil && g.cancelled(&sess.calls, env.params) {
			w.WriteHeader(http.StatusAccepted)
			return
		}
	}
	if !raw {
		g.serveSDK(w, r, modern)
		return
	}
	key, ok := idKey(env.id)
	if !ok {
		writeError(w, http.StatusBadRequest, nil, invalidRequest("%s needs an id that is a string or a number", env.method))
		return
	}
	switch env.method {
	case "tools/list":
		g.serveList(w, r, rq, env, sess, modern)
		return
	case "resources/read":
		g.serveRead(w, rq, env, modern)
		return
	}
	g.serveCall(w, r, rq, env, key, sess, modern)
}

// lastBatches is the last protocol revision that has JSON-RPC batches.
const lastBatches = "2025-03-26"

// noBatches reports whether a request is of a revision without batches: by what it says
// itself, or by what its session agreed on.
func noBatches(h http.Header, sess *session) bool {
	version := h.Get(headerProtocol)
	if sess != nil && version == "" {
		version = sess.version()
	}
	return version > lastBatches
}

// ready reports whether a tools request may be answered without the SDK.
func ready(h http.Header, env envelope, sess *session, modern bool) bool {
	version := h.Get(headerProtocol)
	if version != "" && !slices.Contains(mcp.SupportedProtocolVersions(), version) {
		return false
	}
	meta, _ := rawjson.Lookup(env.params, "_meta")
	if !modern {
		_, has := rawjson.Lookup(meta, mcp.MetaKeyProtocolVersion)
		return sess != nil && !has
	}
	if !modernMeta(meta, version) || h.Get(headerMethod) != env.method {
		return false
	}
	member := "name"
	switch env.method {
	case "tools/list":
		return true
	case "resources/read":
		member = "uri"
	}
	name, _ := rawjson.Lookup(env.params, member)
	return rawjson.IsString(name) && decodeHeader(h.Get(headerName)) == rawjson.Unquote(name)
}

// modernMeta reports whether _meta holds what protocol 2026-07-28 requires of a
// request. version is what the transport said, "" where it says nothing.
func modernMeta(meta json.RawMessage, version string) bool {
	var proto, caps, info json.RawMessage
	if !rawjson.Object(meta, func(m rawjson.Member) bool {
		val := meta[m.ValStart:m.ValEnd]
		switch m.Key {
		case mcp.MetaKeyProtocolVersion:
			proto = val
		case mcp.MetaKeyClientCapabilities:
			caps = val
		case mcp.MetaKeyClientInfo:
			info = val
		}
		return true
	}) {
		return false
	}
	got := unquoteIf(proto)
	return isModern(got) && slices.Contains(mcp.SupportedProtocolVersions(), got) &&
		(version == "" || version == got) && rawjson.IsObject(caps) && (info == nil || rawjson.IsObject(info))
}

// decodeHeader undoes the `=?base64?…?=` form of header values; a value that is
// none comes back as it is.
func decodeHeader(v string) string {
	inner, ok := strings.CutPrefix(v, "=?base64?")
	if !ok {
		return v
	}
	if inner, ok = strings.CutSuffix(inner, "?="); !ok {
		return v
	}
	b, err := base64.StdEncoding.DecodeString(inner)
	if err != nil {
		return v
	}
	return string(b)
}

// acceptsBoth follows the transport's rule: a client takes JSON and event streams.
func acceptsBoth(values []string) bool {
	var isJSON, isStream bool
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			kind, _, _ := strings.Cut(part, ";")
			switch strings.ToLower(strings.TrimSpace(kind)) {
			case "application/json", "application/*":
				isJSON = true
			case "text/event-stream", "text/*":
				isStream = true
			case "*/*":
				isJSON, isStream = true, true
			}
		}
	}
	return isJSON && isStream
}

// readBody reads the whole body within its bounds of size and time. Of one that is
// too large it returns the request's id: an error without it ends the session of a
// client that cannot tell which of its requests failed. For the same reason the rest
// is read, within reason: who is cut off in the middle of sending sees no answer.
func (g *Gateway) readBody(w http.ResponseWriter, r *http.Request) (body []byte, id json.RawMessage, status int, werr *wireError) {
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(bodyTimeout))
	// Left standing, the deadline would later look like a client who went away.
	defer func() { _ = rc.SetReadDeadline(time.Time{}) }()
	limit := g.opts.MaxBody
	var err error
	buf := bytes.NewBuffer(make([]byte, 0, min(max(r.ContentLength, 0), 64<<10)+bytes.MinRead))
	if r.ContentLength <= limit {
		_, err = buf.ReadFrom(io.LimitReader(r.Body, limit+1))
	}
	switch n := int64(buf.Len()); {
	case err != nil:
		return nil, nil, http.StatusBadRequest, invalidRequest("the request body could not be read to its end")
	case r.ContentLength > limit || n > limit:
		var long longMessage
		_, _ = long.Write(buf.Bytes())
		if n, _ := io.CopyN(&long, r.Body, maxSkipped); n == maxSkipped {
			w.Header().Set("Connection", "close")
		}
		return nil, long.id(), http.StatusRequestEntityTooLarge, invalidRequest("the request body is over the limit of %d bytes", limit)
	case n == 0:
		return nil, nil, http.StatusBadRequest, &wireError{Code: codeParse, Message: "the request body is empty"}
	}
	return buf.Bytes(), nil, 0, nil
}

// serveList answers tools/list.
func (g *Gateway) serveList(w http.ResponseWriter, r *http.Request, rq *request, env envelope, sess *session, modern bool) {
	out := newResponder(w, modern, false, g.grace, g.keepAlive)
	defer out.stop()
	raw, werr := rq.scope.listPage(r.Context(), rq.scope.callerOf(r.Context(), sess), env.params, modern)
	if werr != nil {
		out.finish(errorAnswer(env.id, werr))
		return
	}
	out.finish(answer{head: appendHead(nil, env.id, "result"), body: raw, tail: []byte("}")})
}

// serveRead answers resources/read.
func (g *Gateway) serveRead(w http.ResponseWriter, rq *request, env envelope, modern bool) {
	out := newResponder(w, modern, false, g.grace, g.keepAlive)
	defer out.stop()
	raw, werr := rq.scope.readResult(rq.client, env.params, modern)
	if werr != nil {
		out.finish(errorAnswer(env.id, werr))
		return
	}
	out.finish(answer{head: appendHead(nil, env.id, "result"), body: raw, tail: []byte("}")})
}

// serveCall answers tools/call. A client of the session era that goes away has not
// cancelled: its call runs on to its outcome (so does this goroutine, at most to
// the call's deadline). In the stateless era the response is the call's life.
func (g *Gateway) serveCall(w http.ResponseWriter, r *http.Request, rq *request, env envelope, key string, sess *session, modern bool) {
	c, werr := parseCall(env.id, env.params, modern)
	if werr != nil {
		writeError(w, statusOf(werr.Code, modern), env.id, werr)
		return
	}
	ctx, callID := r.Context(), newCallID()
	if modern {
		if why := rq.scope.paramMismatch(r.Header, c.name, c.args); why != "" {
			writeError(w, http.StatusBadRequest, env.id, &wireError{Code: codeHeaderMismatch, Message: why})
			return
		}
	} else {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(sess.ctx)
		defer cancel()
		if !sess.calls.add(key, &flight{callID: callID, leave: cancel}) {
			writeError(w, http.StatusBadRequest, env.id, invalidRequest("a request with this id is still in flight"))
			return
		}
		defer sess.calls.remove(key)
	}
	out := newResponder(w, modern, c.progress != nil, g.grace, g.keepAlive)
	defer out.stop()
	who := rq.scope.callerOf(r.Context(), sess)
	if g.askClient.Load() && sess != nil && canElicit(sess.ss) {
		who.ask = g.asker(sess, out.send)
	}
	a := rq.scope.perform(ctx, c, callID, who, out.notify)
	defer g.delivered(a)
	out.finish(a)
}
