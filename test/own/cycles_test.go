//go:build linux

package own

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"mcpbridge/test/harness"
)

// cyclesVar makes the cycles as many as it says: 1000 takes about two minutes.
const cyclesVar = "MCPBRIDGE_CYCLES"

// usage is what a daemon holds.
type usage struct{ goroutines, fds, threads, rssKB int }

func measure(t *testing.T, d *harness.Daemon) usage {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", d.Control)
	}}}
	resp, err := c.Get("http://control/debug/pprof/goroutine?debug=1")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join("/proc", strconv.Itoa(d.PID))
	fds, _ := os.ReadDir(filepath.Join(dir, "fd"))
	status := read(t, filepath.Join(dir, "status"))
	return usage{number(t, `total (\d+)`, string(body)), len(fds), number(t, `Threads:\s+(\d+)`, status), number(t, `VmRSS:\s+(\d+)`, status)}
}

func number(t *testing.T, pattern, text string) int {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("no %s in %.200s", pattern, text)
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

// TestKillAndRestart: after hundreds of deaths the bridge holds what it held before.
func TestKillAndRestart(t *testing.T) {
	cycles, warm := 60, 30
	if n, err := strconv.Atoi(os.Getenv(cyclesVar)); err == nil {
		cycles, warm = n, 100
	} else if testing.Short() {
		cycles, warm = 20, 10
	}
	for _, rung := range []string{"cgroup", "subreaper"} {
		t.Run(rung, func(t *testing.T) {
			lab, mark := harness.NewLab(t), tag(t, "/")
			e := with(server(t, lab, mark, "-escape", "child,setsid,double"), "restart",
				harness.M{"burst": 0, "backoff": harness.M{"initial": "1ms", "max": "1ms"}})
			d := start(t, rung, harness.Options{Config: harness.Config(harness.M{"s": e})})
			d.Await(t, "ready", "s")
			cs := d.Raw(t, d.URL)
			baseline := measure(t, d)
			var settled usage
			for n := range cycles {
				pid := number(t, `"pid":(\d+)`, string(cs.CallTool(t, "s__pid", `{}`)))
				p, ok := harness.Process(pid)
				if !ok {
					t.Fatalf("cycle %d: there is no process %d", n, pid)
				}
				p.Kill()
				harness.Eventually(t, "it is dead", func() bool { return !p.Alive() })
				if n == warm {
					settled = measure(t, d)
				}
			}
			d.Await(t, "ready", "s")
			var now usage
			harness.Eventually(t, "goroutines and descriptors are back", func() bool {
				now = measure(t, d)
				return now.goroutines <= baseline.goroutines+2 && now.fds <= baseline.fds+2
			})
			t.Logf("%d cycles: at first %+v, after %d %+v, at the end %+v; %d processes", cycles, baseline, warm, settled, now, len(harness.Named(mark)))
			if now.threads > settled.threads+3 {
				t.Errorf("threads grow: %d after %d cycles, %d after %d", settled.threads, warm, now.threads, cycles)
			}
			if grown := now.rssKB - settled.rssKB; grown > 16<<10 && grown > settled.rssKB/10 {
				t.Errorf("memory grows: %d KiB after %d cycles, %d after %d", settled.rssKB, warm, now.rssKB, cycles)
			}
			harness.Eventually(t, "the four processes of one generation", func() bool { return len(harness.Named(mark)) == 4 })
		})
	}
}
