package upstream

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Bounds of what is kept and passed on of a server's stderr.
const (
	stderrLine  = 16 << 10 // longer lines are passed on in pieces
	stderrTail  = 20       // lines kept for the report of an exit
	stderrRate  = 500      // lines a second that are passed on
	stderrBurst = 2000
)

// redactor hides the configured secrets of a server in a text, and says where a text that
// goes on may be cut so that none is torn.
type redactor interface {
	String(s string) string
	Cut(s string, at int) int
}

// stderrLog reads a server's stderr so that it never blocks the server, keeps the
// last lines, and passes lines on at a bounded rate.
type stderrLog struct {
	red  redactor
	emit func(string)

	mu   sync.Mutex
	ring [stderrTail]string
	n    int

	tokens  float64
	last    time.Time
	dropped int
}

// read consumes r to its end.
func (s *stderrLog) read(r io.Reader) {
	br := bufio.NewReaderSize(r, stderrLine)
	pass := func(line string) {
		s.line(strings.ToValidUTF8(strings.TrimRight(line, "\r\n"), "\uFFFD"))
	}
	kept := "" // of a long line: what may be the beginning of a secret
	for {
		line, err := br.ReadSlice('\n')
		text := kept + string(line)
		kept = ""
		if err == bufio.ErrBufferFull {
			at := s.red.Cut(text, len(text))
			text, kept = text[:at], text[at:]
		}
		if len(text) > 0 {
			pass(text)
		}
		if err != nil && err != bufio.ErrBufferFull {
			return
		}
	}
}

func (s *stderrLog) line(text string) {
	s.mu.Lock()
	s.ring[s.n%stderrTail] = text
	s.n++
	s.mu.Unlock()

	now := time.Now()
	if s.last.IsZero() {
		s.tokens = stderrBurst
	}
	s.tokens = min(stderrBurst, s.tokens+stderrRate*now.Sub(s.last).Seconds())
	s.last = now
	if s.tokens < 1 {
		s.dropped++
		return
	}
	s.tokens--
	if s.dropped > 0 {
		s.emit(fmt.Sprintf("(%d lines of stderr were left out: too many in a short time)", s.dropped))
		s.dropped = 0
	}
	s.emit(s.red.String(text))
}

// tail returns the last lines, redacted, oldest first.
func (s *stderrLog) tail() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]string, 0, stderrTail)
	for i := max(0, s.n-stderrTail); i < s.n; i++ {
		out = append(out, s.red.String(s.ring[i%stderrTail]))
	}
	return out
}
