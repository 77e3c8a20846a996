package config

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"mcpbridge/messages"
)

// sample is one file of testdata/dialects: configurations as people have them.
type sample struct {
	file, source, dialect, parses, features string
	data                                    []byte
}

func samples(t testing.TB) (out []sample) {
	t.Helper()
	index, err := os.ReadFile("testdata/dialects/index.tsv")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(index)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 5 || f[0] == "file" {
			continue
		}
		data, err := os.ReadFile(filepath.Join("testdata/dialects", f[0]))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, sample{f[0], f[1], f[2], f[3], f[4], data})
	}
	if len(out) < 57 {
		t.Fatalf("%d samples", len(out))
	}
	return out
}

// answers are the variables that the samples read.
var answers = map[string]string{
	"CLAUDE_PLUGIN_ROOT": "/plugin", "MCP_INPUT_DOCS_API_KEY": "answer-docs", "MCP_INPUT_CODE_TOKEN": "answer-code",
	"MCP_INPUT_MAPS_MCP_URL": "https://maps.example.com/mcp", "DEPLOY_TOKEN": "answer-deploy", "DOCS_API_KEY": "answer-docs",
	"GLOBE_TOKEN": "answer-globe", "VISION_KEY": "answer-vision", "VECTORS_URL": "https://vectors.example.com", "VECTORS_API_KEY": "answer-vectors",
	"TRACKER_USERNAME": "answer-user", "TRACKER_API_TOKEN": "answer-tracker", "DB_MCP_AUTH_TOKEN": "answer-db", "SEARCH_API_KEY": "answer-search",
	"HOME": "/home/tester",
}

// understood is a sample as the bridge understands it, in words for people: what each
// server would start, and everything that is told about it.
func understood(t testing.TB, s sample, env map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, filepath.FromSlash(s.source))
	write(t, file, string(s.data))
	o := LoadOptions{File: file, Home: "/home/tester", Workspace: dir, Env: lookup(env)}
	l := newLoader(o, true)
	l.all, l.env.goos = true, "linux"
	c, err := l.run(o)
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n# %s\n", s.source, s.features)
	if err != nil {
		fmt.Fprintf(&b, "error: %v\n", err)
	} else {
		how := ourName
		if d := l.docs0(); d != nil {
			how = d.name
		}
		fmt.Fprintf(&b, "read as: %s\n", how)
		for _, s := range c.Servers {
			describe(&b, &s)
		}
		for _, i := range c.Issues {
			fmt.Fprintf(&b, "%s: %s\n", i.Severity, i)
		}
	}
	return strings.ReplaceAll(strings.ReplaceAll(b.String(), dir+string(filepath.Separator), ""), dir, "WORK")
}

// docs0 is the dialect of the only document.
func (l *loader) docs0() *dialect {
	if len(l.docs) == 0 {
		return nil
	}
	return l.docs[0].dialect
}

func describe(b *strings.Builder, s *Server) {
	fmt.Fprintf(b, "server %q", s.Name)
	switch {
	case s.Err != nil:
		fmt.Fprintf(b, " config_error: %s\n", s.Err.Message)
		return
	case !s.Startable():
		b.WriteString(" (disabled)")
	}
	b.WriteString("\n")
	if s.Type == Stdio {
		fmt.Fprintf(b, "  runs %q in %s\n", append([]string{s.Command}, s.Args...), s.Cwd)
	} else {
		fmt.Fprintf(b, "  %s %s\n", cmp.Or(string(s.Type), "-"), s.URL)
	}
	for name, m := range map[string]map[string]string{"env": s.Env, "header": s.Headers} {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			fmt.Fprintf(b, "  %s %s=%q\n", name, k, m[k])
		}
	}
	if len(s.InheritEnv) > 0 {
		fmt.Fprintf(b, "  inherits %v\n", s.InheritEnv)
	}
	if len(s.Allow)+len(s.Deny) > 0 {
		fmt.Fprintf(b, "  tools allow %v deny %v\n", s.Allow, s.Deny)
	}
	for _, k := range slices.Sorted(maps.Keys(s.Notes)) {
		fmt.Fprintf(b, "  %s (%s)\n", k, s.Notes[k])
	}
	if s.Timeouts.Call != defaultTimeouts.Call || s.Timeouts.Start != defaultTimeouts.Start {
		fmt.Fprintf(b, "  call %s, start %s\n", formatDuration(s.Timeouts.Call), formatDuration(s.Timeouts.Start))
	}
}

// TestDialectsGolden loads every sample under the name that it had, with all variables set,
// and compares with what is written down beside it. Rewrite with -update, and read the change.
func TestDialectsGolden(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("paths are written down as they are on Unix")
	}
	for _, s := range samples(t) {
		t.Run(s.file, func(t *testing.T) {
			got := understood(t, s, answers)
			golden := filepath.Join("testdata/dialects/want", s.file+".txt")
			if *update {
				write(t, golden, got)
				return
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if d := gocmp.Diff(string(want), got); d != "" {
				t.Errorf("understood differently (-want +got):\n%s", d)
			}
			broken := strings.Contains(got, "error: ")
			if !broken && s.parses == "INVALID" {
				t.Error("a broken file loads")
			}
		})
	}
}

// TestDialectsCheck: `config check FILE` accepts every good sample and refuses the two
// broken ones, with line and column; and the name of a file is not needed to read it.
func TestDialectsCheck(t *testing.T) {
	for _, s := range samples(t) {
		for _, name := range []string{filepath.FromSlash(s.source), s.file, "some" + filepath.Ext(s.file)} {
			if s.dialect == "docker mcp gateway" && strings.HasPrefix(name, "some") {
				continue // nothing in the file tells whose it is
			}
			file := filepath.Join(t.TempDir(), name)
			write(t, file, string(s.data))
			r := Check(CheckOptions{Files: []string{file}, Load: LoadOptions{Home: "/nowhere", Env: lookup(nil)}})
			if want := s.parses != "INVALID"; r.Valid != want {
				t.Errorf("%s as %s: valid %v: %v", s.file, name, r.Valid, r.Issues)
			}
			for _, i := range r.Issues {
				if i.Severity == messages.SeverityError && (i.Line == 0 || i.Column == 0) {
					t.Errorf("%s: no position: %v", s.file, i)
				}
			}
			if strings.HasPrefix(s.parses, "INVALID") && len(r.Issues) != 1 {
				t.Errorf("%s: %v", s.file, r.Issues)
			}
		}
	}
}
