package upstream

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"mcpbridge/actors/upstream/own"
	"mcpbridge/internal/planted"
	"mcpbridge/messages"
)

// child is one process of ours with its three pipes and its group. Its run
// goroutine is the only one that ends it:
//
//	running ──stop──► stdin closed ──StdinClose──► SIGTERM ──SigTerm──► SIGKILL
//	   └──────────────────┴─── leader dead ───┴───────────────┘
//	                             ▼
//	      kill the group, drain the pipes, reap, prove the tree dead ──► done
type child struct {
	cmd     *exec.Cmd
	tree    *own.Tree
	spawner *Spawner
	stdin   *os.File
	stdout  *pipeReader
	stderr  *pipeReader

	wake   chan struct{}  // the plan changed
	dead   chan struct{}  // the leader is dead (perhaps not reaped yet)
	reaped chan struct{}  // state is set
	pipes  sync.WaitGroup // the readers of stdout and stderr
	done   chan struct{}

	signals sync.Mutex // held while reaping and while signalling the group

	mu      sync.Mutex
	plan    *stopPlan
	state   *os.ProcessState
	diedAt  time.Time
	treeUp  bool   // could not be proven dead
	cause   string // why we ended it; "" = it ended by itself
	late    string // becomes the cause if it has to be signalled
	inClose sync.Once
}

// stopPlan is a ladder in absolute times.
type stopPlan struct {
	term, kill time.Time
	proof      time.Duration
}

// killProof is how long the proof of death may take when nobody said otherwise.
const killProof = 2 * time.Second

