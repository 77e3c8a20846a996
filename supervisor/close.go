package supervisor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"mcpbridge/messages"
)

// The end of the bridge (semantics section 3): calls in flight get timeouts.drain,
// then every server gets a short ladder, side by side; at most 9 s with the default
// timeouts, so that a container's 10 s suffice.
const (
	endStdin     = time.Second
	endSigTerm   = 2 * time.Second
	endKill      = time.Second
	endAgain     = 500 * time.Millisecond // whoever did not hear of the end is told again
	defaultDrain = 5 * time.Second
	gatewayGrace = 500 * time.Millisecond // for answers that are being written
	proofGrace   = 250 * time.Millisecond // for the last word of the sessions
	treeGrace    = 2 * time.Second        // for actors that have nothing left to do
)

// closing is the state of the one end of a bridge.
type closing struct {
	start sync.Once
	cut   sync.Once
	hurry chan struct{} // closed when nobody waits for grace any more
	done  chan struct{} // closed when everything is over; err is then valid
	err   error
}

// skipGrace cuts what is left of drain and ladder.
func (c *closing) skipGrace() { c.cut.Do(func() { close(c.hurry) }) }

// Drain settles queued calls as not sent, takes no more, and waits until nothing is
// in flight, or until ctx or the longest drain timeout of a server ends. Servers keep
// running. There is no way back: a drained bridge is for closing.
func (b *Bridge) Drain(ctx context.Context) error {
	b.door.Lock()
	b.shut = true
	b.door.Unlock()
	b.draining.Store(true)
	done := make(chan struct{}, 1)
	b.send(b.refs.Router, messages.DrainAll{Done: done})
	timer := time.NewTimer(b.drainTime())
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
		return context.DeadlineExceeded
	case <-b.closing.hurry:
		return context.Canceled
	case <-b.down:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// drainTime is the longest timeouts.drain of the servers.
func (b *Bridge) drainTime() time.Duration {
	d := time.Duration(-1)
	for _, s := range b.cfg.Load().Servers {
		d = max(d, s.Timeouts.Drain)
	}
	if d < 0 {
		return defaultDrain
	}
	return d
}

// Close drains the bridge, stops every process, side by side, and releases
// everything. It takes at most 9 s with the default timeouts. When ctx ends, the
// grace is skipped and what runs is killed; Close still returns only when that is
// done. It may be called several times and from anywhere: each call returns when the
// bridge is closed, and the ctx of each can skip the grace. The error names the
// servers whose processes could not be proven dead.
func (b *Bridge) Close(ctx context.Context) error {
	stop := context.AfterFunc(ctx, b.closing.skipGrace)
	defer stop()
	b.closing.start.Do(func() { go b.close() })
	<-b.closing.done
	return b.closing.err
}

// close is the one run of Close. The endpoint goes last but one: whoever calls
// through it hears what became of the call.
func (b *Bridge) close() {
	defer close(b.closing.done)
	if err := b.Drain(context.Background()); err != nil {
		b.log.Info("calls are still in flight and are given up", "err", err)
	}
	b.stopServers()
	b.closing.err = b.leftovers()

	ctx, cancel := context.WithTimeout(context.Background(), gatewayGrace)
	defer cancel()
	if err := b.gateway.Close(ctx); err != nil {
		b.log.Info("the endpoint was cut off", "err", err)
	}
	b.keepGrants()
	b.system.Root.Stop(b.rootPID)
	select {
	case <-b.down:
	case <-time.After(treeGrace): // its actors neither block nor wait: this is a bug
		b.closing.err = errors.Join(b.closing.err, errors.New("close the bridge: its own actors did not end"))
	}
	b.end()
}

// stopServers ends every session by the short ladder, or at once when in a hurry.
func (b *Bridge) stopServers() {
	ladder := messages.Ladder{StdinClose: endStdin, SigTerm: endSigTerm, Kill: endKill}
	hurry := b.closing.hurry
	done := make(chan struct{}, 1)
	b.send(b.refs.Servers, messages.StopAll{Ladder: ladder, Done: done})
	timer := time.NewTimer(endStdin + endSigTerm + endKill + proofGrace)
	defer timer.Stop()
	again := time.NewTicker(endAgain)
	defer again.Stop()
	for {
		select {
		case <-done:
			return
		case <-again.C: // a ladder that is said twice is no longer than the first one
			b.send(b.refs.Servers, messages.StopAll{Ladder: ladder, Done: done})
		case <-hurry:
			hurry = nil
			ladder = messages.Ladder{Kill: endKill}
			b.send(b.refs.Servers, messages.StopAll{Ladder: ladder, Done: done})
			timer.Reset(endKill + proofGrace)
		case <-timer.C:
			b.log.Error("some servers did not end in time")
			return
		}
	}
}

// leftovers names the servers that may have left something behind.
func (b *Bridge) leftovers() error {
	names := b.ends.left(b.cfg.Load().Servers)
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("close the bridge: processes of %s could not be proven dead; look for them with `ps`", strings.Join(names, ", "))
}

// end releases what is not an actor. The tree is gone.
func (b *Bridge) end() {
	b.system.Shutdown()
	b.fast.close()
	b.spawner.Close()
	b.owner.Close()
	b.starts.flush()
	b.defs.flush()
	if err := b.consent.Close(); err != nil {
		b.log.Error("what was agreed to is not saved: it will be asked about again", "err", err)
	}
	if err := b.journaling.close(); err != nil {
		b.log.Error("the journal did not close cleanly: what it holds is checked at the next start", "err", err)
	}
	b.results.Close()
	b.hub.close()
	b.logs.close()
}
