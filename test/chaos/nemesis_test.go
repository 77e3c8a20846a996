//go:build linux

package chaos

import (
	"context"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"mcpbridge/messages"
	"mcpbridge/test/harness"
)

// furies break the servers. What stops a process or a pipe for a while holds gate for
// reading: the daemon is only killed when nothing is stopped, because a stopped
// process ends when it goes on.
type furies struct {
	crowd   *crowd
	remotes []*remote
	gate    sync.RWMutex
	stop    chan struct{}
	wg      sync.WaitGroup
}

// every runs f at random distances around d until the storm is over.
func (f *furies) every(d time.Duration, seed uint64, act func(rng *rand.Rand, n *reign)) {
	f.wg.Go(func() {
		rng := rand.New(rand.NewPCG(seed, 99))
		for {
			select {
			case <-f.stop:
				return
			case <-time.After(d/2 + time.Duration(rng.Int64N(int64(d)))):
			}
			n := f.crowd.realm.current(f.stop)
			if n == nil {
				return
			}
			act(rng, n)
		}
	})
}

func (f *furies) begin(seed uint64) {
	f.every(350*time.Millisecond, seed, f.kill)
	f.every(900*time.Millisecond, seed+4, f.mute)
	f.every(300*time.Millisecond, seed+5, f.waylay)
	f.every(600*time.Millisecond, seed+6, f.operate)
	f.every(2500*time.Millisecond, seed+7, f.stampede)
	f.every(1500*time.Millisecond, seed+8, f.stallPipe)
	f.every(900*time.Millisecond, seed+1, f.freeze)
	f.every(1200*time.Millisecond, seed+2, f.stallPipe)
	f.every(2500*time.Millisecond, seed+3, func(rng *rand.Rand, _ *reign) {
		r := f.remotes[rng.IntN(len(f.remotes))]
		r.kill()
		f.crowd.did("kill of a remote server", r.name, 0)
	})
}

func anyOne(*resident) bool { return true }

// stdio is a random server that is a process of the bridge, and fits.
func (f *furies) stdio(rng *rand.Rand, fits func(*resident) bool) *resident {
	var all []*resident
	for _, r := range f.crowd.residents {
		if !r.Remote && fits(r) {
			all = append(all, r)
		}
	}
	return all[rng.IntN(len(all))]
}

// tree is a server's processes, leader first; none while it has none.
func (f *furies) tree(n *reign, r *resident) []harness.Proc {
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	st, err := n.client.Status(ctx, r.Name)
	if err != nil {
		return nil
	}
	row, _ := st.Server(r.Name)
	if p, ok := harness.Process(row.PID); row.PID == 0 || !ok || p.PPID != n.PID {
		return nil
	}
	return harness.Tree(row.PID)
}

// kill ends a server, and often again as soon as it is back: a server that fails now and
// then knows no backoff.
func (f *furies) kill(rng *rand.Rand, n *reign) {
	r := f.stdio(rng, anyOne)
	for range 1 + rng.IntN(3) {
		f.killOnce(rng, n, r)
		f.pause(20 * time.Millisecond)
		for range 30 {
			if n.state(r.Name) == messages.StateReady.String() {
				break
			}
			f.pause(10 * time.Millisecond)
		}
	}
}

// killOnce ends a leader, or what stands behind a wrapper.
func (f *furies) killOnce(rng *rand.Rand, n *reign, r *resident) {
	tree := f.tree(n, r)
	if len(tree) == 0 {
		return
	}
	victim := tree[rng.IntN(len(tree))]
	victim.Kill()
	switch {
	case !r.wrapped:
		f.crowd.did("kill of a server", r.Name, victim.PID)
	case victim.PID == tree[0].PID:
		f.crowd.did("kill of a wrapper only", r.Name, victim.PID)
	default:
		f.crowd.did("kill behind a wrapper", r.Name, victim.PID)
	}
}

// freeze stops a process and lets it go on.
func (f *furies) freeze(rng *rand.Rand, n *reign) {
	f.gate.RLock()
	defer f.gate.RUnlock()
	r := f.stdio(rng, anyOne)
	tree := f.tree(n, r)
	if len(tree) == 0 {
		return
	}
	victim := tree[len(tree)-1]
	if !victim.Alive() || syscall.Kill(victim.PID, syscall.SIGSTOP) != nil {
		return
	}
	f.crowd.did("SIGSTOP and SIGCONT", r.Name, victim.PID)
	time.Sleep(time.Duration(100+rng.IntN(900)) * time.Millisecond)
	if victim.Alive() {
		_ = syscall.Kill(victim.PID, syscall.SIGCONT)
	}
}

// stallPipe lets a server read nothing for a while.
func (f *furies) stallPipe(rng *rand.Rand, n *reign) {
	f.gate.RLock()
	defer f.gate.RUnlock()
	r := f.stdio(rng, anyOne)
	switch rng.IntN(4) {
	case 0:
		r = f.stdio(rng, func(r *resident) bool { return r.wrapped })
	case 1: // its reads go out beside a side effect, and then wait for the pipe
		r = f.stdio(rng, func(r *resident) bool { return r.Serial && !r.wrapped })
	}
	if os.WriteFile(r.stall, nil, 0o600) != nil {
		return
	}
	f.crowd.did("stalled pipe", r.Name, 0)
	if tree := f.tree(n, r); r.wrapped && len(tree) > 1 && rng.IntN(2) == 0 {
		// What stands behind the wrapper does not see the end of its stdin now.
		f.pause(50 * time.Millisecond)
		tree[0].Kill()
		f.crowd.did("kill of a wrapper only", r.Name, tree[0].PID)
	} else {
		f.jam(n, r)
	}
	time.Sleep(time.Duration(100+rng.IntN(1200)) * time.Millisecond)
	_ = os.Remove(r.stall)
}

// jam fills a pipe that nobody reads: one call is being written, and others wait for
// their turn to write while their deadlines pass.
func (f *furies) jam(n *reign, r *resident) {
	ask := func(timeout time.Duration, text string) {
		args := map[string]any{"text": text}
		f.crowd.wg.Go(func() {
			f.crowd.call(n, wish{server: r, tool: "read", effect: messages.ReadOnly, args: args, timeout: timeout})
		})
	}
	ask(4*time.Second, strings.Repeat("x", 300<<10))
	f.pause(30 * time.Millisecond)
	for range 5 {
		ask(100*time.Millisecond, "")
	}
}

// mute lets a server that does not end with its stdin close its stdout and live on.
func (f *furies) mute(rng *rand.Rand, n *reign) {
	r := f.stdio(rng, func(r *resident) bool { return r.deaf })
	f.crowd.call(n, wish{server: r, tool: "read", effect: messages.ReadOnly, args: map[string]any{"fault": "close-stdout"}, timeout: time.Second, fault: "close-stdout"})
}
