//go:build unix

package control

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPath(t *testing.T) {
	env := func(kv ...string) func(string) (string, bool) {
		return func(k string) (string, bool) {
			for i := 0; i < len(kv); i += 2 {
				if kv[i] == k {
					return kv[i+1], true
				}
			}
			return "", false
		}
	}
	tests := []struct {
		flag string
		env  func(string) (string, bool)
		want string
	}{
		{"/x.sock", env("MCPBRIDGE_CONTROL", "/y", "XDG_RUNTIME_DIR", "/run/u"), "/x.sock"},
		{"", env("MCPBRIDGE_CONTROL", "/y", "XDG_RUNTIME_DIR", "/run/u"), "/y"},
		{"", env("XDG_RUNTIME_DIR", "/run/u"), "/run/u/mcpbridge/control.sock"},
		{"", env("XDG_RUNTIME_DIR", "relative"), "/state/control.sock"},
		{"", env(), "/state/control.sock"},
	}
	for _, tt := range tests {
		if got := Path(tt.flag, "/state", tt.env); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}

func listen(t *testing.T, path string) error {
	t.Helper()
	l, err := Listen(path, newFake().Logger())
	if err == nil {
		t.Cleanup(func() { _ = l.Close() })
	}
	return err
}

func TestListenModes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "c.sock")
	if err := listen(t, path); err != nil {
		t.Fatal(err)
	}
	for p, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		if fi, err := os.Stat(p); err != nil || fi.Mode().Perm() != want {
			t.Errorf("%s: %v %v", p, fi.Mode(), err)
		}
	}
}

func TestListenRefuses(t *testing.T) {
	dir := t.TempDir()
	inUse := filepath.Join(dir, "used.sock")
	if err := listen(t, inUse); err != nil {
		t.Fatal(err)
	}
	var busy *InUseError
	if err := listen(t, inUse); !errors.As(err, &busy) || !strings.Contains(err.Error(), "--control") {
		t.Errorf("in use: %v", err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := listen(t, file); err == nil || !strings.Contains(err.Error(), "left alone") {
		t.Errorf("a file: %v", err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	if err := listen(t, link); err == nil || !strings.Contains(err.Error(), "left alone") {
		t.Errorf("a link: %v", err)
	}
	if b, _ := os.ReadFile(file); string(b) != "precious" {
		t.Error("the file was touched")
	}
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := listen(t, filepath.Join(open, "c.sock")); err == nil || !strings.Contains(err.Error(), "chmod go-w") {
		t.Errorf("open directory: %v", err)
	}
	if err := listen(t, filepath.Join(dir, strings.Repeat("x", 120))); err == nil || !strings.Contains(err.Error(), "shorter") {
		t.Errorf("long path: %v", err)
	}
}

func TestStaleSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false) // as after a crash
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := listen(t, path); err != nil {
		t.Error(err)
	}
}
