package harness

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"mcpbridge/test/witness"
)

// Lab gives fixture servers their witness log and ledger.
type Lab struct {
	dir string
}

// NewLab makes the files' folder.
func NewLab(t testing.TB) *Lab { return &Lab{t.TempDir()} }

// Args are the fixture's arguments for a server of that name, with more switches.
func (l *Lab) Args(name string, more ...string) []string {
	return append([]string{"-name", name, "-witness", l.Path("witness"), "-ledger", l.Path("ledger-" + name)}, more...)
}

// Server is a configuration entry that runs the fixture. Reads are declared by the
// operator, so that they take the read lane and may be retried.
func (l *Lab) Server(t testing.TB, name string, more ...string) M {
	t.Helper()
	return M{"command": Fixture(t), "args": l.Args(name, more...), "effects": Effects()}
}

// Effects is the operator's word on the fixture's tools.
func Effects() M {
	return M{"read": "read_only", "echo": "read_only", "blocks": "read_only", "big": "read_only", "nest": "read_only",
		"fail": "read_only", "rpc_error": "read_only", "env": "read_only", "pid": "read_only", "slow": "read_only",
		"extra_*": "read_only", "put": "idempotent"}
}

// AllowAll is a permissions block that lets everything through.
func AllowAll() []any {
	return []any{M{"action": "allow"}}
}

// Config is a whole configuration with these servers, everything allowed.
func Config(servers M) M {
	return M{"version": 1, "permissions": AllowAll(), "mcp_servers": servers}
}

// Path is a file of the lab.
func (l *Lab) Path(name string) string { return filepath.Join(l.dir, name) }

// History is the witness log as it stands.
func (l *Lab) History(t testing.TB) *witness.History {
	t.Helper()
	h, err := witness.Load(l.Path("witness"))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// HTTPFixture runs the fixture as an HTTP server outside of any bridge and returns
// its URL and process. It is killed in t.Cleanup.
func (l *Lab) HTTPFixture(t testing.TB, name string, more ...string) (url string, cmd *exec.Cmd) {
	t.Helper()
	cmd = exec.Command(Fixture(t), append(l.Args(name, "-http", "127.0.0.1:0"), more...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	var hello struct{ URL string }
	if err := json.NewDecoder(out).Decode(&hello); err != nil {
		t.Fatalf("the HTTP fixture did not say where it is: %v", err)
	}
	return hello.URL, cmd
}

// Command is the fixture as a command to talk to without a bridge.
func (l *Lab) Command(t testing.TB, name string, more ...string) *exec.Cmd {
	t.Helper()
	return exec.Command(Fixture(t), l.Args(name, more...)...)
}
