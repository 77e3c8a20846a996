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

// operate is an operator who has a wish about one server: most gladly about one that is
// down or coming up, because it is between two states that wishes are forgotten. What was
// brought down is started again before the next wish.
func (f *furies) operate(rng *rand.Rand, n *reign) {
	r := f.troubled(rng, n)
	down := messages.VerbStop
	switch n.state(r.Name) {
	case messages.StateBackoff.String():
		if p := rng.IntN(8); p < 2 {
			f.wish(n, []messages.Verb{messages.VerbReset, messages.VerbRestart}[p], r.Name)
			return
		}
	case messages.StateReady.String():
		switch p := rng.IntN(8); {
		case p < 2:
			f.wish(n, messages.VerbRestart, r.Name)
			return
		case p < 4:
			down = messages.VerbDrain
		}
	}
	f.wish(n, down, r.Name)
	f.pause(time.Duration(150+rng.IntN(450)) * time.Millisecond)
	f.wish(n, messages.VerbStart, r.Name)
}

// troubled waits a moment for a server that is in backoff or coming up, else it takes any.
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
	return all[rng.IntN(len(all))]
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
