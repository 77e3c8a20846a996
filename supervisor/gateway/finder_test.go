package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"mcpbridge/config"
	"mcpbridge/messages"
)

// fataler is what testing.TB and rapid.T have in common.
type fataler interface{ Fatal(args ...any) }

// indexOf is the index of tools that nobody has read before.
func indexOf(t fataler, tools ...messages.Tool) *index {
	x, err := newFinder().index(context.Background(), listingOf(tools))
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func listingOf(tools []messages.Tool) *listing {
	return &listing{cat: messages.NewCatalogue(1, tools, nil, nil), tools: tools}
}

// sameIndex compares all that a search looks at.
func sameIndex(a, b *index) string {
	return cmp.Diff([]any{a.terms, a.from, a.posts, a.length, a.average}, []any{b.terms, b.from, b.posts, b.length, b.average}, cmp.AllowUnexported(posting{}))
}

// drawTools are some tools of a few names that say one of a few things.
func drawTools(t *rapid.T) (tools []messages.Tool) {
	for i := range 8 {
		if !rapid.Bool().Draw(t, "there") {
			continue
		}
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"read", "write", "createIssue", "files", "日本", "über"}), 1, 4).Draw(t, "text"), " ")
		d := tool("s", fmt.Sprintf("t%d", i), fmt.Sprintf(`{"name":"t%d","description":%q,"inputSchema":{"type":"object","properties":{%q:{}}}}`, i, text, rapid.SampledFrom([]string{"id", "path"}).Draw(t, "parameter")))
		d.Def.Title = rapid.SampledFrom([]string{"", "Read it"}).Draw(t, "title")
		d.Permission = rapid.SampledFrom([]messages.Permission{messages.Allow, messages.Ask, messages.Deny}).Draw(t, "permission")
		tools = append(tools, d)
	}
	return tools
}

// TestNothingIsStale: what is made from what an earlier catalogue left is, to the last
// byte, what would be made from nothing, through whatever changes and views.
func TestNothingIsStale(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		g := &Gateway{finder: newFinder()}
		g.Reconfigure(config.Discovery{MetaTools: "never"}, false)
		all, odd := &scope{g: g}, &scope{g: g, key: scopeKey{view: "odd"}}
		views := map[string]func(messages.Tool) bool{"odd": func(t messages.Tool) bool { return t.RemoteName[1]%2 == 1 }}
		for v := range rapid.IntRange(2, 6).Draw(rt, "catalogues") {
			cat := messages.NewCatalogue(uint64(v), drawTools(rt), views, nil) //nolint:gosec // small
			for _, sc := range []*scope{all, odd} {
				got, want := sc.render(cat, ""), (&scope{g: g, key: sc.key}).render(cat, "")
				if d := cmp.Diff([]any{want.names, want.entries, want.fingerprint}, []any{got.names, got.entries, got.fingerprint}); d != "" {
					rt.Fatal(d)
				}
				x, err := g.finder.index(context.Background(), got)
				if err != nil {
					rt.Fatal(err)
				}
				if d := sameIndex(indexOf(rt, want.tools...), x); d != "" {
					rt.Fatal(d)
				}
			}
			if n := len(cat.All()); len(g.finder.docs) > n {
				rt.Fatalf("%d tools are remembered, and there are %d", len(g.finder.docs), n)
			}
		}
	})
}

// TestOldWordsAreForgotten: a catalogue whose words are others each time does not fill
// the memory.
func TestOldWordsAreForgotten(t *testing.T) {
	f := newFinder()
	for round := range 40 {
		var text strings.Builder
		for i := range 300 {
			fmt.Fprintf(&text, "w%dx%d ", round, i)
		}
		l := listingOf([]messages.Tool{tool("s", "a", fmt.Sprintf(`{"name":"a","description":%q}`, text.String())), simple("s", fmt.Sprintf("b%d", round))})
		if _, err := f.index(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		if len(f.lex.words) > fewWords || len(f.docs) > 2 {
			t.Fatalf("round %d: %d words and %d tools are remembered", round, len(f.lex.words), len(f.docs))
		}
	}
}

// looks is a context that ends when it was looked at so many times.
type looks struct {
	context.Context
	left int
}

func (c *looks) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestGivenUpIndex: who gives up ends the work, what was read is not lost, and the next
// one gets the same index.
func TestGivenUpIndex(t *testing.T) {
	tools := manyTools(5 * readsBetween)
	f, l := newFinder(), listingOf(tools)
	if _, err := f.index(&looks{context.Background(), 2}, l); err == nil || l.index.Load() != nil {
		t.Fatalf("an index was made: %v", err)
	}
	if n := len(f.docs); n != 2*readsBetween {
		t.Errorf("%d tools were read", n)
	}
	x, err := f.index(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	if d := sameIndex(indexOf(t, tools...), x); d != "" {
		t.Error(d)
	}
}

// awaitIndex waits until the scope's index is the newest catalogue's, without a search.
func awaitIndex(t *testing.T, g *Gateway, key scopeKey) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		sc := g.scopeFor(key)
		sc.mu.Lock()
		l := sc.own
		sc.mu.Unlock()
		if l.cat == g.backend.Catalogue() && l.index.Load() != nil {
			return
		}
	}
	t.Fatal("no index was made of the newest catalogue")
}

