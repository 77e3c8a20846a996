package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unicode/utf16"

	"mcpbridge/config"
	"mcpbridge/messages"
)

// Faults that people reported of other bridges, by the numbers of the collection; each
// is tried through the command line.

// lone gives a test a home and a workspace of its own.
func lone(t *testing.T) (home, work string) {
	t.Helper()
	home, work = t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Chdir(work)
	return home, work
}

func put(t *testing.T, file string, data []byte) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// bridgectl runs one verb.
func invoke(args ...string) (code int, out, errOut string) {
	var o, e bytes.Buffer
	code = run(args, strings.NewReader(""), &o, &e)
	return code, o.String(), e.String()
}

// checked is `config check -o json`.
func checked(t *testing.T, args ...string) (int, config.CheckReport) {
	t.Helper()
	code, out, errOut := invoke(append([]string{"config", "check", "-o", "json"}, args...)...)
	var r config.CheckReport
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v: %s %s", err, out, errOut)
	}
	return code, r
}

func utf16Bytes(order binary.AppendByteOrder, text string) []byte {
	var b []byte
	for _, u := range utf16.Encode([]rune(text)) {
		b = order.AppendUint16(b, u)
	}
	return b
}

func TestB79References(t *testing.T) {
	lone(t)
	t.Setenv("T", "top ${HOME} $secret")
	t.Setenv("EMPTY", "")
	write := func(dialect, value string) string {
		b, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"s": map[string]any{"url": "http://h", "headers": map[string]string{"Authorization": value}}}})
		if err != nil {
			t.Fatal(err)
		}
		return put(t, dialect, b)
	}
	for _, tt := range []struct{ file, value, want, wrong string }{
		{"mcp.json", "Bearer ${T}", "Bearer top ${HOME} $secret", ""},
		{"mcp.json", "Bearer ${env:T}", "Bearer top ${HOME} $secret", ""},
		{"mcp.json", "Bearer ${UNSET:-x}", "Bearer x", ""},
		{"mcp.json", "Bearer ${UNSET}", "", "headers.Authorization: UNSET is not set"},
		{"mcp.json", "Bearer ${EMPTY}", "", "headers.Authorization: the bearer token is empty: EMPTY gives an empty text"},
		{"mcp.json", "Bearer ${input:my key}", "", "headers.Authorization: MCP_INPUT_MY_KEY is not set: it answers ${input:my key}, which nobody is there to ask for"},
		{"mcp.json", "Bearer $T", "Bearer $T", ""}, // no reference there, and none here
		{"gemini.json", "Bearer $T", "Bearer top ${HOME} $secret", ""},
		{"gemini.json", "Bearer $UNSET", "", "headers.Authorization: UNSET is not set"},
		{"opencode.json", "Bearer {env:T}", "Bearer top ${HOME} $secret", ""},
		{"crush.json", "Bearer $(pass show x)", "", "headers.Authorization: ${cmd:…}"},
	} {
		file := write(tt.file, tt.value)
		c, err := config.Load(config.LoadOptions{File: file})
		if err != nil {
			t.Fatal(err)
		}
		s := c.Servers[0]
		if tt.wrong != "" {
			if s.Err == nil || !strings.HasPrefix(s.Err.Message, tt.wrong) {
				t.Errorf("%s %s: %v, want %s", tt.file, tt.value, s.Err, tt.wrong)
			}
		} else if s.Err != nil || s.Headers["Authorization"] != tt.want {
			t.Errorf("%s %s: %q %v, want %q", tt.file, tt.value, s.Headers["Authorization"], s.Err, tt.want)
		}
		// What is wrong with the world is no fault of the file.
		if code, r := checked(t, file); code != 0 {
			t.Errorf("check %s %s: %d %v", tt.file, tt.value, code, r.Issues)
		}
		if _, out, _ := invoke("config", "show", "-c", file); strings.Contains(out, "top $") {
			t.Errorf("the value is shown:\n%s", out)
		}
	}
}

