package journal

import (
	"os"
	"path/filepath"
	"testing"
	"time"
	"fmt"
)

func TestFullReplay(t *testing.T) {
	dir := os.Getenv("REPDIR")
	if _, err := os.Stat(dir); err != nil {
		at := time.Now().Add(-3*time.Hour)
		j := mustOpen(t, Options{Dir: dir, RunID: "r", Fsync: FsyncOff})
		for n := 0; ; n++ {
			s := sample("r", n, at)
			j.Dispatch(s, func(error) {})
			j.Outcome(settle(s, n, at))
			if n%20000 == 0 {
				time.Sleep(200*time.Millisecond)
				m, _ := filepath.Glob(dir + "/*.journal")
				if len(m) >= 16 { fmt.Println(n, "calls"); break }
			}
		}
		_ = j.Close()
	}
	for range 3 {
		at := time.Now()
		j := mustOpen(t, Options{Dir: dir, RunID: "r2"})
		t.Logf("open %s", time.Since(at))
		_ = j.Close()
	}
}