// TestIndexIsMadeAhead: of each catalogue, before anybody searches, where the three
// tools are listed or somebody has searched, and nowhere else.
func TestIndexIsMadeAhead(t *testing.T) {
	b := newBackend(manyTools(20)...)
	g, srv := start(t, b, always)
	open(t, srv.URL+"/mcp")
	awaitIndex(t, g, scopeKey{})
	for i := range 3 {
		b.set(append(manyTools(20), simple("fs", fmt.Sprintf("new%d", i)))...)
		awaitIndex(t, g, scopeKey{})
	}

	few, srv := start(t, b, Options{Discovery: config.Discovery{MetaTools: "auto", OverTokens: 1 << 20}})
	id := open(t, srv.URL+"/mcp")
	few.refreshIndexes()
	sc := few.scopeFor(scopeKey{})
	if sc.render(b.Catalogue(), "").index.Load() != nil {
		t.Error("an index was made, and nobody searches")
	}
	searchRaw(t, srv.URL+"/mcp", id, `{"query":"issue"}`, "")
	b.set(manyTools(30)...)
	awaitIndex(t, few, scopeKey{})
}

// searchRaw searches and returns the response.
func searchRaw(t *testing.T, url, id, args, meta string) string {
	t.Helper()
	return send(t, url, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search_tools","arguments":`+args+`,"_meta":{`+meta+`}}}`, headerSession, id).body
}

// TestSearchInAStorm: while the catalogue changes without end, a search finds what one
// catalogue of its time holds, all of it and nothing else, and afterwards the newest is
// indexed.
func TestSearchInAStorm(t *testing.T) {
	base := manyTools(200)
	round := func(i int) []messages.Tool {
		return append(slices.Clone(base), simple("fs", fmt.Sprintf("fleeting_%d", i)), simple("web", fmt.Sprintf("fleeting_%d", i)))
	}
	b := newBackend(round(1)...) // the version is the number
	g, srv := start(t, b, always)
	storm := make(chan struct{})
	var wg sync.WaitGroup
	for _, q := range []struct {
		url   string
		total int
	}{{srv.URL + "/mcp", 2}, {srv.URL + "/mcp?view=plan", 1}} {
		id := open(t, q.url)
		wg.Go(func() {
			for over := false; !over; {
				select {
				case <-storm:
					over = true // and once more
				default:
				}
				from := b.Catalogue().Version
				body := searchRaw(t, q.url, id, `{"query":"fleeting"}`, "")
				to := b.Catalogue().Version
				var res struct {
					Result struct{ Content []struct{ Text string } }
				}
				var found struct {
					Tools []struct{ Name string }
					Total int
				}
				if err := json.Unmarshal([]byte(body), &res); err != nil || len(res.Result.Content) != 1 {
					t.Errorf("%v: %s", err, body)
					return
				}
				if err := json.Unmarshal([]byte(res.Result.Content[0].Text), &found); err != nil || len(found.Tools) != q.total || found.Total != q.total {
					t.Errorf("%v, want %d tools: %s", err, q.total, body)
					return
				}
				for _, tl := range found.Tools {
					_, number, _ := strings.Cut(tl.Name, "__fleeting_")
					var n uint64
					if _, err := fmt.Sscan(number, &n); err != nil || n < from || n > to {
						t.Errorf("%s was found between the catalogues %d and %d", tl.Name, from, to)
						return
					}
				}
			}
		})
	}
	for i := 2; i < 300; i++ {
		b.set(round(i)...)
	}
	close(storm)
	wg.Wait()
	b.set(round(300)...)
	awaitIndex(t, g, scopeKey{})
	awaitIndex(t, g, scopeKey{view: "plan"})
}

// TestSearchWaitsToItsDeadline: a search that comes before the index waits for it, as long
// as its caller does.
func TestSearchWaitsToItsDeadline(t *testing.T) {
	b := newBackend(manyTools(20)...)
	g, srv := start(t, b, always)
	url := srv.URL + "/mcp"
	id := open(t, url)
	awaitIndex(t, g, scopeKey{})
	g.finder.busy <- struct{}{} // somebody makes an index, for long
	b.set(append(manyTools(20), simple("fs", "brand_new"))...)
	if got := searchRaw(t, url, id, `{"query":"brand"}`, `"mcpbridge/timeout_ms":30`); !strings.Contains(got, `"mcpbridge/outcome":"not_sent"`) || !strings.Contains(got, `"mcpbridge/code":"expired"`) {
		t.Errorf("at the deadline: %s", got)
	}
	answered := make(chan string, 2)
	go func() { answered <- searchRaw(t, url, id, `{"query":"brand"}`, "") }()
	sess := g.sessions.get(id, Anonymous, g.scopeFor(scopeKey{}))
	for end := time.Now().Add(patience); sess.calls.len() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the search did not come in")
		}
	}
	send(t, url, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, headerSession, id)
	if got := await(t, "the cancelled search", answered); !strings.Contains(got, `"mcpbridge/code":"cancelled"`) {
		t.Errorf("cancelled: %s", got)
	}
	go func() { answered <- searchRaw(t, url, id, `{"query":"brand"}`, "") }()
	<-g.finder.busy
	if got := await(t, "the search", answered); !strings.Contains(got, "brand_new") {
		t.Errorf("after the wait: %s", got)
	}
}

// TestCloseWhileIndexing: the end does not wait for an index.
func TestCloseWhileIndexing(t *testing.T) {
	b := newBackend(manyTools(20)...)
	g, srv := start(t, b, always)
	g.finder.busy <- struct{}{}
	open(t, srv.URL+"/mcp") // wants an index; start closes, and TestMain sees what is left
}
