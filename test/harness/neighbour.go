package harness

import (
	"context"
	"sync"
	"testing"
	"time"

	"mcpbridge/messages"
	"mcpbridge/supervisor"
)

// Neighbour calls a tool of a server to which nothing is done, some 50 times a second,
// while something is done to another one: each of these calls must be answered. It goes
// on until end is called, and at most until the end of the test.
func Neighbour(t testing.TB, b *supervisor.Bridge, tool string) (end func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	var worst time.Duration
	n := 0
	go func() {
		defer close(done)
		for {
			began := time.Now()
			ctx, cancel := context.WithTimeout(context.Background(), 2*Patience)
			o := b.Call(ctx, messages.CallTool{Tool: tool, Timeout: Patience})
			cancel()
			if n++; o.Kind != messages.OK {
				t.Errorf("a call of the neighbour: %s %s: %s", o.Kind, o.Code, o.ErrorText())
			}
			worst = max(worst, time.Since(began))
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	end = sync.OnceFunc(func() {
		close(stop)
		<-done
		t.Logf("the neighbour answered %d calls, the slowest in %s", n, worst.Round(time.Millisecond))
	})
	t.Cleanup(end)
	return end
}
