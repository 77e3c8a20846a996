package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"mcpbridge/test/witness"
)

// call is one tools/call on its way through the tool.
type call struct {
	ctx      context.Context // ends when the call is cancelled and -honour-cancel is set
	args     json.RawMessage
	progress func(n int) // nil when nobody asked
	strikes  func(fault string) bool

	Nonce   string          `json:"nonce"`
	SleepMS int             `json:"sleep_ms"`
	Fault   string          `json:"fault"`
	Text    string          `json:"text"`
	Bytes   int             `json:"bytes"`
	Depth   int             `json:"depth"`
	Message *string         `json:"message"`
	Code    *int            `json:"code"`
	Data    json.RawMessage `json:"data"`
	MS      int             `json:"ms"`
	Name    string          `json:"name"`
}

// answer is a result object or a JSON-RPC error object.
type answer struct{ result, rpcErr json.RawMessage }

// perform runs a call between its begin and its end. ok is false when there is to
// be no answer.
func (s *server) perform(ctx context.Context, name string, args json.RawMessage, progress func(int)) (a answer, c *call, ok bool) {
	s.mu.Lock()
	s.calls++
	n := s.calls
	s.mu.Unlock()
	s.maybeExit("call")
	t, found := s.find(name)
	if !found {
		return rpcError(-32602, "unknown tool: "+name, nil), &call{strikes: func(string) bool { return false }}, true
	}
	if len(bytes.TrimSpace(args)) == 0 {
		args = json.RawMessage("{}")
	}
	c = &call{ctx: ctx, args: args, progress: progress}
	if err := json.Unmarshal(args, c); err != nil && name != "echo" {
		c.strikes = func(string) bool { return false }
		return rpcError(-32602, "bad arguments: "+err.Error(), nil), c, true
	}
	c.strikes = func(fault string) bool { return c.Fault == fault || s.o.faulty(fault, name, n) }
	if c.Nonce == "" {
		c.Nonce = fmt.Sprintf("%s-%d-%d", s.o.name, os.Getpid(), n)
	}
	if c.strikes(crashBeforeBegin) {
		os.Exit(3)
	}
	s.must(s.log.Begin(c.Nonce, name, t.class))
	s.sleep(c, time.Duration(c.SleepMS)*time.Millisecond)
	if c.ctx.Err() == nil {
		a = t.run(s, c)
	}
	if c.strikes(crashAfterBegin) {
		os.Exit(3)
	}
	s.must(s.log.End(c.Nonce, name, t.class))
	if c.strikes(crashAfterEnd) {
		os.Exit(3)
	}
	if c.ctx.Err() != nil {
		if s.o.honourCancel == "silent" {
			return answer{}, c, false
		}
		return textResult("cancelled", true), c, true
	}
	switch {
	case c.strikes(hugeFrame):
		a = textResult(strings.Repeat("x", 48<<20), false)
	case c.strikes(deep):
		a = nested(100_000)
	}
	return a, c, !c.strikes(never)
}

// must ends the process when the witness cannot be written: a server that cannot
// testify must not act.
func (s *server) must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "mcpserver:", err)
		os.Exit(9)
	}
}

// sleep waits, reporting progress on the way, until the time is over or the call
// is cancelled.
func (s *server) sleep(c *call, d time.Duration) {
	if d <= 0 {
		return
	}
	end := time.NewTimer(d)
	defer end.Stop()
	var tick <-chan time.Time
	if c.progress != nil && s.o.progress > 0 {
		t := time.NewTicker(s.o.progress)
		defer t.Stop()
		tick = t.C
	}
	for n := 1; ; n++ {
		select {
		case <-tick:
			c.progress(n)
		case <-c.ctx.Done():
			return
		case <-end.C:
			return
		}
	}
}

func quote(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s)
	return strings.TrimSuffix(b.String(), "\n")
}

func textResult(text string, isError bool) answer {
	return answer{result: json.RawMessage(fmt.Sprintf(`{"content":[{"type":"text","text":%s}],"isError":%t}`, quote(text), isError))}
}

func structured(text string, raw json.RawMessage) answer {
	return answer{result: json.RawMessage(fmt.Sprintf(`{"content":[{"type":"text","text":%s}],"structuredContent":%s}`, quote(text), raw))}
}

func rpcError(code int, message string, data json.RawMessage) answer {
	out := fmt.Sprintf(`{"code":%d,"message":%s`, code, quote(message))
	if len(data) > 0 {
		out += `,"data":` + string(data)
	}
	return answer{rpcErr: json.RawMessage(out + "}")}
}

