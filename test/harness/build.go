package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
)

var binaries struct {
	dir string
	mu  sync.Mutex
	err map[string]error
}

// Main runs a package's tests and removes what was built for them.
func Main(m *testing.M) int {
	defer func() {
		if binaries.dir != "" {
			_ = os.RemoveAll(binaries.dir)
		}
	}()
	return m.Run()
}

// Root is the repository's top directory.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}

// Bridgectl is the path of a freshly built bridgectl.
func Bridgectl(t testing.TB) string { return build(t, "bridgectl", "./cmd/bridgectl") }

// Stricken is the path of a bridgectl whose journal's file layer fails where
// MCPBRIDGE_JOURNAL_FAULT says (supervisor/journal/fs_fault.go). It is built without the
// race detector: what it is for takes hundreds of lives.
func Stricken(t testing.TB) string {
	return build(t, "bridgectl-planted", "./cmd/bridgectl", "-tags", "planted")
}

// Fixture is the path of a freshly built test/mcpserver. It is built without the
// race detector, which would only slow the faults down.
func Fixture(t testing.TB) string { return build(t, "mcpserver", "./test/mcpserver") }

// Prebuilt is the variable that names a directory with programs that are built already,
// for who runs one test binary many times.
const Prebuilt = "MCPBRIDGE_TEST_PROGRAMS"

func isFile(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.Mode().IsRegular()
}

// build builds a program once per test binary.
func build(t testing.TB, name, pkg string, flags ...string) string {
	t.Helper()
	if dir := os.Getenv(Prebuilt); dir != "" {
		if path := filepath.Join(dir, name); isFile(path) {
			return path
		}
	}
	b := &binaries
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		dir, err := os.MkdirTemp("", "mcpbridge-bin-")
		if err != nil {
			t.Fatal(err)
		}
		b.dir, b.err = dir, map[string]error{}
	}
	path := filepath.Join(b.dir, name)
	err, done := b.err[name]
	if !done {
		args := []string{"build", "-o", path}
		if Race && name == "bridgectl" {
			args = append(args, "-race")
		}
		cmd := exec.Command("go", append(append(args, flags...), pkg)...)
		cmd.Dir = Root()
		if out, e := cmd.CombinedOutput(); e != nil {
			err = fmt.Errorf("go build %s: %w\n%s", pkg, e, out)
		}
		b.err[name] = err
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}
