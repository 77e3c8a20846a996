package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpbridge/messages"
	"mcpbridge/test/harness"
)

// realServer is one of the pinned npm servers with a call that always answers the
// same.
type realServer struct {
	name, bin string
	args      []string
	env       harness.M
	tools     int // what it lists
	tool      string
	callArgs  string
}

// volatile is what a server counts by itself and so differs between two askers.
var volatile = regexp.MustCompile(`thoughtHistoryLength[^,}]*`)

func realServers(t *testing.T, dir string) []realServer {
	t.Helper()
	root := filepath.Join(dir, "root")
	if err := os.MkdirAll(root, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(root, "a.txt")
	if err := os.WriteFile(file, []byte("a < b && c > d\n\"é\u2028\" 9007199254740993\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	path, _ := json.Marshal(file)
	memory := filepath.Join(dir, "memory.jsonl")
	if err := os.WriteFile(memory, []byte(`{"type":"entity","name":"bridge","entityType":"thing","observations":["it <runs>"]}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return []realServer{
		{"everything", "mcp-server-everything", nil, nil, 13, "get-structured-content", `{"location":"New York"}`},
		{"filesystem", "mcp-server-filesystem", []string{root}, nil, 14, "read_text_file", `{"path":` + string(path) + `}`},
		{"memory", "mcp-server-memory", nil, harness.M{"MEMORY_FILE_PATH": memory}, 9, "read_graph", `{}`},
		{"thinking", "mcp-server-sequential-thinking", nil, nil, 1, "sequentialthinking",
			`{"thought":"<b>","nextThoughtNeeded":false,"thoughtNumber":1,"totalThoughts":1}`},
	}
}

func realConfig(t *testing.T, servers []realServer, more harness.M) harness.M {
	t.Helper()
	entries := harness.M{}
	for _, s := range servers {
		entries[s.name] = harness.M{"command": harness.NPMBin(t, s.bin), "args": slices.Clone(s.args), "env": s.env,
			"trust": "annotations", "timeouts": harness.M{"start": "60s"}}
	}
	c := harness.Config(entries)
	for k, v := range more {
		c[k] = v
	}
	return c
}

// same fails unless two results are byte for byte the same, but for what the server
// itself counts.
func same(t *testing.T, how string, got, want []byte) {
	t.Helper()
	g, w := volatile.ReplaceAll(got, nil), volatile.ReplaceAll(want, nil)
	if !bytes.Equal(g, w) {
		t.Errorf("%s:\n got %s\nwant %s", how, got, want)
	}
}

func compact(t *testing.T, raw []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestRealServers runs the four npm servers behind one bridge and asks each the
// same question in every way that there is.
func TestRealServers(t *testing.T) {
	harness.NPM(t)
	servers := realServers(t, t.TempDir())
	cfg := realConfig(t, servers, nil)
	d := harness.Start(t, harness.Options{Config: cfg})
	var names []string
	for _, s := range servers {
		names = append(names, s.name)
	}
	d.Await(t, "ready", names...)

	status := d.Status(t)
	if got := status.Bridge.Counts; got.Configured != 4 || got.Connected != 4 || got.Registered != got.Adapted {
		t.Errorf("counts = %+v", got)
	}
	var cat struct {
		Tools []messages.Tool `json:"tools"`
	}
	d.OK(t, "tools", "-o", "json").JSON(t, &cat)
	perServer := map[string]int{}
	for _, tool := range cat.Tools {
		perServer[tool.Server]++
	}
	library := harness.Library(t, cfg)
	raw := d.Raw(t, d.URL)
	stdio := harness.StartRawStdio(t, d.StdioCommand(t))
	modern, legacy := d.Session(t, "", nil), d.Session(t, "2025-11-25", nil)
	sdkStdio := d.StdioSession(t, "")
	if got := modern.InitializeResult().ProtocolVersion; got != "2026-07-28" {
		t.Errorf("the newest client got %s", got)
	}

	for _, s := range servers {
		t.Run(s.name, func(t *testing.T) {
			row, _ := status.Server(s.name)
			// What a server hides by capability or wants to be called as a task is
			// not in the catalogue, and an issue says so.
			if explained := len(row.Issues); perServer[s.name]+explained < s.tools || perServer[s.name] > s.tools+1 {
				t.Errorf("%d tools and %d issues, want %d", perServer[s.name], explained, s.tools)
			}
			cmd := exec.Command(harness.NPMBin(t, s.bin), s.args...)
			cmd.Env = os.Environ()
			for k, v := range s.env {
				cmd.Env = append(cmd.Env, k+"="+v.(string))
			}
			want := harness.StartRawStdio(t, cmd).CallTool(t, s.tool, s.callArgs)
			endpoint := s.name + "__" + s.tool

			same(t, "HTTP endpoint", raw.CallTool(t, endpoint, s.callArgs), want)
			same(t, "endpoint of the one server", d.Raw(t, d.Base()+"/servers/"+s.name+"/mcp").CallTool(t, s.tool, s.callArgs), want)
			same(t, "stdio", stdio.CallTool(t, endpoint, s.callArgs), want)
			out := library.Call(harness.Context(t), messages.CallTool{Tool: "mcp__" + endpoint, Args: json.RawMessage(s.callArgs)})
			if out.Kind != messages.OK {
				t.Fatalf("library: %s/%s: %s", out.Kind, out.Code, out.ErrorText())
			}
			same(t, "library", out.Result, want)
			_, r := d.Call(t, s.name+"/"+s.tool, s.callArgs)
			if r.Exit != 0 {
				t.Fatal(r)
			}
			var cli struct {
				Result json.RawMessage `json:"result"`
				Text   string          `json:"text"`
			}
			r.JSON(t, &cli)
			// The command line writes runes that nobody can see as escapes.
			same(t, "CLI", bytes.ReplaceAll(compact(t, cli.Result), []byte(`\u2028`), []byte("\u2028")), compact(t, want))
			if text := d.OK(t, "call", endpoint, "--args", s.callArgs).Stdout; !strings.Contains(text, strings.TrimSpace(volatile.ReplaceAllString(cli.Text, ""))[:2]) {
				t.Errorf("call -o text printed %q, want the text %q", text, cli.Text)
			}
			for how, cs := range map[string]*mcp.ClientSession{"2026-07-28": modern, "2025-11-25": legacy, "stdio": sdkStdio} {
				res, err := cs.CallTool(harness.Context(t), &mcp.CallToolParams{Name: endpoint, Arguments: json.RawMessage(s.callArgs)})
				if err != nil || res.IsError {
					t.Errorf("official client, %s: %v, %+v", how, err, res)
				}
			}
		})
	}
	if took := d.Stop(t); d.ExitCode() != 0 {
		t.Errorf("exit %d after %s", d.ExitCode(), took)
	}
}

// TestInspector lets the MCP Inspector's command line list and call. It cannot
// send a header, so this daemon asks for no token.
func TestInspector(t *testing.T) {
	harness.NPM(t)
	servers := realServers(t, t.TempDir())
	d := harness.Start(t, harness.Options{Config: realConfig(t, servers[:1], harness.M{"auth": harness.M{"none": true}})})
	d.Await(t, "ready", "everything")
	inspect := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(harness.NPMBin(t, "mcp-inspector"), append([]string{"--cli", d.URL, "--transport", "http"}, args...)...)
		cmd.Dir, cmd.Env = d.Work, d.Env()
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("inspector %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	if out := inspect("--method", "tools/list"); !strings.Contains(out, `"everything__echo"`) {
		t.Errorf("tools/list: %s", out)
	}
	if out := inspect("--method", "tools/call", "--tool-name", "everything__echo", "--tool-arg", "message=hello"); !strings.Contains(out, "Echo: hello") {
		t.Errorf("tools/call: %s", out)
	}
}
