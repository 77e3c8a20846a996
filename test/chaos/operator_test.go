//go:build linux

package chaos

import (
	"context"
	"math/rand/v2"
	"time"

	"mcpbridge/messages"
	"mcpbridge/test/harness"
	"mcpbridge/test/history"
	"mcpbridge/test/witness"
)

// waylay is an operator who has a wish about a server that is down or coming up: it is
// between two states that wishes are forgotten.
func (f *furies) waylay(rng *rand.Rand, n *reign) {
	r := f.troubled(rng, n)
	if r == nil {
		return
	}
	if p := rng.IntN(8); p < 2 && n.state(r.Name) == messages.StateBackoff.String() {
		f.wish(n, []messages.Verb{messages.VerbReset, messages.VerbRestart}[p], r.Name)
		return
	}
	f.standstill(rng, n, messages.VerbStop, r)
}

// operate is an operator with a wish about any server.
func (f *furies) operate(rng *rand.Rand, n *reign) {
	r := f.crowd.residents[rng.IntN(len(f.crowd.residents))]
	switch p := rng.IntN(8); {
	case p < 2:
		f.wish(n, messages.VerbRestart, r.Name)
	case p < 6:
		f.standstill(rng, n, messages.VerbDrain, r)
	default:
		f.standstill(rng, n, messages.VerbStop, r)
	}
}

// stampede is an operator who restarts everything, twice: that is more than may be started
// in a second, so that some have to wait, and are stopped while they do.
func (f *furies) stampede(_ *rand.Rand, n *reign) {
	all := f.crowd.residents
	for range 2 {
		for _, r := range all {
			f.wish(n, messages.VerbRestart, r.Name)
		}
		f.pause(100 * time.Millisecond)
	}
	var stopped []*resident
	for _, r := range all {
		if n.state(r.Name) == messages.StateStarting.String() {
			f.wish(n, messages.VerbStop, r.Name)
			stopped = append(stopped, r)
		}
	}
	f.pause(400 * time.Millisecond)
	for _, r := range stopped {
		f.wish(n, messages.VerbStart, r.Name)
	}
}

// standstill brings a server down, and up again before the next wish.
func (f *furies) standstill(rng *rand.Rand, n *reign, verb messages.Verb, r *resident) {
	f.wish(n, verb, r.Name)
	f.pause(time.Duration(150+rng.IntN(450)) * time.Millisecond)
	f.wish(n, messages.VerbStart, r.Name)
}

// troubled waits a moment for a server that is in backoff or coming up; nil if none is.
func (f *furies) troubled(rng *rand.Rand, n *reign) *resident {
	all := f.crowd.residents
	for range 60 {
		at := rng.IntN(len(all))
		for i := range all {
			r := all[(at+i)%len(all)]
			switch n.state(r.Name) {
			case messages.StateBackoff.String(), messages.StateStarting.String():
				return r
			}
		}
		f.pause(5 * time.Millisecond)
	}
	return nil
}

// pause sleeps unless the storm is over.
func (f *furies) pause(d time.Duration) {
	select {
	case <-f.stop:
	case <-time.After(d):
	}
}

// wish gives a verb and writes it down, whether or not it is granted.
func (f *furies) wish(n *reign, verb messages.Verb, server string) {
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	o := history.Operation{Verb: verb, Server: server, At: witness.Now()}
	_ = n.client.Operate(ctx, verb, server) // a refusal is an answer too
	o.Done = witness.Now()
	c := f.crowd
	c.mu.Lock()
	defer c.mu.Unlock()
	c.operations = append(c.operations, o)
}
