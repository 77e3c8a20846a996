package upstream

import (
	"context"
	"errors"
	"syscall"
	"time"
)

// checkWait is how long the answer to a check may take. That none comes says nothing:
// slow is not dead, and for silence there are the health probes.
const checkWait = 10 * time.Second

// checkAgain is the pause before a check that broke is made once more.
const checkAgain = 250 * time.Millisecond

// check asks the server once, in the background, because of something that may
// concern the session as a whole: a call that is forbidden, a connection that is
// refused, a stream that broke. When nobody listens any more, the session is over;
// what an HTTP answer means is judged where all are (refused).
func (r *remote) check(method string) {
	if !r.checking.CompareAndSwap(false, true) {
		return
	}
	if !r.spawn(func() {
		defer r.checking.Store(false)
		r.checkNow(method)
	}) {
		r.checking.Store(false)
	}
}

func (r *remote) checkNow(method string) {
	if r.sse {
		return // it ends with its one stream
	}
	ctx, cancel := context.WithTimeout(r.ctx, checkWait)
	defer cancel()
	r.mux.mu.Lock()
	era := r.mux.era
	r.mux.mu.Unlock()
	if len(era) > 0 {
		method = "tools/list" // there is no ping
	}
	for range 2 {
		q := &pending{method: method, ctx: ctx}
		if r.mux.add(q) != nil {
			return
		}
		q.body = appendRequest(nil, q.id, method, "", era)
		r.send(q)
		<-q.reply
		switch {
		case q.err == nil:
			return
		case nobodyThere(q.err):
			r.fail(r.red.String("the server cannot be reached any more: " + q.err.Error()))
			return
		}
		// What breaks a connection now may be on the way to closing the port as well.
		select {
		case <-ctx.Done():
			return
		case <-time.After(checkAgain):
		}
	}
}

// nobodyThere reports whether an error means that the host is up and nothing listens
// there: whatever process held the session is gone.
func nobodyThere(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
