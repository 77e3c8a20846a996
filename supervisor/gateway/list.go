package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpbridge/internal/rawjson"
	"mcpbridge/messages"
)

// listing is tools/list of one scope for one catalogue, ready to be sent.
type listing struct {
	cat         *messages.Catalogue
	names       []string // sorted
	entries     [][]byte
	digests     []string // of the definitions
	fingerprint string
	tools       []messages.Tool // what the names stand for, or what discovery hides
	hides       bool            // discovery hides the tools

	of    *listing              // nil, or the scope's own, of which this is what one client sees
	whole [][]byte              // of the scope's own: the entries of tools, hidden or not
	index atomic.Pointer[index] // of the scope's own; made by finder
}

// face is the listing whose tools these are.
func (l *listing) face() *listing {
	if l.of != nil {
		return l.of
	}
	return l
}

// maxLists bounds the listings that are kept: names of clients may be made up.
const maxLists = 64

// render returns the scope's listing for cat (or a newer catalogue that was asked for
// already) and a client, made once for both. The fingerprint is that of the catalogue
// at large, whoever asks.
func (sc *scope) render(cat *messages.Catalogue, client string) *listing {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if sc.own == nil || sc.own.cat != cat && sc.own.cat.Version <= cat.Version {
		sc.own = sc.renderOwn(cat, sc.own)
		sc.lists = nil
	}
	if client == "" || sc.own.hides {
		return sc.own
	}
	if l := sc.lists[client]; l != nil {
		return l
	}
	l := sc.renderFor(client, sc.own)
	if sc.lists == nil || len(sc.lists) >= maxLists {
		sc.lists = map[string]*listing{}
	}
	sc.lists[client] = l
	return l
}

// renderOwn makes the scope's listing at large. Entries of tools that did not change
// since the one before are taken from there.
func (sc *scope) renderOwn(cat *messages.Catalogue, before *listing) *listing {
	tools := sc.visible(cat)
	slices.SortFunc(tools, func(a, b messages.Tool) int { return strings.Compare(sc.wireName(a), sc.wireName(b)) })
	l := &listing{cat: cat, tools: tools, names: make([]string, len(tools)), digests: make([]string, len(tools)), whole: make([][]byte, len(tools))}
	size, old := 0, 0
	for i := range tools {
		t := &tools[i]
		name := sc.wireName(*t)
		for before != nil && old < len(before.tools) && sc.wireName(before.tools[old]) < name {
			old++
		}
		if before != nil && old < len(before.tools) && sameEntry(t, &before.tools[old]) {
			l.whole[i] = before.whole[old]
		} else {
			l.whole[i] = toolEntry(*t, name)
		}
		l.names[i], l.digests[i] = name, t.Digest
		size += len(l.whole[i])
	}
	l.entries = l.whole
	if l.hides = sc.discovers(size); l.hides {
		l.names, l.entries = metaEntries(tools)
		l.digests = make([]string, len(l.names))
	}
	sum := sha256.New()
	for _, entry := range l.entries {
		sum.Write(entry)
		sum.Write([]byte{0})
	}
	l.fingerprint = string(sum.Sum(nil))
	return l
}

// sameEntry reports whether toolEntry writes the same for both: it compares all that it
// looks at. What did not change mostly is the same memory, which makes that quick.
func sameEntry(a, b *messages.Tool) bool {
	return a.EndpointName == b.EndpointName && a.RemoteName == b.RemoteName && a.Server == b.Server && a.Permission == b.Permission &&
		bytes.Equal(a.Def.Raw, b.Def.Raw) && a.Def.Title == b.Def.Title && a.Def.Description == b.Def.Description &&
		bytes.Equal(a.Def.InputSchema, b.Def.InputSchema) && bytes.Equal(a.Def.OutputSchema, b.Def.OutputSchema) &&
		bytes.Equal(a.Def.Annotations, b.Def.Annotations)
}

// renderFor makes what one client sees of the scope's own listing: the same, but for
// permissions that are the client's.
func (sc *scope) renderFor(client string, own *listing) *listing {
	l := &listing{cat: own.cat, tools: own.tools, names: own.names, digests: own.digests, entries: own.entries, fingerprint: own.fingerprint, of: own}
	shared := true
	for i := range own.tools {
		t := own.tools[i]
		p := sc.permission(t, client)
		if p == t.Permission {
			continue
		}
		if shared {
			l.entries, shared = slices.Clone(own.entries), false
		}
		t.Permission = p
		l.entries[i] = toolEntry(t, own.names[i])
	}
	return l
}

