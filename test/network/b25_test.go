package network

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"mcpbridge/messages"
	"mcpbridge/test/harness"
)

const mib = 1 << 20

// fill writes so many bytes of a text.
func fill(w io.Writer, n int) {
	part := bytes.Repeat([]byte("y"), 64<<10)
	for n > 0 {
		k := min(n, len(part))
		if _, err := w.Write(part[:k]); err != nil {
			return
		}
		n -= k
	}
}

func (x *exchange) split() (head, tail string) {
	head, tail, _ = strings.Cut(x.message(`{"content":[{"type":"text","text":"|"}]}`), "|")
	return head, tail
}

// shapes are the ways in which an answer of n bytes can come.
var shapes = map[string]func(x *exchange, n int){
	"JSON with a length": func(x *exchange, n int) {
		head, tail := x.split()
		x.w.Header().Set("Content-Type", "application/json")
		x.w.Header().Set("Content-Length", fmt.Sprint(len(head)+n+len(tail)))
		_, _ = io.WriteString(x.w, head)
		fill(x.w, n)
		_, _ = io.WriteString(x.w, tail)
	},
	"JSON in chunks": func(x *exchange, n int) {
		head, tail := x.split()
		x.w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(x.w, head)
		fill(x.w, n)
		_, _ = io.WriteString(x.w, tail)
	},
	"SSE on one line": func(x *exchange, n int) {
		head, tail := x.split()
		x.w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(x.w, "data: "+head)
		fill(x.w, n)
		_, _ = io.WriteString(x.w, tail+"\n\n")
	},
	"gzip JSON": func(x *exchange, n int) {
		head, tail := x.split()
		x.w.Header().Set("Content-Type", "application/json")
		x.w.Header().Set("Content-Encoding", "gzip")
		z := fastGzip(x.w)
		_, _ = io.WriteString(z, head)
		fill(z, n)
		_, _ = io.WriteString(z, tail)
		_ = z.Close()
	},
	"gzip SSE": func(x *exchange, n int) {
		head, tail := x.split()
		x.w.Header().Set("Content-Type", "text/event-stream")
		x.w.Header().Set("Content-Encoding", "gzip")
		z := fastGzip(x.w)
		_, _ = io.WriteString(z, "data: "+head)
		fill(z, n)
		_, _ = io.WriteString(z, tail+"\n\n")
		_ = z.Close()
	},
}

// memory reads a line of /proc/PID/status in bytes.
func memory(t *testing.T, pid int, what string) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skip("no /proc here")
	}
	for _, line := range strings.Split(string(b), "\n") {
		if f := strings.Fields(line); len(f) > 1 && f[0] == what+":" {
			n, _ := strconv.Atoi(f[1])
			return n << 10
		}
	}
	t.Fatalf("no %s", what)
	return 0
}

// fastGzip compresses as fast as it can: these tests are about what comes out again.
func fastGzip(w io.Writer) *gzip.Writer {
	z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed)
	return z
}

// TestB25LargeAnswers: an answer over the cap costs its own call, in whatever shape it
// comes, and no memory to speak of.
func TestB25LargeAnswers(t *testing.T) {
	lab := harness.NewLab(t)
	o := newOrigin(t, lab, "web")
	var shape func(x *exchange, n int)
	var size int
	o.on("tools/call", func(x *exchange) bool {
		x.o.mu.Lock()
		f, n := shape, size
		x.o.mu.Unlock()
		f(x, n)
		return true
	})
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{
		"web":  harness.M{"url": o.URL + "/mcp", "type": "http", "effects": harness.M{"read": "read_only"}, "limits": harness.M{"frame_bytes": "8MiB"}},
		"near": lab.Server(t, "near")})})
	d.Await(t, "ready", "web", "near")
	call := func(how string, n int) (messages.Outcome, harness.Result) {
		o.mu.Lock()
		shape, size = shapes[how], n
		o.mu.Unlock()
		return d.Call(t, "web/read", `{}`, "--timeout", "40s")
	}
	for how := range shapes {
		if out, r := call(how, 10); out.Kind != messages.OK {
			t.Errorf("%s: %s", how, r)
		}
	}
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", d.PID), []byte("5"), 0) // the peak begins anew
	before := memory(t, d.PID, "VmRSS")
	sizes := []int{20 * mib, 100 * mib}
	if harness.Race { // where memory is not looked at, the larger one shows nothing more
		sizes = sizes[:1]
	}
	for how := range shapes {
		for _, n := range sizes {
			if out, r := call(how, n); out.Kind != messages.ToolError || out.Code != messages.CodeResultTooLarge || r.Exit != 5 {
				t.Errorf("%d MiB as %s: %s %s %s", n/mib, how, out.Kind, out.Code, out.ErrorText())
			}
			if out, r := call(how, 10); out.Kind != messages.OK {
				t.Errorf("after %d MiB as %s: %s", n/mib, how, r)
			}
			if out, r := d.Call(t, "near/read", `{}`); out.Kind != messages.OK {
				t.Errorf("the neighbour, after %d MiB as %s: %s", n/mib, how, r)
			}
		}
	}
	if s := d.Server(t, "web"); s.Restarts != 0 || s.State != messages.StateReady {
		t.Errorf("%s, %d restarts", s.State, s.Restarts)
	}
	grown := memory(t, d.PID, "VmHWM") - before
	t.Logf("resident before %d MiB, at most %d MiB more", before/mib, grown/mib)
	if grown > 64*mib && !harness.Race {
		t.Errorf("the daemon grew by %d MiB", grown/mib)
	}
	for how := range shapes {
		if out, r := call(how, 5*mib); out.Kind != messages.OK || len(out.Text()) != 5*mib {
			t.Errorf("5 MiB as %s: %s %s", how, out.Kind, r.Stderr)
		}
	}
}

