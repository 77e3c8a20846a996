//go:build linux

// Package freeze stops processes. It knows nothing of the bridge, so that the tests of
// every room may use it.
package freeze

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// patience is for a machine on which everything waits.
const patience = 20 * time.Second

// Process stops a process (SIGSTOP) and returns when all its threads stand still. The
// signal alone does not: for a moment a thread on another core goes on and may well
// answer somebody.
func Process(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatalf("stop process %d: %v", pid, err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		still, err := stands(pid)
		switch {
		case err != nil:
			t.Fatalf("process %d: %v", pid, err)
		case still:
			return
		case time.Now().After(end):
			t.Fatalf("process %d does not stand still", pid)
		}
	}
}

// stands reports whether each thread is stopped, or dead.
func stands(pid int) (bool, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		return false, errors.New("it is not there")
	}
	for _, path := range threads {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // a thread that has ended
		}
		_, rest, ok := bytes.Cut(b, []byte(") ")) // the name before may hold anything but this
		if !ok || len(rest) == 0 || !bytes.ContainsRune([]byte("TtZX"), rune(rest[0])) {
			return false, nil
		}
	}
	return true, nil
}
