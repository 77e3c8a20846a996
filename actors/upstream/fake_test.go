//go:build linux

package upstream

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"mcpbridge/config"
)

const fakeEnv = "UPSTREAM_FAKE_SERVER"

func TestMain(m *testing.M) {
	if modes := os.Getenv(fakeEnv); modes != "" {
		runFake(strings.Split(modes, ","))
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// fake is a small MCP server on stdio that is written by hand, so that it can do
// everything wrong.
type fake struct {
	discovered bool
	modes      map[string]bool
	mu         sync.Mutex
	out        io.Writer

	pings, lists int // only of the reader

	cancelMu sync.Mutex
	cancels  map[string]chan string
}

type fakeMsg struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

func runFake(modes []string) {
	f := &fake{modes: map[string]bool{}, out: os.Stdout, cancels: map[string]chan string{}}
	for _, m := range modes {
		f.modes[m] = true
	}
	switch {
	case f.modes["sdk"]:
		runSDK()
		return
	case f.modes["bridge"]:
		runBridge()
		return
	case f.modes["exit"]:
		fmt.Fprintln(os.Stderr, "fatal: token s3cret is wrong")
		os.Exit(2)
	case f.modes["mute"]:
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	case f.modes["wrapper"]:
		// The leader only starts the real server, which holds the same pipes.
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), fakeEnv+"=plain")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		_ = cmd.Run()
		return
	}
	if f.modes["ignoreterm"] {
		signal.Ignore(syscall.SIGTERM)
	}
	if f.modes["banner"] {
		fmt.Println("Server running on stdio\n\n[info] ready\n42\n{\"level\":\"info\",\"msg\":\"hi\",\"method\":\"GET\"}")
	}
	if f.modes["escape"] {
		cmd := exec.Command("sleep", "1000")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		_ = cmd.Start()
	}
	if f.modes["flood"] {
		go func() {
			line := bytes.Repeat([]byte("x"), 500)
			for i := 0; ; i++ {
				fmt.Fprintf(os.Stderr, "%d %s\n", i, line)
			}
		}()
	}
	r := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			break
		}
		var m fakeMsg
		if err := json.Unmarshal(line, &m); err != nil {
			fmt.Fprintln(os.Stderr, "bad input:", err)
			continue
		}
		if f.handle(m, line) {
			select {} // reads no more
		}
	}
	if f.modes["ignoreterm"] {
		select {}
	}
}

func (f *fake) write(s string) {
	if f.modes["crlf"] {
		s += "\r"
	}
	if f.modes["bom"] {
		s = "\xef\xbb\xbf" + s + "   "
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	_, _ = io.WriteString(f.out, s+"\n")
}

func (f *fake) reply(id json.RawMessage, result string) {
	if f.modes["stringid"] {
		id = json.RawMessage(`"` + string(id) + `"`)
	}
	if f.modes["idlast"] {
		f.write(fmt.Sprintf(`{"result":%s,"jsonrpc":"2.0","id":%s}`, result, id))
		return
	}
	f.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result))
}

func (f *fake) fail(id json.RawMessage, code int, msg string) {
	f.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q,"extra":1e400}}`, id, code, msg))
}

// handle reports whether the server is to stop reading.
func (f *fake) handle(m fakeMsg, line []byte) bool {
	switch m.Method {
	case "server/discover":
		switch {
		case f.modes["diediscover"]:
			fmt.Fprintln(os.Stderr, "panic: unknown method")
			os.Exit(3)
		case f.modes["silentdiscover"]:
		case f.modes["latediscover"]: // begins a session with the late answer, and stands no other
			f.discovered = true
			time.Sleep(600 * time.Millisecond)
			f.fail(m.ID, -32601, "method not found")
		default:
			f.fail(m.ID, -32601, "method not found")
		}
	case "initialize":
		if f.discovered {
			f.fail(m.ID, -32600, "duplicate \"initialize\" received")
			return false
		}
		caps := `{"tools":{"listChanged":true}}`
		if f.modes["notools"] {
			caps = `{}`
		}
		version := "2025-11-25"
		if f.modes["oldversion"] {
			version = "1999-01-01"
		}
		f.reply(m.ID, `{"protocolVersion":"`+version+`","capabilities":`+caps+`,"serverInfo":{"name":"fake","version":"1.2"},"instructions":"be nice"}`)
	case "ping":
		f.pings++
		switch {
		case f.modes["noping"]:
			f.fail(m.ID, -32601, "method not found")
		case f.modes["badping"]:
			f.write(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":"pong"}`)
		case f.modes["silentping"]:
		default:
			f.reply(m.ID, `{}`)
		}
	case "tools/list":
		f.lists++
		f.list(m)
	case "notifications/cancelled":
		var p struct {
			RequestID json.RawMessage `json:"requestId"`
			Reason    string          `json:"reason"`
		}
		_ = json.Unmarshal(m.Params, &p)
		f.cancelled(string(p.RequestID)) <- p.Reason
	case "tools/call":
		return f.call(m, line)
	case "":
		f.cancelled("answer" + string(m.ID)) <- string(m.Result) + string(m.Error)
	}
	return false
}

