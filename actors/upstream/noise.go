package upstream

import (
	"sync"
	"time"
)

const (
	// noisyPerMinute is how many lines that are no JSON-RPC a server may write to
	// stdout in a minute before it counts as degraded.
	noisyPerMinute = 1000
	// noiseEvery bounds how often the hook hears of noise.
	noiseEvery = time.Second
)

// noise counts what a server writes to its stdout that is no JSON-RPC, and reports
// the count at most once a second.
type noise struct {
	report func(lines uint64, degraded bool) // called with mu held: it does not block

	mu       sync.Mutex
	total    uint64
	told     uint64 // total at the last report
	window   uint64 // in the current minute
	started  time.Time
	degraded bool
	timer    *time.Timer // set while a report is due
	idle     bool        // the timer only waits for a noisy minute to end
	stopped  bool
}

func newNoise(report func(uint64, bool)) *noise { return &noise{report: report} }

func (n *noise) add(lines uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopped {
		return
	}
	n.roll(time.Now())
	n.total += lines
	n.window += lines
	n.degraded = n.degraded || n.window > noisyPerMinute
	switch {
	case n.timer == nil:
		n.timer = time.AfterFunc(noiseEvery, n.tell)
	case n.idle:
		n.idle = false
		n.timer.Reset(noiseEvery)
	}
}

// roll begins a new minute where one is over; a quiet minute clears degraded.
func (n *noise) roll(now time.Time) {
	if past := now.Sub(n.started); past >= time.Minute {
		n.degraded = n.window > noisyPerMinute && past < 2*time.Minute
		n.started, n.window = now, 0
	}
}

// tell reports; a degraded server is looked at again when its minute is over.
func (n *noise) tell() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopped {
		return
	}
	n.roll(time.Now())
	n.timer, n.idle = nil, false
	if n.degraded {
		n.timer, n.idle = time.AfterFunc(time.Until(n.started.Add(time.Minute))+time.Millisecond, n.tell), true
	}
	n.told = n.total
	n.report(n.total, n.degraded)
}

// stop reports what is left and ends the reporting.
func (n *noise) stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopped {
		return
	}
	n.stopped = true
	if n.timer != nil {
		n.timer.Stop()
	}
	if n.total != n.told {
		n.report(n.total, n.degraded)
	}
}
