//go:build unix

package reload

import (
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"

	"mcpbridge/test/harness"
)

// TestPipe: a configuration that can be read only once is not read again, which would be
// to take everything away, or to wait for ever.
func TestPipe(t *testing.T) {
	lab := harness.NewLab(t)
	w := harness.NewWorld(t)
	pipe := w.Path("pipe.yaml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(harness.Config(harness.M{"fs": lab.Server(t, "fs")}))
	if err != nil {
		t.Fatal(err)
	}
	wrote := make(chan error, 1)
	go func() { wrote <- os.WriteFile(pipe, b, 0o600) }()
	d := harness.Start(t, harness.Options{World: w, Args: []string{"-c", pipe}})
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	d.Await(t, "ready", "fs")
	if r := d.CLI(t, "reload"); r.Exit != 2 || !strings.Contains(r.Stderr, "cannot be read again") {
		t.Errorf("%s", r)
	}
	d.Await(t, "ready", "fs")
}
