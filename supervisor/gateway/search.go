package gateway

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode"

	"mcpbridge/internal/rawjson"
	"mcpbridge/messages"
)

// index ranks tools by a query: Okapi BM25 (Robertson and Zaragoza, "The Probabilistic
// Relevance Framework", 2009) over what a tool says of itself. It is some sixty lines over a
// map, and immutable once made; the Go libraries for it are either whole search
// engines or a few months old and used by nobody.
type index struct {
	tools    []messages.Tool
	postings map[string][]posting
	terms    []string // sorted, for beginnings of words
	length   []float64
	average  float64
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

func newIndex(tools []messages.Tool) *index {
	x := &index{tools: tools, postings: map[string][]posting{}, length: make([]float64, len(tools))}
	total, count := 0.0, map[string]float32{}
	for i, t := range tools {
		clear(count)
		add := func(text string, weight float32, most int) {
			for _, w := range splitWords(text, most) {
				count[w] += weight
				x.length[i] += float64(weight)
			}
		}
		add(t.EndpointName, nameWeight, maxDocWords)
		if t.RemoteName != t.EndpointName[max(0, len(t.EndpointName)-len(t.RemoteName)):] {
			add(t.RemoteName, nameWeight, maxDocWords) // the local name is cut or cleaned
		}
		add(t.Def.Title, 1, maxDocWords)
		add(t.Def.Description, 1, maxDocWords)
		if props, ok := rawjson.Lookup(t.Def.InputSchema, "properties"); ok {
			n := 0
			rawjson.Object(props, func(m rawjson.Member) bool {
				add(m.Key, 1, 8)
				n++
				return n < 50
			})
		}
		for w, times := range count {
			x.postings[w] = append(x.postings[w], posting{int32(i), times})
		}
		total += x.length[i]
	}
	x.average = max(total/float64(max(len(tools), 1)), 1)
	for w := range x.postings {
		x.terms = append(x.terms, w)
	}
	slices.Sort(x.terms)
	return x
}

// find returns the best tools that keep admits, best first (equal ones by name), and
// how many there were at all. A query without a word finds everything, by name.
func (x *index) find(query string, most int, keep func(*messages.Tool) bool) (found []*messages.Tool, total int) {
	scores := make([]float64, len(x.tools))
	query = strings.TrimSpace(query)
	if words := splitWords(query, maxQueryWords); len(words) > 0 {
		slices.Sort(words)
		for _, w := range slices.Compact(words) {
			list := x.postings[w]
			if len(list) > 0 {
				x.score(scores, list, 1)
				continue
			}
			for _, longer := range x.beginning(w) {
				x.score(scores, x.postings[longer], 0.5)
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

// beginning are the words that begin with w.
func (x *index) beginning(w string) []string {
	if len(w) < 3 {
		return nil
	}
	from, _ := slices.BinarySearch(x.terms, w)
	to := from
	for to < len(x.terms) && to-from < maxBeginnings && strings.HasPrefix(x.terms[to], w) {
		to++
	}
	return x.terms[from:to]
}

// splitWords takes a text apart at everything that is no letter or digit, and names at
// their capitals (readFile is read and file). Plurals count as their singular, and each
// character of a script without spaces is a word.
func splitWords(text string, most int) (out []string) {
	var word []rune
	flush := func() {
		if len(word) > 0 {
			w := strings.ToLower(string(word))
			if len(w) > 3 && strings.HasSuffix(w, "s") && !strings.HasSuffix(w, "ss") {
				w = strings.TrimSuffix(w, "s")
			}
			out = append(out, w)
			word = word[:0]
		}
	}
	lower := false // the rune before was a small letter or a digit
	for _, r := range text {
		if len(out) >= most {
			return out
		}
		switch {
		case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul):
			flush()
			out = append(out, string(r))
		case unicode.IsLetter(r) || unicode.IsDigit(r):
			if unicode.IsUpper(r) && lower || len(word) >= 40 {
				flush()
			}
			word = append(word, r)
		default:
			flush()
		}
		lower = unicode.IsLower(r) || unicode.IsDigit(r)
	}
	flush()
	return out
}
