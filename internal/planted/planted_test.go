package planted

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestAll: every constant is in the list, once, and says whose work it is to catch it.
func TestAll(t *testing.T) {
	seen := map[Bug]bool{}
	for _, i := range All {
		if seen[i.Bug] {
			t.Errorf("%s is listed twice", i.Bug)
		}
		seen[i.Bug] = true
		if i.Bug == "" || i.Does == "" || i.Where == "" || len(i.By) == 0 {
			t.Errorf("%+v says too little", i)
		}
		if slices.Contains(i.By, Squall) != (len(i.Breaks) > 0) {
			t.Errorf("%s: a squall catches a bug by the properties that it breaks", i.Bug)
		}
	}
	for name, value := range constants(t) {
		if !seen[Bug(value)] {
			t.Errorf("%s (%s) is not in the list", name, value)
		}
	}
	if n := len(constants(t)); n != len(All) || n < 22 {
		t.Errorf("%d constants and %d entries", n, len(All))
	}
}

// constants are those of type Bug, by name.
func constants(t *testing.T) map[string]string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "planted.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if id, ok := v.Type.(*ast.Ident); ok && id.Name == "Bug" {
			lit, _ := v.Values[0].(*ast.BasicLit)
			out[v.Names[0].Name] = strings.Trim(lit.Value, `"`)
		}
		return true
	})
	return out
}

// TestPlanted: each bug stands in the package that it says, and nowhere else.
func TestPlanted(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	places := map[string][]string{} // constant → packages
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && (d.Name() == ".git" || d.Name() == "node_modules" || d.Name() == "test") {
			if d != nil && d.IsDir() {
				return fs.SkipDir
			}
			return err
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, filepath.Dir(path))
		for _, part := range strings.Split(string(src), "planted.Is(planted.")[1:] {
			name, _, _ := strings.Cut(part, ")")
			if !slices.Contains(places[name], filepath.ToSlash(rel)) {
				places[name] = append(places[name], filepath.ToSlash(rel))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	names := constants(t)
	for _, i := range All {
		at := slices.IndexFunc(keys(names), func(k string) bool { return names[k] == string(i.Bug) })
		name := keys(names)[at]
		if !slices.Contains(places[name], i.Where) {
			t.Errorf("%s is said to be in %s and is in %v", i.Bug, i.Where, places[name])
		}
	}
}

func keys(m map[string]string) (out []string) {
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
