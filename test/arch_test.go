// Package test holds the rules of the house as tests: which package may import
// what and why, what may stand at the top level, and that every package says what
// it is. The folders below it test the bridge from the outside.
package test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "mcpbridge"

// pkg is what `go list -json` tells about a package.
type pkg struct {
	Dir, ImportPath, Doc string
	GoFiles, Imports     []string
}

// rel is the path inside the module: "" for the root, "actors/upstream", …
func (p pkg) rel() string { return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/") }

// packages lists the module's packages as one operating system sees them.
func packages(t *testing.T, goos string) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=Dir,ImportPath,Doc,GoFiles,Imports", "./...")
	cmd.Dir, cmd.Env = "..", append(os.Environ(), "GOOS="+goos, "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var list []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
}

// matches reports whether a package is one of those named; "x/..." means x and
// everything below it.
func matches(rel string, names []string) bool {
	return slices.ContainsFunc(names, func(n string) bool {
		below, tree := strings.CutSuffix(n, "/...")
		return rel == n || tree && (rel == below || strings.HasPrefix(rel, below+"/"))
	})
}

// dependencies says who may import what from outside, and why nobody else.
var dependencies = []struct {
	prefix string
	users  []string
	reason string
}{
	{"github.com/asynkron/protoactor-go", []string{"actors", "supervisor"}, "actors are how the bridge is built, not what it is: gateway, CLI and pure packages know messages only"},
	{"github.com/modelcontextprotocol/go-sdk", []string{"actors/upstream", "supervisor/gateway", "supervisor/demo", "test/..."}, "the protocol is spoken at the two edges and nowhere between"},
	{"github.com/google/jsonschema-go", []string{"actors/internal/policy", "config"}, "schemas are hostile input: one screened door"},
	{"github.com/cenkalti/backoff/v4", []string{"supervisor"}, "one restart policy, in supervisor/restart.go"},
	{"gopkg.in/yaml.v3", []string{"config"}, "files are decoded in one place"},
	{"github.com/fsnotify/fsnotify", []string{"supervisor/daemon"}, "whoever owns the process decides when files are read again"},
	{"github.com/tailscale/hujson", []string{"config"}, "files are decoded in one place"},
	{"github.com/pelletier/go-toml/v2", []string{"config"}, "files are decoded in one place"},
	{"github.com/spf13/cobra", []string{"cmd/bridgectl"}, "the command line is the outermost shell"},
	{"github.com/spf13/pflag", []string{"cmd/bridgectl"}, "the command line is the outermost shell"},
	{"github.com/prometheus/", []string{"supervisor/metrics"}, "metrics hang on the event hook"},
	{"github.com/dustin/go-humanize", []string{"cmd/bridgectl", "config"}, "sizes and times for people are read and written at the edges"},
	{"golang.org/x/sys", []string{"actors/upstream", "actors/upstream/own", "supervisor/control", "supervisor/daemon", "internal/flock", "cmd/bridgectl", "test/..."}, "system calls belong to the rooms that own processes, sockets and locks"},
	{"golang.org/x/time", []string{"supervisor", "supervisor/gateway"}, "rates are limited where starts and requests come in"},
	{"github.com/google/go-cmp", []string{"test/..."}, "tests only"},
	{"go.uber.org/goleak", []string{"test/..."}, "tests only"},
	{"pgregory.net/rapid", []string{"test/..."}, "tests only"},
	{"github.com/rogpeppe/go-internal", []string{"test/..."}, "tests only"},
	{"os/exec", []string{"actors/upstream", "actors/upstream/own", "cmd/bridgectl", "test/..."}, "whoever starts a process must be able to prove it dead"},
}

// pure packages decide and do nothing.
var pure = []string{"actors/internal/lane", "actors/internal/dispatch", "actors/internal/policy", "actors/internal/catalogue", "actors/internal/approval"}

// plantable are the rooms in which a bug may be planted: where the bridge keeps its promises.
var plantable = []string{"actors/...", "supervisor", "supervisor/journal", "test/..."}

// leaf is the package of planted bugs: those may stand in every room, and in an ordinary
// build nothing is left of it.
const leaf = "internal/planted"

// pureToo decide as well, below messages.
var pureToo = []string{"messages/internal/forms"}

// arrows says which of our own packages each may import.
var arrows = []struct {
	from   []string
	to     []string
	reason string
}{
	{[]string{leaf}, nil, "whoever may be imported by everybody imports nobody"},
	{[]string{"messages"}, []string{"messages/internal/forms"}, "messages are plain data under everything"},
	{[]string{"messages/internal/forms"}, nil, "a schema is put into a provider's form from nothing but itself"},
	{[]string{"config"}, []string{"messages"}, "configuration is read before anything runs"},
	{pure, append([]string{"messages"}, pure...), "decisions know data and each other only"},
	{[]string{"actors/upstream/own"}, []string{"messages", "internal/flock"}, "owning processes needs to know nothing of what they are for; the guardian is made of it"},
	{[]string{"actors/upstream"}, []string{"messages", "config", "actors/upstream/own", "internal/rawjson"}, "processes report; they know no actors"},
	{[]string{"actors"}, []string{"messages", "config", "actors/..."}, "actors know nothing of who supervises or shows them"},
	{[]string{"internal/flock"}, nil, "a file is locked without knowing what for"},
	{[]string{"internal/rawjson"}, nil, "JSON is walked over without knowing whose it is"},
	{[]string{"supervisor/internal/files"}, nil, "a file is saved without knowing what is in it"},
	{[]string{"supervisor/internal/results"}, []string{"internal/rawjson"}, "what is kept of results knows neither calls nor servers"},
	{[]string{"supervisor/journal"}, []string{"messages", "internal/flock"}, "it keeps records, whoever writes them"},
	{[]string{"supervisor/gateway"}, []string{"messages", "config", "internal/rawjson"}, "they know the bridge by the interfaces of messages"},
	{[]string{"supervisor/consent"}, []string{"messages", "config", "supervisor/internal/files"}, "it keeps what was agreed to, whoever asks"},
	{[]string{"supervisor"}, []string{"messages", "config", "actors", "actors/upstream", "actors/upstream/own", "supervisor/gateway", "supervisor/journal", "supervisor/consent", "supervisor/internal/results", "supervisor/internal/files"}, "the bridge is assembled here"},
	{[]string{"supervisor/metrics", "supervisor/demo"}, []string{"messages", "config", "supervisor"}, "they hang on the public API"},
	{[]string{"supervisor/control", "supervisor/daemon"}, []string{"messages", "config", "supervisor/...", "internal/flock"}, "they use the bridge, never its actors"},
	{[]string{"cmd/..."}, []string{"messages", "config", "supervisor/...", "cmd/...", "actors/upstream/own"}, "the command line uses the bridge as anybody would; only the guardian, which is a verb of it, and stdio deal with processes"},
	{[]string{"test/..."}, []string{"..."}, "tests look everywhere"},
}

func TestImports(t *testing.T) {
	for _, goos := range []string{"linux", "darwin", "windows"} {
		for _, p := range packages(t, goos) {
			for _, imp := range p.Imports {
				if problem := judge(p.rel(), imp); problem != "" {
					t.Errorf("%s (%s) imports %s: %s", p.ImportPath, goos, imp, problem)
				}
			}
		}
	}
}

// judge returns why a package may not import something, or "".
func judge(rel, imp string) string {
	if own, ok := strings.CutPrefix(imp, module+"/"); ok {
		if own == leaf && matches(rel, plantable) {
			return ""
		}
		for _, a := range arrows {
			if matches(rel, a.from) {
				if matches(own, a.to) || slices.Contains(a.to, "...") {
					return ""
				}
				return a.reason
			}
		}
		return "no arrow is drawn for this package: draw one here, with its reason"
	}
	for _, d := range dependencies {
		if imp == d.prefix || strings.HasPrefix(imp, strings.TrimSuffix(d.prefix, "/")+"/") {
			if matches(rel, d.users) {
				return ""
			}
			return fmt.Sprintf("%s (allowed: %s)", d.reason, strings.Join(d.users, ", "))
		}
	}
	if first, _, _ := strings.Cut(imp, "/"); strings.Contains(first, ".") {
		return "a dependency without a rule: say here who may use it, and why"
	}
	return ""
}

// TestPlantedImports: a rule that lets everything pass proves nothing.
func TestPlantedImports(t *testing.T) {
	for _, bad := range [][2]string{
		{"messages", "mcpbridge/config"}, {"config", "mcpbridge/actors"}, {"supervisor/gateway", "mcpbridge/supervisor"},
		{"supervisor/gateway", "github.com/asynkron/protoactor-go/actor"}, {"actors", "github.com/modelcontextprotocol/go-sdk/mcp"},
		{"actors/internal/lane", "mcpbridge/config"}, {"supervisor", "os/exec"}, {"cmd/bridgectl", "mcpbridge/actors/upstream"},
		{"actors", "mcpbridge/supervisor"}, {"config", "example.org/new"}, {"newroom", "mcpbridge/messages"},
		{"supervisor/control", "github.com/prometheus/client_golang/prometheus"},
		{"cmd/bridgectl", "mcpbridge/internal/planted"}, {"messages", "mcpbridge/internal/planted"}, {"internal/planted", "mcpbridge/messages"},
	} {
		if judge(bad[0], bad[1]) == "" {
			t.Errorf("%s may import %s", bad[0], bad[1])
		}
	}
	for _, good := range [][2]string{{"actors/upstream", "os/exec"}, {"test/e2e", "mcpbridge/supervisor"}, {"supervisor", "mcpbridge/actors"}, {"config", "fmt"},
		{"actors/internal/lane", "mcpbridge/internal/planted"}, {"supervisor/journal", "mcpbridge/internal/planted"}, {"internal/planted", "os"}} {
		if why := judge(good[0], good[1]); why != "" {
			t.Errorf("%s may not import %s: %s", good[0], good[1], why)
		}
	}
}

func TestBackoffIsOnePolicy(t *testing.T) {
	eachFile(t, "linux", func(p pkg, name string, f *ast.File) {
		for _, imp := range f.Imports {
			if strings.Contains(imp.Path.Value, "cenkalti/backoff") && name != "restart.go" {
				t.Errorf("%s/%s imports backoff: the restart policy lives in supervisor/restart.go", p.rel(), name)
			}
		}
	})
}

// TestPurePackages: time and randomness come in as values, and nothing runs beside.
// A channel may pass through as a value; nobody sends, receives or waits.
func TestPurePackages(t *testing.T) {
	banned := []string{"os", "net", "net/http", "sync", "sync/atomic", "context", "math/rand", "math/rand/v2", "log", "log/slog", "runtime"}
	clock := []string{"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Sleep", "Tick"}
	eachFile(t, "linux", func(p pkg, name string, f *ast.File) {
		if !matches(p.rel(), pure) && !matches(p.rel(), pureToo) {
			return
		}
		at := p.rel() + "/" + name
		for _, imp := range f.Imports {
			if v, _ := strconv.Unquote(imp.Path.Value); slices.Contains(banned, v) {
				t.Errorf("%s imports %s: pure packages hold no clock, goroutine, actor or I/O", at, v)
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s starts a goroutine", at)
			case *ast.SendStmt, *ast.SelectStmt:
				t.Errorf("%s works a channel", at)
			case *ast.UnaryExpr:
				if n.Op == token.ARROW {
					t.Errorf("%s works a channel", at)
				}
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(clock, n.Sel.Name) {
					t.Errorf("%s asks the clock: time.%s", at, n.Sel.Name)
				}
			}
			return true
		})
	})
}