// listPage answers tools/list with the result object.
func (sc *scope) listPage(ctx context.Context, who caller, params json.RawMessage, modern bool) ([]byte, *wireError) {
	cursor, werr := cursorOf(params)
	if werr != nil {
		return nil, werr
	}
	sc.g.backend.WaitListed(ctx, sc.key.server)
	l := sc.render(sc.g.backend.Catalogue(), who.client)
	sc.mu.Lock()
	sc.diverged = sc.diverged || l.fingerprint != sc.told
	sc.mu.Unlock()

	from := 0
	if cursor != "" {
		var found bool
		if from, found = slices.BinarySearch(l.names, cursor); found {
			from++
		}
	}
	to := min(from+pageSize, len(l.names))
	who.shown.record(l, from, to)
	size := 200
	for _, e := range l.entries[from:to] {
		size += len(e) + 1
	}
	out := make([]byte, 0, size)
	out = append(out, '{')
	if modern {
		out = append(out, `"resultType":"complete","_meta":{"`+mcp.MetaKeyServerInfo+`":`...)
		out = append(out, sc.g.serverInfo()...)
		out = append(out, `},"ttlMs":0,"cacheScope":"private",`...)
	}
	if to < len(l.names) {
		out = append(out, `"nextCursor":"`...)
		out = base64.RawURLEncoding.AppendEncode(out, []byte(cursorPrefix+l.names[to-1]))
		out = append(out, `",`...)
	}
	out = append(out, `"tools":[`...)
	for i, e := range l.entries[from:to] {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, e...)
	}
	return append(out, "]}"...), nil
}

// cursorPrefix marks our cursors: behind it stands the last name of a page, so
// that a page goes on rightly after the catalogue has changed.
const cursorPrefix = "after:"

func cursorOf(params json.RawMessage) (string, *wireError) {
	if rawjson.IsNull(params) {
		return "", nil
	}
	if !rawjson.IsObject(params) {
		return "", invalidParams("params must be an object")
	}
	raw, _ := rawjson.Lookup(params, "cursor")
	if rawjson.IsNull(raw) {
		return "", nil
	}
	text := unquoteIf(raw)
	if text == "" && rawjson.IsString(raw) {
		return "", nil // B39: an empty cursor is none
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	name, ours := strings.CutPrefix(string(b), cursorPrefix)
	if err != nil || !ours {
		return "", invalidParams("the cursor is not one of this bridge; list again without it")
	}
	return name, nil
}

// serverInfo is the bridge's own introduction as JSON.
func (g *Gateway) serverInfo() []byte {
	b := append([]byte(nil), `{"name":`...)
	b = rawjson.AppendString(b, g.opts.Name)
	b = append(b, `,"version":`...)
	b = rawjson.AppendString(b, g.opts.Version)
	return append(b, '}')
}

// rawResult lets the SDK carry a result that was made elsewhere.
type rawResult struct {
	mcp.ResultBase
	raw json.RawMessage
}

// MarshalJSON implements json.Marshaler.
func (r *rawResult) MarshalJSON() ([]byte, error) { return r.raw, nil }

// sdkList answers a tools/list that reached the SDK, inside a batch.
func (sc *scope) sdkList(ctx context.Context, req mcp.Request) (mcp.Result, error) {
	r, ok := req.(*mcp.ListToolsRequest)
	if !ok {
		return nil, &jsonrpc.Error{Code: codeInternal, Message: "internal error of the bridge"}
	}
	var params []byte
	if r.Params != nil && r.Params.Cursor != "" {
		params = append(append([]byte(`{"cursor":`), rawjson.AppendString(nil, r.Params.Cursor)...), '}')
	}
	raw, werr := sc.listPage(ctx, sc.callerOf(ctx, sc.g.sessions.get(r.Session.ID(), requestOf(ctx).client, sc)), params, isModern(r.ProtocolVersion()))
	if werr != nil {
		return nil, &jsonrpc.Error{Code: int64(werr.Code), Message: werr.Message}
	}
	return &rawResult{raw: raw}, nil
}
