package harness

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// NPM says where the pinned npm packages of test/npm are installed. Without them
// the test is skipped, loudly; on CI it fails, because there they must be there.
func NPM(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(Root(), "test", "npm", "node_modules")
	_, err := exec.LookPath("node")
	if err == nil {
		_, err = os.Stat(filepath.Join(dir, ".bin", "mcp-server-everything"))
	}
	if err != nil {
		msg := "real MCP servers are not installed: run `make npm` (it needs Node 20 and npm): " + err.Error()
		if os.Getenv("CI") == "true" {
			t.Fatal(msg)
		}
		t.Skip(msg)
	}
	return dir
}

// NPMBin is the executable of one of the pinned packages.
func NPMBin(t testing.TB, name string) string {
	t.Helper()
	return filepath.Join(NPM(t), ".bin", name)
}
