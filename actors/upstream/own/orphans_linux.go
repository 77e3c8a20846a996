package own

import (
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
)

// orphanage reaps the orphans that became children of the bridge, because it is their
// nearest subreaper or process 1. Its goroutine waits for single processes only: those
// that nobody here started. Living orphans are left to the tree whose mark they carry,
// until the end of the bridge.
type orphanage struct {
	w    *Owner
	init bool // the bridge is process 1: orphans may come from outside
	told map[int]uint64
	quit chan chan bool
}

const (
	// orphanPause keeps many deaths from making many looks.
	orphanPause = 100 * time.Millisecond
	// orphanTick finds living orphans, of which no signal comes.
	orphanTick = 5 * time.Second
	orphanEnd  = time.Second
)

// adopt makes the bridge the reaper of its descendants.
func (w *Owner) adopt() {
	pid1 := os.Getpid() == 1
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil && !pid1 {
		w.state.Reason += "; no subreaper: " + err.Error()
		return
	}
	w.state.Adopts = true
	if w.state.Rung == RungMarkers {
		w.state.Rung = RungSubreaper
	}
	w.sys.orphans = &orphanage{w: w, init: pid1, told: map[int]uint64{}, quit: make(chan chan bool)}
}

// begin starts what runs beside once everything stands.
func (w *Owner) begin() {
	if w.sys.orphans != nil {
		go w.sys.orphans.run()
	}
	if w.sys.v2 == nil {
		w.startCensus()
	}
}

func (o *orphanage) run() {
	deaths := make(chan os.Signal, 1)
	signal.Notify(deaths, unix.SIGCHLD)
	defer signal.Stop(deaths)
	tick := time.NewTicker(orphanTick)
	defer tick.Stop()
	for {
		select {
		case <-deaths:
			time.Sleep(orphanPause)
		case <-tick.C:
		case reply := <-o.quit:
			reply <- o.last()
			return
		}
		o.look()
	}
}

// look reaps the dead orphans and returns the living ones.
func (o *orphanage) look() (living []proc, ok bool) {
	o.w.starting.Lock() // no child is between its birth and our knowing it
	defer o.w.starting.Unlock()
	all, ok := table()
	spare := o.w.spared(nil)
	self := os.Getpid()
	here := map[int]uint64{}
	for _, p := range all {
		if p.ppid != self || spare[p.pid] {
			continue
		}
		if p.dead() {
			var si unix.Siginfo
			_ = unix.Waitid(unix.P_PID, p.pid, &si, unix.WEXITED|unix.WNOHANG, nil)
			continue
		}
		living = append(living, p)
		here[p.pid] = p.started
		if !o.init && o.told[p.pid] != p.started {
			o.w.keeper.add(orphanID(p.pid), p.pid, p.started)
		}
	}
	if !o.init {
		for pid := range o.told {
			if here[pid] == 0 {
				o.w.keeper.drop(orphanID(pid))
			}
		}
		o.told = here
	}
	return living, ok
}

// orphanID keeps the numbers of orphans apart from those of trees.
func orphanID(pid int) uint64 { return 1<<40 | uint64(pid) }

// last ends every orphan at the end of the bridge: each descends from a server. As
// process 1 it ends none, since others may have come from elsewhere.
func (o *orphanage) last() bool {
	for end, wait := time.Now().Add(orphanEnd), time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		living, ok := o.look()
		if ok && len(living) == 0 || o.init {
			return true
		}
		if time.Now().After(end) {
			return false
		}
		all, _ := table()
		mine := map[int]uint64{}
		for _, p := range living {
			mine[p.pid] = p.started
		}
		killAll(kin(all, func(p proc) bool { return mine[p.pid] == p.started && p.started != 0 }, o.w.spared(nil)))
		time.Sleep(wait)
	}
}

func (o *orphanage) close() bool {
	reply := make(chan bool)
	o.quit <- reply
	return <-reply
}