func TestB81ByteOrderMark(t *testing.T) {
	lone(t)
	const text = "{\n  \"mcpServers\": {\"tést\": {\"command\": \"x\"}}\n}\n"
	for name, data := range map[string][]byte{
		"utf-8 with a mark":  []byte("\ufeff" + text),
		"crlf":               []byte(strings.ReplaceAll(text, "\n", "\r\n")),
		"mark and crlf":      []byte("\ufeff" + strings.ReplaceAll(text, "\n", "\r\n")),
		"utf-16 le":          append([]byte{0xff, 0xfe}, utf16Bytes(binary.LittleEndian, text)...),
		"utf-16 be":          append([]byte{0xfe, 0xff}, utf16Bytes(binary.BigEndian, text)...),
		"utf-16 le, no mark": utf16Bytes(binary.LittleEndian, text),
		"utf-16 be, no mark": utf16Bytes(binary.BigEndian, text),
	} {
		code, r := checked(t, put(t, "mcp.json", data))
		if code != 0 || len(r.Servers) != 1 || r.Servers[0].Name != "tést" || !strings.HasSuffix(r.Servers[0].Source, ":2:18") {
			t.Errorf("%s: exit %d, %+v", name, code, r)
		}
	}
	for _, data := range []string{"", " \r\n\t", "\ufeff", "// nothing\n", "null", "{}", "[]", `{"mcpServers": []}`, `{"mcpServers": null}`, `{"mcpServers": {}}`} {
		if code, r := checked(t, put(t, "mcp.json", []byte(data))); code != 0 || len(r.Servers) != 0 {
			t.Errorf("%q: exit %d, %+v", data, code, r)
		}
	}
	for _, data := range []string{"{\"mcpServers\": {\"a\": \xff", "\xff\xfe{\x00}", "\x00\x01\x02"} {
		if code, r := checked(t, put(t, "mcp.json", []byte(data))); code != 2 || len(r.Issues) == 0 || r.Issues[0].Line == 0 {
			t.Errorf("%q: exit %d, %+v", data, code, r)
		}
	}
}

func TestB82Comments(t *testing.T) {
	home, work := lone(t)
	const good = `// first
{ /* https://x */
  "mcpServers": { // "no": {"command": "y"}
    "one": {"command": "x", "args": ["https://h//p", "/* no comment */",],}, /* and
    "hidden": {} */
  },
}
`
	put(t, ".mcp.json", []byte(good))
	code, r := checked(t)
	if code != 0 || len(r.Servers) != 1 || r.Servers[0].Name != "one" {
		t.Errorf("exit %d, %+v", code, r)
	}
	c, err := config.Load(config.LoadOptions{})
	if err != nil || strings.Join(c.Servers[0].Args, "|") != "https://h//p|/* no comment */" {
		t.Errorf("args %q, %v", c.Servers[0].Args, err)
	}
	// A layer that is broken is lost alone, and says where.
	put(t, ".mcp.json", []byte("{\"mcpServers\": {\n  \"one\": {\"command\": }\n}}"))
	put(t, filepath.Join(home, ".config/mcpbridge/config.yaml"), []byte("mcp_servers: {mine: {command: x}}"))
	code, r = checked(t)
	if code != 2 || len(r.Servers) != 1 || r.Servers[0].Name != "mine" || len(r.Issues) != 1 || r.Issues[0].Line != 2 || r.Issues[0].Column != 22 ||
		!strings.HasSuffix(r.Issues[0].File, filepath.Join(filepath.Base(work), ".mcp.json")) {
		t.Errorf("exit %d, %+v", code, r)
	}
	if c, err := config.Load(config.LoadOptions{}); err != nil || len(c.Servers) != 1 || !c.Servers[0].Startable() {
		t.Errorf("the other layer does not start: %v %v", c, err)
	}
}

