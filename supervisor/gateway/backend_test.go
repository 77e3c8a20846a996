package gateway

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"mcpbridge/internal/rawjson"
	"mcpbridge/messages"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

// fakeBackend is a bridge without servers behind it: a catalogue that tests change
// and a function that answers calls.
type fakeBackend struct {
	mu      sync.Mutex
	cat     *messages.Catalogue
	subs    map[int]func(messages.Event)
	nsub    int
	cancels map[string]chan struct{}
	calls   []messages.CallTool
	servers []string
	// delivered are the calls whose results are written; results what Result knows.
	delivered []string
	results   map[string]json.RawMessage
	answer    func(ctx context.Context, c messages.CallTool, cancelled <-chan struct{}) messages.Outcome
	listed    func(ctx context.Context, server string)
}

func newBackend(tools ...messages.Tool) *fakeBackend {
	b := &fakeBackend{subs: map[int]func(messages.Event){}, cancels: map[string]chan struct{}{}, servers: []string{"fs", "web"}}
	b.set(tools...)
	b.answer = func(_ context.Context, c messages.CallTool, _ <-chan struct{}) messages.Outcome {
		return ok(c, `{"content":[{"type":"text","text":"hi"}]}`)
	}
	return b
}

func ok(c messages.CallTool, result string) messages.Outcome {
	return messages.Outcome{CallID: c.ID, Tool: c.Tool, Kind: messages.OK, Result: json.RawMessage(result)}
}

// tool makes a catalogue entry; raw is what its server wrote.
func tool(server, remote, raw string) messages.Tool {
	def := messages.ToolDef{Name: remote, Raw: json.RawMessage(raw)}
	def.InputSchema, _ = rawjson.Lookup(def.Raw, "inputSchema")
	def.OutputSchema, _ = rawjson.Lookup(def.Raw, "outputSchema")
	def.Annotations, _ = rawjson.Lookup(def.Raw, "annotations")
	if d, ok := rawjson.Lookup(def.Raw, "description"); ok {
		def.Description = rawjson.Unquote(d)
	}
	return messages.Tool{Name: "mcp__" + server + "__" + remote, EndpointName: server + "__" + remote, Server: server,
		RemoteName: remote, Def: def, Permission: messages.Allow, Listed: true}
}

func simple(server, remote string) messages.Tool {
	return tool(server, remote, `{"name":"`+remote+`","description":"does `+remote+`","inputSchema":{"type":"object"}}`)
}

// set publishes a catalogue and tells subscribers.
func (b *fakeBackend) set(tools ...messages.Tool) {
	sort.Slice(tools, func(i, j int) bool { return tools[i].Name < tools[j].Name })
	b.mu.Lock()
	v := uint64(1)
	if b.cat != nil {
		v = b.cat.Version + 1
	}
	known := map[string]bool{}
	for _, t := range tools {
		known[t.Server] = true
	}
	b.cat = messages.NewCatalogue(v, tools, map[string]func(messages.Tool) bool{
		"plan": func(t messages.Tool) bool { return t.Server == "fs" },
	}, known)
	subs := make([]func(messages.Event), 0, len(b.subs))
	for _, f := range b.subs {
		subs = append(subs, f)
	}
	b.mu.Unlock()
	for _, f := range subs {
		f(messages.Event{Type: messages.EventCatalogue, Version: v})
	}
}

func (b *fakeBackend) Call(ctx context.Context, c messages.CallTool) messages.Outcome {
	cancelled := make(chan struct{})
	b.mu.Lock()
	b.calls = append(b.calls, c)
	b.cancels[c.ID] = cancelled
	answer := b.answer
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		delete(b.cancels, c.ID)
		b.mu.Unlock()
	}()
	return answer(ctx, c, cancelled)
}

func (b *fakeBackend) Delivered(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.delivered = append(b.delivered, id)
}

func (b *fakeBackend) Result(client, view, server, id string) (json.RawMessage, bool) {
	raw, ok := b.results[client+"|"+view+"|"+server+"|"+id]
	return raw, ok
}

func (b *fakeBackend) CancelCall(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	ch, ok := b.cancels[id]
	if ok {
		delete(b.cancels, id)
		close(ch)
	}
	return ok
}

