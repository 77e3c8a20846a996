package own

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// guards: there is a guardian on this system.
const guards = true

// guardAttr puts the guardian into a session of its own: no signal to the bridge's group
// or terminal reaches it.
func guardAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

const (
	// guardBudget bounds what the guardian does after the bridge's death.
	guardBudget = 20 * time.Second
	guardPause  = 5 * time.Millisecond
)

// Guard is the life of a guardian process, started by an Owner: it returns when the
// bridge has ended and nothing of it is left, or when the bridge took its leave.
func Guard() error {
	// Who ends everything in sight may end the bridge a moment after us.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE,
		syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU)
	in, out := os.NewFile(guardIn, "orders"), os.NewFile(guardOut, "hello")
	if fi, err := in.Stat(); err != nil || fi.Mode()&os.ModeNamedPipe == 0 {
		return errors.New("this verb is for the bridge itself: it starts its guardian when it needs one")
	}
	// If nobody hears it the bridge is gone already, which shows in a moment.
	_, _ = fmt.Fprint(out, guardHello)
	g := &guard{known: map[uint64]order{}}
	if bye, err := g.listen(in); bye || err != nil {
		return err
	}
	if g.run.Run == "" {
		return nil // it ended before it said who it is: nothing was started
	}
	return g.clean()
}

// guard is what a guardian knows.
type guard struct {
	run   order
	known map[uint64]order
}

// listen takes orders until the pipe ends; bye means that the bridge ended in order.
func (g *guard) listen(in *os.File) (bye bool, err error) {
	lines := json.NewDecoder(bufio.NewReader(in))
	for {
		var o order
		if lines.Decode(&o) != nil {
			return false, nil //nolint:nilerr // the end of the bridge, perhaps in the midst of a line
		}
		switch o.Op {
		case "run":
			if !validRun(o.Run) {
				return false, fmt.Errorf("%q is no run of a bridge", o.Run)
			}
			for _, dir := range o.Cgroups {
				if filepath.Base(dir) != runPrefix+o.Run {
					return false, fmt.Errorf("%q is no control group of run %s", dir, o.Run)
				}
			}
			g.run = o
		case "add":
			g.known[o.ID] = o
		case "drop":
			delete(g.known, o.ID)
		case "bye":
			return true, nil
		}
	}
}

// clean kills until two looks in a row find nothing.
func (g *guard) clean() error {
	began := ticks()
	seen := map[int]uint64{}
	for _, o := range g.known {
		seen[o.PID] = o.Started
	}
	spare := map[int]bool{os.Getpid(): true}
	end := time.Now().Add(guardBudget)
	for quiet := 0; quiet < 2; {
		if time.Now().After(end) {
			return errors.New("some processes of the bridge do not die")
		}
		for _, dir := range g.run.Cgroups {
			killGroupDir(dir)
		}
		alive, ok := g.look(seen, began, spare)
		killAll(alive)
		if ok && len(alive) == 0 {
			quiet++
			continue
		}
		quiet = 0
		time.Sleep(guardPause)
	}
	for _, dir := range g.run.Cgroups {
		destroy(dir, time.Until(end))
		// Where the bridge had moved aside to hand controllers down, its place is empty now.
		removeGroup(filepath.Join(filepath.Dir(dir), "bridge-"+filepath.Base(dir)))
	}
	return nil
}

// look finds what lives of the run: by mark, by what the bridge told, and their kin.
func (g *guard) look(seen map[int]uint64, began uint64, spare map[int]bool) (alive []proc, ok bool) {
	all, ok := table()
	seed := func(p proc) bool {
		if at, known := seen[p.pid]; known && at == p.started {
			return true
		}
		// A number of a group is free once the group is empty: younger ones are another's.
		if at, known := seen[p.pgid]; known && p.started >= at && p.started <= began {
			return true
		}
		return !p.dead() && carries(p.pid, runMark(g.run.Run))
	}
	for _, p := range kin(all, seed, spare) {
		seen[p.pid] = p.started
		if !p.dead() {
			alive = append(alive, p)
		}
	}
	return alive, ok
}
