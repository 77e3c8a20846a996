// Package catalogue tests from the outside what is offered: names, lists, stored
// definitions, counters, provider forms and discovery.
package catalogue

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mcpbridge/messages"
	"mcpbridge/supervisor"
	"mcpbridge/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// listFile is a file that the fixture lists.
type listFile string

func newList(t *testing.T, entries ...string) listFile {
	t.Helper()
	f := listFile(filepath.Join(t.TempDir(), "list.json"))
	f.set(t, entries...)
	return f
}

// set replaces the list; the fixture sees the old one or the new one, never a part.
func (f listFile) set(t *testing.T, entries ...string) {
	t.Helper()
	next := string(f) + ".new"
	if err := os.WriteFile(next, []byte("["+strings.Join(entries, ",")+"]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, string(f)); err != nil {
		t.Fatal(err)
	}
}

// entry is a tool's definition as a server writes it.
func entry(name string) string {
	return fmt.Sprintf(`{"name":%s,"description":"does it","inputSchema":{"type":"object"}}`, quoted(name))
}

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// listing is a server that lists the file.
func listing(t *testing.T, lab *harness.Lab, name string, f listFile, more ...string) harness.M {
	t.Helper()
	e := lab.Server(t, name, append([]string{"-list", string(f)}, more...)...)
	e["effects"] = harness.M{"*": "read_only"}
	return e
}

// toolsOf is `tools -o json`, and its bytes.
func toolsOf(t *testing.T, d *harness.Daemon, more ...string) (tools []messages.Tool, raw string) {
	t.Helper()
	r := d.OK(t, append([]string{"tools", "-o", "json"}, more...)...)
	var out struct{ Tools []messages.Tool }
	r.JSON(t, &out)
	return out.Tools, r.Stdout
}

func names(tools []messages.Tool) (out []string) {
	for _, t := range tools {
		out = append(out, t.EndpointName)
	}
	return out
}

// remotes are the servers' own names, sorted as the catalogue is.
func remotes(tools []messages.Tool) (out []string) {
	for _, t := range tools {
		out = append(out, t.Server+"/"+t.RemoteName)
	}
	return out
}

// issuesOf are a server's issues as text.
func issuesOf(row messages.ServerStatus) string {
	var out []string
	for _, i := range row.Issues {
		out = append(out, i.String())
	}
	return strings.Join(out, "\n")
}

// changes counts a bridge's announcements of a changed catalogue.
func changes(b *supervisor.Bridge) (n int) {
	for _, e := range b.Events(0) {
		if e.Type == messages.EventCatalogue {
			n++
		}
	}
	return n
}
