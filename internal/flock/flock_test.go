//go:build unix

package flock

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// TestLock: one holds it, the other is refused, and who closes the file lets go.
func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	one, two := open(t, path), open(t, path)
	if err := Lock(one); err != nil {
		t.Fatal(err)
	}
	if err := Lock(two); !errors.Is(err, ErrLocked) {
		t.Fatalf("locked twice: %v", err)
	}
	_ = one.Close()
	if err := Lock(two); err != nil {
		t.Fatal(err)
	}
}

// TestLockOutlivesItsOwner: the owner is gone, and a child of its holds the file for a
// moment more. That is outwaited.
func TestLockOutlivesItsOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	owner := open(t, path)
	if err := Lock(owner); err != nil {
		t.Fatal(err)
	}
	child := exec.Command("sleep", "0.3")
	child.ExtraFiles = []*os.File{owner}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Close()
	next := open(t, path)
	if err := try(next); !errors.Is(err, ErrLocked) {
		t.Fatalf("the child does not hold it: %v", err)
	}
	began := time.Now()
	if err := Lock(next); err != nil {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
	if err := child.Wait(); err != nil {
		t.Error(err)
	}
}
