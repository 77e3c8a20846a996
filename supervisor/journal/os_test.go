package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestFiles uses the operating system's files: modes, links, the lock, a restart.
func TestFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state", "journal")
	o := Options{Dir: dir, RunID: "r"}
	j := mustOpen(t, o)
	s := sample("r", 0, time.Now())
	if err := dispatch(j, s); err != nil {
		t.Fatal(err)
	}
	j.Outcome(settle(s, 0, time.Now()))
	if runtime.GOOS != "windows" {
		if j2, err := Open(o); err == nil || !strings.Contains(err.Error(), "another bridge") {
			t.Errorf("opened twice: %v", err)
			_ = j2.Close()
		}
		fi, err := os.Stat(dir)
		if err != nil || fi.Mode().Perm() != 0o700 {
			t.Errorf("directory: %v %v", fi.Mode(), err)
		}
		list, _ := os.ReadDir(dir)
		if len(list) != 3 {
			t.Errorf("%d files", len(list))
		}
		for _, e := range list {
			if fi, err := e.Info(); err != nil || fi.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v %v", e.Name(), fi.Mode(), err)
			}
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	_ = os.Chmod(dir, 0o755)
	_ = os.Chmod(filepath.Join(dir, keyName), 0o644)
	o.RunID = "r2"
	j = mustOpen(t, o)
	if e, ok := j.Find(s.Client, s.Server, s.Tool, s.IdempotencyKey); !ok || e.Outcome != "ok" || len(e.Result) == 0 {
		t.Errorf("found %v %+v", ok, e)
	}
	if fi, _ := os.Stat(dir); runtime.GOOS != "windows" && (fi.Mode().Perm() != 0o700 || !strings.Contains(text(j), "others could read")) {
		t.Errorf("%v %s", fi.Mode(), text(j))
	}
	_ = j.Close()
}

func TestLinks(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("links need rights there")
	}
	other, dir := t.TempDir(), t.TempDir()
	link := filepath.Join(t.TempDir(), "journal")
	if err := os.Symlink(other, link); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{Dir: link, RunID: "r"}); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("a linked directory: %v", err)
	}
	file := filepath.Join(other, "file")
	_ = os.WriteFile(file, []byte("mine"), 0o600)
	for _, name := range []string{"lock", keyName} {
		p := filepath.Join(dir, name)
		_ = os.Symlink(file, p)
		if _, err := Open(Options{Dir: dir, RunID: "r"}); err == nil {
			t.Errorf("a linked %s is followed", name)
		}
		_ = os.Remove(p)
	}
	_ = os.Symlink(file, filepath.Join(dir, segmentName(1)))
	j := mustOpen(t, Options{Dir: dir, RunID: "r"})
	defer j.Close()
	if err := dispatch(j, sample("r", 0, time.Now())); err != nil || !j.Damaged() || !strings.Contains(text(j), "no regular file") {
		t.Errorf("%v %s", err, text(j))
	}
	if b, _ := os.ReadFile(file); string(b) != "mine" {
		t.Errorf("written through a link: %q", b)
	}
}

// TestRealDisk has the operating system refuse: a directory that went away.
func TestRealDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	j := mustOpen(t, Options{Dir: dir, RunID: "r"})
	defer j.Close()
	if err := os.RemoveAll(dir); err != nil {
		t.Skip(err)
	}
	if err := dispatch(j, sample("r", 0, time.Now())); err == nil || j.Health() == nil {
		t.Fatalf("%v", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); j.Health() != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never healthy again: %v", j.Health())
		}
	}
	if err := dispatch(j, sample("r", 1, time.Now())); err != nil {
		t.Error(err)
	}
}

func benchJournal(b *testing.B, policy Fsync) *Journal {
	j := mustOpen(b, Options{Dir: filepath.Join(b.TempDir(), "journal"), RunID: "r", Fsync: policy})
	b.Cleanup(func() { _ = j.Close() })
	_ = dispatch(j, sample("r", 1<<20, time.Now()))
	return j
}

func BenchmarkDispatch(b *testing.B) {
	for _, policy := range []Fsync{FsyncAlways, FsyncInterval, FsyncOff} {
		for _, callers := range []int{1, 16} {
			b.Run(fmt.Sprintf("%s/callers=%d", policy, callers), func(b *testing.B) {
				j := benchJournal(b, policy)
				work := make(chan int)
				var wg sync.WaitGroup
				for range callers {
					wg.Go(func() {
						for n := range work {
							s := sample("r", n, time.Now())
							if err := dispatch(j, s); err != nil {
								b.Error(err)
							}
							j.Outcome(settle(s, n, time.Now()))
						}
					})
				}
				b.ReportAllocs()
				b.ResetTimer()
				for n := range b.N {
					work <- n
				}
				close(work)
				wg.Wait()
			})
		}
	}
}

// BenchmarkSync is what the disk itself takes for one record and its sync.
func BenchmarkSync(b *testing.B) {
	f, err := osFS{}.Create(filepath.Join(b.TempDir(), "f"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	rec := make([]byte, 400)
	for b.Loop() {
		if _, err := f.Write(rec); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkReplay opens a journal of 100,000 settled calls.
func BenchmarkReplay(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "journal")
	j := mustOpen(b, Options{Dir: dir, RunID: "r", Fsync: FsyncOff})
	for n := range 100_000 {
		s := sample("r", n, time.Now())
		j.Dispatch(s, func(error) {})
		j.Outcome(settle(s, n, time.Now()))
	}
	if err := j.Close(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		j := mustOpen(b, Options{Dir: dir, RunID: "r2"})
		_ = j.Close()
	}
}
