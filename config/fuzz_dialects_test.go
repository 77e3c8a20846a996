package config

import (
	"path/filepath"
	"strings"
	"testing"

	"mcpbridge/messages"
)

// FuzzDialects reads arbitrary bytes under the names of other tools' files: nothing panics,
// every error of a file has a place in it, no secret is told, and what an import writes is a
// configuration without an error.
func FuzzDialects(f *testing.F) {
	names := []string{"mcp.json", "config.toml", "some.yaml", "noextension"}
	for _, d := range dialects {
		names = append(names, d.files...)
	}
	for _, s := range samples(f) {
		for i, n := range names {
			if strings.HasSuffix("/"+s.source, "/"+n) {
				f.Add(uint8(i), s.data)
			}
		}
		f.Add(uint8(0), s.data)
	}
	f.Add(uint8(0), []byte(canaryFile))
	f.Add(uint8(1), []byte("[mcp_servers.a]\ncommand='x'\n[[mcp_servers.b]]\na.b.c={d=[1,2,{e=1}]}\n"))
	f.Add(uint8(0), []byte(`{"mcpServers": {"a": {"command": {"path": "x", "args": ["${A:-${B}}"]}, "transport": {"type": "http", "url": "x"}, "env": {"": null}}}, "inputs": [{"id": "x", "default": "${y}"}]}`))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		name := names[int(which)%len(names)]
		file := filepath.Join(dir, "work", filepath.FromSlash(name))
		write(t, file, string(data))
		o := LoadOptions{File: file, Home: filepath.Join(dir, "home"), Workspace: dir, Env: lookup(map[string]string{"TOKEN": "canary-expanded", "MCP_SERVERS": string(data)})}
		told := func(text string) {
			if strings.Contains(text, "canary-expanded") && !strings.Contains(string(data), "canary-expanded") {
				t.Fatalf("a secret is told: %s", text)
			}
		}
		r := Check(CheckOptions{Files: []string{file}, Load: o})
		for _, i := range r.Issues {
			if told(i.String()); i.Severity == messages.SeverityError && (i.File == "" || i.Message == "" || i.Line == 0 && !strings.Contains(i.Message, "larger than") || (i.Line == 0) != (i.Column == 0)) {
				t.Fatalf("no place: %+v", i)
			}
		}
		if c, err := Load(o); err == nil {
			told(Show(c, true))
			for _, s := range c.Servers {
				if s.Err != nil && s.Startable() {
					t.Fatalf("broken and startable: %+v", s)
				}
				if s.Err != nil {
					told(s.Err.String())
				}
			}
		}
		o.File = ""
		if c, err := Load(o); err != nil || c == nil {
			t.Fatalf("layers never are an error: %v", err)
		}
		im, err := Import(ImportOptions{Load: LoadOptions{File: file, Home: o.Home, Workspace: dir, Env: o.Env}})
		if err != nil {
			return
		}
		told(im.YAML)
		again := filepath.Join(dir, "imported.yaml")
		write(t, again, im.YAML)
		if r := Check(CheckOptions{Files: []string{again}, Load: o}); !r.Valid || len(r.Servers) != len(im.Servers) {
			t.Fatalf("what is imported does not load: %v\n%s", r.Issues, im.YAML)
		}
	})
}
