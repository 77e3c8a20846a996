package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpbridge/test/witness"
)

// childEnv makes this test binary the fixture itself.
const childEnv = "MCPSERVER_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), childEnv+"=1")
	return cmd
}

// connect starts the fixture and opens a session with the official client.
func connect(t *testing.T, opts *mcp.ClientSessionOptions, args ...string) *mcp.ClientSession {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	cs, err := c.Connect(ctx, &mcp.CommandTransport{Command: command(t, args...)}, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cs.Close() })
	return cs
}

func TestOfficialClientBothEras(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{{nil, "2025-11-25"}, {[]string{"-modern"}, "2026-07-28"}} {
		cs := connect(t, nil, tt.args...)
		if got := cs.InitializeResult().ProtocolVersion; got != tt.want {
			t.Errorf("%v: protocol %s, want %s", tt.args, got, tt.want)
		}
		list, err := cs.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Tools) != 16 {
			t.Errorf("%v: %d tools", tt.args, len(list.Tools))
		}
		res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: json.RawMessage(`{"z":1,"a":2}`)})
		if err != nil {
			t.Fatal(err)
		}
		if got := res.Content[0].(*mcp.TextContent).Text; got != `{"z":1,"a":2}` {
			t.Errorf("echo = %s", got)
		}
	}
}

func TestPages(t *testing.T) {
	cs := connect(t, nil, "-tools", "25", "-page-size", "10")
	n := 0
	for _, err := range cs.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 41 {
		t.Errorf("%d tools over all pages, want 41", n)
	}
}

// TestWitnessOfACrash kills the fixture between begin and end.
func TestWitnessOfACrash(t *testing.T) {
	log, ledger := filepath.Join(t.TempDir(), "w"), filepath.Join(t.TempDir(), "l")
	cs := connect(t, nil, "-witness", log, "-ledger", ledger, "-crash-after-begin", "-fault-tool", "write", "-fault-after", "1")
	for i, wantErr := range []bool{false, true} {
		_, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "write", Arguments: map[string]any{"nonce": fmt.Sprint("n", i), "text": "hi"}})
		if (err != nil) != wantErr {
			t.Fatalf("call %d: %v", i, err)
		}
	}
	h, err := witness.Load(log)
	if err != nil {
		t.Fatal(err)
	}
	got := []int{h.Begins("n0"), h.Ends("n0"), h.Begins("n1"), h.Ends("n1")}
	if diff := cmp.Diff([]int{1, 1, 1, 0}, got); diff != "" {
		t.Errorf("begins and ends (-want +got):\n%s", diff)
	}
	b, err := os.ReadFile(ledger)
	if err != nil || string(b) != "n0 hi\nn1 hi\n" {
		t.Errorf("ledger %q, %v", b, err)
	}
}

// TestRawAnswers talks to the fixture byte by byte.
func TestRawAnswers(t *testing.T) {
	callLine := func(fault string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"read","arguments":{"nonce":"n","fault":%q}}}`, fault)
	}
	ok := `{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"read n"}],"isError":false}}`
	tests := []struct {
		name, in string
		args     []string
		want     string
	}{
		{"plain", callLine(""), nil, ok + "\n"},
		{"banner", callLine(""), []string{"-banner"}, "Fixture server, listening on stdio. Have fun!\n" + ok + "\n"},
		{"bom and crlf", callLine(""), []string{"-bom", "-crlf"}, "\ufeff" + ok + "\r\n"},
		{"noise", callLine(noise), nil, "[info] a log line that lost its way\n" + ok + "\n"},
		{"twice", callLine(dupReply), nil, ok + "\n" + ok + "\n"},
		{"id as string", callLine(stringID), nil, strings.Replace(ok, `"id":7`, `"id":"7"`, 1) + "\n"},
		{"no body", callLine(noBody), nil, `{"jsonrpc":"2.0","id":7}` + "\n"},
		{"half", callLine(halfFrame), nil, ok[:len(ok)/2]},
		{"mute", callLine(""), []string{"-silent", "call"}, ""},
		{"split", callLine(""), []string{"-split-writes"}, ok + "\n"},
		{"legacy discover", `{"jsonrpc":"2.0","id":7,"method":"server/discover"}`, nil, `{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"method not found: server/discover"}}` + "\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cmd := command(t, tt.args...)
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Fprintln(in, tt.in); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, 0, len(tt.want))
			r := bufio.NewReader(out)
			for len(got) < len(tt.want) {
				b, err := r.ReadByte()
				if err != nil {
					break
				}
				got = append(got, b)
			}
			_ = in.Close()
			_ = cmd.Wait()
			if string(got) != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestHTTP(t *testing.T) {
	dir := t.TempDir()
	cmd := command(t, "-http", "127.0.0.1:0", "-http-log", filepath.Join(dir, "log"), "-http-header", "X-Key: secret", "-http-forget", "2", "-tools", "5", "-page-size", "10")
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
		t.Fatal(err)
	}
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	if _, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: hello.URL}, nil); err == nil {
		t.Error("connected without the header")
	}
	hc := &http.Client{Transport: withHeader{"X-Key", "secret"}}
	cs, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: hello.URL, HTTPClient: hc}, nil)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err := range cs.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 21 {
		t.Errorf("%d tools, want 21", n)
	}
	for i, wantErr := range []bool{false, false, true} {
		if _, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "read"}); (err != nil) != wantErr {
			t.Errorf("call %d: %v", i, err)
		}
	}
	_ = cs.Close()
	b, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil || !strings.Contains(string(b), `"rpc":"tools/call"`) {
		t.Errorf("log %s, %v", b, err)
	}
}

type withHeader struct{ name, value string }

func (h withHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(h.name, h.value)
	return http.DefaultTransport.RoundTrip(r)
}

// TestSwitchesAreDocumented holds the table in the package's comment complete.
func TestSwitchesAreDocumented(t *testing.T) {
	src, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	o := &options{callFaults: map[string]*bool{}}
	fs := flag.NewFlagSet("x", flag.ContinueOnError)
	o.register(fs)
	fs.VisitAll(func(f *flag.Flag) {
		if f.Name != "sleeper" && !strings.Contains(string(src), "//\t-"+f.Name+" ") && !strings.Contains(string(src), "//\t-"+f.Name+"\n") {
			t.Errorf("-%s is not in the table", f.Name)
		}
	})
}