func nested(depth int) answer {
	raw := strings.Repeat(`{"a":`, max(depth-1, 0)) + "{}" + strings.Repeat("}", max(depth-1, 0))
	return structured("deep", json.RawMessage(raw))
}

func runRead(_ *server, c *call) answer { return textResult("read "+c.Nonce, false) }

func runWrite(s *server, c *call) answer {
	if s.o.ledger != "" {
		f, err := os.OpenFile(s.o.ledger, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return textResult(err.Error(), true)
		}
		defer func() { _ = f.Close() }()
		if _, err := fmt.Fprintf(f, "%s %s\n", c.Nonce, c.Text); err != nil {
			return textResult(err.Error(), true)
		}
	}
	return textResult("wrote "+c.Nonce, false)
}

func runEcho(_ *server, c *call) answer { return structured(string(c.args), c.args) }

// blocksResult holds what a bridge must not touch: an unknown block, integers
// above 2^53, numbers with a form of their own, the order of keys, blanks.
const blocksResult = `{"_meta":{"example.org/z":1.0,"example.org/a":[9007199254740993,123456789012345678901234567890]},` +
	`"content":[{"type":"text","text":"one & <two>"},{"type":"image","data":"aGVsbG8=","mimeType":"image/png"},` +
	`{"type":"audio","data":"aGVsbG8gd29ybGQ=","mimeType":"audio/wav"},` +
	`{"type":"resource_link","uri":"file:///a","name":"a"},` +
	`{"type":"resource","resource":{"uri":"file:///b","mimeType":"text/plain","text":"b"}},` +
	`{"type":"hologram","depth":1e400,"z":{"y":1,"x":2}}],` +
	`"structuredContent":{"zebra":9007199254740993, "ant":1.50,"list":[1,2.0]},"isError":false,"x-unknown":[true]}`

func runBlocks(_ *server, _ *call) answer { return answer{result: json.RawMessage(blocksResult)} }

func runBig(_ *server, c *call) answer {
	return textResult(strings.Repeat("x", max(c.Bytes, 0)), false)
}

func runNest(_ *server, c *call) answer { return nested(c.Depth) }

func runFail(_ *server, c *call) answer {
	if c.Message == nil || *c.Message == "" {
		return answer{result: json.RawMessage(`{"content":[],"isError":true}`)}
	}
	return textResult(*c.Message, true)
}

func runRPCError(_ *server, c *call) answer {
	code, message := -32050, "as you wished"
	if c.Code != nil {
		code = *c.Code
	}
	if c.Message != nil {
		message = *c.Message
	}
	return rpcError(code, message, c.Data)
}

func runInc(s *server, _ *call) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	return textResult(fmt.Sprint(s.count), false)
}

func runEnv(_ *server, _ *call) answer {
	env := map[string]string{}
	for _, kv := range os.Environ() {
		k, v, _ := strings.Cut(kv, "=")
		env[k] = v
	}
	raw, _ := json.Marshal(env)
	return structured(string(raw), raw)
}

func runPID(s *server, _ *call) answer {
	raw := fmt.Appendf(nil, `{"pid":%d,"ppid":%d,"pgid":%d,"name":%s}`, os.Getpid(), os.Getppid(), processGroup(), quote(s.o.name))
	return structured(fmt.Sprint(os.Getpid()), raw)
}

func runSlow(s *server, c *call) answer {
	s.sleep(c, time.Duration(c.MS)*time.Millisecond)
	return textResult(fmt.Sprintf("slept %d ms", c.MS), false)
}

func runAddTool(s *server, c *call) answer {
	s.mu.Lock()
	s.tools = append(s.tools, tool{c.Name, witness.Read, define(c.Name, "Added later.", hintRead, ""), runRead})
	s.mu.Unlock()
	s.toolsChanged()
	return textResult("added "+c.Name, false)
}

func runRelist(s *server, _ *call) answer {
	s.toolsChanged()
	return textResult("said so", false)
}

func runRemoveTool(s *server, c *call) answer {
	s.mu.Lock()
	kept := s.tools[:0:0]
	for _, t := range s.tools {
		if t.name != c.Name {
			kept = append(kept, t)
		}
	}
	s.tools = kept
	s.mu.Unlock()
	s.toolsChanged()
	return textResult("removed "+c.Name, false)
}

func runCrash(_ *server, c *call) answer {
	code := 3
	if c.Code != nil {
		code = *c.Code
	}
	os.Exit(code)
	return answer{}
}
