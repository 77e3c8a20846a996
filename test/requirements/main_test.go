// Package requirements tests from the outside those clauses of the requirement table
// that no room of its own has a test for; REQUIREMENTS.md says where every row is tested.
package requirements

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mcpbridge/messages"
	"mcpbridge/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

func write(t testing.TB, path string, v any) string {
	t.Helper()
	text, ok := v.(string)
	if !ok {
		b, err := json.MarshalIndent(v, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		text = string(b)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func userFile(w *harness.World) string {
	return filepath.Join(w.Home, "config", "mcpbridge", "config.yaml")
}

func projectFile(w *harness.World) string { return filepath.Join(w.Work, ".mcpbridge", "config.yaml") }

// says fails unless the text holds every part.
func says(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("nobody says %q in:\n%s", p, text)
		}
	}
}

// environ is the environment of a server's process.
func environ(t testing.TB, d *harness.Daemon, server string) map[string]string {
	t.Helper()
	o, r := d.Call(t, server+"/env", `{}`)
	env := map[string]string{}
	if o.Kind != messages.OK || json.Unmarshal([]byte(o.Text()), &env) != nil {
		t.Fatal(r)
	}
	return env
}

// row waits until the server's row is as wanted.
func row(t testing.TB, d *harness.Daemon, name, what string, ok func(messages.ServerStatus) bool) (r messages.ServerStatus) {
	t.Helper()
	harness.Eventually(t, name+" "+what, func() bool { r = d.Server(t, name); return ok(r) })
	return r
}

func failed(r messages.ServerStatus) bool { return r.LastExit != nil }
