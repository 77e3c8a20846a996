package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"mcpbridge/test/witness"
)

// server is the state of one process.
type server struct {
	o   *options
	log *witness.Log // nil without -witness
	out *wire        // nil in HTTP mode

	mu        sync.Mutex
	tools     []tool
	calls     int // tools/call requests so far
	count     int // of the inc tool
	endless   int // pages of -cursor endless
	cancels   map[string]func()
	listens   []json.RawMessage // ids of open subscriptions/listen requests
	notify    func()            // HTTP: gives the tools to the SDK's server
	published map[string]bool   // HTTP: the tools that it has
}

// request is what the loop reads of a message.
type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

// serveStdio reads one request a line and answers each from a goroutine of its own.
func serveStdio(s *server, in io.Reader, out io.Writer) error {
	s.out = &wire{w: out, o: s.o}
	var record *os.File
	if s.o.record != "" {
		f, err := os.OpenFile(s.o.record, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return fmt.Errorf("open record: %w", err)
		}
		defer func() { _ = f.Close() }()
		record = f
	}
	if s.o.banner {
		s.out.raw("Fixture server, listening on stdio. Have fun!\n")
	}
	if s.o.listChanged > 0 {
		go func() {
			for range time.Tick(s.o.listChanged) {
				s.toolsChanged()
			}
		}()
	}
	if s.o.list != "" && s.o.listRace == "" { // a race is told once, in the middle
		go s.watchList()
	}
	r := bufio.NewReaderSize(in, 64<<10)
	requests := 0
	for {
		s.stall()
		line, err := r.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			if record != nil {
				_, _ = record.Write(line)
			}
			var req request
			if err := json.Unmarshal(line, &req); err != nil {
				fmt.Fprintf(os.Stderr, "mcpserver: unreadable request: %v\n", err)
				continue
			}
			s.handle(req)
			if req.ID != nil {
				requests++
			}
			if s.o.stopReading > 0 && requests >= s.o.stopReading {
				sleepForever()
			}
		}
		if err != nil {
			s.ending()
			if s.o.ignoreEOF {
				sleepForever()
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("read stdin: %w", err)
		}
	}
}

// stall waits while the file of -stall exists.
func (s *server) stall() {
	for s.o.stall != "" {
		if _, err := os.Stat(s.o.stall); err != nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// maybeExit ends the process when -exit-on names this moment.
func (s *server) maybeExit(moment string) {
	if s.o.exitOn == moment {
		time.Sleep(s.o.exitDelay)
		os.Exit(s.o.exitCode)
	}
}

// handle runs on the reading goroutine; what may take time gets its own.
func (s *server) handle(req request) {
	var p struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Cursor    string          `json:"cursor"`
		RequestID json.RawMessage `json:"requestId"`
		Meta      struct {
			Token    json.RawMessage `json:"progressToken"`
			Protocol string          `json:"io.modelcontextprotocol/protocolVersion"`
		} `json:"_meta"`
	}
	_ = json.Unmarshal(req.Params, &p)
	modern := p.Meta.Protocol >= "2026-07-28"
	kind := map[string]string{"server/discover": "discover", "initialize": "initialize", "tools/list": "list",
		"tools/call": "call", "ping": "ping"}[req.Method]
	if s.o.isSilent(kind) {
		return
	}
	switch req.Method {
	case "server/discover":
		s.maybeExit("discover")
		if !s.o.modern {
			s.out.reply(req.ID, rpcError(-32601, "method not found: server/discover", nil), false)
			return
		}
		s.out.reply(req.ID, answer{result: fmt.Appendf(nil, `{"supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{"tools":{"listChanged":true}},`+
			`"ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":%s,"version":"1.0.0"}}}`, quote(s.o.name))}, true)
	case "initialize":
		s.maybeExit("initialize")
		s.out.reply(req.ID, answer{result: fmt.Appendf(nil, `{"protocolVersion":%s,"capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":%s,"version":"1.0.0"},"instructions":%s}`,
			quote(s.o.protocol), quote(s.o.name), quote(s.o.instructions))}, false)
	case "notifications/initialized":
		s.maybeExit("initialized")
	case "ping":
		s.out.reply(req.ID, answer{result: json.RawMessage(`{}`)}, false)
	case "tools/list":
		s.maybeExit("list")
		raw := s.page(p.Cursor)
		s.race()
		if modern {
			raw = append([]byte(`{"ttlMs":0,"cacheScope":"private",`), raw[1:]...)
		}
		s.out.reply(req.ID, answer{result: raw}, modern)
		if s.o.exitOn == "listed" {
			go s.maybeExit("listed")
		}
	case "tools/call":
		ctx, cancel := context.WithCancel(context.Background())
		if s.o.honourCancel == "" {
			cancel = func() {}
		}
		id := string(req.ID)
		s.mu.Lock()
		s.cancels[id] = cancel
		s.mu.Unlock()
		var progress func(int)
		if len(p.Meta.Token) > 0 {
			progress = func(n int) { s.out.progress(p.Meta.Token, n) }
		}
		go func() {
			s.call(ctx, req.ID, p.Name, p.Arguments, progress, modern)
			s.maybeExit("answered")
			s.mu.Lock()
			delete(s.cancels, id)
			s.mu.Unlock()
			cancel()
		}()
	case "notifications/cancelled":
		s.mu.Lock()
		if cancel := s.cancels[string(p.RequestID)]; cancel != nil {
			cancel()
		}
		s.listens = slices.DeleteFunc(s.listens, func(id json.RawMessage) bool { return string(id) == string(p.RequestID) })
		s.mu.Unlock()
	case "subscriptions/listen":
		s.out.message(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, req.ID))
		s.mu.Lock()
		s.listens = append(s.listens, req.ID)
		s.mu.Unlock()
	default:
		if req.ID != nil && req.Method != "" {
			s.out.reply(req.ID, rpcError(-32601, "method not found: "+req.Method, nil), false)
		}
	}
}

// call performs a tools/call and answers it, well or badly.
func (s *server) call(ctx context.Context, id json.RawMessage, name string, args json.RawMessage, progress func(int), modern bool) {
	a, c, ok := s.perform(ctx, name, args, progress)
	if !ok {
		return
	}
	if c.strikes(noise) {
		s.out.raw("[info] a log line that lost its way\n")
	}
	if c.strikes(wrongID) {
		s.out.reply(json.RawMessage(`"nobody-asked-this"`), textResult("wrong", false), modern)
	}
	if c.strikes(stringID) {
		id = json.RawMessage(quote(strings.Trim(string(id), `"`)))
	}
	switch {
	case c.strikes(halfFrame):
		msg := frame(id, a, modern)
		s.out.raw(string(msg[:len(msg)/2]))
		os.Exit(3)
	case c.strikes(closeStdout):
		_ = os.Stdout.Close()
	case c.strikes(noBody):
		s.out.message(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s}`, id))
	default:
		s.out.reply(id, a, modern)
	}
	if c.strikes(dupReply) {
		s.out.reply(id, a, modern)
	}
	if c.strikes(lateReply) {
		time.Sleep(200 * time.Millisecond)
		s.out.reply(id, a, modern)
	}
}

// toolsChanged tells the client that the list is another one.
func (s *server) toolsChanged() {
	if s.out == nil {
		if s.notify != nil {
			s.notify()
		}
		return
	}
	s.mu.Lock()
	listens := slices.Clone(s.listens)
	s.mu.Unlock()
	for _, id := range listens {
		s.out.message(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, id))
	}
	if len(listens) == 0 {
		s.out.message([]byte(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`))
	}
}
