package upstream

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"time"
)

// drainCap bounds what is still read from a pipe after its writer died: no pipe
// holds more, and a process that escaped must not keep the reader busy.
const drainCap = 4 << 20

// pipeReader reads a child's pipe until the end of file or, once the child is
// dead, until a read would block. A grandchild that still holds the other end
// therefore delays nothing, and what was written before the death is not lost.
type pipeReader struct {
	f        *os.File
	dead     atomic.Bool
	draining bool
	drained  int
}

// leaderDead wakes a blocked Read and lets it drain. It may be called once the
// process is dead.
func (p *pipeReader) leaderDead() {
	p.dead.Store(true)
	if err := p.f.SetReadDeadline(time.Unix(1, 0)); err != nil {
		// No deadlines on this system's pipes: leave the reader a moment for what
		// is buffered, then take the pipe away.
		time.AfterFunc(200*time.Millisecond, func() { _ = p.f.Close() })
	}
}

// Read implements io.Reader.
func (p *pipeReader) Read(b []byte) (int, error) {
	if !p.draining {
		n, err := p.f.Read(b)
		if n > 0 {
			return n, nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || !p.dead.Load() {
			return 0, io.EOF
		}
		p.draining = true
	}
	if p.drained >= drainCap {
		return 0, io.EOF
	}
	n, err := readNow(p.f, b)
	p.drained += n
	if n <= 0 || err != nil {
		return 0, io.EOF
	}
	return n, nil
}
