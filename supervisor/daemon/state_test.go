//go:build unix

package daemon

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"mcpbridge/config"
)

func noEnv(string) (string, bool) { return "", false }

func mode(t *testing.T, path string) os.FileMode {
	t.Helper()
	fi, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return fi.Mode().Perm()
}

func TestStateDirectory(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "a", "b")
	s, err := openState(dir)
	if err != nil {
		t.Fatal(err)
	}
	if m := mode(t, dir); m != 0o700 {
		t.Errorf("mode %o", m)
	}
	_, err = openState(dir)
	if err == nil || !strings.Contains(err.Error(), "pid "+strconv.Itoa(os.Getpid())) || !strings.Contains(err.Error(), "--state-dir") || IsUsage(err) {
		t.Errorf("second daemon: %v", err)
	}
	s.close()
	if s, err = openState(dir); err != nil {
		t.Fatalf("after the first one's end: %v", err)
	}
	s.close()

	link := filepath.Join(root, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if _, err := openState(link); !IsUsage(err) || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("link: %v", err)
	}
	file := filepath.Join(root, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openState(file); !IsUsage(err) {
		t.Errorf("file: %v", err)
	}
	// The lock file must not lead elsewhere either.
	trap := filepath.Join(root, "trap")
	if err := os.Mkdir(trap, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, filepath.Join(trap, lockName)); err != nil {
		t.Fatal(err)
	}
	if _, err := openState(trap); err == nil {
		t.Error("a lock file that is a link was opened")
	}
}

func TestOpenStateDirectoryIsClosed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s, err := openState(dir)
	if err != nil {
		t.Fatal("empty:", err)
	}
	s.close()
	if m := mode(t, dir); m != 0o700 {
		t.Errorf("mode %o", m)
	}
	other := filepath.Join(t.TempDir(), "o")
	if err := os.MkdirAll(filepath.Join(other, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := openState(other); !IsUsage(err) || !strings.Contains(err.Error(), "chmod 700") {
		t.Errorf("shared: %v", err)
	}
}

func TestReadyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ready.json")
	want := Ready{PID: os.Getpid(), URL: "http://x/mcp", Control: "/c", TokenFile: "/t"}
	if err := writeReady(path, want); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got Ready
	if err := json.Unmarshal(b, &got); err != nil || got != want {
		t.Errorf("%s %v", b, err)
	}
	if list, _ := os.ReadDir(filepath.Dir(path)); len(list) != 1 {
		t.Errorf("left behind: %v", list)
	}
	removeReady(path)
	if _, err := os.Stat(path); err == nil {
		t.Error("still there")
	}
	other := Ready{PID: os.Getpid() + 1}
	if err := writeReady(path, other); err != nil {
		t.Fatal(err)
	}
	removeReady(path)
	if _, err := os.Stat(path); err != nil {
		t.Error("another daemon's ready file was removed")
	}
}

func TestTokens(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, tokenName)
	a, issues, err := loadAuth(dir, &config.Config{}, noEnv)
	if err != nil || len(issues) != 0 {
		t.Fatal(err, issues)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSpace(string(b))
	if len(token) < 43 || mode(t, path) != 0o600 {
		t.Errorf("token %q, mode %o", token, mode(t, path))
	}
	if name, ok := a.find(token); name != defaultClient || !ok {
		t.Errorf("%q %v", name, ok)
	}
	if again, _, _ := loadAuth(dir, &config.Config{}, noEnv); again.clients[0] != a.clients[0] {
		t.Error("the second start made another token")
	}

	// An open one is closed, and told about.
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, issues, err := loadAuth(dir, &config.Config{}, noEnv); err != nil || len(issues) != 1 || mode(t, path) != 0o600 {
		t.Errorf("%v %v %o", issues, err, mode(t, path))
	}
	// A blank one lets nobody in.
	if err := os.WriteFile(path, []byte(" \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a, _, err = loadAuth(dir, &config.Config{}, noEnv)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := a.find(""); ok {
		t.Error("the empty token is accepted")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("elsewhere", path); err != nil {
		t.Fatal(err)
	}
	if _, _, err := loadAuth(dir, &config.Config{}, noEnv); !IsUsage(err) {
		t.Errorf("link: %v", err)
	}
}

func TestConfiguredTokens(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "ci")
	if err := os.WriteFile(file, []byte("0123456789abcdef0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := func(k string) (string, bool) {
		v, ok := map[string]string{"GOOD": "fedcba9876543210", "SHORT": "x", "SAME": "0123456789abcdef0"}[k]
		return v, ok
	}
	cfg := &config.Config{Auth: config.Auth{Tokens: map[string]config.TokenRef{
		"ci": {File: file}, "dev": {Env: "GOOD"}, "short": {Env: "SHORT"}, "unset": {Env: "UNSET"}, "same": {Env: "SAME"},
		"nofile": {File: filepath.Join(dir, "none")}, "default": {Env: "GOOD"},
	}}}
	a, issues, err := loadAuth(dir, cfg, env)
	if err != nil {
		t.Fatal(err)
	}
	var bad []string
	for _, i := range issues {
		bad = append(bad, strings.TrimPrefix(i.Path, "auth.tokens."))
	}
	if got := strings.Join(bad, " "); got != "default nofile same short unset" {
		t.Errorf("issues of %q: %v", got, issues)
	}
	for token, want := range map[string]string{"0123456789abcdef0": "ci", "fedcba9876543210": "dev", "x": "", "": ""} {
		if name, ok := a.find(token); name != want || ok != (want != "") {
			t.Errorf("%q: %q %v", token, name, ok)
		}
	}
}

func TestLogFileRotates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "log")
	l, err := openLogFile(path, 10, 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"aaaaa\n", "bbbbb\n", "ccccc\n", "ddddd\n", "a line larger than the limit\n", "e\n"} {
		if _, err := l.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Write([]byte("late")); err == nil {
		t.Error("a closed log takes lines")
	}
	for name, want := range map[string]string{path: "e\n", path + ".1": "a line larger than the limit\n", path + ".2": "ddddd\n"} {
		if b, err := os.ReadFile(name); err != nil || string(b) != want {
			t.Errorf("%s: %q %v, want %q", name, b, err, want)
		}
	}
	if _, err := os.Stat(path + ".3"); err == nil {
		t.Error("too many are kept")
	}
}