func (b *fakeBackend) Catalogue() *messages.Catalogue {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cat
}

func (b *fakeBackend) WaitListed(ctx context.Context, server string) {
	if b.listed != nil {
		b.listed(ctx, server)
	}
}

func (b *fakeBackend) Subscribe(f func(messages.Event)) func() {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := b.nsub
	b.nsub++
	b.subs[id] = f
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.subs, id)
	}
}

func (b *fakeBackend) Status() messages.Status {
	var st messages.Status
	for _, s := range b.servers {
		st.Servers = append(st.Servers, messages.ServerStatus{Name: s})
	}
	return st
}

func (b *fakeBackend) Logger() *slog.Logger { return slog.New(slog.DiscardHandler) }

func (b *fakeBackend) last(t *testing.T) messages.CallTool {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.calls) == 0 {
		t.Fatal("no call reached the backend")
	}
	return b.calls[len(b.calls)-1]
}

func (b *fakeBackend) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.calls)
}

// start serves the backend over HTTP until the test ends.
func start(t testing.TB, b *fakeBackend, o Options, tune ...func(*Gateway)) (*Gateway, *httptest.Server) {
	t.Helper()
	g := New(b, o)
	for _, f := range tune {
		f(g)
	}
	srv := httptest.NewServer(g.Handler())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := g.Close(ctx); err != nil {
			t.Errorf("close the gateway: %v", err)
		}
		srv.Client().CloseIdleConnections()
		http.DefaultClient.CloseIdleConnections()
		srv.Close() // hangs while a response is open
	})
	return g, srv
}

// reply is an HTTP response that was read to its end.
type reply struct {
	status int
	header http.Header
	body   string
}

// event returns the data of the last event of a stream, or the JSON body.
func (r reply) last() string {
	if !strings.HasPrefix(r.header.Get("Content-Type"), "text/event-stream") {
		return r.body
	}
	events := r.events()
	return events[len(events)-1]
}

func (r reply) events() (out []string) {
	for block := range strings.SplitSeq(r.body, "\n\n") {
		var data []string
		for line := range strings.SplitSeq(block, "\n") {
			if d, ok := strings.CutPrefix(line, "data: "); ok {
				data = append(data, d)
			}
		}
		if data != nil {
			out = append(out, strings.Join(data, "\n"))
		}
	}
	return out
}

// send posts a message; headers come in pairs, and "" removes one.
func send(t testing.TB, url, body string, headers ...string) reply {
	t.Helper()
	return do(t, http.MethodPost, url, body, headers...)
}

func newRequest(t testing.TB, method, url, body string, headers ...string) *http.Request {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		switch {
		case headers[i] == "Host":
			req.Host = headers[i+1]
		case headers[i+1] == "":
			req.Header.Del(headers[i])
		default:
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	return req
}

func do(t testing.TB, method, url, body string, headers ...string) reply {
	t.Helper()
	req := newRequest(t, method, url, body, headers...)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	resp, err := http.DefaultClient.Do(req.WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(b)}
}

// open starts a session of the legacy era and returns its id.
func open(t testing.TB, url string, headers ...string) string {
	t.Helper()
	return openAs(t, url, "2025-11-25", headers...)
}

// openAs is open for a revision.
func openAs(t testing.TB, url, version string, headers ...string) string {
	t.Helper()
	r := send(t, url, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"`+version+`","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`, headers...)
	id := r.header.Get(headerSession)
	if r.status != 200 || id == "" {
		t.Fatalf("initialize: %d %s", r.status, r.body)
	}
	if r := send(t, url, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, append(headers, headerSession, id)...); r.status != 202 {
		t.Fatalf("initialized: %d %s", r.status, r.body)
	}
	return id
}

const meta26 = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// headers26 are the headers of a 2026-07-28 request.
func headers26(method, name string, more ...string) []string {
	return append([]string{headerProtocol, "2026-07-28", headerMethod, method, headerName, name}, more...)
}

// await fails the test when ch says nothing.
func await[T any](t testing.TB, what string, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(patience):
		t.Fatalf("waited in vain for %s", what)
	}
	return v
}
