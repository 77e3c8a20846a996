package gateway

import (
	"fmt"
	"strings"
	"testing"

	"mcpbridge/messages"
)

// catalogueOf are n tools of the usual size, of twenty servers.
func catalogueOf(n int, twist string) []messages.Tool {
	verbs, things := []string{"create", "delete", "list", "read", "update", "search"}, []string{"issue", "repository", "invoice", "event", "file", "user", "branch", "comment"}
	var out []messages.Tool
	for i := range n {
		verb, thing := verbs[i%len(verbs)], things[i/len(verbs)%len(things)]
		name := fmt.Sprintf("%s_%s_%05d", verb, thing, i)
		text := fmt.Sprintf("%s one %s of the account number %d. %s%s", verb, thing, i, strings.Repeat("It needs the right to do so. ", 5), twist)
		out = append(out, tool(fmt.Sprintf("server%02d", i%20), name, fmt.Sprintf(`{"name":%q,"description":%q,"inputSchema":{"type":"object","properties":{"id":{"type":"string","description":"which"},"limit":{"type":"integer","minimum":1}},"required":["id"]}}`, name, text)))
		twist = ""
	}
	return out
}

// BenchmarkSearch measures what a first search needs of 10,000 tools (the listing and the
// index), from nothing and after one tool has changed, and a later one.
func BenchmarkSearch(b *testing.B) {
	be := newBackend(catalogueOf(10000, "")...)
	g := New(be, Options{})
	defer g.Close(b.Context())
	sc := &scope{g: g}
	cats := []*messages.Catalogue{be.Catalogue()}
	be.set(catalogueOf(10000, "It was changed.")...)
	cats = append(cats, be.Catalogue())
	index := func(f *finder, l *listing) *index {
		x, err := f.index(b.Context(), l)
		if err != nil {
			b.Fatal(err)
		}
		return x
	}
	b.Run("listing/whole", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			sc.renderOwn(cats[0], nil)
		}
	})
	first := sc.renderOwn(cats[0], nil)
	b.Run("listing/changed", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			sc.renderOwn(cats[1], first)
		}
	})
	second := sc.renderOwn(cats[1], first)
	f := newFinder()
	b.Run("index/whole", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			first.index.Store(nil)
			f = newFinder()
			index(f, first)
		}
	})
	turn := 0
	b.Run("index/changed", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			turn++
			l := []*listing{first, second}[turn%2]
			l.index.Store(nil)
			index(f, l)
		}
	})
	x := index(f, first)
	b.Run("find", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			x.find("update the invoice of account 4711", 10, func(*messages.Tool) bool { return true })
		}
	})
}
