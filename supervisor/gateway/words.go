package gateway

import (
	"bytes"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"mcpbridge/internal/rawjson"
	"mcpbridge/messages"
)

// document is a tool as the index sees it: what it says of itself, and the words in
// that. It serves every index whose tool says the same.
type document struct {
	name, remote, title, description string
	schema                           []byte

	words  []count
	length float64
}

// keep has the document hold the tool's own copy of what both say, so that the memory of
// an earlier catalogue is not held for it.
func (d *document) keep(t *messages.Tool) {
	d.name, d.remote, d.title, d.description, d.schema = t.EndpointName, t.RemoteName, t.Def.Title, t.Def.Description, t.Def.InputSchema
}

// count is how often a word occurs, weighted; word is its number in the lexicon.
type count struct {
	word  int32
	times float32
}

// says reports whether the document is the tool's. What did not change mostly is the
// same memory, which makes that quick.
func (d *document) says(t *messages.Tool) bool {
	return d.name == t.EndpointName && d.remote == t.RemoteName && d.title == t.Def.Title && d.description == t.Def.Description && bytes.Equal(d.schema, t.Def.InputSchema)
}

// lexicon numbers the words of all documents. It only grows.
type lexicon struct {
	number map[string]int32
	words  []string
	sorted []int32 // the numbers in the order of their words, up to the last call of order

	times   []float32 // of the document that is being read, by number; 0 between two
	touched []int32
}

func newLexicon() *lexicon { return &lexicon{number: map[string]int32{}} }

// read makes a tool's document.
func (x *lexicon) read(t *messages.Tool) *document {
	d := &document{name: t.EndpointName, remote: t.RemoteName, title: t.Def.Title, description: t.Def.Description, schema: t.Def.InputSchema}
	add := func(text string, weight float32, most int) {
		eachWord(text, most, func(w []byte) {
			n, known := x.number[string(w)]
			if !known {
				n = int32(len(x.words)) //nolint:gosec // there is no memory for so many words
				word := string(w)
				x.number[word], x.words, x.times = n, append(x.words, word), append(x.times, 0)
			}
			if x.times[n] == 0 {
				x.touched = append(x.touched, n)
			}
			x.times[n] += weight
			d.length += float64(weight)
		})
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
	d.words = make([]count, len(x.touched))
	for i, n := range x.touched {
		d.words[i] = count{n, x.times[n]}
		x.times[n] = 0
	}
	x.touched = x.touched[:0]
	return d
}

// used counts the words that occur in documents.
func (x *lexicon) used(docs map[string]*document) (n int) {
	seen := make([]bool, len(x.words))
	for _, d := range docs {
		for _, w := range d.words {
			if !seen[w.word] {
				seen[w.word] = true
				n++
			}
		}
	}
	return n
}

// order returns the numbers of all words in the order of the words.
func (x *lexicon) order() []int32 {
	known := len(x.sorted)
	if known == len(x.words) {
		return x.sorted
	}
	fresh := make([]int32, 0, len(x.words)-known)
	for n := known; n < len(x.words); n++ {
		fresh = append(fresh, int32(n)) //nolint:gosec // as in read
	}
	slices.SortFunc(fresh, func(a, b int32) int { return strings.Compare(x.words[a], x.words[b]) })
	merged := make([]int32, 0, len(x.words))
	for _, n := range x.sorted {
		for len(fresh) > 0 && x.words[fresh[0]] < x.words[n] {
			merged, fresh = append(merged, fresh[0]), fresh[1:]
		}
		merged = append(merged, n)
	}
	x.sorted = append(merged, fresh...)
	return x.sorted
}

// splitWords is eachWord as a list.
func splitWords(text string, most int) (out []string) {
	eachWord(text, most, func(w []byte) { out = append(out, string(w)) })
	return out
}

// longestWord is the runes of a word; what is longer counts as several.
const longestWord = 40

// eachWord takes a text apart at everything that is no letter or digit, and names at
// their capitals (readFile is read and file), until there were most words. Plurals count
// as their singular, and each character of a script without spaces is a word. f must not
// keep its argument.
func eachWord(text string, most int, f func(word []byte)) {
	var buf [longestWord * utf8.UTFMax]byte
	word, runes, n := buf[:0], 0, 0
	flush := func() {
		if len(word) == 0 {
			return
		}
		if end := len(word) - 1; end >= 3 && word[end] == 's' && word[end-1] != 's' {
			word = word[:end]
		}
		f(word)
		word, runes = buf[:0], 0
		n++
	}
	lower := false // the rune before was a small letter or a digit
	for _, r := range text {
		if n >= most {
			return
		}
		kind := kindOf(r)
		switch kind {
		case alone:
			flush()
			word = utf8.AppendRune(word, r)
			f(word)
			word = buf[:0]
			n++
		case between:
			flush()
		case letter, small, capital:
			if kind == capital && lower || runes >= longestWord {
				flush()
			}
			word = utf8.AppendRune(word, unicode.ToLower(r))
			runes++
		}
		lower = kind == small
	}
	flush()
}

// runeKind is what a rune does to the word that it stands in.
type runeKind uint8

const (
	between runeKind = iota // ends it
	letter                  // belongs to it
	small                   // belongs to it; a capital after it begins the next one
	capital
	alone // is one
)

func kindOf(r rune) runeKind {
	switch {
	case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
		return small
	case 'A' <= r && r <= 'Z':
		return capital
	case r < utf8.RuneSelf:
		return between
	case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul):
		return alone
	case unicode.IsUpper(r):
		return capital
	case unicode.IsLower(r), unicode.IsDigit(r):
		return small
	case unicode.IsLetter(r):
		return letter
	}
	return between
}
