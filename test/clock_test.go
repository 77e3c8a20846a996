package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mcpbridge/test/harness"
)

// wallClock are the places that may take the monotonic clock's reading off a time, and why.
var wallClock = map[string]string{
	"supervisor/journal/segment.go": "the time stands in a file",
	"supervisor/journal/record.go":  "the times stand in a file",
	"supervisor/journal/writer.go":  "the time stands in a file",
	"supervisor/journal/index.go":   "a time for a record that has none",
	"actors/upstream/pipe.go":       "a deadline in the past, whatever the clock says",
}

// TestNoWallClock (S09): times of this process are compared by the monotonic clock, which
// is lost where one is turned into a number, or rounded to nothing. Whoever needs that
// says above what for.
func TestNoWallClock(t *testing.T) {
	used := map[string]bool{}
	for _, room := range []string{"actors", "supervisor"} {
		err := filepath.WalkDir(filepath.Join(harness.Root(), room), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			rel, err := filepath.Rel(harness.Root(), path)
			if err != nil {
				return err
			}
			rel = filepath.ToSlash(rel)
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || !takesMonotonicOff(call) {
					return true
				}
				if used[rel] = true; wallClock[rel] == "" {
					t.Errorf("%s: a wall clock jumps: compare times of time.Now as they are", fset.Position(call.Pos()))
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for file := range wallClock {
		if !used[file] {
			t.Errorf("%s needs no exception any more", file)
		}
	}
}

// takesMonotonicOff knows x.UnixNano() and the like, time.Unix(…) and x.Round(0).
func takesMonotonicOff(call *ast.CallExpr) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	if slices.Contains([]string{"Unix", "UnixNano", "UnixMilli", "UnixMicro"}, sel.Sel.Name) {
		return true
	}
	if sel.Sel.Name != "Round" || len(call.Args) != 1 {
		return false
	}
	lit, ok := call.Args[0].(*ast.BasicLit)
	return ok && lit.Value == "0"
}
