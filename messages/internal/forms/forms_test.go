package forms

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

// show renders every form of a tool for people.
func show(t *testing.T, tool Tool) string {
	t.Helper()
	var b strings.Builder
	for _, p := range []struct {
		name string
		make func(Tool) (json.RawMessage, []string)
	}{{"openai", OpenAI}, {"anthropic", Anthropic}, {"gemini", Gemini}} {
		raw, notes := p.make(tool)
		if again, _ := p.make(tool); string(again) != string(raw) {
			t.Errorf("%s: %s differs from one time to the next", tool.Name, p.name)
		}
		v, ok := decode(raw)
		if !ok {
			t.Fatalf("%s: %s is no JSON: %s", tool.Name, p.name, raw)
		}
		problems := map[string]string{"openai": "", "anthropic": "", "gemini": ""}
		o := v.(*obj)
		switch p.name {
		case "openai":
			problems[p.name] = checkOpenAI(o.obj("function").obj("parameters"))
			if n := len([]rune(o.obj("function").str("description"))); n > 1024 {
				t.Errorf("%s: a description of %d characters", tool.Name, n)
			}
		case "anthropic":
			problems[p.name] = checkAnthropic(o.obj("input_schema"))
		case "gemini":
			if params := o.obj("parameters"); params != nil {
				problems[p.name] = checkGemini(params)
			}
		}
		if why := problems[p.name]; why != "" {
			t.Errorf("%s: %s is against the rules: %s\n%s", tool.Name, p.name, why, raw)
		}
		pretty, err := json.MarshalIndent(raw, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString(p.name + " " + string(pretty) + "\n")
		for _, n := range notes {
			b.WriteString("  ! " + n + "\n")
		}
	}
	b.WriteString("prompt\n" + Prompt([]Tool{tool}))
	return b.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; -update writes it anew):\n%s", path, diff)
	}
}

// TestGolden takes the tools/list of real servers (*.tools.json, as they answered) and
// schemas that make trouble.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.tools.json")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".tools.json")
		t.Run(name, func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var list []struct {
				Name, Description string
				InputSchema       json.RawMessage
			}
			if err := json.Unmarshal(b, &list); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			for _, e := range list {
				out.WriteString("=== " + e.Name + "\n")
				out.WriteString(show(t, Tool{"mcp__" + name + "__" + e.Name, e.Description, e.InputSchema}))
			}
			golden(t, name, out.String())
		})
	}
}

// TestBounds: a schema that would fill the memory once written out costs little and
// is widened.
func TestBounds(t *testing.T) {
	var defs []string
	for i := range 40 {
		ref := `{"$ref":"#/$defs/d` + string(rune('A'+i)) + `"}`
		defs = append(defs, `"d`+string(rune('A'+i-1+1))+`x":{}`, `"d`+string(rune('A'+i-1))+`":{"type":"object","properties":{"a":`+ref+`,"b":`+ref+`}}`)
	}
	laughs := `{"type":"object","properties":{"x":{"$ref":"#/$defs/d@"}},"$defs":{` + strings.Join(defs, ",") + `}}`
	deep := `{"type":"object","properties":{"x":` + strings.Repeat(`{"items":`, 5000) + `{}` + strings.Repeat(`}`, 5000) + `}}`
	wide := `{"type":"object","properties":{` + strings.Repeat(`"x":{"type":"string"},`, 1) + `"y":{"description":"` + strings.Repeat("y", 2<<20) + `"}}}`
	for name, schema := range map[string]string{"laughs": laughs, "deep": deep, "wide": wide, "no JSON": `{"type":`, "no object": `[]`, "nothing": ``} {
		t.Run(name, func(t *testing.T) {
			tool := Tool{"t", "d", json.RawMessage(schema)}
			for _, f := range []func(Tool) (json.RawMessage, []string){OpenAI, Anthropic, Gemini} {
				raw, notes := f(tool)
				if len(raw) > maxOut+1000 {
					t.Errorf("%d bytes", len(raw))
				}
				if len(notes) == 0 && name != "laughs" {
					t.Errorf("nothing is said of it: %.200s", raw)
				}
			}
			_ = show(t, tool)
		})
	}
}
