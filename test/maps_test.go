package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"mcpbridge/test/harness"
)

// rows are the ids that a map must have, each once. `F01-F16` and `A1-A12` count up. What
// an id means is the map's own matter.
type rows []string

var maps = map[string]rows{
	"FAULTS.md": {"F01-F16", "R01-R16", "N01-N10", "S01-S09", "C01-C08", "X01-X06", "B01", "B02", "B04", "B06", "B08", "B09", "B10", "B11", "B14",
		"B16", "B18", "B19", "B21", "B23", "B24", "B25", "B27", "B29", "B31", "B32", "B34", "B35", "B36", "B39", "B41", "B42", "B44", "B46", "B48",
		"B49", "B50", "B52", "B53", "B55", "B56", "B57", "B58", "B59", "B62", "B64", "B66", "B68", "B70", "B71", "B73", "B74", "B76", "B78", "B79",
		"B81", "B82", "B84", "B86", "B87"},
	"REQUIREMENTS.md": {"A1-A12", "B1-B10", "C1-C9", "D1-D8"},
}

var (
	mapRow   = regexp.MustCompile(`^\| ([A-Z]\d+) \|`)
	testName = regexp.MustCompile("`((?:Test|Fuzz)\\w+)`")
)

// TestMaps: a map names every row, and every test that it names exists. A row without a
// test says "not yet" and why.
func TestMaps(t *testing.T) {
	known := testFuncs(t)
	for file, want := range maps {
		text, err := os.ReadFile(filepath.Join(harness.Root(), "test", file))
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for i, line := range strings.Split(string(text), "\n") {
			m := mapRow.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			if seen[m[1]] {
				t.Errorf("%s:%d: %s is there twice", file, i+1, m[1])
			}
			seen[m[1]] = true
			names := testName.FindAllStringSubmatch(line, -1)
			if len(names) == 0 && !strings.Contains(line, "not yet:") {
				t.Errorf("%s:%d: %s names no test and does not say \"not yet:\" and why", file, i+1, m[1])
			}
			for _, n := range names {
				if !known[n[1]] {
					t.Errorf("%s:%d: %s names %s, which does not exist", file, i+1, m[1], n[1])
				}
			}
		}
		ids := want.expand()
		for _, id := range ids {
			if !seen[id] {
				t.Errorf("%s has no row %s", file, id)
			}
		}
		for id := range seen {
			if !slices.Contains(ids, id) {
				t.Errorf("%s has a row %s that nobody asked for", file, id)
			}
		}
	}
}

// TestRows: a range holds both of its ends and all between, with and without a zero in front.
func TestRows(t *testing.T) {
	got := rows{"A8-A12", "F09-F11", "C1-C2", "X7"}.expand()
	if want := []string{"A8", "A9", "A10", "A11", "A12", "F09", "F10", "F11", "C1", "C2", "X7"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func (r rows) expand() (out []string) {
	for _, id := range r {
		from, to, ok := strings.Cut(id, "-")
		out = append(out, from)
		for ok && from != to {
			from = next(from)
			out = append(out, from)
		}
	}
	return out
}

// next counts on with as many digits: F09 → F10, F99 → F100.
func next(id string) string {
	b := []byte(id)
	for i := len(b) - 1; i > 0; i-- {
		if b[i] != '9' {
			b[i]++
			return string(b)
		}
		b[i] = '0'
	}
	return string(b[0]) + "1" + string(b[1:])
}

// testFuncs are the names of all test and fuzz functions of the module.
func testFuncs(t *testing.T) map[string]bool {
	out := map[string]bool{}
	err := filepath.WalkDir(harness.Root(), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 1) {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range f.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil {
				out[fn.Name.Name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
