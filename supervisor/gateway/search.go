package gateway

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"mcpbridge/messages"
)

// index ranks tools by a query: Okapi BM25 (Robertson and Zaragoza, "The Probabilistic
// Relevance Framework", 2009) over what a tool says of itself. It is some sixty lines over
// sorted lists, and immutable once made; the Go libraries for it are either whole search
// engines or a few months old and used by nobody.
type index struct {
	tools   []messages.Tool
	terms   []string // sorted; those of the tools, and no others
	from    []int32  // postings[from[i]:from[i+1]] are those of terms[i]
	posts   []posting
	length  []float64
	average float64
}

type posting struct {
	doc   int32
	times float32
}

const (
	bm25K1 = 1.2
	bm25B  = 0.75
	// What a tool may put into the index: a description cannot be heard more often by
	// being longer.
	maxDocWords   = 400
	maxQueryWords = 32
	maxBeginnings = 50 // words that a beginning stands for
	nameWeight    = 3  // a word of the name counts as that many of the description
)

// newIndex makes the index of tools, whose documents are docs: a word's tools are
// counted, and then written into a place of that size.
func newIndex(tools []messages.Tool, docs []*document, lex *lexicon) *index {
	x := &index{tools: tools, length: make([]float64, len(docs))}
	place, all, total := make([]int32, len(lex.words)), 0, 0.0
	for i, d := range docs {
		for _, w := range d.words {
			place[w.word]++
		}
		all += len(d.words)
		x.length[i] = d.length
		total += d.length
	}
	x.average = max(total/float64(max(len(docs), 1)), 1)
	next := int32(0)
	for _, w := range lex.order() {
		if n := place[w]; n > 0 {
			x.terms, x.from = append(x.terms, lex.words[w]), append(x.from, next)
			place[w] = next
			next += n
		}
	}
	x.from = append(x.from, next)
	x.posts = make([]posting, all)
	for i, d := range docs {
		for _, w := range d.words {
			x.posts[place[w.word]] = posting{int32(i), w.times} //nolint:gosec // a catalogue is smaller
			place[w.word]++
		}
	}
	return x
}

// postings are the tools that the word occurs in.
func (x *index) postings(word string) []posting {
	i, ok := slices.BinarySearch(x.terms, word)
	if !ok {
		return nil
	}
	return x.posts[x.from[i]:x.from[i+1]]
}

// find returns the best tools that keep admits, best first (equal ones by name), and
// how many there were at all. A query without a word finds everything, by name.
func (x *index) find(query string, most int, keep func(*messages.Tool) bool) (found []*messages.Tool, total int) {
	scores := make([]float64, len(x.tools))
	query = strings.TrimSpace(query)
	if words := splitWords(query, maxQueryWords); len(words) > 0 {
		slices.Sort(words)
		for _, w := range slices.Compact(words) {
			list := x.postings(w)
			if len(list) > 0 {
				x.score(scores, list, 1)
				continue
			}
			from, to := x.beginning(w)
			for longer := from; longer < to; longer++ {
				x.score(scores, x.posts[x.from[longer]:x.from[longer+1]], 0.5)
			}
		}
	} else if query == "" {
		for i := range scores {
			scores[i] = 1
		}
	}
	better := func(a, b int) int {
		return cmp.Or(cmp.Compare(scores[b], scores[a]), cmp.Compare(x.tools[a].EndpointName, x.tools[b].EndpointName))
	}
	best := make([]int, 0, most+1)
	for d, score := range scores {
		if score == 0 || !keep(&x.tools[d]) {
			continue
		}
		total++
		if len(best) == most && better(d, best[most-1]) >= 0 {
			continue
		}
		i, _ := slices.BinarySearchFunc(best, d, better)
		best = slices.Insert(best, i, d)
		best = best[:min(len(best), most)]
	}
	for _, d := range best {
		found = append(found, &x.tools[d])
	}
	return found, total
}

func (x *index) score(into []float64, list []posting, weight float64) {
	n, df := float64(len(x.tools)), float64(len(list))
	idf := math.Log(1 + (n-df+0.5)/(df+0.5))
	for _, p := range list {
		times := float64(p.times)
		norm := bm25K1 * (1 - bm25B + bm25B*x.length[p.doc]/x.average)
		into[p.doc] += weight * idf * times * (bm25K1 + 1) / (times + norm)
	}
}

// beginning is where the words that begin with w stand.
func (x *index) beginning(w string) (from, to int) {
	if len(w) < 3 {
		return 0, 0
	}
	from, _ = slices.BinarySearch(x.terms, w)
	to = from
	for to < len(x.terms) && to-from < maxBeginnings && strings.HasPrefix(x.terms[to], w) {
		to++
	}
	return from, to
}
