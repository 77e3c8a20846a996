//go:build linux

// Package own tests from the outside that no process outlives its server, and none its
// bridge, on every rung that this machine has.
package own

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mcpbridge/messages"
	"mcpbridge/test/harness"
)

// rungs are the ways to own processes; each test that asks for one checks that it got it.
var rungs = []string{"cgroup", "subreaper", "markers"}

// start runs a daemon on a rung, and skips the test where the machine has no such rung.
func start(t *testing.T, rung string, o harness.Options) *harness.Daemon {
	t.Helper()
	o.Env = append(o.Env, "MCPBRIDGE_OWNERSHIP="+rung)
	d := harness.Start(t, o)
	got := d.Status(t).Bridge.Ownership
	if got.Rung != rung {
		if rung == "cgroup" {
			t.Skipf("no control group of version 2 is delegated here: %s", got.Reason)
		}
		t.Fatalf("asked for %s, stands on %+v", rung, got)
	}
	harness.Eventually(t, "a guardian", func() bool { return d.Status(t).Bridge.Ownership.Guardian == "running" })
	return d
}

// perRung runs a test on each rung.
func perRung(t *testing.T, f func(t *testing.T, rung string)) {
	for _, rung := range rungs {
		t.Run(rung, func(t *testing.T) { f(t, rung) })
	}
}

// tag makes names that no other test's processes carry on their command line.
func tag(t *testing.T, name string) string {
	return fmt.Sprintf("%s-%d-%d-%s", strings.ReplaceAll(filepath.Base(t.Name()), "/", "-"), os.Getpid(), time.Now().UnixNano(), name)
}

// server is a fixture whose processes all carry the tag.
func server(t *testing.T, lab *harness.Lab, tag string, more ...string) harness.M {
	t.Helper()
	e := lab.Server(t, "x", more...)
	args := e["args"].([]string)
	args[1] = tag // -name
	return e
}

// async makes one call beside the test.
func async(t *testing.T, d *harness.Daemon, tool, args string) <-chan messages.Outcome {
	out := make(chan messages.Outcome, 1)
	go func() {
		defer close(out)
		r := d.CLI(t, "call", tool, "--args", args, "-o", "json")
		var o messages.Outcome
		if json.Unmarshal([]byte(r.Stdout), &o) == nil {
			out <- o
		}
	}()
	return out
}

// goneWithin waits until no process carries the text, says how long that took, and fails
// when it takes longer than is promised and the machine's load explains.
func goneWithin(t *testing.T, promise time.Duration, what string, left func() []harness.Proc) {
	t.Helper()
	began := time.Now()
	harness.Eventually(t, what+": nothing left", func() bool { return len(left()) == 0 })
	took := time.Since(began)
	t.Logf("%s: nothing left after %s (promised: %s)", what, took.Round(time.Millisecond), promise)
	if took > 5*promise { // a loaded machine may be late, but not that late
		t.Errorf("%s: took %s; promised is %s", what, took, promise)
	}
}

// neighbourAnswers: whatever is done to the others, this one answers.
func neighbourAnswers(t *testing.T, d *harness.Daemon) {
	t.Helper()
	if o, r := d.Call(t, "neighbour/read", `{}`); o.Kind != messages.OK {
		t.Errorf("the neighbour does not answer: %s", r)
	}
}

// with changes one entry of a server's configuration.
func with(e harness.M, key string, value any) harness.M {
	e[key] = value
	return e
}
