package upstream

import (
	"bytes"
	"encoding/json"
)

// idScan finds the ids of the answers in a line that is too long to be kept, while its
// bytes pass by. It looks at the keys of the outermost object only (of each message
// in a batch, of each of several on one line): whatever a result holds deeper inside
// is never taken for an id. It needs the same few bytes however long the line is.
//
// An id counts as soon as the message is seen to be an answer, so that the rest of it
// need not be waited for. A message that has a method is none, and one that says
// nothing of the kind counts at its end.
type idScan struct {
	prefix string // still to be skipped
	other  bool   // the line does not begin with it: nothing in it is a message

	depth int  // of open brackets
	base  int  // the depth of a message's own keys: 1, or 2 in a batch
	begun bool // the first bracket was seen
	str   bool // inside a string
	esc   bool // behind a backslash in it

	place    scanPlace
	word     []byte // the key, or the value of id, as far as it is kept
	keep     bool   // the bytes at hand belong to word
	isID     bool   // the value at hand is that of id
	id       int64
	hasID    bool
	answer   bool // the message has a result or an error
	question bool // or a method
	given    bool // its id was handed out

	found []int64
	told  bool // some id was taken
	over  bool // the line is at its end
}

// scanPlace is where in a message's own fields the scan is.
type scanPlace uint8

const (
	atNothing scanPlace = iota
	atKey               // a key may begin
	atColon
	atValue
)

// scanWord bounds what is kept of a key or an id; longer ones are none of ours. It has
// room for `"result"` written in escapes.
const scanWord = 64

// maxFound bounds the ids of one piece of a line: a line of nothing but small answers
// is no accident.
const maxFound = 64

func newIDScan(prefix string) *idScan {
	return &idScan{prefix: prefix, word: make([]byte, 0, scanWord)}
}

// take hands out the next id that was found.
func (s *idScan) take() (int64, bool) {
	if len(s.found) == 0 {
		return 0, false
	}
	id := s.found[0]
	s.found = s.found[1:]
	s.told = true
	return id, true
}

// feed takes the next bytes of the line.
func (s *idScan) feed(b []byte) {
	for s.prefix != "" && len(b) > 0 {
		if b[0] != s.prefix[0] {
			s.prefix, s.other = "", true
		} else {
			s.prefix, b = s.prefix[1:], b[1:]
		}
	}
	if s.other {
		return
	}
	for i := 0; i < len(b); i++ {
		c := b[i]
		if s.str {
			if !s.keep && !s.esc { // most bytes of a long line pass here
				n := bytes.IndexAny(b[i:], `"\`)
				if n < 0 {
					return
				}
				i += n
				c = b[i]
			}
			s.inString(c)
			continue
		}
		s.outside(c)
	}
}

func (s *idScan) inString(c byte) {
	s.note(c)
	switch {
	case s.esc:
		s.esc = false
	case c == '\\':
		s.esc = true
	case c == '"':
		s.str = false
		if s.keep && s.place == atKey {
			s.place, s.keep = atColon, false
		}
	}
}

// outside takes a byte that is in no string.
func (s *idScan) outside(c byte) {
	own := s.begun && s.depth == s.base
	switch c {
	case ' ', '\t', '\r', '\n':
		if s.keep && len(s.word) > 0 {
			s.endWord()
		}
	case '"':
		s.str = true
		if own && s.place == atKey || own && s.place == atValue && s.isID && len(s.word) == 0 {
			s.word, s.keep = s.word[:0], true
		}
		s.note(c)
	case ':':
		if own && s.place == atColon {
			s.field()
		}
	case ',':
		if own {
			s.endValue()
			s.place = atKey
		}
	case '{', '[':
		s.open(c)
	case '}', ']':
		if own {
			s.endValue()
			if c == '}' {
				s.endMessage()
			}
		}
		if s.depth--; s.depth <= 0 {
			s.depth, s.begun = 0, false
		}
	default:
		s.note(c)
	}
}

func (s *idScan) open(c byte) {
	if !s.begun {
		s.begun, s.base = true, 1
		if c == '[' {
			s.base = 2
		}
	}
	if s.depth++; s.depth == s.base {
		s.place = atNothing
		if c == '{' {
			s.begin()
		}
	}
	s.isID, s.keep = false, false // an id that is an object is none
}

// begin starts a message.
func (s *idScan) begin() {
	s.place, s.word, s.keep = atKey, s.word[:0], false
	s.isID, s.hasID, s.answer, s.question, s.given = false, false, false, false, false
}

// note keeps a byte of the key or id at hand.
func (s *idScan) note(c byte) {
	switch {
	case !s.keep:
	case len(s.word) == cap(s.word):
		s.keep, s.word = false, s.word[:0] // too long to mean anything
		if s.place == atKey {
			s.place = atColon
		}
		s.isID = false
	default:
		s.word = append(s.word, c)
	}
}

// field is behind the colon: the key is known.
func (s *idScan) field() {
	key := s.word
	if bytes.IndexByte(key, '\\') >= 0 {
		var text string
		if json.Unmarshal(key, &text) == nil {
			key = append(append([]byte{'"'}, text...), '"')
		}
	}
	s.place, s.isID, s.keep = atValue, false, false
	switch string(key) {
	case `"id"`:
		s.isID, s.keep = true, true
	case `"method"`:
		s.question = true
	case `"result"`, `"error"`:
		s.answer = true
		s.give()
	}
	s.word = s.word[:0]
}

// endWord is behind a number.
func (s *idScan) endWord() {
	if s.place == atValue && s.isID {
		s.endValue()
	}
}

func (s *idScan) endValue() {
	if s.place == atValue && s.isID && len(s.word) > 0 {
		if id, ok := asID(s.word); ok { // of two the last one counts, as elsewhere
			s.id, s.hasID = id, true
			if s.answer {
				s.give()
			}
		}
	}
	s.isID, s.keep, s.word = false, false, s.word[:0]
}

func (s *idScan) endMessage() {
	if !s.question {
		s.give()
	}
	s.begin()
	s.place = atNothing
}

// give hands out the id of the message, once.
func (s *idScan) give() {
	if s.hasID && !s.given && !s.question && len(s.found) < maxFound {
		s.given = true
		s.found = append(s.found, s.id)
	}
}