func eachFile(t *testing.T, goos string, visit func(p pkg, name string, f *ast.File)) {
	t.Helper()
	for _, p := range packages(t, goos) {
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			visit(p, name, f)
		}
	}
}

// TestPublicAPI: no type of a dependency stands in what a host program sees.
func TestPublicAPI(t *testing.T) {
	public := []string{"messages", "config", "supervisor", "supervisor/gateway"}
	eachFile(t, "linux", func(p pkg, name string, f *ast.File) {
		if !matches(p.rel(), public) {
			return
		}
		foreign := map[string]string{} // local name → path of a dependency
		for _, imp := range f.Imports {
			v, _ := strconv.Unquote(imp.Path.Value)
			if first, _, _ := strings.Cut(v, "/"); !strings.Contains(first, ".") {
				continue
			}
			local := path.Base(v)
			if imp.Name != nil {
				local = imp.Name.Name
			}
			foreign[local] = v
		}
		for _, typ := range exportedTypes(f) {
			ast.Inspect(typ, func(n ast.Node) bool {
				if sel, ok := n.(*ast.SelectorExpr); ok {
					if x, ok := sel.X.(*ast.Ident); ok && foreign[x.Name] != "" {
						t.Errorf("%s/%s: the public API mentions %s.%s of %s", p.rel(), name, x.Name, sel.Sel.Name, foreign[x.Name])
					}
				}
				return true
			})
		}
	})
}

