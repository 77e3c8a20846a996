package protocol

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"mcpbridge/messages"
	"mcpbridge/test/harness"
)

// Lines that a server may write around its answers: %s is the answer.
var oddLines = map[string]string{
	"debug":            "[debug] hi\n%s\n",
	"colours":          "\x1b[32mok\x1b[0m\n%s\n",
	"a number":         "42\n%s\n",
	"a log object":     `{"level":"info","msg":"x"}` + "\n%s\n",
	"a log, id, level": `{"level":"info","id":7,"msg":"x","method":"GET"}` + "\n%s\n",
	"half a message":   `{"jsonrpc":"2.0","id":` + "\n%s\n",
	"null, true":       "null\ntrue\n\"text\"\n%s\n",
	"NUL":              "\x00\x00\n%s\n",
	"invalid UTF-8":    "\xff\xfe log\n%s\n",
	"no version":       `{"id":3}` + "\n%s\n",
	"empty objects":    "{}\n[]\n[[]]\n[1,2]\n%s\n",
	"duplicate keys":   `{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"id":2}` + "\n%s\n",
	"an odd id":        `{"jsonrpc":"2.0","id":{"a":1},"result":{}}` + "\n" + `{"jsonrpc":"2.0","id":[1],"result":{}}` + "\n" + `{"jsonrpc":"2.0","id":1e400,"result":{}}` + "\n%s\n",
	"id null":          `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}` + "\n%s\n",
	"an odd error":     `{"jsonrpc":"2.0","id":null,"error":"what?"}` + "\n%s\n",
	"BOM":              "\ufeff%s\n",
	"CRLF":             "%s\r\n",
	"blank lines":      "\n\r\n   \n%s\n\n",
	"trailing blank":   "%s \n",
	"trailing tabs":    "  %s\t\t \r\n",
	"in a batch":       "[%s]\n",
	"two on a line":    `{"jsonrpc":"2.0","method":"notifications/message","params":{}}%s` + "\n",
	"two with a blank": `%s {"jsonrpc":"2.0","method":"notifications/message","params":{}}` + "\n",
}

func init() {
	modes["odd lines"] = mode{call: func(r *rogue, c call) {
		r.raw(fmt.Sprintf(oddLines[c.nonce], answerLine(c.id, textResult("done "+c.nonce))))
	}}
	banner := func(s string) mode { return mode{start: func(r *rogue) { r.raw(s) }} }
	modes["banner"] = banner("Server running on stdio\n")
	modes["banner with BOM"] = banner("\ufeffServer running on stdio\r\n\r\n\x1b[1mready\x1b[0m\r\n")
	modes["log banner"] = banner(`{"level":"info","time":1}` + "\n42\n")
	modes["long banner"] = banner(strings.Repeat("=", 1<<20) + "\n")
	modes["noisy"] = mode{call: func(r *rogue, c call) {
		r.raw(strings.Repeat("[debug] one more line\n", c.N))
		r.text(c.id, "done")
	}}
}

// R01, B23, B24, B27: whatever else stands on stdout, the session lives and each call gets
// its answer.
func TestR01OddLines(t *testing.T)  { oddLinesTest(t) }
func TestB24OddFrames(t *testing.T) { noiseIsCounted(t) }
func TestB27LineEnds(t *testing.T) {
	oddLinesTest(t, "BOM", "CRLF", "blank lines", "trailing blank", "trailing tabs", "two on a line", "two with a blank")
}

func oddLinesTest(t *testing.T, only ...string) {
	c := found(t, "odd lines")
	gen := c.row().Generation
	if only == nil {
		for name := range oddLines {
			only = append(only, name)
		}
	}
	for _, name := range only {
		if o := c.mustCall("rogue/write", nonce("%s", name)); o.Text() != "done "+name {
			t.Errorf("%s: %q", name, o.Text())
		}
	}
	c.sameProcess(gen)
}

