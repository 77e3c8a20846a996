//go:build linux

package chaos

import (
	"context"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"time"

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
	f.every(300*time.Millisecond, seed+4, f.operate)
	f.every(700*time.Millisecond, seed+5, f.operate)
	f.every(900*time.Millisecond, seed+1, f.freeze)
	f.every(1200*time.Millisecond, seed+2, f.stallPipe)
	f.every(2500*time.Millisecond, seed+3, func(rng *rand.Rand, _ *reign) {
		r := f.remotes[rng.IntN(len(f.remotes))]
		r.kill()
		f.crowd.did("kill of a remote server", r.name, 0)
	})
}

// tree is a random stdio server's processes, leader first.
func (f *furies) tree(rng *rand.Rand, n *reign) (*resident, []harness.Proc) {
	var stdio []*resident
	for _, r := range f.crowd.residents {
		if !r.Remote {
			stdio = append(stdio, r)
		}
	}
	r := stdio[rng.IntN(len(stdio))]
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	st, err := n.client.Status(ctx, r.Name)
	if err != nil {
		return r, nil
	}
	row, _ := st.Server(r.Name)
	if p, ok := harness.Process(row.PID); row.PID == 0 || !ok || p.PPID != n.PID {
		return r, nil
	}
	return r, harness.Tree(row.PID)
}

// kill ends a leader, or what stands behind a wrapper.
func (f *furies) kill(rng *rand.Rand, n *reign) {
	r, tree := f.tree(rng, n)
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
	r, tree := f.tree(rng, n)
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
func (f *furies) stallPipe(rng *rand.Rand, _ *reign) {
	f.gate.RLock()
	defer f.gate.RUnlock()
	r := f.crowd.residents[rng.IntN(len(f.crowd.residents))]
	if r.stall == "" || os.WriteFile(r.stall, nil, 0o600) != nil {
		return
	}
	f.crowd.did("stalled pipe", r.Name, 0)
	time.Sleep(time.Duration(100+rng.IntN(1200)) * time.Millisecond)
	_ = os.Remove(r.stall)
}