// startChild starts the program with pipes of its own. On success run must be called.
func startChild(sp *Spawner, gen uint64, path string, args []string, cwd string, env environment, limits own.Limits) (*child, error) {
	var files []*os.File
	pipe := func() (r, w *os.File, err error) {
		r, w, err = os.Pipe()
		if err == nil {
			files = append(files, r, w)
		}
		return r, w, err
	}
	closeAll := func() {
		for _, f := range files {
			_ = f.Close()
		}
	}
	inR, inW, err1 := pipe()
	outR, outW, err2 := pipe()
	errR, errW, err3 := pipe()
	for _, err := range []error{err1, err2, err3} {
		if err != nil {
			closeAll()
			return nil, fmt.Errorf("pipe: %w", err)
		}
	}
	cmd := &exec.Cmd{Path: path, Args: args, Env: env.list(), Dir: cwd, Stdin: inR, Stdout: outW, Stderr: errW}
	tree, err := sp.start(birth{cmd, gen, env.markers(), limits})
	if err != nil {
		closeAll()
		return nil, err
	}
	for _, f := range []*os.File{inR, outW, errW} {
		_ = f.Close()
	}
	return &child{cmd: cmd, tree: tree, spawner: sp, stdin: inW,
		stdout: &pipeReader{f: outR}, stderr: &pipeReader{f: errR},
		wake: make(chan struct{}, 1), dead: make(chan struct{}), reaped: make(chan struct{}), done: make(chan struct{})}, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// stop plans the end by the ladder. A later plan can only bring steps forward, and
// the first cause stays. late is the cause in case the process does not end before
// it is signalled.
func (c *child) stop(l messages.Ladder, cause, late string) {
	now := time.Now()
	p := &stopPlan{term: now.Add(l.StdinClose), proof: l.Kill}
	p.kill = p.term.Add(l.SigTerm)
	if p.proof <= 0 {
		p.proof = killProof
	}
	c.mu.Lock()
	if old := c.plan; old != nil {
		p.term, p.kill, p.proof = earlier(p.term, old.term), earlier(p.kill, old.kill), min(p.proof, old.proof)
	}
	c.plan = p
	if c.cause == "" {
		c.cause = cause
	}
	if c.late == "" {
		c.late = late
	}
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// closeStdin may be called at any time: a blocked write returns at once.
func (c *child) closeStdin() { c.inClose.Do(func() { _ = c.stdin.Close() }) }

// run watches the process to its end. onEnd is called when nobody reads the pipes
// any more, before the tree is proven dead.
func (c *child) run(onEnd func()) {
	defer close(c.done)
	defer c.spawner.release()
	go c.watch()
	c.climb()
	c.stdout.leaderDead()
	c.stderr.leaderDead()
	c.closeStdin()
	c.pipes.Wait()
	onEnd()
	proven := c.prove()
	_ = c.stdout.f.Close()
	_ = c.stderr.f.Close()
	c.mu.Lock()
	c.treeUp = !proven
	c.mu.Unlock()
	c.tree.Done(proven)
}

// watch turns the death of the leader into an event, then reaps it. Where the
// system lets us see a death without reaping, the group is killed in between,
// while its number is certainly still ours: nobody may answer in its name any more.
func (c *child) watch() {
	if observesDeath {
		awaitDeath(c.pid())
		c.died()
		if !planted.Is(planted.TreeNotKilled) {
			c.tree.Kill()
		}
		close(c.dead)
		c.signals.Lock()
		_ = c.cmd.Wait()
		c.signals.Unlock()
	} else {
		_ = c.cmd.Wait()
		c.died()
		c.tree.Kill()
		close(c.dead)
	}
	c.tree.Reaped()
	c.mu.Lock()
	c.state = c.cmd.ProcessState
	c.mu.Unlock()
	close(c.reaped)
}

func (c *child) died() {
	c.mu.Lock()
	c.diedAt = time.Now()
	c.mu.Unlock()
}

// signal signals the group unless the leader is dead already.
func (c *child) signal(f func()) {
	c.signals.Lock()
	defer c.signals.Unlock()
	select {
	case <-c.dead:
		return
	default:
	}
	c.mu.Lock()
	if c.cause == "" {
		c.cause = c.late
	}
	c.mu.Unlock()
	f()
}

// climb goes through the ladder until the leader is dead; false means that it
// could not be killed.
func (c *child) climb() bool {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var noted, termed, killed bool
	var giveUp time.Time
	for {
		c.mu.Lock()
		plan := c.plan
		c.mu.Unlock()
		next := time.Hour
		if plan != nil {
			if !noted {
				noted = true
				c.tree.Note() // who is about to lose its parents
				c.closeStdin()
			}
			now := time.Now()
			switch {
			case killed:
				if !now.Before(giveUp) {
					return false
				}
				next = giveUp.Sub(now)
			case !now.Before(plan.kill):
				killed, giveUp = true, now.Add(plan.proof)
				c.tree.Note()
				c.signal(c.tree.Kill)
				next = plan.proof
			case !now.Before(plan.term):
				if !termed {
					termed = true
					c.tree.Note()
					c.signal(c.tree.Terminate)
				}
				next = plan.kill.Sub(now)
			default:
				next = plan.term.Sub(now)
			}
		}
		timer.Reset(next)
		select {
		case <-c.dead:
			return true
		case <-c.wake:
		case <-timer.C:
		}
	}
}

// prove waits until nothing of the tree is alive, killing what still is.
func (c *child) prove() bool {
	c.mu.Lock()
	limit := killProof
	if c.plan != nil {
		limit = c.plan.proof
	}
	c.mu.Unlock()
	deadline := time.Now().Add(limit)
	reaped := false
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		select {
		case <-c.reaped:
			reaped = true
		case <-time.After(time.Until(deadline)):
		}
		if reaped && (planted.Is(planted.TreeNotKilled) || c.tree.Sweep() == 0) {
			return true
		}
		if !time.Now().Before(deadline) {
			return false
		}
		time.Sleep(min(wait, time.Until(deadline)))
	}
}

// ended describes the end of the process for people; valid once done is closed.
func (c *child) ended() (reason string, clean bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	status := "still running"
	if c.state != nil {
		status = c.state.String()
	}
	if c.cause != "" {
		return c.cause + " (" + status + ")", false
	}
	return status, c.state != nil && c.state.Success()
}
