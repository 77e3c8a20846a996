package upstream

import (
	"bufio"
	"bytes"
	"io"
	"sync"
)

const (
	// readBuffer holds most answers whole, so that they are parsed in place.
	readBuffer = 64 << 10
	// chunkBytes are collected at a time of a line that is longer: growing one slice
	// would leave several times the line behind as garbage.
	chunkBytes = 256 << 10
)

// chunks are used again by the next long line, of whatever server.
var chunks = sync.Pool{New: func() any { return new([chunkBytes]byte) }}

// frame is one line of a stream.
type frame struct {
	data []byte
	// owned says that data is the caller's; otherwise it is valid until the next line.
	owned bool
	// cut is set for the last line of a stream that has no newline.
	cut bool
	// over is set for a line over the cap, which has no data. It gives one frame for
	// each id that is found in it, as soon as that is seen, and one without at its end
	// if there was none.
	over  bool
	id    int64
	found bool
	other bool // and the line does not begin with the reader's prefix
}

// lineReader cuts a stream into lines. A line over max bytes is skipped to its
// newline with bounded memory, and looked through for the ids of messages in it.
type lineReader struct {
	br     *bufio.Reader
	max    int
	prefix string  // that a line begins with before its message; for what is skipped
	scan   *idScan // set while the rest of a line is skipped
}

func newLineReader(r io.Reader, maxLine int) *lineReader {
	return &lineReader{br: bufio.NewReaderSize(r, readBuffer), max: maxLine}
}

// next returns the next line without its newline. The last line of a stream needs none.
func (r *lineReader) next() (frame, error) {
	if r.scan != nil {
		if f, ok := r.skip(); ok {
			return f, nil
		}
	}
	part, err := r.br.ReadSlice('\n')
	if err == nil {
		if part = part[:len(part)-1]; len(part) > r.max {
			return r.over(part, true), nil
		}
		return frame{data: part}, nil
	}
	if err != bufio.ErrBufferFull {
		if len(part) > r.max {
			return r.over(part, true), nil
		}
		if len(part) > 0 {
			return frame{data: part, cut: true}, nil
		}
		return frame{}, err
	}
	return r.long(part)
}

// long collects a line that does not fit the buffer and begins with part.
func (r *lineReader) long(part []byte) (frame, error) {
	var line collected
	defer line.free()
	line.add(part)
	for {
		part, err := r.br.ReadSlice('\n')
		whole := err != bufio.ErrBufferFull
		body := bytes.TrimSuffix(part, []byte{'\n'})
		if line.n+len(body) > r.max {
			r.scan = newIDScan(r.prefix)
			line.each(r.scan.feed)
			line.free()
			return r.over(body, whole), nil
		}
		line.add(body)
		if whole {
			return frame{data: line.join(), owned: true, cut: err != nil}, nil
		}
	}
}

// over takes up the skipping of a line; whole says that body is the rest of it.
func (r *lineReader) over(body []byte, whole bool) frame {
	if r.scan == nil {
		r.scan = newIDScan(r.prefix)
	}
	r.scan.feed(body)
	r.scan.over = whole
	f, _ := r.skip()
	return f
}

// skip reads on in a line over the cap to the next id in it, or to its end; not ok
// means that the line is over and nothing of it is left to be told.
func (r *lineReader) skip() (frame, bool) {
	s := r.scan
	for {
		if id, ok := s.take(); ok {
			return frame{over: true, id: id, found: true}, true
		}
		if s.over {
			r.scan = nil
			return frame{over: true, other: s.other}, !s.told
		}
		s.feed(r.more(s))
	}
}

// more is the next piece of a line that is skipped, as soon as it is there.
func (r *lineReader) more(s *idScan) []byte {
	if _, err := r.br.Peek(1); err != nil {
		s.over = true
		return nil
	}
	part, _ := r.br.Peek(r.br.Buffered())
	n := len(part)
	if end := bytes.IndexByte(part, '\n'); end >= 0 {
		part, n, s.over = part[:end], end+1, true
	}
	_, _ = r.br.Discard(n) // the bytes stay where they are until the next read
	return part
}

// oversized is the frame of a message over the cap, as far as it is at hand.
func oversized(parts ...[]byte) frame {
	s := newIDScan("")
	for _, part := range parts {
		s.feed(part)
	}
	id, ok := s.take()
	return frame{over: true, id: id, found: ok}
}

// collected is a long line in chunks.
type collected struct {
	list []*[chunkBytes]byte
	n    int
}

func (c *collected) add(b []byte) {
	for len(b) > 0 {
		if c.n == len(c.list)*chunkBytes {
			c.list = append(c.list, chunks.Get().(*[chunkBytes]byte))
		}
		k := copy(c.list[len(c.list)-1][c.n%chunkBytes:], b)
		c.n += k
		b = b[k:]
	}
}

// each calls f for the pieces, in order.
func (c *collected) each(f func([]byte)) {
	left := c.n
	for _, chunk := range c.list {
		k := min(left, chunkBytes)
		f(chunk[:k])
		left -= k
	}
}

// join is the line in memory of its own.
func (c *collected) join() []byte {
	out := make([]byte, 0, c.n)
	c.each(func(b []byte) { out = append(out, b...) })
	return out
}

// free gives the chunks back.
func (c *collected) free() {
	for _, chunk := range c.list {
		chunks.Put(chunk)
	}
	c.list, c.n = nil, 0
}
