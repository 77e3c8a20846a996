package supervisor

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"mcpbridge/messages"
)

const (
	linesPerServer = 1000 // that `logs` can look back
	bytesPerServer = 1 << 20
	linesFollowed  = 8192 // that a follower may fall behind, over all servers
	bytesFollowed  = 4 << 20
	lineBytes      = 16 << 10
)

// Sources of a log line.
const (
	sourceStderr = "stderr"
	sourceBridge = "bridge"
)

// logbook remembers the last lines of every server: its stderr (redacted before it
// comes here) and what the bridge has to say about it.
type logbook struct {
	feed *feed[messages.LogLine]

	mu      sync.Mutex
	servers map[string]*lineRing
}

// lineRing is the last lines of one server, bounded in number and in bytes.
type lineRing struct {
	lines []messages.LogLine // oldest first
	bytes int
}

func (r *lineRing) add(l messages.LogLine) {
	r.lines = append(r.lines, l)
	r.bytes += len(l.Text)
	for len(r.lines) > linesPerServer || r.bytes > bytesPerServer && len(r.lines) > 1 {
		r.bytes -= len(r.lines[0].Text)
		r.lines[0] = messages.LogLine{}
		r.lines = r.lines[1:] // the next append that finds no room moves what is left
	}
}

func newLogbook() *logbook {
	return &logbook{feed: newFeed[messages.LogLine](linesFollowed).bounded(func(l messages.LogLine) int { return len(l.Text) }, bytesFollowed), servers: map[string]*lineRing{}}
}

// add takes one line; it never blocks. The bridge's own lines and stderr share one order.
func (b *logbook) add(server, source, text string) {
	if len(text) > lineBytes {
		text = text[:lineBytes] + " … (line cut)"
	}
	b.feed.put(func(n uint64) messages.LogLine {
		l := messages.LogLine{Seq: n, Time: time.Now(), Server: server, Source: source, Text: text}
		b.mu.Lock()
		defer b.mu.Unlock()
		r := b.servers[server]
		if r == nil {
			r = &lineRing{}
			b.servers[server] = r
		}
		r.add(l)
		return l
	})
}

// last returns the last n lines of a server, or of all of them for "", oldest
// first; n ≤ 0 means everything that is remembered.
func (b *logbook) last(server string, n int) []messages.LogLine {
	b.mu.Lock()
	var out []messages.LogLine
	for name, r := range b.servers {
		if server == "" || name == server {
			out = append(out, r.lines...)
		}
	}
	b.mu.Unlock()
	slices.SortFunc(out, func(a, b messages.LogLine) int {
		if a.Seq < b.Seq {
			return -1
		}
		return 1
	})
	if n > 0 && len(out) > n {
		out = out[len(out)-n:]
	}
	return out
}

// subscribe follows the lines of all servers.
func (b *logbook) subscribe(f func(messages.LogLine)) (stop func()) {
	return b.feed.follow(f, func(lost, upTo uint64) messages.LogLine {
		return messages.LogLine{Seq: upTo, Time: time.Now(), Source: sourceBridge,
			Text: fmt.Sprintf("%d lines were dropped here: this reader is too slow", lost)}
	})
}

func (b *logbook) close() { b.feed.close() }
