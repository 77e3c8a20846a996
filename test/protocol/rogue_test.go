package protocol

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The environment by which the test binary becomes a server.
const (
	rogueEnv  = "PROTOCOL_ROGUE"  // how it behaves: a name in modes
	recordEnv = "PROTOCOL_RECORD" // the file where it writes down what it was asked
)

// mode is how a rogue behaves where it is not as a server should be. What is nil is done
// well.
type mode struct {
	start  func(r *rogue)                              // before it reads anything
	begin  func(r *rogue, id string)                   // initialize
	list   func(r *rogue, id, cursor string)           // tools/list
	call   func(r *rogue, c call)                      // tools/call, each in a goroutine of its own
	inline bool                                        // call runs where the reading does
	other  func(r *rogue, method, id string) (ok bool) // everything else
}

// modes are all there are, by name.
var modes = map[string]mode{}

// rogue is an MCP server on stdio whose every byte a test decides about.
type rogue struct {
	m      mode
	mu     sync.Mutex
	out    io.Writer
	record *os.File
	tools  string      // the inside of the list
	stay   atomic.Bool // it lives on without a stdin
}

// call is one tools/call.
type call struct {
	id, name, nonce string
	args            json.RawMessage
	token           json.RawMessage
	N               int
}

const plainTools = `{"name":"read","description":"reads","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},` +
	`{"name":"write","description":"writes","inputSchema":{"type":"object"}}`

func runRogue(name string) {
	m, ok := modes[name]
	if !ok {
		fmt.Fprintln(os.Stderr, "no such mode:", name)
		os.Exit(2)
	}
	r := &rogue{m: m, out: os.Stdout, tools: plainTools}
	if path := os.Getenv(recordEnv); path != "" {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		r.record = f
	}
	if m.start != nil {
		m.start(r)
	}
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			r.handle(line)
		}
		if err != nil {
			for r.stay.Load() {
				time.Sleep(time.Hour)
			}
			return
		}
	}
}

func (r *rogue) handle(line []byte) {
	if r.record != nil {
		_, _ = fmt.Fprintf(r.record, "%d %s", time.Now().UnixNano(), line) // one write: whole lines, also of two processes
	}
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			Name   string          `json:"name"`
			Args   json.RawMessage `json:"arguments"`
			Cursor string          `json:"cursor"`
			Meta   struct {
				Token json.RawMessage `json:"progressToken"`
			} `json:"_meta"`
		} `json:"params"`
	}
	if err := json.Unmarshal(line, &m); err != nil {
		fmt.Fprintln(os.Stderr, "unreadable:", err)
		return
	}
	id := string(m.ID)
	switch {
	case m.Method == "initialize" && r.m.begin != nil:
		r.m.begin(r, id)
	case m.Method == "tools/list" && r.m.list != nil:
		r.m.list(r, id, m.Params.Cursor)
	case m.Method == "tools/call":
		c := call{id: id, name: m.Params.Name, args: m.Params.Args, token: m.Params.Meta.Token}
		var a struct {
			Nonce string `json:"nonce"`
			N     int    `json:"n"`
		}
		_ = json.Unmarshal(m.Params.Args, &a)
		c.nonce, c.N = a.Nonce, a.N
		if r.m.call == nil {
			r.text(id, "done "+c.nonce)
			return
		}
		if r.m.inline {
			r.m.call(r, c)
			return
		}
		go r.m.call(r, c)
	case r.m.other != nil && r.m.other(r, m.Method, id):
	case m.Method == "initialize":
		r.result(id, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"rogue","version":"1"}}`)
	case m.Method == "tools/list":
		r.result(id, `{"tools":[`+r.tools+`]}`)
	case m.Method == "ping":
		r.result(id, `{}`)
	case id != "" && m.Method != "":
		r.line(`{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32601,"message":"method not found"}}`)
	}
}

// told reports whether the test has said something by town.tell.
func (r *rogue) told(what string) bool {
	_, err := os.Stat(r.record.Name() + "-" + what)
	return err == nil
}

// raw writes bytes as they are.
func (r *rogue) raw(s string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := io.WriteString(r.out, s); err != nil {
		os.Exit(0)
	}
}

func (r *rogue) line(s string) { r.raw(s + "\n") }

func (r *rogue) result(id, raw string) { r.line(answerLine(id, raw)) }

func answerLine(id, raw string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"result":` + raw + `}`
}

func (r *rogue) text(id, s string) { r.result(id, textResult(s)) }

func textResult(s string) string {
	b, _ := json.Marshal(s)
	return `{"content":[{"type":"text","text":` + string(b) + `}]}`
}

// flood says one line again and again, perSecond times, for that long.
func (r *rogue) flood(line string, perSecond int, d time.Duration) {
	const tick = 5 * time.Millisecond
	burst := strings.Repeat(line+"\n", max(perSecond/int(time.Second/tick), 1))
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(tick) {
		r.raw(burst)
	}
}
