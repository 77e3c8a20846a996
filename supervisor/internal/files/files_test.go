package files

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f.json")
	for _, text := range []string{"first", "", "second, and longer"} {
		if err := Write(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != text {
			t.Errorf("%q, %v", b, err)
		}
	}
	if fi, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && fi.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}
	// What cannot be written leaves what was there, and nothing beside it.
	folder := filepath.Join(dir, "folder")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Write(folder, nil); err == nil || !strings.Contains(err.Error(), folder) {
		t.Errorf("a folder was replaced: %v", err)
	}
	if err := Write(filepath.Join(dir, "none", "f"), nil); err == nil {
		t.Error("its folder is not there")
	}
	if list, _ := os.ReadDir(dir); len(list) != 2 {
		t.Errorf("left: %v", list)
	}
}

// TestBehind: pieces of work never run side by side, and when Wait returns, one has begun
// after the last Do.
func TestBehind(t *testing.T) {
	var b Behind
	b.Wait() // nothing to wait for
	var at, asked, seen atomic.Int64
	work := func() {
		if at.Add(1) != 1 {
			t.Error("two at once")
		}
		seen.Store(asked.Load())
		at.Add(-1)
	}
	for range 200 {
		for range 5 {
			asked.Add(1)
			b.Do(work)
		}
		b.Wait()
		if seen.Load() != asked.Load() {
			t.Fatalf("%d of %d when it was idle", seen.Load(), asked.Load())
		}
	}
}