func (f *fake) cancelled(id string) chan string {
	f.cancelMu.Lock()
	defer f.cancelMu.Unlock()
	if f.cancels[id] == nil {
		f.cancels[id] = make(chan string, 8)
	}
	return f.cancels[id]
}

func (f *fake) list(m fakeMsg) {
	var p struct {
		Cursor string `json:"cursor"`
	}
	_ = json.Unmarshal(m.Params, &p)
	switch {
	case f.modes["nolist"]:
		f.fail(m.ID, -32601, "method not found")
	case f.modes["listhang"]:
	case f.modes["listerror"]:
		f.fail(m.ID, -32603, "database is down")
	case f.modes["samecursor"]:
		f.reply(m.ID, `{"tools":[{"name":"a","description":"d","inputSchema":{"type":"object"}}],"nextCursor":"again"}`)
	case f.modes["pages"]:
		n := 0
		_, _ = fmt.Sscan(p.Cursor, &n)
		f.reply(m.ID, fmt.Sprintf(`{"tools":[{"name":"t%d","description":"d","inputSchema":{"type":"object"}}],"nextCursor":"%d"}`, n, n+1))
	case f.modes["odd"]:
		f.reply(m.ID, oddTools)
	default:
		f.reply(m.ID, `{"tools":[{"name":"echo","description":"says it back","inputSchema":{"type":"object"}}],"nextCursor":null}`)
	}
}

