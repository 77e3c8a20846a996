package own

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// GuardVerb is the hidden verb of bridgectl that runs Guard.
const GuardVerb = "guard-processes"

// The pipe between bridge and guardian: lines of JSON one way, and the hello, once, the
// other way. The descriptors are the first two behind the standard ones.
const (
	guardIn    = 3
	guardOut   = 4
	guardHello = "mcpbridge guardian 1\n"
)

// order is one line to the guardian.
type order struct {
	Op      string   `json:"op"` // run | add | drop | bye
	Run     string   `json:"run,omitempty"`
	Cgroups []string `json:"cgroups,omitempty"`
	ID      uint64   `json:"id,omitempty"`
	PID     int      `json:"pid,omitempty"`
	Started uint64   `json:"started,omitempty"` // in ticks since boot: tells a process from a later one
}

// How the guardian is, for people and status.
const (
	guardianRunning  = "running"
	guardianDown     = "down"
	guardianStarting = "starting"
	guardianNone     = "none"
)

const (
	helloWithin  = 10 * time.Second
	orderWithin  = 2 * time.Second // a guardian that does not read for so long is replaced
	guardianMin  = 100 * time.Millisecond
	guardianMax  = 30 * time.Second
	guardianBye  = 2 * time.Second
	guardianCalm = time.Minute // up for so long, its failures are forgotten
)

// keeper keeps one guardian running and informed. Its own goroutine is the only one that
// starts guardians and writes to them. A nil keeper does nothing.
type keeper struct {
	w    *Owner
	path string

	mu      sync.Mutex
	run     order
	known   map[uint64]order // what the guardian is to know
	pending []order
	state   string
	reason  string
	pid     int
	clean   bool // at the end: nothing is left to kill

	wake chan struct{}
	quit chan struct{}
	done chan struct{}
}