func noiseIsCounted(t *testing.T) {
	c := found(t, "noisy")
	gen := c.row().Generation
	c.mustCall("rogue/read", `{"n":7}`)
	c.eventually("the noise is counted", func() bool { return c.row().NoiseLines == 7 })
	if c.row().Degraded {
		t.Error("degraded by a few lines")
	}
	c.mustCall("rogue/read", `{"n":1500}`)
	c.eventually("too much of it shows", func() bool { return c.row().Degraded && c.row().NoiseLines == 1507 })
	c.mustCall("rogue/read", `{}`)
	c.sameProcess(gen)
}

func TestR02Banner(t *testing.T) { bannerTest(t) }
func TestB23Banner(t *testing.T) { bannerTest(t) }

func bannerTest(t *testing.T) {
	for _, name := range []string{"banner", "banner with BOM", "log banner", "long banner"} {
		t.Run(name, func(t *testing.T) {
			c := found(t, name)
			c.mustCall("rogue/read", `{}`)
			c.eventually("the banner is counted", func() bool { return c.row().NoiseLines > 0 })
		})
	}
}

// sized is an answer whose line has exactly n bytes without its newline; the id stands
// first, last or in the middle.
func sized(id string, n int, place string) string {
	head, tail := `{"jsonrpc":"2.0","id":`+id+`,"result":{"content":[{"type":"text","text":"`, `"}]}}`
	switch place {
	case "last":
		head, tail = `{"jsonrpc":"2.0","result":{"content":[{"type":"text","text":"`, `"}]},"id":`+id+`}`
	case "middle":
		pad := `,"vendor":"` + strings.Repeat("v", n/3) + `"`
		head, tail = `{"jsonrpc":"2.0"`+pad+`,"id":`+id+pad+`,"result":{"content":[{"type":"text","text":"`, `"}]}}`
	}
	return head + strings.Repeat("x", max(n-len(head)-len(tail), 0)) + tail
}

func init() {
	modes["sizes"] = mode{call: func(r *rogue, c call) {
		r.line(sized(c.id, c.N, c.nonce))
	}}
	modes["no newline"] = mode{call: func(r *rogue, c call) {
		if c.nonce != "endless" {
			r.text(c.id, "done")
			return
		}
		msg := sized(c.id, 1<<20, "middle")
		r.mu.Lock() // nobody else writes before the line is at its end
		defer r.mu.Unlock()
		_, _ = io.WriteString(r.out, msg[:len(msg)-10])
		for !r.told("the rest") {
			time.Sleep(5 * time.Millisecond)
		}
		_, _ = io.WriteString(r.out, msg[len(msg)-10:]+"\n")
	}}
}

// R03: the cap is where it is said to be, and beyond it one call fails, at once, wherever
// its id stands.
func TestR03FrameSizes(t *testing.T) {
	const limit = 256 << 10
	c := found(t, "sizes", harness.M{"limits": harness.M{"frame_bytes": "256KiB", "result_bytes": "256KiB"}})
	gen := c.row().Generation
	for _, place := range []string{"first", "middle", "last"} {
		for _, n := range []int{1 << 10, 64<<10 - 1, 64 << 10, 64<<10 + 1, limit - 1, limit} {
			if o := c.mustCall("rogue/read", fmt.Sprintf(`{"n":%d,"nonce":%q}`, n, place)); place != "middle" && len(o.Result) < n-100 {
				t.Errorf("%s: %d bytes of %d", place, len(o.Result), n)
			}
		}
		for _, n := range []int{limit + 1, limit + 2, 2 * limit, 40 * limit} {
			began := time.Now()
			o := c.want(messages.ToolError, messages.CodeResultTooLarge, "rogue/write", fmt.Sprintf(`{"n":%d,"nonce":%q}`, n, place))
			if !o.Sent() || time.Since(began) > 30*time.Second {
				t.Errorf("%s %d: sent %v after %s", place, n, o.Sent(), time.Since(began))
			}
		}
	}
	c.sameProcess(gen)
}

// R03: who waits for an answer that is over the cap need not wait for its end.
func TestR03IDBeforeTheEnd(t *testing.T) {
	c := found(t, "no newline", harness.M{"limits": harness.M{"frame_bytes": "64KiB", "result_bytes": "64KiB"}})
	gen := c.row().Generation
	c.want(messages.ToolError, messages.CodeResultTooLarge, "rogue/read", nonce("endless"))
	c.tell("the rest")
	c.mustCall("rogue/read", `{}`) // answered behind the rest of that line
	c.sameProcess(gen)
}