func (f *fake) call(m fakeMsg, line []byte) bool {
	var p struct {
		Name string          `json:"name"`
		Args json.RawMessage `json:"arguments"`
		Meta json.RawMessage `json:"_meta"`
	}
	_ = json.Unmarshal(m.Params, &p)
	text := func(s string) {
		b, _ := json.Marshal(s)
		f.reply(m.ID, `{"content":[{"type":"text","text":`+string(b)+`}]}`)
	}
	switch p.Name {
	case "raw": // the whole request
		text(string(bytes.TrimSpace(line)))
	case "closestdin": // reads no more, and lives on
		_ = os.Stdin.Close()
		text("closed")
		return true
	case "pid":
		text(fmt.Sprint(os.Getpid()))
	case "asked":
		text(fmt.Sprintf("%d pings, %d lists", f.pings, f.lists))
	case "env":
		text(strings.Join(os.Environ(), "\n"))
	case "fds":
		names, _ := os.ReadDir("/proc/self/fd")
		var out []string
		for _, n := range names {
			to, _ := os.Readlink("/proc/self/fd/" + n.Name())
			if strings.HasPrefix(to, "pipe:") {
				out = append(out, n.Name())
			}
		}
		text(strings.Join(out, " "))
	case "exact":
		f.reply(m.ID, exactResult)
	case "big":
		var n int
		_ = json.Unmarshal(p.Args, &struct{ N *int }{&n})
		text(strings.Repeat("b", n))
	case "noise":
		f.write("debug: working on it")
		f.write("[1,2,3]")
		f.write("{broken")
		f.write("")
		f.write(`{"jsonrpc":"2.0","id":77,"result":{}}`)
		text("done")
	case "manynoise":
		f.write(strings.Repeat("noise\n", 2000))
		text("done")
	case "two": // two messages on one line
		f.write(`{"jsonrpc":"2.0","method":"notifications/message","params":{}}{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{"content":[]}}`)
	case "batch":
		f.write(`[{"jsonrpc":"2.0","method":"notifications/message"},{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{"content":[]}}]`)
	case "brokenanswer":
		f.write(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{"content":[}}`)
	case "noanswer":
		f.write(`{"jsonrpc":"2.0","id":` + string(m.ID) + `}`)
	case "error":
		f.fail(m.ID, -32000, "no such <thing>")
	case "hang":
	case "crash":
		os.Exit(7)
	case "answerandcrash":
		text("last words")
		os.Exit(7)
	case "half":
		f.mu.Lock()
		_, _ = io.WriteString(f.out, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"resu`)
		os.Exit(7)
	case "closestdout":
		_ = os.Stdout.Close()
	case "stopread":
		text("bye")
		return true
	case "waitcancel":
		go func() {
			reason := <-f.cancelled(string(m.ID))
			text("cancelled: " + reason)
		}()
	case "progress":
		for i := range 3 {
			f.write(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"total":1e2}}`, m.ID, i))
		}
		f.write(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"other","progress":9}}`)
		text("done")
	case "change":
		f.write(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		text("done")
	case "ask":
		f.write(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		f.write(`{"jsonrpc":"2.0","id":2,"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}`)
		go func() { text(<-f.cancelled("answer1") + <-f.cancelled("answer2")) }()
	default:
		args, _ := json.Marshal(string(p.Args))
		f.reply(m.ID, `{"content":[{"type":"text","text":`+string(args)+`}],"structuredContent":`+string(p.Args)+`}`)
	}
	return false
}

const exactResult = `{"content":[{"type":"hologram","data":1.0,"z":1,"a":2},{"type":"image","data":"!!not base64!!","mimeType":"image/png"}],"structuredContent":{"id":9007199254740993,"f":1.0,"big":123456789012345678901234567890,"esc":"\u003c\u2028é"},"_meta":{"x/y":[1e400]},"future":{}}`

// runSDK is the SDK's own server, which speaks both protocol eras.
func runSDK() {
	s := newSDKServer(nil)
	_ = s.Run(context.Background(), &mcp.StdioTransport{})
}

// newSDKServer makes a server whose tool `never` ends with its context, or with quit.
func newSDKServer(quit <-chan struct{}) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, &mcp.ServerOptions{
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{ListChanged: true}}, PageSize: 2})
	add := func(name string, h mcp.ToolHandler) {
		s.AddTool(&mcp.Tool{Name: name, Description: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, h)
	}
	text := func(t string) *mcp.CallToolResult {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: t}}}
	}
	add("echo", func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return text(string(r.Params.Arguments)), nil
	})
	add("grow", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		add("grown", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return text("grown"), nil })
		return text("done"), nil
	})
	add("progress", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: 1})
		return text("done"), nil
	})
	add("wait", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		select {
		case <-ctx.Done():
			return text("cancelled"), nil
		case <-time.After(time.Minute):
			return text("too late"), nil
		}
	})
	add("never", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		select {
		case <-ctx.Done():
		case <-quit:
		}
		return nil, errors.New("ended")
	})
	s.AddTool(&mcp.Tool{Name: "header", Description: "h", InputSchema: json.RawMessage(
		`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"o":{"type":"object","properties":{"n":{"type":"integer","x-mcp-header":"Num"}}}}}`)},
		func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			h := r.Extra.Header
			return text(h.Get("Mcp-Param-Region") + "|" + h.Get("Mcp-Param-Num") + "|" + h.Get("Mcp-Name")), nil
		})
	return s
}

// runBridge is a bridge with one server that ignores both SIGTERM and the end of
// its stdin; it says the server's pid and waits to be killed.
func runBridge() {
	p, _, err := Dial(context.Background(), Options{
		Server:  config.Server{Name: "s", Type: config.Stdio, Command: os.Args[0], Env: map[string]string{fakeEnv: "ignoreterm"}},
		Spawner: NewSpawner(), RunID: os.Getenv("TEST_RUN_ID"), OnSpawned: func(int) {}, OnListChanged: func() {},
		OnNoise: func(uint64, bool) {}, OnStderr: func(string) {}})
	if err != nil {
		fmt.Println(err)
		return
	}
	// Threads come and go; the one that made the child must not.
	for range 50 {
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		}()
	}
	fmt.Println(p.Info().PID)
	select {}
}