func TestB84EnvAddsToTheBase(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the file mode makes a program on Unix")
	}
	_, work := lone(t)
	bin := filepath.Join(work, "bin")
	put(t, filepath.Join(bin, "only-here"), []byte("#!/bin/sh\n"))
	if err := os.Chmod(filepath.Join(bin, "only-here"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	file := put(t, "other/mcp.json", []byte(`{"mcpServers": {"s": {"command": "only-here", "env": {"X": "1"}}}}`))
	if code, r := checked(t, file, "--resolve"); code != 0 {
		t.Errorf("found through the inherited PATH: %d %v", code, r.Issues)
	}
	file = put(t, "other/mcp.json", []byte(`{"mcpServers": {"s": {"command": "only-here", "env": {"PATH": "/nowhere:/else"}}}}`))
	code, r := checked(t, file, "--resolve")
	if code != 2 || len(r.Issues) != 1 || !strings.Contains(r.Issues[0].Message, `"only-here" not found in PATH=/nowhere:/else`) || r.Issues[0].Line != 1 {
		t.Errorf("an own PATH counts, and is named: %d %v", code, r.Issues)
	}
}

func TestB86WindowsWrappers(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there the wrapper works")
	}
	lone(t)
	for _, command := range []string{"cmd", "cmd.exe", `C:\\Windows\\System32\\cmd.exe`, "CMD"} {
		file := put(t, "mcp.json", []byte(`{"mcpServers": {"s": {"command": "`+command+`", "args": ["/c", "npx.cmd", "-y", "a b", "c\"d"]}}}`))
		c, err := config.Load(config.LoadOptions{File: file})
		if err != nil {
			t.Fatal(err)
		}
		if s := c.Servers[0]; s.Err != nil || s.Command != "npx" || strings.Join(s.Args, "|") != `-y|a b|c"d` {
			t.Errorf("%s: runs %q %q, %v", command, s.Command, s.Args, s.Err)
		}
		code, r := checked(t, file)
		if code != 0 || len(r.Issues) != 1 || r.Issues[0].Severity != messages.SeverityWarning || !strings.Contains(r.Issues[0].Message, "for Windows") {
			t.Errorf("%s: %d %v", command, code, r.Issues)
		}
	}
}

// TestB87ConfigOutputs: no secret of a file, in whatever place, comes out of a verb that
// looks at it.
func TestB87ConfigOutputs(t *testing.T) {
	_, work := lone(t)
	const canary = "canary-91be"
	text := `{"mcpServers": {
  "out": {"command": "no-such-program", "args": ["--api-key", "CANARY-1", "--token=CANARY-2", "redis://u:CANARY-3@db/0"], "env": {"API_TOKEN": "CANARY-4", "OTHER": "x9 CANARY-5"}},
  "web": {"url": "http://user:CANARY-6@127.0.0.1:1/mcp?key=CANARY-7", "headers": {"Authorization": "Bearer CANARY-8", "X-Else": "CANARY-9"}},
  "bad": {"command": "x", "url": "http://u:CANARY-10@h", "env": {"A": "${CANARY 11}"}, "headers": {"a b": "CANARY-12"}}
}}`
	text = strings.ReplaceAll(text, "CANARY", canary)
	file := put(t, filepath.Join(work, "sub", "mcp.json"), []byte(text))
	other := put(t, filepath.Join(work, "sub", "other.json"), []byte(strings.ReplaceAll(text, canary, canary+"x")))
	put(t, ".mcp.json", []byte(text))
	t.Setenv("MCP_SERVERS", text)
	t.Setenv("NO_PROXY", "*")
	for _, args := range [][]string{
		{"config", "check"}, {"config", "check", "-o", "json"}, {"config", "check", file}, {"config", "check", "--resolve", file},
		{"config", "show"}, {"config", "show", "--origin"}, {"config", "show", "-c", file}, {"config", "diff", file, other}, {"config", "diff", file, other, "-o", "json"},
		{"config", "import", file}, {"supervise", "--dry-run"}, {"supervise", "--dry-run", "-c", file}, {"doctor", "-c", file, "-o", "json"},
	} {
		_, out, errOut := invoke(args...)
		if all := out + errOut; strings.Contains(all, canary) {
			i := strings.Index(all, canary)
			t.Errorf("%v: …%s…", args, all[max(0, i-80):min(len(all), i+40)])
		} else if len(all) < 40 {
			t.Errorf("%v says next to nothing: %s", args, all)
		}
	}
}
