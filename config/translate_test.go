package config

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

// TestTranslate reads the file of each archive as the tool's that its name is of, and
// compares with what is written down below it. Rewrite with -update, and read the change.
func TestTranslate(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("paths are written down as they are on Unix")
	}
	files, err := filepath.Glob("testdata/translate/*.txtar")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d cases, %v", len(files), err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(name)
			if err != nil || len(a.Files) != 2 {
				t.Fatalf("%v, %d files", err, len(a.Files))
			}
			got := understood(t, sample{source: a.Files[0].Name, data: a.Files[0].Data}, answers)
			_, got, _ = strings.Cut(got, "\n# \n")
			if *update {
				a.Files[1].Data = []byte(got)
				if err := os.WriteFile(name, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if d := gocmp.Diff(string(a.Files[1].Data), got); d != "" {
				t.Errorf("understood differently (-want +got):\n%s", d)
			}
		})
	}
}