// B25: results of 5, 20 and 100 MiB arrive where they may, and cost one call where not.
func TestB25LargeResults(t *testing.T) {
	t.Run("below the cap", func(t *testing.T) {
		c := found(t, "sizes", harness.M{"limits": harness.M{"frame_bytes": "128MiB", "result_bytes": "128MiB"}})
		c.calm += 300 << 20 // the caller holds them: what is left afterwards counts
		for _, n := range []int{5 << 20, 20 << 20, 100 << 20} {
			if o := c.mustCall("rogue/read", fmt.Sprintf(`{"n":%d}`, n)); len(o.Result) < n-100 || o.Truncated {
				t.Errorf("%d bytes of %d, truncated %v", len(o.Result), n, o.Truncated)
			}
		}
	})
	t.Run("above the cap", func(t *testing.T) {
		c := found(t, "sizes", harness.M{"limits": harness.M{"frame_bytes": "4MiB", "result_bytes": "4MiB"}})
		gen := c.row().Generation
		for _, n := range []int{5 << 20, 20 << 20, 100 << 20} {
			c.want(messages.ToolError, messages.CodeResultTooLarge, "rogue/read", fmt.Sprintf(`{"n":%d,"nonce":"last"}`, n))
			c.mustCall("rogue/read", `{"n":1000}`)
		}
		c.sameProcess(gen)
	})
}

func init() {
	modes["nesting"] = mode{call: func(r *rogue, c call) {
		deep := strings.Repeat(`{"a":`, c.N) + "1" + strings.Repeat("}", c.N)
		if c.nonce == "arrays" {
			deep = strings.Repeat("[", c.N) + strings.Repeat("]", c.N)
		}
		r.result(c.id, `{"content":[],"structuredContent":`+deep+`}`)
	}}
}

// R04: nesting costs its own call at most, and no stack.
func TestR04Nesting(t *testing.T) {
	c := found(t, "nesting")
	gen := c.row().Generation
	for _, shape := range []string{"objects", "arrays"} {
		for _, n := range []int{100, 9_000, 1_000_000} {
			o := c.try("rogue/read", fmt.Sprintf(`{"n":%d,"nonce":%q}`, n, shape))
			if n == 100 && o.Kind != messages.OK {
				t.Errorf("%s %d: %s %s", shape, n, o.Kind, o.Code)
			}
			if o.Kind == messages.NotSent || o.Kind == messages.Rejected || o.Code == messages.CodeTimeout {
				t.Errorf("%s %d: %s %s", shape, n, o.Kind, o.Code)
			}
			_ = o.Text()
			_, _ = json.Marshal(o)
		}
	}
	c.sameProcess(gen)
}

func init() {
	modes["half"] = mode{call: func(r *rogue, c call) {
		msg := answerLine(c.id, textResult("done"))
		switch c.nonce {
		case "whole":
			r.line(msg)
			return
		case "no newline":
			r.raw(msg)
		default:
			r.raw(msg[:min(c.N, len(msg)-1)])
		}
		os.Exit(1)
	}}
}

// R05: part of an answer and the end is no answer; the side effect is not repeated.
func TestR05TruncatedFrame(t *testing.T) {
	c := found(t, "half", harness.M{"restart": harness.M{"burst": 0, "backoff": harness.M{"initial": "10ms", "max": "50ms"}}})
	for _, n := range []int{0, 1, 20, 40, 1000} {
		name := fmt.Sprintf("cut at %d", n)
		o := c.try("rogue/write", fmt.Sprintf(`{"n":%d,"nonce":%q}`, n, name))
		if o.Kind != messages.OutcomeUnknown || o.SafeToRetry() {
			t.Errorf("%s: %s %s", name, o.Kind, o.Code)
		}
		if got := c.begun(name); got != 1 {
			t.Errorf("%s: begun %d times", name, got)
		}
		c.mustCall("rogue/write", nonce("whole"))
	}
	c.mustCall("rogue/write", nonce("no newline")) // the last line of a stream needs none
}
