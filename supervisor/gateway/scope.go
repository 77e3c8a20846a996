package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpbridge/messages"
)

// scopeKey names one face of the catalogue: everything or one server, all of it or
// what a view admits.
type scopeKey struct{ server, view string }

// scope is one face of the catalogue with the SDK server that speaks for it. The
// SDK server does handshakes, pings, subscriptions and notifications; lists and
// calls are answered before it (http.go, stream.go), and what reaches it inside a
// JSON-RPC batch is answered by middleware.
type scope struct {
	key    scopeKey
	g      *Gateway
	server *mcp.Server

	mu       sync.Mutex
	own      *listing            // at large, of the newest catalogue that was asked for
	lists    map[string]*listing // by client, of the same catalogue
	told     string              // fingerprint of what sessions were last told of
	diverged bool                // a list that differs from told was handed out

	searched atomic.Bool // somebody has searched here
}

// nudge is a tool that exists only inside the SDK server: adding it again is the
// SDK's one way to send tools/list_changed. No client ever sees it, because the
// SDK never answers tools/list.
var nudge = &mcp.Tool{Name: "mcpbridge-catalogue", InputSchema: json.RawMessage(`{"type":"object"}`)}

// noTool is nudge's handler, which nothing reaches.
func noTool(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return nil, &jsonrpc.Error{Code: codeInvalidParams, Message: "unknown tool"}
}

// scopeFor finds or makes the scope. Callers have checked that both names exist, so
// there are never more scopes than configured names.
func (g *Gateway) scopeFor(key scopeKey) *scope {
	g.mu.Lock()
	defer g.mu.Unlock()
	if sc, ok := g.scopes[key]; ok {
		return sc
	}
	sc := &scope{key: key, g: g}
	sc.server = mcp.NewServer(g.impl, &mcp.ServerOptions{
		Logger: nil, // the SDK logs what clients do wrong; they are told
		Capabilities: &mcp.ServerCapabilities{
			// Declared, not inferred: a server that joins late must be heard of.
			Tools: &mcp.ToolCapabilities{ListChanged: true},
			// Results that were cut are read as resources; they are not listed.
			Resources: &mcp.ResourceCapabilities{},
		},
		PageSize:     pageSize,
		SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) { c.TTLMs, c.CacheScope = 0, "private" },
	})
	sc.server.AddReceivingMiddleware(sc.middleware)
	sc.told = sc.render(g.backend.Catalogue(), "").fingerprint
	g.scopes[key] = sc
	g.touchIndex()
	return sc
}

// checkScope says in a sentence why a scope does not exist, "" where it does.
func (g *Gateway) checkScope(key scopeKey) string {
	cat := g.backend.Catalogue()
	if key.server != "" && !cat.Knows(key.server) {
		if _, ok := g.backend.Status().Server(key.server); !ok {
			return fmt.Sprintf("no server %q is configured; `bridgectl status` lists the servers", key.server)
		}
	}
	if !cat.HasView(key.view) {
		return fmt.Sprintf("no view %q is configured; see views: in the configuration", key.view)
	}
	return ""
}

