package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"mcpbridge/messages"
)

// blocking answers calls when release is closed, and tells how each ended.
func blocking(b *fakeBackend) (running chan messages.CallTool, release chan struct{}, ended chan string) {
	running, release, ended = make(chan messages.CallTool, 100), make(chan struct{}), make(chan string, 100)
	b.answer = func(ctx context.Context, c messages.CallTool, cancelled <-chan struct{}) messages.Outcome {
		running <- c
		select {
		case <-release:
			ended <- "answered"
			return ok(c, `{"content":[]}`)
		case <-cancelled:
			ended <- "cancelled"
		case <-ctx.Done():
			ended <- "left"
		}
		return messages.Outcome{CallID: c.ID, Kind: messages.OutcomeUnknown, Code: messages.CodeCancelled, Message: "cancelled"}
	}
	return running, release, ended
}

// begin posts a message and returns while the response is still open.
func begin(t *testing.T, ctx context.Context, url, body string, headers ...string) chan reply {
	t.Helper()
	done := make(chan reply, 1)
	req := newRequest(t, http.MethodPost, url, body, headers...).WithContext(ctx)
	go func() {
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			done <- reply{body: err.Error()}
			return
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		done <- reply{resp.StatusCode, resp.Header, string(b)}
	}()
	return done
}

const read1 = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fs__read"}}`

func TestLegacyDisconnectIsNoCancel(t *testing.T) {
	b := newBackend(simple("fs", "read"))
	running, release, ended := blocking(b)
	g, srv := start(t, b, Options{})
	id := open(t, srv.URL+"/mcp")
	ctx, hangUp := context.WithCancel(context.Background())
	gone := begin(t, ctx, srv.URL+"/mcp", read1, headerSession, id)
	await(t, "the call", running)
	hangUp()
	await(t, "the hang-up", gone)
	// The session lives, and the same id is still taken.
	if r := send(t, srv.URL+"/mcp", read1, headerSession, id); r.status != 400 || !strings.Contains(r.body, "in flight") {
		t.Errorf("got %d %s", r.status, r.body)
	}
	close(release)
	if got := await(t, "the call's end", ended); got != "answered" {
		t.Errorf("the call was %s", got)
	}
	for g.sessions.get(id, Anonymous, g.scopeFor(scopeKey{})).calls.len() > 0 {
		time.Sleep(time.Millisecond)
	}
}

func TestCancelOverHTTP(t *testing.T) {
	b := newBackend(simple("fs", "read"))
	running, _, ended := blocking(b)
	_, srv := start(t, b, Options{Authenticate: tokens})
	url := srv.URL + "/mcp"
	mine, other := []string{"Authorization", "Bearer a"}, []string{"Authorization", "Bearer b"}
	id, id2, foreign := open(t, url, mine...), open(t, url, mine...), open(t, url, other...)
	call := begin(t, context.Background(), url, strings.Replace(read1, `"id":1`, `"id":"x"`, 1), append(mine, headerSession, id)...)
	await(t, "the call", running)
	cancel := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"x","reason":"no more"}}`
	// The same id in another session, or another client's, is another request.
	for _, h := range [][]string{append(mine, headerSession, id2), append(other, headerSession, foreign)} {
		if r := send(t, url, cancel, h...); r.status != 202 {
			t.Errorf("got %d %s", r.status, r.body)
		}
	}
	if r := send(t, url, cancel, append(other, headerSession, id)...); r.status != 404 {
		t.Errorf("got %d %s", r.status, r.body)
	}
	if len(ended) != 0 {
		t.Fatal("cancelled by a stranger")
	}
	if r := send(t, url, cancel, append(mine, headerSession, id)...); r.status != 202 || r.body != "" {
		t.Errorf("got %d %s", r.status, r.body)
	}
	if got := await(t, "the cancel", ended); got != "cancelled" {
		t.Errorf("the call was %s", got)
	}
	if r := await(t, "the response's end", call); !strings.Contains(r.body, `"mcpbridge/code":"cancelled"`) {
		t.Errorf("got %s", r.body)
	}
}

func TestModernHangUpAndSessionEnd(t *testing.T) {
	b := newBackend(simple("fs", "read"))
	running, _, ended := blocking(b)
	_, srv := start(t, b, Options{})
	url := srv.URL + "/mcp"
	ctx, hangUp := context.WithCancel(context.Background())
	gone := begin(t, ctx, url, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fs__read",`+meta26+`}}`, headers26("tools/call", "fs__read")...)
	await(t, "the call", running)
	hangUp()
	if got := await(t, "the end", ended); got != "left" {
		t.Errorf("the call was %s", got)
	}
	await(t, "the hang-up", gone)

	id := openAs(t, url, lastBatches)
	call := begin(t, context.Background(), url, read1, headerSession, id)
	batch := begin(t, context.Background(), url, "["+strings.Replace(read1, `"id":1`, `"id":2`, 1)+"]", headerSession, id)
	await(t, "the call", running)
	await(t, "the call in a batch", running)
	if r := do(t, http.MethodDelete, url, "", headerSession, id); r.status != 204 {
		t.Errorf("got %d %s", r.status, r.body)
	}
	for range 2 {
		if got := await(t, "the end", ended); got != "left" {
			t.Errorf("the call was %s", got)
		}
	}
	await(t, "the response", call)
	await(t, "the batch", batch)
}

