package upstream

import (
	"errors"
	"os/exec"
	"runtime"
	"sync"

	"mcpbridge/actors/upstream/own"
	"mcpbridge/config"
)

// errSpawnerClosed is the error of a start after Close.
var errSpawnerClosed = errors.New("the bridge is closing: no process is started any more")

// Spawner starts every child process from one goroutine that never leaves its
// thread. On Linux the kernel kills a child when the thread that made it ends (the
// parent-death signal), so that thread has to outlive all of them; any other
// thread of a Go program may end at any time.
//
// Close waits until every child that was started is finished.
//
// That thread has also given up every gain of rights: no server becomes root by a setuid
// program.
type Spawner struct {
	owner *own.Owner
	nnp   error

	jobs chan spawnJob
	quit chan struct{}
	done chan struct{}

	mu     sync.Mutex
	closed bool
	live   sync.WaitGroup
}

type spawnJob struct {
	birth
	res chan<- spawned
}

// birth is what is to be started, and how its tree is known and held.
type birth struct {
	cmd    *exec.Cmd
	gen    uint64
	marks  [][]byte
	limits own.Limits
}

type spawned struct {
	tree *own.Tree
	err  error
}

// NewSpawner starts the spawning goroutine, with the simplest way to own processes.
func NewSpawner() *Spawner { return NewOwningSpawner(own.Plain()) }

// NewOwningSpawner starts the spawning goroutine. The owner is closed by whoever opened
// it, after the spawner.
func NewOwningSpawner(owner *own.Owner) *Spawner {
	s := &Spawner{owner: owner, jobs: make(chan spawnJob), quit: make(chan struct{}), done: make(chan struct{})}
	go s.run()
	return s
}

func (s *Spawner) run() {
	defer close(s.done)
	// Never unlocked: the thread ends with this goroutine, when its children are gone, and
	// what it gave up is lost to nobody else.
	runtime.LockOSThread()
	s.nnp = own.NoNewPrivileges()
	for {
		select {
		case j := <-s.jobs:
			tree, err := (*own.Tree)(nil), s.nnp
			if err == nil {
				tree, err = s.owner.Start(j.cmd, j.gen, j.marks, j.limits)
			}
			j.res <- spawned{tree, err}
		case <-s.quit:
			return
		}
	}
}

// start starts a process on the spawning thread. It must be given back with release once
// it is finished.
func (s *Spawner) start(b birth) (*own.Tree, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, errSpawnerClosed
	}
	s.live.Add(1)
	s.mu.Unlock()
	res := make(chan spawned, 1)
	s.jobs <- spawnJob{b, res} // run cannot end while live is held
	r := <-res
	if r.err != nil {
		s.release()
	}
	return r.tree, r.err
}

// Limits are the limits of a server's processes.
func Limits(s config.Server) own.Limits {
	return own.Limits{NoFile: s.Limits.NoFile, Memory: s.Limits.Memory, PIDs: s.Limits.PIDs}
}

func (s *Spawner) release() { s.live.Done() }

// Close refuses further starts, waits for the children that run and ends the
// goroutine. It is idempotent.
func (s *Spawner) Close() {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	s.mu.Unlock()
	s.live.Wait()
	if first {
		close(s.quit)
	}
	<-s.done
}
