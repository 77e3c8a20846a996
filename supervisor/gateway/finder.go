package gateway

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"mcpbridge/messages"
)

// finder makes the indexes of search_tools, one at a time. A tool is read once, for all
// views, clients and catalogues in which it says the same; what is left for each
// index is to count.
//
// A search is always answered from the catalogue of its moment: whoever comes before the
// index of that is made waits for it, or makes it, until their own deadline. Mostly
// nobody does, because indexLoop follows the catalogue where somebody searches. What was
// read for a caller who gave up stays read.
type finder struct {
	busy chan struct{} // capacity one: held by who makes an index

	// What was read, by endpoint name; held by busy.
	docs map[string]*document
	lex  *lexicon
	size int // of the lexicon when it was last looked through
}

func newFinder() *finder {
	f := &finder{busy: make(chan struct{}, 1)}
	f.forget()
	return f
}

func (f *finder) forget() { f.docs, f.lex, f.size = map[string]*document{}, newLexicon(), 0 }

// readsBetween is how many tools are read between two looks at the deadline.
const readsBetween = 64

// fewWords is a lexicon that is not worth to be made anew.
const fewWords = 4096

// index returns the listing's index, and makes it where nobody has. The error is that of
// ctx.
func (f *finder) index(ctx context.Context, l *listing) (*index, error) {
	l = l.face()
	if x := l.index.Load(); x != nil {
		return x, nil
	}
	select {
	case f.busy <- struct{}{}:
		defer func() { <-f.busy }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if x := l.index.Load(); x != nil {
		return x, nil
	}
	whole := false
	defer func() {
		if !whole { // a panic: nobody knows what was half done
			f.forget()
		}
	}()
	x, err := f.make(ctx, l)
	whole = true
	if err == nil {
		l.index.Store(x)
	}
	return x, err
}

func (f *finder) make(ctx context.Context, l *listing) (*index, error) {
	docs := make([]*document, len(l.tools))
	for i := range l.tools {
		t := &l.tools[i]
		d := f.docs[t.EndpointName]
		if d == nil || !d.says(t) {
			if i%readsBetween == 0 && ctx.Err() != nil {
				return nil, ctx.Err()
			}
			d = f.lex.read(t)
			f.docs[t.EndpointName] = d
		} else {
			d.keep(t)
		}
		docs[i] = d
	}
	x := newIndex(l.tools, docs, f.lex)
	f.tidy(l.cat)
	return x, nil
}

// tidy forgets tools that the catalogue no longer knows, and everything once most of
// the words that were ever read are out of use.
func (f *finder) tidy(cat *messages.Catalogue) {
	known := 0
	cat.Walk(func(*messages.Tool) bool { known++; return true })
	if len(f.docs) > known {
		for name := range f.docs {
			if t, ok := cat.Lookup(name); !ok || t.EndpointName != name {
				delete(f.docs, name)
			}
		}
	}
	if len(f.lex.words) <= max(2*f.size, fewWords) {
		return
	}
	f.size = f.lex.used(f.docs)
	if len(f.lex.words) > max(2*f.size, fewWords) {
		f.forget()
	}
}

// indexLoop makes the indexes of a new catalogue before somebody asks: one at a time,
// of the newest catalogue, once for all changes within settleDelay.
func (g *Gateway) indexLoop() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	timer.Stop()
	waiting, early := false, 0
	for {
		select {
		case <-g.base.Done():
			return
		case <-g.stale:
			if !waiting { // changes without end must not put it off
				timer.Reset(settleDelay)
				waiting = true
			}
			continue
		case <-timer.C:
		}
		waiting = false
		version := g.refreshIndexes()
		// As in notifyLoop: a version that is announced may not be published yet.
		if early++; version >= g.want.get() || early > 100 {
			early = 0
			continue
		}
		timer.Reset(settleDelay)
		waiting = true
	}
}

// refreshIndexes makes what is missing where somebody searches, and returns the
// catalogue's version.
func (g *Gateway) refreshIndexes() (version uint64) {
	defer func() {
		if p := recover(); p != nil { // of the backend: the next change tries again
			g.log.Error("panic while the search index was made", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	cat := g.backend.Catalogue()
	for _, sc := range g.allScopes() {
		l := sc.render(cat, "")
		if !l.hides && !sc.searched.Load() {
			continue
		}
		if _, err := g.finder.index(g.base, l); err != nil {
			break // the gateway is closed
		}
	}
	return cat.Version
}

// touchIndex has indexLoop look; it never blocks.
func (g *Gateway) touchIndex() {
	select {
	case g.stale <- struct{}{}:
	default:
	}
}