// openKeeper starts the guardian where one is wanted and can help.
func (w *Owner) openKeeper() {
	why := ""
	switch {
	case !guards:
		why = "there is none on this system"
	case w.o.Guardian == "":
		why = "no path of bridgectl was given: processes of a bridge that is killed end by the end of their stdin, or stay"
	case os.Getpid() == 1:
		why = "the bridge is process 1: the system kills everything with it"
	}
	if why != "" {
		w.state.Guardian, w.state.GuardianReason = guardianNone, why
		return
	}
	k := &keeper{w: w, path: w.o.Guardian, known: map[uint64]order{}, state: guardianStarting,
		run:  order{Op: "run", Run: w.o.RunID, Cgroups: w.cgroups()},
		wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
	w.keeper = k
	go k.keep()
}

func (k *keeper) report() (state string, pid int, reason string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state, k.pid, k.reason
}

func (k *keeper) add(id uint64, pid int, started uint64) {
	k.tell(order{Op: "add", ID: id, PID: pid, Started: started})
}

func (k *keeper) drop(id uint64) { k.tell(order{Op: "drop", ID: id}) }

func (k *keeper) tell(o order) {
	if k == nil {
		return
	}
	k.mu.Lock()
	if o.Op == "add" {
		k.known[o.ID] = o
	} else {
		delete(k.known, o.ID)
	}
	if k.state == guardianRunning || k.state == guardianStarting {
		k.pending = append(k.pending, o)
	}
	k.mu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// close lets the guardian go: without another look when clean, else to kill what it knows.
func (k *keeper) close(clean bool) {
	if k == nil {
		return
	}
	k.mu.Lock()
	k.clean = clean
	k.mu.Unlock()
	close(k.quit)
	<-k.done
}

func (k *keeper) set(state, reason string, pid int) {
	k.mu.Lock()
	k.state, k.reason, k.pid = state, reason, pid
	if state == guardianDown {
		k.pending = nil // the next one hears it all
	}
	k.mu.Unlock()
	if state != guardianStarting {
		k.w.o.Notice("guardian "+state, reason)
	}
}

// keep is the life of the keeper: guardian after guardian.
func (k *keeper) keep() {
	defer close(k.done)
	for wait := guardianMin; ; wait = min(2*wait, guardianMax) {
		began := time.Now()
		err := k.one()
		if err == nil {
			return
		}
		k.set(guardianDown, err.Error(), 0)
		k.w.log.Warn("the guardian is down and is started again: until then nothing ends the servers of a bridge that is killed", "err", err)
		if time.Since(began) > guardianCalm {
			wait = guardianMin
		}
		select {
		case <-time.After(wait):
		case <-k.quit:
			return
		}
	}
}

// one starts a guardian and serves it to its end; nil means that the keeper is to end.
func (k *keeper) one() error {
	toR, toW, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = toW.Close() }()
	fromR, fromW, err := os.Pipe()
	if err != nil {
		_ = toR.Close()
		return err
	}
	defer func() { _ = fromR.Close() }()
	cmd := &exec.Cmd{Path: k.path, Args: []string{"bridgectl", GuardVerb}, Dir: "/", Env: guardEnv(),
		ExtraFiles: []*os.File{toR, fromW}, SysProcAttr: guardAttr()}
	err = k.w.startKnown(cmd)
	_, _ = toR.Close(), fromW.Close()
	if err != nil {
		return err
	}
	died := make(chan struct{})
	go func() { _ = cmd.Wait(); k.w.forgetKnown(cmd.Process.Pid); close(died) }()
	err = k.serve(toW, fromR, cmd.Process.Pid, died)
	_ = toW.Close()
	patience := guardianBye
	if err != nil {
		patience = 0 // one that does not do its work is of no use
	}
	if err == nil && !k.clean {
		<-died // it has the last word, which is bounded
		return nil
	}
	select {
	case <-died:
	case <-time.After(patience):
		_ = cmd.Process.Kill()
		<-died
	}
	return err
}

// guardEnv holds nothing of the bridge's: above all not its mark.
func guardEnv() []string {
	env := []string{}
	for _, name := range []string{"GOCOVERDIR", "GORACE", "TMPDIR"} { // for builds that measure themselves
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// serve tells one guardian everything until it dies or the keeper ends.
func (k *keeper) serve(to, from *os.File, pid int, died <-chan struct{}) error {
	_ = from.SetReadDeadline(time.Now().Add(helloWithin))
	hello := make(chan error, 1)
	go func() {
		line, err := bufio.NewReader(from).ReadString('\n')
		if err == nil && line != guardHello {
			err = errors.New("it is no guardian of this version: " + strings.TrimSpace(line))
		}
		hello <- err
	}()
	k.mu.Lock()
	k.pending = append([]order{k.run}, values(k.known)...)
	k.mu.Unlock()
	for greeted := false; ; {
		if err := k.flush(to); err != nil {
			return errors.New(k.path + " takes no orders: " + err.Error())
		}
		select {
		case err := <-hello:
			if err != nil {
				return errors.New(k.path + " did not answer as a guardian: " + err.Error())
			}
			greeted = true
			k.set(guardianRunning, "", pid)
		case <-k.wake:
		case <-died:
			if !greeted {
				return errors.New(k.path + " did not answer as a guardian: it ended")
			}
			return errors.New("it ended")
		case <-k.quit:
			told := k.flush(to) == nil
			k.mu.Lock()
			clean := k.clean
			k.mu.Unlock()
			if told && clean {
				_ = k.write(to, []order{{Op: "bye"}}) // one that does not hear it is killed
			}
			return nil
		}
	}
}

func values(m map[uint64]order) []order {
	out := make([]order, 0, len(m))
	for _, o := range m {
		out = append(out, o)
	}
	return out
}

func (k *keeper) flush(to *os.File) error {
	k.mu.Lock()
	list := k.pending
	k.pending = nil
	k.mu.Unlock()
	if len(list) == 0 {
		return nil
	}
	return k.write(to, list)
}

func (k *keeper) write(to *os.File, list []order) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	for _, o := range list {
		if err := e.Encode(o); err != nil {
			return err
		}
	}
	_ = to.SetWriteDeadline(time.Now().Add(orderWithin))
	_, err := to.Write(b.Bytes())
	return err
}
