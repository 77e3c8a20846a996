package harness

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// World is a home of its own for one or more daemons and their clients.
type World struct {
	Home  string // also the parent of the XDG directories
	State string // the state directory
	Work  string // working directory and workspace
	// Binary is the bridgectl that runs here, as daemon and as client; "" = Bridgectl.
	Binary string
	env    []string
}

// NewWorld makes the directories. They are short: a unix socket's path is limited.
func NewWorld(t testing.TB) *World {
	t.Helper()
	home, err := os.MkdirTemp("", "mb-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	w := &World{Home: home, State: filepath.Join(home, "state"), Work: filepath.Join(home, "work")}
	for _, d := range []string{w.Work, filepath.Join(home, "run"), filepath.Join(home, "tmp")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	w.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + filepath.Join(home, "tmp"), "LANG=C.UTF-8", "NO_COLOR=1",
		"XDG_CONFIG_HOME=" + filepath.Join(home, "config"), "XDG_STATE_HOME=" + filepath.Join(home, "xdgstate"),
		"XDG_RUNTIME_DIR=" + filepath.Join(home, "run"), "XDG_CACHE_HOME=" + filepath.Join(home, "cache"),
		"GORACE=halt_on_error=0 exitcode=66 atexit_sleep_ms=0", // the detector would sleep a second at every exit,
	}
	return w
}

func (w *World) binary(t testing.TB) string {
	if w.Binary != "" {
		return w.Binary
	}
	return Bridgectl(t)
}

// Env is the environment of everything that runs in this world, with additions.
func (w *World) Env(extra ...string) []string {
	return append(append([]string(nil), w.env...), extra...)
}

// WriteConfig writes a configuration file into the world: a string as it is, any
// other value as JSON, which is YAML.
func (w *World) WriteConfig(t testing.TB, name string, config any) string {
	t.Helper()
	text, ok := config.(string)
	if !ok {
		b, err := json.MarshalIndent(config, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		text = string(b)
	}
	path := filepath.Join(w.Home, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Path is a file of that name inside the world.
func (w *World) Path(name string) string { return filepath.Join(w.Home, name) }

// Result is what a command did.
type Result struct {
	Args           []string
	Stdout, Stderr string
	Exit           int
}

// String shows the whole of it, for failures.
func (r Result) String() string {
	return fmt.Sprintf("bridgectl %s\nexit %d\nstdout: %s\nstderr: %s", strings.Join(r.Args, " "), r.Exit, r.Stdout, r.Stderr)
}

// JSON decodes stdout.
func (r Result) JSON(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.Stdout), v); err != nil {
		t.Fatalf("stdout is no JSON: %v\n%s", err, r)
	}
}

// Run runs bridgectl to its end.
func (w *World) Run(t testing.TB, args ...string) Result {
	t.Helper()
	return w.RunIn(t, "", nil, args...)
}

// RunIn is Run with something on stdin and more in the environment. A command that
// does not end within Patience fails the test.
func (w *World) RunIn(t testing.TB, stdin string, env []string, args ...string) Result {
	t.Helper()
	var out, errb bytes.Buffer
	cmd := exec.Command(w.binary(t), args...)
	cmd.Dir, cmd.Env = w.Work, w.Env(env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errb
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(Patience, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	r := Result{Args: args, Stdout: out.String(), Stderr: errb.String(), Exit: cmd.ProcessState.ExitCode()}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Errorf("%v\n%s", err, r)
	}
	if !late.Stop() {
		t.Fatalf("did not end within %s\n%s", Patience, r)
	}
	checkRace(t, r.Stderr)
	return r
}

// checkRace fails the test when the race detector of a bridgectl spoke.
func checkRace(t testing.TB, stderr string) {
	t.Helper()
	if i := strings.Index(stderr, "WARNING: DATA RACE"); i >= 0 {
		t.Errorf("data race in bridgectl:\n%s", stderr[i:min(len(stderr), i+6000)])
	}
	if i := strings.Index(stderr, "panic: "); i >= 0 {
		t.Errorf("panic in bridgectl:\n%s", stderr[i:min(len(stderr), i+6000)])
	}
}