func TestLongCallBecomesAStream(t *testing.T) {
	b := newBackend(simple("fs", "read"))
	_, release, _ := blocking(b)
	_, srv := start(t, b, Options{}, func(g *Gateway) { g.grace, g.keepAlive = 20*time.Millisecond, 20*time.Millisecond })
	url := srv.URL + "/mcp"
	id := open(t, url)
	resp, err := http.DefaultClient.Do(newRequest(t, http.MethodPost, url, read1, headerSession, id))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Fatalf("type %s", got)
	}
	r := bufio.NewReader(resp.Body)
	for comments := 0; comments < 3; {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(line, ":") {
			comments++
		}
	}
	close(release)
	rest, err := io.ReadAll(r)
	if err != nil || !strings.Contains(string(rest), "event: message\ndata: "+`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`+"\n\n") {
		t.Errorf("%v %q", err, rest)
	}
	// The standalone stream of a session is kept alive too.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	resp, err = http.DefaultClient.Do(newRequest(t, http.MethodGet, url, "", headerSession, id).WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for r, n := bufio.NewReader(resp.Body), 0; n < 3; {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(line, ": keep-alive") {
			n++
		}
	}
}

// A server that reports progress without end blocks nobody, and neither does a
// client that does not read it.
func TestProgressFlood(t *testing.T) {
	b := newBackend(simple("fs", "read"))
	b.answer = func(_ context.Context, c messages.CallTool, _ <-chan struct{}) messages.Outcome {
		for i := range 100_000 {
			c.OnProgress(json.RawMessage(fmt.Sprintf(`{"progress":%d}`, i)))
		}
		c.OnProgress(json.RawMessage(`"no object"`))
		return ok(c, `{"content":[]}`)
	}
	_, srv := start(t, b, Options{})
	id := open(t, srv.URL+"/mcp")
	r := send(t, srv.URL+"/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fs__read","_meta":{"progressToken":1.5}}}`, headerSession, id)
	events := r.events()
	last := -1
	for _, e := range events[:len(events)-1] {
		var n struct {
			Params struct {
				Progress      int
				ProgressToken json.RawMessage
			}
		}
		if err := json.Unmarshal([]byte(e), &n); err != nil || n.Params.Progress <= last || string(n.Params.ProgressToken) != "1.5" {
			t.Fatalf("%v: %s after %d", err, e, last)
		}
		last = n.Params.Progress
	}
	if last < 0 || events[len(events)-1] != `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}` {
		t.Errorf("progress up to %d, then %s", last, events[len(events)-1])
	}
}

func TestPumpKeepsTheNewest(t *testing.T) {
	sent, hold := make(chan string, 1000), make(chan struct{})
	p := newPump(json.RawMessage(`"t"`), func(n []byte) { <-hold; sent <- string(n) })
	for i := range 1000 {
		p.progress(json.RawMessage(fmt.Sprintf(`{"progressToken":0,"progress":%d}`, i)))
	}
	close(hold)
	p.close()
	p.progress(json.RawMessage(`{"progress":-1}`))
	close(sent)
	var all []string
	for s := range sent {
		all = append(all, s)
	}
	if n := len(all); n > 2*maxPending || all[n-1] != `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":999}}` {
		t.Errorf("%d sent, the last %s", n, all[n-1])
	}
}

