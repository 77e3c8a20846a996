//go:build linux

package planted

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	bugs "mcpbridge/internal/planted"
	"mcpbridge/test/harness"
)

func TestMain(m *testing.M) {
	code := harness.Main(m)
	built.remove()
	os.Exit(code)
}

// variable names the active bug of a program with the tag planted.
const variable = "MCPBRIDGE_PLANTED"

// programs are what is built once for all bugs.
type programs struct {
	dir string
	mu  sync.Mutex
	err map[string]error
}

var built = programs{err: map[string]error{}}

// build compiles a package, or its tests, with more arguments of go.
func (p *programs) build(t *testing.T, name, pkg string, args ...string) string {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dir == "" {
		dir, err := os.MkdirTemp("", "mcpbridge-planted-")
		if err != nil {
			t.Fatal(err)
		}
		p.dir = dir
	}
	path := filepath.Join(p.dir, name)
	err, done := p.err[name]
	if !done {
		cmd := exec.Command("go", slices.Concat(args, []string{"-o", path, pkg})...)
		cmd.Dir = harness.Root()
		if out, e := cmd.CombinedOutput(); e != nil {
			err = fmt.Errorf("go %s: %w\n%s", strings.Join(cmd.Args[1:], " "), e, out)
		}
		p.err[name] = err
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func (p *programs) remove() {
	if p.dir != "" {
		_ = os.RemoveAll(p.dir)
	}
}

// watchman is a test binary that must fail when a bug of its is active, and must not
// when none is.
type watchman struct {
	pkg  string
	args []string
}

var watchmen = map[string]watchman{
	bugs.Simulation: {"actors/internal/dispatch", []string{"-test.run", "TestSim$", "-sim.seeds", "800"}},
	bugs.Journal:    {"supervisor/journal", []string{"-test.run", "TestCrash$|TestErrors$|TestTornTail$"}},
}

// watch runs a catcher's tests with a bug, or "" for none.
func watch(t *testing.T, catcher string, bug bugs.Bug) (failed bool, out string, took time.Duration) {
	t.Helper()
	w := watchmen[catcher]
	path := built.build(t, catcher+".test", "./"+w.pkg, "test", "-c", "-tags", "planted")
	out, code, took := run(t, 2*time.Minute, filepath.Join(harness.Root(), w.pkg), []string{variable + "=" + string(bug)}, path, w.args...)
	return code != 0, out, took
}

// run runs a program to its end and returns what it said. One that does not end is
// killed with all that it started.
func run(t *testing.T, patience time.Duration, dir string, env []string, path string, args ...string) (out string, code int, took time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	var b bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(os.Environ(), env...), &b, &b
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	start := time.Now()
	err := cmd.Run()
	took = time.Since(start)
	if cmd.ProcessState == nil {
		t.Fatalf("%s: %v", path, err)
	}
	if ctx.Err() != nil {
		fmt.Fprintf(&b, "\ndid not end within %s", patience)
	}
	return b.String(), cmd.ProcessState.ExitCode(), took
}

// TestPlanted: the simulation and the journal's tests find nothing in the whole bridge,
// and each bug in their reach.
func TestPlanted(t *testing.T) {
	for _, catcher := range []string{bugs.Simulation, bugs.Journal} {
		if failed, out, _ := watch(t, catcher, ""); failed {
			t.Fatalf("the %s cries without a bug:\n%s", catcher, out)
		}
	}
	for _, i := range bugs.All {
		for catcher := range watchmen {
			if !slices.Contains(i.By, catcher) {
				continue
			}
			failed, out, took := watch(t, catcher, i.Bug)
			switch why := complaint(out); {
			case !failed:
				t.Errorf("%s (%s): not caught by the %s", i.Bug, i.Does, catcher)
			case why == "":
				t.Errorf("%s: the %s failed, and not because of what it watches:\n%s", i.Bug, catcher, out)
			default:
				t.Logf("%-28s %-10s %5s  %s", i.Bug, catcher, took.Round(10*time.Millisecond), why)
			}
		}
	}
}

// complaint is the line with which a test failed; "" when there is none, as when it was
// killed or never ran.
func complaint(out string) string {
	if !strings.Contains(out, "--- FAIL: Test") {
		return ""
	}
	for line := range strings.Lines(out) {
		if _, text, ok := strings.Cut(strings.TrimSpace(line), "_test.go:"); ok {
			_, text, _ = strings.Cut(text, ": ")
			return text[:min(len(text), 160)]
		}
	}
	return ""
}

// TestNothingIsLeft: the program that people run holds no bug and no word of one. The
// binary of the simulation shows that the search would find them.
func TestNothingIsLeft(t *testing.T) {
	ordinary, err := os.ReadFile(harness.Bridgectl(t))
	if err != nil {
		t.Fatal(err)
	}
	tagged, err := os.ReadFile(built.build(t, bugs.Simulation+".test", "./"+watchmen[bugs.Simulation].pkg, "test", "-c", "-tags", "planted"))
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{variable, "internal/planted.Is"} {
		if bytes.Contains(ordinary, []byte(word)) {
			t.Errorf("the ordinary bridgectl knows of %q", word)
		}
		if !bytes.Contains(tagged, []byte(word)) {
			t.Errorf("not even a tagged binary knows of %q", word)
		}
	}
	for _, i := range bugs.All {
		if bytes.Contains(ordinary, []byte(i.Bug)) || bytes.Contains(ordinary, []byte(i.Does)) {
			t.Errorf("the ordinary bridgectl knows of %q", i.Bug)
		}
		if !bytes.Contains(tagged, []byte(i.Bug)) {
			t.Errorf("not even a tagged binary knows of %q", i.Bug)
		}
	}
}
