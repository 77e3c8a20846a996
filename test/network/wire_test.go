package network

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"time"
)

// wire is a TCP proxy that breaks connections on purpose. It is our own because the
// faults are about single bytes: it counts what a request has left behind, and cuts
// at a given one. What it is told holds for the connections that exist and for those
// to come.
type wire struct {
	t    testing.TB
	addr string

	mu    sync.Mutex
	cond  *sync.Cond
	to    string
	ln    net.Listener
	conns map[*pair]bool
	fault fault
}

// fault is what the wire does. The zero value is an honest wire.
type fault struct {
	hole      bool          // nothing passes, and nobody hears of it
	refuse    bool          // accept, and reset at once
	latency   time.Duration // per piece and direction
	jitter    time.Duration
	perSecond int // bytes towards the client; 0 = no limit
	// Reset the connection when so many bytes of a request have come since the fault
	// was set (0 = off); they are passed on first if pass is set.
	resetUp int
	pass    bool
	// Cut the connection after so many bytes towards the client (0 = off), by a reset
	// or by an orderly end.
	cutDown int
	orderly bool
	once    bool // the fault is gone with the first connection that it has cut
	reused  bool // only connections that had an exchange before
}

// pair is one connection through the wire.
type pair struct {
	client, server *net.TCPConn
	up, down       int // since the fault was set
	used           bool
	held           bool // it was in a hole, and stays there
}

func newWire(t testing.TB, to string) *wire {
	t.Helper()
	w := &wire{t: t, to: to, conns: map[*pair]bool{}}
	w.cond = sync.NewCond(&w.mu)
	// An address of its own, because a port of 127.0.0.1 that is closed for a moment is
	// somebody else's the next.
	ln, err := net.Listen("tcp", fmt.Sprintf("127.77.%d.%d:0", rand.IntN(250)+1, rand.IntN(250)+1))
	if err != nil {
		ln, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		t.Fatal(err)
	}
	w.addr = ln.Addr().String()
	w.serve(ln)
	t.Cleanup(func() {
		w.down()
		w.mu.Lock()
		w.to = ""
		w.cond.Broadcast()
		w.mu.Unlock()
	})
	return w
}

func (w *wire) serve(ln net.Listener) {
	w.mu.Lock()
	w.ln = ln
	w.mu.Unlock()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go w.connect(c.(*net.TCPConn))
		}
	}()
}

// set changes what the wire does from now on.
func (w *wire) set(f fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fault.hole && !f.hole { // what went into a hole never comes out again
		for p := range w.conns {
			p.held = true
		}
	}
	w.fault = f
	for p := range w.conns {
		p.up, p.down = 0, 0
	}
	w.cond.Broadcast()
}

// down closes the port and resets every connection.
func (w *wire) down() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ln != nil {
		_ = w.ln.Close()
		w.ln = nil
	}
	for p := range w.conns {
		p.reset()
	}
}

// back opens the port again.
func (w *wire) back() {
	w.t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		ln, err := net.Listen("tcp", w.addr)
		if err == nil {
			w.serve(ln)
			return
		}
		if time.Now().After(end) {
			w.t.Fatal(err)
		}
	}
}

func (p *pair) reset() {
	for _, c := range []*net.TCPConn{p.client, p.server} {
		if c != nil {
			_ = c.SetLinger(0)
			_ = c.Close()
		}
	}
}

func (w *wire) connect(client *net.TCPConn) {
	w.mu.Lock()
	f, to := w.fault, w.to
	w.mu.Unlock()
	p := &pair{client: client}
	if f.refuse {
		p.reset()
		return
	}
	c, err := net.Dial("tcp", to)
	if err != nil {
		p.reset()
		return
	}
	p.server = c.(*net.TCPConn)
	w.mu.Lock()
	w.conns[p] = true
	w.mu.Unlock()
	done := make(chan struct{}, 2)
	go func() { w.pump(p, p.server, p.client, true); done <- struct{}{} }()
	go func() { w.pump(p, p.client, p.server, false); done <- struct{}{} }()
	<-done
	<-done
	w.mu.Lock()
	delete(w.conns, p)
	w.mu.Unlock()
	_ = p.client.Close()
	_ = p.server.Close()
}

// pump carries bytes in one direction until an end, or a fault, comes.
func (w *wire) pump(p *pair, dst, src *net.TCPConn, up bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		piece := buf[:n]
		if !w.pass(p, piece, up) {
			return
		}
		if n > 0 {
			if _, werr := dst.Write(piece); werr != nil {
				p.reset()
				return
			}
			if w.after(p, up) {
				return
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			_ = dst.CloseWrite()
			return
		case errors.Is(err, os.ErrClosed) || errors.Is(err, net.ErrClosed):
			return
		default:
			p.reset()
			return
		}
	}
}

// pass waits for as long as the wire holds a piece back, and reports whether it may go
// on its way.
func (w *wire) pass(p *pair, piece []byte, up bool) bool {
	w.mu.Lock()
	for w.fault.hole && w.to != "" {
		p.held = true
		w.cond.Wait()
	}
	for p.held && w.to != "" {
		w.cond.Wait()
	}
	f := w.fault
	strikes := !f.reused || p.used
	n := len(piece)
	switch {
	case n == 0:
	case up:
		if f.resetUp > 0 && strikes && p.up+n >= f.resetUp && !f.pass {
			w.strike(p)
			w.mu.Unlock()
			return false
		}
		p.up += n
	default:
		if f.cutDown > 0 && strikes && p.down+n >= f.cutDown {
			rest := piece[:f.cutDown-p.down]
			w.mu.Unlock()
			_, _ = p.client.Write(rest)
			w.mu.Lock()
			if f.orderly {
				_ = p.client.Close()
				_ = p.server.Close()
				w.struck()
			} else {
				w.strike(p)
			}
			w.mu.Unlock()
			return false
		}
		p.down += n
		p.used = true
	}
	w.mu.Unlock()
	if d := f.latency; d > 0 && n > 0 {
		if f.jitter > 0 {
			d += time.Duration(rand.Int64N(int64(2*f.jitter))) - f.jitter
		}
		time.Sleep(max(d, 0))
	}
	if !up && f.perSecond > 0 {
		w.trickle(p, piece, f.perSecond)
		return true
	}
	return true
}

// trickle makes the client wait for a piece as long as it takes on a thin wire, and
// writes all but the last bytes of it in small parts.
func (w *wire) trickle(p *pair, piece []byte, perSecond int) {
	for range len(piece) / max(perSecond/10, 1) {
		time.Sleep(100 * time.Millisecond)
	}
}

// after strikes once what was to be passed on has been.
func (w *wire) after(p *pair, up bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.fault
	if !up || f.resetUp == 0 || !f.pass || p.up < f.resetUp || f.reused && !p.used {
		return false
	}
	time.Sleep(50 * time.Millisecond) // the server has read it
	w.strike(p)
	return true
}

func (w *wire) strike(p *pair) {
	p.reset()
	w.struck()
}

func (w *wire) struck() {
	if w.fault.once {
		w.fault = fault{}
	}
}
