//go:build linux

package chaos

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"mcpbridge/test/harness"
	"mcpbridge/test/history"
	"mcpbridge/test/witness"
)

// resident is one server of the storm: how it is configured, and what may be done to it.
type resident struct {
	history.Server
	entry   harness.M
	stall   string // the file of -stall; "" = its pipe is left alone
	wrapped bool   // the leader only waits for its child
	deaf    bool   // lives on when its stdin ends
}

// The schedule of restarts, quick enough for many of them in a short storm.
var restartPolicy = history.Restart{Initial: 50 * time.Millisecond, Multiplier: 2, Max: 400 * time.Millisecond, Jitter: 0.2,
	ResetAfter: time.Second, Cooldown: 5 * time.Minute}

const (
	abandonAfter = time.Second
	drainTime    = 5 * time.Second
)

// residents are six stdio servers, each difficult in its own way, and two remote ones.
func residents(t *testing.T, lab *harness.Lab, remotes ...*remote) []*resident {
	var out []*resident
	add := func(name string, entry harness.M, serial bool, r resident) {
		for k, v := range map[string]any{
			"restart":  harness.M{"backoff": harness.M{"initial": "50ms", "multiplier": 2, "max": "400ms", "jitter": 0.2}, "reset_after": "1s", "burst": 0},
			"timeouts": harness.M{"abandon_after": abandonAfter.String(), "stdin_close": "200ms", "sigterm": "300ms", "start": "20s", "drain": drainTime.String()},
			"limits":   harness.M{"max_reads": 6},
		} {
			entry[k] = v
		}
		if serial {
			entry["isolation"] = "serial"
		}
		r.Server = history.Server{Name: name, Remote: entry["url"] != nil, Serial: serial, MaxReads: 6, MaxSideEffects: 1, AbandonAfter: abandonAfter, Drain: drainTime, Restart: restartPolicy}
		r.entry = entry
		out = append(out, &r)
	}
	stdio := func(name string, serial bool, r resident, more ...string) {
		r.stall = lab.Path("stall-" + name)
		add(name, lab.Server(t, name, append([]string{"-stall", r.stall}, more...)...), serial, r)
	}
	stdio("plain", false, resident{})
	stdio("stubborn", false, resident{deaf: true}, "-ignore-term", "-ignore-eof")
	stdio("noisy", false, resident{}, "-banner", "-trailing-blanks", "-crlf", "-stderr-flood", "200000", "-list-changed", "300ms")
	stdio("slow", false, resident{}, "-start-delay", "150ms", "-split-writes", "-progress", "5ms")
	stdio("serial", true, resident{})

	// A shell that waits for the server: who kills the shell has killed no server.
	line := "'" + harness.Fixture(t) + "'"
	shell := resident{wrapped: true, deaf: true, stall: lab.Path("stall-shell")}
	for _, a := range lab.Args("shell", "-stall", shell.stall, "-ignore-eof") {
		line += " '" + a + "'"
	}
	add("shell", harness.M{"command": "sh", "args": []string{"-c", line + "; true"}, "effects": harness.Effects()}, true, shell)

	for _, r := range remotes {
		add(r.name, harness.M{"url": "http://" + r.addr + "/mcp", "effects": harness.Effects()}, r.serial, resident{})
	}
	return out
}

// remote is an HTTP server that is started again whenever it ends: somebody else's
// machine, which the bridge cannot kill.
type remote struct {
	name   string
	addr   string
	serial bool
	args   []string
	mu     sync.Mutex
	cmd    *exec.Cmd
	over   bool
	done   chan struct{}
}

// startRemote reserves an address and keeps a server on it.
func startRemote(t *testing.T, lab *harness.Lab, name string, serial bool, more ...string) *remote {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &remote{name: name, addr: ln.Addr().String(), serial: serial, done: make(chan struct{})}
	_ = ln.Close()
	r.args = lab.Args(name, append([]string{"-http", r.addr}, more...)...)
	up := make(chan struct{}, 1)
	bin := harness.Fixture(t)
	go func() {
		defer close(r.done)
		for r.run(bin, up) {
		}
	}()
	t.Cleanup(r.stop)
	select {
	case <-up:
	case <-time.After(harness.Patience):
		t.Fatalf("the remote server %s does not start", name)
	}
	return r
}

// run is one life of it; false when there is to be no other.
func (r *remote) run(bin string, up chan<- struct{}) bool {
	cmd := exec.Command(bin, r.args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return false
	}
	r.mu.Lock()
	if r.over {
		r.mu.Unlock()
		return false
	}
	err = cmd.Start()
	r.cmd = cmd
	r.mu.Unlock()
	if err != nil {
		time.Sleep(50 * time.Millisecond)
		return true
	}
	if _, err := bufio.NewReader(out).ReadBytes('\n'); err == nil {
		select {
		case up <- struct{}{}:
		default:
		}
	}
	_ = cmd.Wait()
	return true
}

func (r *remote) kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd != nil && r.cmd.Process != nil {
		_ = r.cmd.Process.Kill()
	}
}

func (r *remote) stop() {
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	r.kill()
	<-r.done
}

// watcher notes until when each process of the witness log was certainly alive. It
// reads the process table, not the bridge.
type watcher struct {
	path  string
	stop  chan struct{}
	done  chan struct{}
	lives []history.Life
}

func watch(path string) *watcher {
	w := &watcher{path: path, stop: make(chan struct{}), done: make(chan struct{})}
	go w.run()
	return w
}

// end stops the watch and returns what was seen.
func (w *watcher) end() []history.Life {
	close(w.stop)
	<-w.done
	return w.lives
}

func (w *watcher) run() {
	defer close(w.done)
	type watched struct {
		harness.Proc
		life int
	}
	var alive []watched
	var offset int64
	var rest []byte
	tick := time.NewTicker(15 * time.Millisecond)
	defer tick.Stop()
	for {
		for _, pid := range w.starts(&offset, &rest) {
			at := witness.Now()
			if p, ok := harness.Process(pid); ok && p.State != "Z" {
				w.lives = append(w.lives, history.Life{PID: pid, First: at, Last: at})
				alive = append(alive, watched{p, len(w.lives) - 1})
			}
		}
		kept := alive[:0]
		for _, p := range alive {
			at := witness.Now() // before the look: it certainly was alive then
			if p.Alive() {
				w.lives[p.life].Last = at
				kept = append(kept, p)
			}
		}
		alive = kept
		select {
		case <-w.stop:
			return
		case <-tick.C:
		}
	}
}

// starts reads on in the log and returns the processes that are new in it.
func (w *watcher) starts(offset *int64, rest *[]byte) (pids []int) {
	f, err := os.Open(w.path)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	buf := make([]byte, 1<<20)
	n, _ := f.ReadAt(buf, *offset)
	*offset += int64(n)
	*rest = append(*rest, buf[:n]...)
	for {
		line, tail, ok := bytes.Cut(*rest, []byte{'\n'})
		if !ok {
			return pids
		}
		*rest = tail
		var rec witness.Record
		if bytes.Contains(line, []byte(`"ev":"start"`)) && json.Unmarshal(line, &rec) == nil {
			pids = append(pids, rec.PID)
		}
	}
}

// savePath is where the accounts of a storm that found something go.
func savePath() (string, error) {
	dir := filepath.Join(harness.Root(), ".run")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	return filepath.Join(dir, fmt.Sprintf("storm-%s.json", time.Now().Format("20060102-150405"))), nil
}