func TestSessionsAreCappedAndReaped(t *testing.T) {
	b := newBackend(simple("fs", "read"))
	running, release, _ := blocking(b)
	g, srv := start(t, b, Options{Authenticate: tokens}, func(g *Gateway) { g.sessions.limit = 3 })
	url := srv.URL + "/mcp"
	mine := []string{"Authorization", "Bearer a"}
	other := open(t, url, "Authorization", "Bearer b")
	alive := func(id string) bool { return send(t, url, ping, append(mine, headerSession, id)...).status == 200 }
	first, second := open(t, url, mine...), open(t, url, mine...)
	busy := begin(t, context.Background(), url, read1, append(mine, headerSession, first)...)
	await(t, "the call", running)
	third, fourth := open(t, url, mine...), open(t, url, mine...)
	if !alive(first) || alive(second) || !alive(third) || !alive(fourth) {
		t.Error("not the one that was idle longest gave way")
	}
	if r := send(t, url, ping, "Authorization", "Bearer b", headerSession, other); r.status != 200 {
		t.Error("another client lost its session")
	}
	var calls []chan reply
	for _, id := range []string{third, fourth} {
		calls = append(calls, begin(t, context.Background(), url, read1, append(mine, headerSession, id)...))
		await(t, "the call", running)
	}
	r := send(t, url, strings.ReplaceAll(hello, "VERSION", "2025-11-25"), mine...)
	if !strings.Contains(r.body, "too many sessions") {
		t.Errorf("got %d %s", r.status, r.body)
	}
	if n := g.sessions.reap(time.Now().Add(time.Hour)); n != 1 { // b's; the others are busy
		t.Errorf("%d sessions reaped", n)
	}
	close(release)
	await(t, "the call", busy)
	for _, c := range calls {
		await(t, "the call", c)
	}
	if n := g.sessions.reap(time.Now().Add(-time.Hour)); n != 0 {
		t.Errorf("%d fresh sessions reaped", n)
	}
	for deadline := time.Now().Add(patience); g.sessions.len() > 0 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		g.sessions.reap(time.Now().Add(time.Hour))
	}
	if alive(first) {
		t.Error("a reaped session answers")
	}
	left := func() (n int) {
		for range g.scopeFor(scopeKey{}).server.Sessions() {
			n++
		}
		return n
	}
	for deadline := time.Now().Add(patience); left() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the SDK still holds %d sessions", left())
		}
	}
}

func TestCloseEndsEverything(t *testing.T) {
	b := newBackend(simple("fs", "read"))
	running, _, ended := blocking(b)
	g, srv := start(t, b, Options{})
	url := srv.URL + "/mcp"
	id := openAs(t, url, lastBatches)
	calls := []chan reply{
		begin(t, context.Background(), url, read1, headerSession, id),
		begin(t, context.Background(), url, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fs__read",`+meta26+`}}`, headers26("tools/call", "fs__read")...),
		begin(t, context.Background(), url, "["+strings.Replace(read1, `"id":1`, `"id":2`, 1)+"]", headerSession, id),
	}
	for range calls {
		await(t, "a call", running)
	}
	streams := []*http.Request{
		newRequest(t, http.MethodGet, url, "", headerSession, id),
		newRequest(t, http.MethodPost, url, `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},`+meta26+`}}`, headers26("subscriptions/listen", "")...),
	}
	for _, req := range streams {
		resp, err := http.DefaultClient.Do(req)
		if err != nil || resp.StatusCode != 200 {
			t.Fatal(err, resp)
		}
		defer resp.Body.Close()
		over := make(chan reply, 1)
		go func() { b, _ := io.ReadAll(resp.Body); over <- reply{body: string(b)} }()
		calls = append(calls, over)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := g.Close(ctx); err != nil {
		t.Error(err)
	}
	for range 3 {
		if got := await(t, "a call's end", ended); got != "left" {
			t.Errorf("a call was %s", got)
		}
	}
	for _, c := range calls {
		await(t, "a response", c)
	}
	if err := srv.Config.Shutdown(ctx); err != nil {
		t.Errorf("shutdown: %v", err)
	}
	if err := g.Close(ctx); err != nil {
		t.Error(err)
	}
	w := &recorder{header: http.Header{}}
	req := newRequest(t, http.MethodPost, "http://localhost/mcp", ping)
	g.Handler().ServeHTTP(w, req)
	if w.status != http.StatusServiceUnavailable {
		t.Errorf("a closed gateway answers %d", w.status)
	}
}

// recorder is a response writer that can do nothing special.
type recorder struct {
	header http.Header
	status int
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) Write(b []byte) (int, error) { return len(b), nil }
func (r *recorder) WriteHeader(s int)           { r.status = s }
