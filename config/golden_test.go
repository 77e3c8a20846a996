package config

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "rewrite the want sections of testdata/issues")

// TestIssues loads the config.yaml of each archive with --config and compares every
// reported line, and the broken servers with their reasons.
func TestIssues(t *testing.T) {
	files, err := filepath.Glob("testdata/issues/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			env := map[string]string{}
			var got strings.Builder
			dir := t.TempDir()
			want := ""
			for _, f := range a.Files {
				switch f.Name {
				case "env":
					for line := range strings.Lines(string(f.Data)) {
						k, v, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
						env[k] = v
					}
				case "config.yaml":
					write(t, filepath.Join(dir, f.Name), string(f.Data))
				case "want":
					want = string(f.Data)
				}
			}
			file := filepath.Join(dir, "config.yaml")
			c, err := Load(LoadOptions{File: file, Home: dir, Workspace: dir, Env: lookup(env)})
			if err != nil {
				fmt.Fprintf(&got, "error: %v\n", err)
			} else {
				for _, i := range c.Issues {
					fmt.Fprintf(&got, "%s: %s\n", i.Severity, i)
				}
				for _, s := range c.Servers {
					if s.Err != nil {
						fmt.Fprintf(&got, "config_error %q: %s\n", s.Name, s.Err.Message)
					}
				}
				for _, r := range c.Permissions {
					fmt.Fprintf(&got, "rule: %s %s\n", r.Action, r.Source)
				}
			}
			text := strings.ReplaceAll(got.String(), dir+string(filepath.Separator), "")
			if *update {
				for i := range a.Files {
					if a.Files[i].Name == "want" {
						a.Files[i].Data = []byte(text)
					}
				}
				if err := os.WriteFile(name, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if d := cmp.Diff(want, text); d != "" {
				t.Errorf("issues differ (-want +got), rewrite with go test ./config -update:\n%s", d)
			}
		})
	}
}

func write(t testing.TB, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func lookup(env map[string]string) func(string) (string, bool) {
	return func(k string) (string, bool) { v, ok := env[k]; return v, ok }
}
