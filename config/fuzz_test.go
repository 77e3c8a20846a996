package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// FuzzLoad feeds arbitrary bytes through every layer: nothing panics, every issue of
// a file has a position in it, the result can be shown and what is shown is YAML.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(Starter()))
	f.Add([]byte(showConfig))
	for _, glob := range []string{"testdata/examples/*.yaml", "testdata/issues/*.txtar"} {
		files, _ := filepath.Glob(glob)
		for _, name := range files {
			if b, err := os.ReadFile(name); err == nil {
				f.Add(b)
				_, body, _ := strings.Cut(string(b), "-- config.yaml --\n")
				body, _, _ = strings.Cut(body, "-- want --")
				f.Add([]byte(body))
			}
		}
	}
	f.Add([]byte("mcp_servers: &a {x: *a}"))
	f.Add([]byte("a: &x [*x"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		home := filepath.Join(dir, "home")
		file := filepath.Join(home, ".config/mcpbridge/config.yaml")
		write(t, file, string(data))
		write(t, filepath.Join(dir, ".mcpbridge/config.yaml"), string(data))
		o := LoadOptions{Home: home, Workspace: dir, Env: lookup(map[string]string{"TOK": "canary-expanded"})}
		c, err := Load(o)
		if err != nil {
			t.Fatalf("layers never are an error: %v", err)
		}
		for _, i := range c.Issues {
			if i.File == "" || i.Message == "" || (i.Line == 0) != (i.Column == 0) {
				t.Fatalf("no position: %+v", i)
			}
			if strings.Contains(i.Message, "canary-expanded") {
				t.Fatalf("a secret in a message: %s", i)
			}
		}
		for _, s := range c.Servers {
			if s.Err != nil && s.Startable() {
				t.Fatalf("broken and startable: %+v", s)
			}
		}
		shown := Show(c, true)
		if strings.Contains(shown, "canary-expanded") && !strings.Contains(string(data), "canary-expanded") {
			t.Fatalf("a secret is shown:\n%s", shown)
		}
		if err := yaml.Unmarshal([]byte(shown), new(any)); err != nil {
			t.Fatalf("not YAML: %v\n%s", err, shown)
		}
		o.File = file
		if c, err := Load(o); (c == nil) == (err == nil) {
			t.Fatalf("config %v, error %v", c, err)
		}
		Check(CheckOptions{Load: o})
	})
}
