package journal

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestCrash kills the process at every operation of a workload, with every way of
// losing what was not synced. What was acknowledged is there, nothing else is.
func TestCrash(t *testing.T) {
	points := 0
	for _, how := range []survival{lost, partly, garbled, all} {
		for n := 1; ; n++ {
			d, c, l := newFaultFS(), &clock{t: epoch}, ledger{}
			d.hook = func(op int, _ string) error {
				if op >= n {
					return errKilled
				}
				return nil
			}
			if j, err := Open(options(d, c, "r1")); err == nil {
				script(j, c, "r1", l, func() {})
				_ = j.Close()
			}
			finished := !d.dead
			again(t, fmt.Sprintf("%v at %d", how, n), d.crash(how), c, l, how)
			points++
			if finished {
				break
			}
		}
	}
	t.Logf("%d crash points", points)
}

// again opens what a crash left, twice, and adds to it in between.
func again(t *testing.T, name string, d *faultFS, c *clock, l ledger, how survival) {
	t.Helper()
	want := demands{now: c.now(), keep: 7 * day}
	j := mustOpen(t, options(d, c, "r2"))
	if err := l.check(j, want); err != nil {
		t.Fatalf("%s: %v\n%s%s", name, err, text(j), strings.Join(d.log, "\n"))
	}
	if how != garbled && j.Damaged() {
		t.Fatalf("%s: a crash is no damage:\n%s", name, text(j))
	}
	more := sample("r2", 1, c.now())
	if err := dispatch(j, more); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	l[more.CallID] = &told{d: more, acked: true}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	damaged := j.Damaged()
	j = mustOpen(t, options(d.crash(lost), c, "r3"))
	defer j.Close()
	if err := l.check(j, want); err != nil {
		t.Fatalf("%s, second time: %v\n%s", name, err, text(j))
	}
	if damaged != j.Damaged() {
		t.Fatalf("%s: damaged %v, then %v:\n%s", name, damaged, j.Damaged(), text(j))
	}
}

// TestErrors lets every operation of a workload fail once, and for a while, with a
// full disk and with an I/O error. The journal refuses, heals by itself, and what it
// said is what it shows after the next start; also when the machine then goes down.
func TestErrors(t *testing.T) {
	points := 0
	for _, policy := range []Fsync{FsyncAlways, FsyncInterval, FsyncOff} {
		for _, fault := range []error{syscall.ENOSPC, syscall.EIO} {
			for _, length := range []int{1, 3, 20} {
				for n := 1; ; n++ {
					var finished bool
					synctest.Test(t, func(t *testing.T) { finished = failAt(t, policy, fault, n, length) })
					points++
					if finished {
						break
					}
				}
			}
		}
	}
	t.Logf("%d fault points", points)
}

func failAt(t *testing.T, policy Fsync, fault error, n, length int) bool {
	d, c, l := newFaultFS(), &clock{t: epoch}, ledger{}
	hit := false
	d.hook = func(op int, name string) error {
		if op >= n && op < n+length && name != "read" {
			hit = true
			return fault
		}
		return nil
	}
	name := fmt.Sprintf("%s %v at %d, %d times", policy, fault, n, length)
	o := options(d, c, "r1")
	o.Fsync = policy
	j, err := Open(o)
	if err != nil {
		d.hook = nil
		if j, err = Open(o); err != nil {
			t.Fatalf("%s: the next start: %v", name, err)
		}
	}
	script(j, c, "r1", l, func() {
		for range 50 { // each attempt of the journal to heal costs some faults
			if j.Health() == nil {
				return
			}
			time.Sleep(2 * retryPause)
		}
		t.Fatalf("%s: never healthy again: %v", name, j.Health())
	})
	err = j.Close()
	if err != nil && (d.ops < n || d.ops > n+length+8) {
		t.Fatalf("%s: close at %d: %v", name, d.ops, err)
	}
	d.hook = nil
	// The machine goes down with it, or the process alone.
	ways := []survival{all}
	if policy == FsyncAlways || err == nil && policy == FsyncInterval {
		ways = append(ways, lost)
	}
	want := demands{now: c.now(), keep: 7 * day, outcomes: err == nil, refusals: err == nil}
	for _, how := range ways {
		j := mustOpen(t, options(d.crash(how), c, "r2"))
		if err := l.check(j, want); err != nil {
			t.Fatalf("%s, %v: %v\n%s%s", name, how, err, text(j), strings.Join(d.log, "\n"))
		}
		if j.Damaged() {
			t.Fatalf("%s, %v: a failed write is no damage:\n%s", name, how, text(j))
		}
		_ = j.Close()
	}
	return !hit
}

// TestOff: without syncs the machine may lose calls, and that is no damage either.
func TestOff(t *testing.T) {
	d, c, l := newFaultFS(), &clock{t: epoch}, ledger{}
	o := options(d, c, "r1")
	o.Fsync, o.segmentMax = FsyncOff, 600
	j := mustOpen(t, o)
	script(j, c, "r1", l, func() {})
	after := d.crash(lost)
	_ = j.Close()
	j = mustOpen(t, options(after, c, "r2"))
	defer j.Close()
	if j.Damaged() || !strings.Contains(text(j), "fsync off") {
		t.Error(text(j))
	}
}

// TestTornTail is cut off and told of once.
func TestTornTail(t *testing.T) {
	d, c, l := sampleJournal(t)
	newest := ""
	for name := range d.files {
		if strings.HasSuffix(name, suffix) {
			newest = max(newest, name)
		}
	}
	f := d.files[newest]
	f.data = f.data[:len(f.data)-5]
	for i, want := range []int{2, 1, 1} { // it was not closed, too
		j := mustOpen(t, options(d, c, "z"))
		if err := l.check(j, demands{now: c.now(), outcomes: true}); err != nil || j.Damaged() || len(j.Issues()) != want {
			t.Errorf("start %d: %v\n%s", i, err, text(j))
		}
		_ = j.Close()
	}
}
