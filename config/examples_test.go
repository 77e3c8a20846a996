package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mcpbridge/messages"
)

// TestShownConfigurationsLoad: every configuration that people are shown (the README's blocks, the
// examples, the starter) loads without an error.
func TestShownConfigurationsLoad(t *testing.T) {
	texts := map[string]string{"starter": Starter()}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for i, part := range strings.Split(string(readme), "```yaml\n")[1:] {
		block, _, _ := strings.Cut(part, "```")
		texts["README block "+string(rune('1'+i))] = block
	}
	files, err := filepath.Glob("testdata/examples/*.yaml")
	if err != nil || len(files) < 3 || len(texts) < 3 {
		t.Fatalf("%v, %v, %d blocks", files, err, len(texts))
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		texts[f] = string(b)
	}
	for name, text := range texts {
		file := filepath.Join(t.TempDir(), "config.yaml")
		write(t, file, text)
		r := Check(CheckOptions{Files: []string{file}, Load: LoadOptions{Home: "/nowhere", Env: lookup(nil)}})
		for _, i := range r.Issues {
			if i.Severity == messages.SeverityError {
				t.Errorf("%s: %v", name, i)
			}
		}
	}
}