// exportedTypes returns the type expressions of everything that a file exports:
// signatures, exported fields, methods of interfaces, variables.
func exportedTypes(f *ast.File) []ast.Node {
	var out []ast.Node
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && (d.Recv == nil || exportedReceiver(d.Recv)) {
				out = append(out, d.Type)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() {
						out = append(out, typeParts(s.Type)...)
					}
				case *ast.ValueSpec:
					if s.Type != nil && slices.ContainsFunc(s.Names, (*ast.Ident).IsExported) {
						out = append(out, s.Type)
					}
				}
			}
		}
	}
	return out
}

func exportedReceiver(recv *ast.FieldList) bool {
	typ := recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	if index, ok := typ.(*ast.IndexExpr); ok {
		typ = index.X
	}
	id, ok := typ.(*ast.Ident)
	return ok && id.IsExported()
}

// typeParts leaves a struct's private fields out.
func typeParts(typ ast.Expr) []ast.Node {
	st, ok := typ.(*ast.StructType)
	if !ok {
		return []ast.Node{typ}
	}
	var out []ast.Node
	for _, f := range st.Fields.List {
		if len(f.Names) == 0 || slices.ContainsFunc(f.Names, (*ast.Ident).IsExported) {
			out = append(out, f.Type)
		}
	}
	return out
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	for _, p := range packages(t, "linux") {
		if p.Doc == "" && len(p.GoFiles) > 0 {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
	}
}

// TestTopLevel: the layout is part of the contract with whoever knows the house.
func TestTopLevel(t *testing.T) {
	allowed := []string{"actors", "supervisor", "messages", "config", "cmd", "internal", "test", "go.mod", "go.sum", "Makefile", "README.md", "LICENSE", "CHANGELOG.md"}
	ignored, err := os.ReadFile("../.gitignore")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(ignored)) {
		allowed = append(allowed, strings.Trim(strings.TrimSpace(line), "/"))
	}
	entries, err := os.ReadDir("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && !slices.Contains(allowed, e.Name()) {
			t.Errorf("%s stands at the top level; only %s and dot-files may", e.Name(), strings.Join(allowed, ", "))
		}
	}
}

// TestFilesHaveOneIdea: the house wants files under about 400 lines; this is where
// "about" ends.
func TestFilesHaveOneIdea(t *testing.T) {
	const limit = 500
	err := filepath.WalkDir("..", func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".") && d.Name() != "..") {
			return filepath.SkipDir
		}
		if filepath.Ext(p) != ".go" {
			return nil
		}
		b, err := os.ReadFile(p)
		if n := bytes.Count(b, []byte{'\n'}); n > limit {
			t.Errorf("%s has %d lines: pure decision, actor and I/O want files of their own", p, n)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
