package gateway

import (
	"errors"
	"fmt"
	"io"
	"sync"
)

const (
	outboxSoft  = 64       // lines above which answers to calls wait and progress is dropped
	outboxBytes = 16 << 20 // the same in bytes
	outboxLimit = 4096     // lines above which the client is taken for one that does not read
)

var errSlowReader = errors.New("the client does not read what it asked for")

// outbox is the one writer of a stream. What is pushed is written in order.
type outbox struct {
	w      io.Writer
	failed chan struct{} // closed when nothing can be written any more

	mu       sync.Mutex
	cond     sync.Cond // on lines, finished and err
	lines    []outLine
	bytes    int
	finished bool
	err      error
}

// outLine is a line with what is to be done when it is written, or never will be.
type outLine struct {
	b    []byte
	done func() // nil for nothing; it must not block
}

// crowded reports whether more lines had better wait; the lock is held.
func (o *outbox) crowded() bool { return len(o.lines) >= outboxSoft || o.bytes >= outboxBytes }

func newOutbox(w io.Writer) *outbox {
	o := &outbox{w: w, failed: make(chan struct{})}
	o.cond.L = &o.mu
	return o
}

// push appends a line. With wait it waits while many lines are before it; without,
// a client that lets them pile up for good is given up.
func (o *outbox) push(line []byte, wait bool) error { return o.pushLine(outLine{b: line}, wait) }

func (o *outbox) pushLine(line outLine, wait bool) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for wait && o.crowded() && o.err == nil {
		o.cond.Wait()
	}
	if len(o.lines) >= outboxLimit {
		o.failLocked(errSlowReader)
	}
	if o.err != nil {
		if line.done != nil {
			line.done()
		}
		return o.err
	}
	o.addLocked(line)
	return nil
}

func (o *outbox) addLocked(line outLine) {
	o.lines = append(o.lines, line)
	o.bytes += len(line.b)
	o.cond.Broadcast()
}

// offer appends a line that may be dropped when others are waiting.
func (o *outbox) offer(line []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil && !o.crowded() {
		o.addLocked(outLine{b: line})
	}
}

// run writes until finish, when everything is written, or until a write fails.
func (o *outbox) run() {
	for {
		o.mu.Lock()
		for len(o.lines) == 0 && !o.finished && o.err == nil {
			o.cond.Wait()
		}
		if o.err != nil || len(o.lines) == 0 {
			o.mu.Unlock()
			return
		}
		line := o.lines[0]
		o.lines[0] = outLine{}
		o.lines = o.lines[1:]
		o.bytes -= len(line.b)
		o.cond.Broadcast()
		o.mu.Unlock()
		_, err := o.w.Write(line.b)
		if line.done != nil {
			line.done()
		}
		if err != nil {
			o.fail(fmt.Errorf("%w: %w", errGone, err))
			return
		}
	}
}

// finish lets run return when everything is written.
func (o *outbox) finish() {
	o.mu.Lock()
	o.finished = true
	o.cond.Broadcast()
	o.mu.Unlock()
}

// fail gives the client up; the first reason counts.
func (o *outbox) fail(err error) {
	o.mu.Lock()
	o.failLocked(err)
	o.mu.Unlock()
}

func (o *outbox) failLocked(err error) {
	if o.err != nil {
		return
	}
	o.err = err
	for _, line := range o.lines {
		if line.done != nil {
			line.done()
		}
	}
	o.lines, o.bytes = nil, 0
	close(o.failed)
	o.cond.Broadcast()
}

func (o *outbox) reason() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}
