package config

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// TestImportRoundTrip: what an import writes is a configuration without an error, and with
// the proposed variables set it starts exactly what the original does.
func TestImportRoundTrip(t *testing.T) {
	for _, s := range samples(t) {
		if s.parses == "INVALID" {
			continue
		}
		t.Run(s.file, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, filepath.FromSlash(s.source))
			write(t, file, string(s.data))
			o := LoadOptions{File: file, Home: "/home/tester", Workspace: dir, Env: lookup(answers)}
			im, err := Import(ImportOptions{Load: o})
			if err != nil {
				t.Fatal(err)
			}
			env := maps.Clone(answers)
			maps.Copy(env, im.values)
			ours := filepath.Join(dir, "imported.yaml")
			write(t, ours, im.YAML)
			got, err := Load(LoadOptions{File: ours, Home: "/home/tester", Workspace: dir, Env: lookup(env)})
			if err != nil {
				t.Fatalf("%v\n%s", err, im.YAML)
			}
			l := newLoader(o, true)
			l.all = true
			want, err := l.run(o)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, w := range want.Servers {
				names = append(names, w.Name)
				if strings.Contains(string(s.data), "${cmd:") && w.Err != nil {
					continue // a variable takes the place of the command
				}
				g, ok := got.Server(w.Name)
				if !ok || g.Err != nil {
					t.Errorf("%s: %v", w.Name, g.Err)
					continue
				}
				if d := gocmp.Diff(essence(w), essence(g)); d != "" {
					t.Errorf("%s (-direct +imported):\n%s\n%s", w.Name, d, im.YAML)
				}
			}
			slices.Sort(im.Servers)
			if !slices.Equal(names, im.Servers) {
				t.Errorf("servers %v, imported %v", names, im.Servers)
			}
			r := Check(CheckOptions{Files: []string{ours}, Load: LoadOptions{Home: "/nowhere", Env: lookup(nil)}})
			if !r.Valid {
				t.Errorf("%v\n%s", r.Issues, im.YAML)
			}
		})
	}
}

// essence is what makes a server start as it does.
func essence(s Server) map[string]any {
	env := s.Env
	if len(env) == 0 {
		env = nil
	}
	headers := s.Headers
	if len(headers) == 0 {
		headers = nil
	}
	return map[string]any{"type": s.Type, "line": append([]string{s.Command}, s.Args...), "env": env, "url": s.URL, "headers": headers,
		"enabled": s.Enabled, "connect": s.Connect, "allow": strings.Join(s.Allow, " "), "deny": strings.Join(s.Deny, " "),
		"timeouts": s.Timeouts, "inherit": strings.Join(s.InheritEnv, " ")}
}

// canaries are secrets in every place that a configuration has for them.
const canaryFile = `{
  // canary-7f3a-comment
  "mcpServers": {
    "out": {
      "command": "server",
      "args": ["--api-key", "canary-7f3a-arg1", "--token=canary-7f3a-arg2", "SECRET=\"canary-7f3a-arg3\"",
               "redis://user:canary-7f3a-arg4@db:6379/0", "--header", "Authorization: Bearer canary-7f3a-arg5",
               "--header=X-Api-Key: canary-7f3a-arg6", "https://h/?token=canary-7f3a-arg7", "postgres://u:canary-7f3a%2Farg8@h/db"],
      "env": {"API_KEY": "canary-7f3a-env1", "PLAIN": "canary-7f3a-env2", "DB": "postgres://u:canary-7f3a-env3@h/db", "WITH": "x ${HOME} canary-7f3a-env4",
              "DEF": "${NOT_SET_HERE:-canary-7f3a-def1}"}
    },
    "web": {
      "url": "https://canary-7f3a-user:canary-7f3a-pass@example.com/mcp?key=canary-7f3a-query&canary-7f3a-bare#canary-7f3a-fragment",
      "headers": {"Authorization": "Bearer canary-7f3a-head1", "X-Thing": "canary-7f3a-head2", "Cookie": "a=canary-7f3a-head3"}
    },
    "odd": {"command": "x", "env": {"A": "${canary 7f3a}", "B": "${cmd: canary-7f3a-cmd}", "C": "${open canary-7f3a-open"}, "type": "stdio", "oauth": {"secret": "canary-7f3a-oauth"}}
  }
}`

// TestB87NoSecretIsShown: not one of the secrets of a file comes out again, by whichever
// way the file is looked at.
func TestB87NoSecretIsShown(t *testing.T) {
	for _, name := range []string{"mcp.json", ".gemini/settings.json", "crush.json", ".mcp.json"} {
		w := newWorld(t)
		w.env["HOME"] = "/home/x"
		file := filepath.Join(w.dir, "other", name)
		write(t, file, canaryFile)
		write(t, filepath.Join(w.dir, ".mcp.json"), canaryFile)
		o := w.options()
		o.File = file
		found := func(what, text string) {
			if i := strings.Index(text, "canary-7f3a"); i >= 0 {
				t.Errorf("%s %s shows a secret: …%s…", name, what, text[max(0, i-60):min(len(text), i+30)])
			}
			if strings.Contains(text, "canary 7f3a") {
				t.Errorf("%s %s shows a broken reference: %s", name, what, text)
			}
		}
		for _, resolve := range []bool{false, true} {
			r := Check(CheckOptions{Load: w.options(), Files: []string{file}, Resolve: resolve})
			for _, i := range r.Issues {
				found("check", i.String())
			}
		}
		c, err := Load(o)
		if err != nil {
			t.Fatal(err)
		}
		layers := w.load()
		if len(layers.Servers) != 3 {
			t.Fatalf("%+v", layers.Servers)
		}
		for _, c := range []*Config{c, layers} {
			found("show", Show(c, true))
			for _, i := range c.Issues {
				found("load", i.String())
			}
			for _, s := range c.Servers {
				if s.Err != nil {
					found("error", s.Err.String())
				}
			}
		}
		im, err := Import(ImportOptions{Load: o})
		if err != nil {
			t.Fatal(err)
		}
		found("import", im.YAML)
		for _, i := range im.Issues {
			found("import", i.String())
		}
	}
}