// middleware stands before the SDK's own methods.
func (sc *scope) middleware(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (res mcp.Result, err error) {
		defer func() {
			if p := recover(); p != nil {
				sc.g.log.Error("panic in a handler", "method", method, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				res, err = nil, &jsonrpc.Error{Code: codeInternal, Message: "internal error of the bridge"}
			}
		}()
		switch method {
		case "tools/list":
			return sc.sdkList(ctx, req)
		case "tools/call":
			return sc.sdkCall(ctx, req)
		case "resources/read":
			return sc.sdkRead(ctx, req)
		case "initialize":
			// Before the SDK takes the session for initialized: what is refused here
			// it throws away by itself.
			if err := sc.admit(ctx, req); err != nil {
				return nil, err
			}
			res, err = next(ctx, method, req)
		case "subscriptions/listen":
			// It waits for the end of its context, which the SDK forgets to bring
			// about when a session is closed before the request is looked at.
			if life := requestOf(ctx).life; life != nil {
				var cancel context.CancelFunc
				ctx, cancel = context.WithCancel(ctx)
				defer cancel()
				defer context.AfterFunc(life, cancel)()
			}
			return next(ctx, method, req)
		default:
			res, err = next(ctx, method, req)
		}
		if err != nil {
			return nil, err // with it, the SDK may bring a typed nil
		}
		switch v := res.(type) {
		case *mcp.InitializeResult:
			v.Instructions = sc.instructions()
		case *mcp.DiscoverResult:
			v.Instructions = sc.instructions()
		}
		return res, nil
	}
}

// admit puts a fresh HTTP session into the table.
func (sc *scope) admit(ctx context.Context, req mcp.Request) error {
	ss, ok := req.GetSession().(*mcp.ServerSession)
	if !ok || ss.ID() == "" {
		return nil // a stream, or a stateless request
	}
	if !sc.g.sessions.add(ss.ID(), requestOf(ctx).client, sc, ss) {
		return &jsonrpc.Error{Code: codeBusy, Message: "this client has too many sessions with calls in flight; end one first"}
	}
	return nil
}

// versionMark remembers the newest catalogue version that an event announced.
type versionMark struct {
	mu sync.Mutex
	v  uint64
}

func (m *versionMark) raise(v uint64) {
	m.mu.Lock()
	m.v = max(m.v, v)
	m.mu.Unlock()
}

func (m *versionMark) get() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.v
}

// onEvent is called by the backend, one event after the other; it never blocks.
func (g *Gateway) onEvent(e messages.Event) {
	if e.Type != messages.EventCatalogue && e.Type != messages.EventGap {
		return // a gap may have swallowed a catalogue event
	}
	g.want.raise(e.Version)
	g.touchIndex()
	select {
	case g.dirty <- struct{}{}:
	default:
	}
}

// notifyLoop tells sessions that their list changed: once for all changes within
// settleDelay, and only those whose scope shows a difference.
func (g *Gateway) notifyLoop() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	timer.Stop()
	early := 0
	for {
		select {
		case <-g.base.Done():
			return
		case <-g.dirty:
			timer.Reset(settleDelay)
			continue
		case <-timer.C:
		}
		version := g.tellChanges()
		// A version that was announced but is not published yet is worth waiting for.
		if early++; version >= g.want.get() || early > 100 {
			early = 0
			continue
		}
		timer.Reset(settleDelay)
	}
}

// tellChanges notifies the scopes that the current catalogue changes, and returns
// its version.
func (g *Gateway) tellChanges() (version uint64) {
	defer func() {
		if p := recover(); p != nil { // of the backend: the next change tries again
			g.log.Error("panic while the catalogue was compared", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	cat := g.backend.Catalogue()
	for _, sc := range g.allScopes() {
		if sc.changed(cat) {
			sc.server.AddTool(nudge, noTool)
		}
	}
	return cat.Version
}

func (g *Gateway) allScopes() []*scope {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Values(g.scopes))
}

// changed reports whether sessions must list again, and takes note that they will.
func (sc *scope) changed(cat *messages.Catalogue) bool {
	fp := sc.render(cat, "").fingerprint
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if fp == sc.told && !sc.diverged {
		return false
	}
	sc.told, sc.diverged = fp, false
	return true
}

// visible returns the scope's tools in the order of their wire names.
func (sc *scope) visible(cat *messages.Catalogue) []messages.Tool {
	var tools []messages.Tool
	if sc.key.server != "" {
		tools = cat.Server(sc.key.server)
	} else {
		tools = cat.Tools()
	}
	kept := tools[:0]
	for _, t := range tools {
		if cat.InView(sc.key.view, t) {
			kept = append(kept, t)
		}
	}
	return kept
}

// wireName is the tool's name at this endpoint.
func (sc *scope) wireName(t messages.Tool) string {
	if sc.key.server != "" {
		return t.RemoteName
	}
	return t.EndpointName
}

// target addresses a call of this scope for the backend.
func (sc *scope) target(name string) messages.CallTool {
	if sc.key.server != "" {
		return messages.CallTool{Server: sc.key.server, Tool: name, View: sc.key.view}
	}
	return messages.CallTool{Tool: name, View: sc.key.view}
}