// TestB25Bombs: answers that never end. The deadline holds, or the noise is noticed;
// memory stays, and the next call is served.
func TestB25Bombs(t *testing.T) {
	endless := func(w io.Writer, x *exchange, unit string) {
		part := []byte(strings.Repeat(unit, 64<<10/len(unit)))
		for x.r.Context().Err() == nil {
			if _, err := w.Write(part); err != nil {
				return
			}
		}
	}
	type bomb struct {
		name string
		f    func(x *exchange)
	}
	var bombs []bomb
	for _, b := range []struct{ name, kind, unit string }{
		{"comments", "text/event-stream", ": nothing\n"}, {"empty events", "text/event-stream", "\n"}, {"other events", "text/event-stream", "event: ping\ndata: {}\n\n"},
		{"ids", "text/event-stream", "id: 1\n"}, {"data without end", "text/event-stream", "data: x\n"}, {"a line without end", "text/event-stream", "x"},
		{"JSON blanks", "application/json", " "}, {"JSON brackets", "application/json", "["},
	} {
		bombs = append(bombs, bomb{b.name, func(x *exchange) {
			x.w.Header().Set("Content-Type", b.kind)
			endless(x.w, x, b.unit)
		}}, bomb{"gzip " + b.name, func(x *exchange) {
			x.w.Header().Set("Content-Type", b.kind)
			x.w.Header().Set("Content-Encoding", "gzip")
			endless(fastGzip(x.w), x, b.unit)
		}})
	}
	bombs = append(bombs,
		bomb{"headers", func(x *exchange) {
			c, rw, err := rawConn(x)
			if err != nil {
				return
			}
			defer func() { _ = c.Close() }()
			_, _ = rw.WriteString("HTTP/1.1 200 OK\r\n")
			for i := 0; ; i++ {
				if _, err := fmt.Fprintf(rw, "X-%d: y\r\n", i); err != nil {
					return
				}
			}
		}},
		bomb{"a header line", func(x *exchange) {
			c, rw, err := rawConn(x)
			if err != nil {
				return
			}
			defer func() { _ = c.Close() }()
			_, _ = rw.WriteString("HTTP/1.1 200 OK\r\nX: ")
			for {
				if _, err := rw.WriteString("yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy"); err != nil {
					return
				}
			}
		}},
		bomb{"1xx", func(x *exchange) {
			c, rw, err := rawConn(x)
			if err != nil {
				return
			}
			defer func() { _ = c.Close() }()
			for {
				if _, err := rw.WriteString("HTTP/1.1 103 Early Hints\r\n\r\n"); err != nil {
					return
				}
			}
		}},
		bomb{"no HTTP at all", func(x *exchange) { x.raw("\x00\x01\x02 SSH-2.0-whatever\r\n", true) }},
		bomb{"no gzip", func(x *exchange) { x.w.Header().Set("Content-Encoding", "gzip"); x.result(`{}`) }},
		bomb{"unasked encoding", func(x *exchange) { x.w.Header().Set("Content-Encoding", "br"); x.result(`{}`) }},
	)
	lab := harness.NewLab(t)
	o := newOrigin(t, lab, "web")
	var now func(x *exchange)
	o.on("tools/call", func(x *exchange) bool {
		if x.msg.Params.Name != "write" {
			return false
		}
		x.o.mu.Lock()
		f := now
		x.o.mu.Unlock()
		f(x)
		return true
	})
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{
		"web": harness.M{"url": o.URL + "/mcp", "type": "http", "effects": harness.M{"read": "read_only"}, "limits": harness.M{"frame_bytes": "8MiB"},
			"timeouts": harness.M{"abandon_after": "50ms"}},
		"near": lab.Server(t, "near")})})
	d.Await(t, "ready", "web", "near")
	_, _ = d.Call(t, "web/read", `{"nonce":"warm"}`)
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", d.PID), []byte("5"), 0)
	before := memory(t, d.PID, "VmRSS")
	for i, b := range bombs {
		o.mu.Lock()
		now = b.f
		o.mu.Unlock()
		began := time.Now()
		out, r := d.Call(t, "web/write", fmt.Sprintf(`{"nonce":"w%d"}`, i), "--timeout", "1500ms")
		if out.Kind != messages.OutcomeUnknown && out.Code != messages.CodeResultTooLarge {
			t.Errorf("%s: %s", b.name, r)
		}
		t.Logf("%s: %s after %s", b.name, out.Code, time.Since(began).Round(10*time.Millisecond))
		if out, r := d.Call(t, "near/read", `{}`); out.Kind != messages.OK {
			t.Errorf("the neighbour, beside %s: %s", b.name, r)
		}
		if out, r := d.Call(t, "web/read", fmt.Sprintf(`{"nonce":"r%d"}`, i)); out.Kind != messages.OK {
			t.Errorf("after %s: %s", b.name, r)
		}
	}
	if s := d.Server(t, "web"); s.Restarts != 0 {
		t.Errorf("%d restarts", s.Restarts)
	}
	grown := memory(t, d.PID, "VmHWM") - before
	t.Logf("resident before %d MiB, at most %d MiB more", before/mib, grown/mib)
	if grown > 64*mib && !harness.Race {
		t.Errorf("the daemon grew by %d MiB", grown/mib)
	}
}
