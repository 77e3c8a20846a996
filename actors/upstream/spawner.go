package upstream

import (
	"errors"
	"os/exec"
	"runtime"
	"sync"
)

// errSpawnerClosed is the error of a start after Close.
var errSpawnerClosed = errors.New("the bridge is closing: no process is started any more")

// Spawner starts every child process from one goroutine that never leaves its
// thread. On Linux the kernel kills a child when the thread that made it ends (the
// parent-death signal), so that thread has to outlive all of them; any other
// thread of a Go program may end at any time.
//
// Close waits until every child that was started is finished.
type Spawner struct {
	jobs chan spawnJob
	quit chan struct{}
	done chan struct{}

	mu     sync.Mutex
	closed bool
	live   sync.WaitGroup
}

type spawnJob struct {
	cmd *exec.Cmd
	err chan<- error
}

// NewSpawner starts the spawning goroutine.
func NewSpawner() *Spawner {
	s := &Spawner{jobs: make(chan spawnJob), quit: make(chan struct{}), done: make(chan struct{})}
	go s.run()
	return s
}

func (s *Spawner) run() {
	defer close(s.done)
	sealDescriptors()
	runtime.LockOSThread()
	// Unlocked at the end, the thread goes back to the scheduler instead of ending.
	defer runtime.UnlockOSThread()
	for {
		select {
		case j := <-s.jobs:
			j.err <- j.cmd.Start()
		case <-s.quit:
			return
		}
	}
}

// start runs cmd.Start on the spawning thread. A started child must be given back
// with release once it is finished.
func (s *Spawner) start(cmd *exec.Cmd) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return errSpawnerClosed
	}
	s.live.Add(1)
	s.mu.Unlock()
	res := make(chan error, 1)
	s.jobs <- spawnJob{cmd, res} // run cannot end while live is held
	err := <-res
	if err != nil {
		s.release()
	}
	return err
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
