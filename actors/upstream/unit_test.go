package upstream

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"mcpbridge/config"
	"mcpbridge/internal/rawjson"
	"mcpbridge/messages"
)

const oddTools = `{"tools":[
 {"name":"good","title":"Good","description":"fine","inputSchema":{"type":"object","properties":{"n":{"type":"integer","maximum":9007199254740993}}},"annotations":{"readOnlyHint":true,"idempotentHint":"yes"},"x-future":{"b":1.0,"a":2}},
 null, {"description":"nameless"}, {"name":" "}, "text",
 {"name":"good","description":"again"},
 {"name":"blank","description":"  ","inputSchema":null},
 {"name":"noschema"}, {"name":"boolschema","description":"d","inputSchema":true},
 {"name":"emptyschema","description":"d","inputSchema":{}},
 {"name":"typeless","description":"d","inputSchema":{"properties":{}}},
 {"name":"arrayschema","description":"d","inputSchema":{"type":"array"}},
 {"name":"task","description":7,"inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}}
]}`

func TestAdaptOddTools(t *testing.T) {
	a := newAdapter("srv")
	var tools []byte
	rawjson.Fields([]byte(oddTools), func(_, v []byte) { tools = v })
	rawjson.Array(tools, func(v []byte) bool { a.add(v); return true })
	l := a.listing()
	type row struct{ Name, Description, Schema string }
	var got []row
	for _, d := range l.Tools {
		got = append(got, row{d.Name, d.Description, string(d.InputSchema)})
	}
	plain := string(plainSchema)
	want := []row{
		{"good", "fine", `{"type":"object","properties":{"n":{"type":"integer","maximum":9007199254740993}}}`},
		{"blank", `Tool "blank" from MCP server "srv".`, plain},
		{"noschema", `Tool "noschema" from MCP server "srv".`, plain},
		{"boolschema", "d", plain}, {"emptyschema", "d", plain},
		{"typeless", "d", `{"type":"object","properties":{}}`},
		{"arrayschema", "d", plain},
		{"task", `Tool "task" from MCP server "srv".`, plain},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if l.Discovered != 13 {
		t.Errorf("discovered %d", l.Discovered)
	}
	good := l.Tools[0]
	if good.Title != "Good" || good.Hints.ReadOnly == nil || !*good.Hints.ReadOnly || good.Hints.Idempotent != nil {
		t.Errorf("%+v", good)
	}
	if !strings.HasSuffix(string(good.Raw), `"x-future":{"b":1.0,"a":2}}`) {
		t.Errorf("raw %s", good.Raw)
	}
	dropped := 0
	for _, i := range l.Issues {
		if i.Severity == messages.SeverityError {
			dropped++
		}
	}
	if dropped != l.Discovered-len(l.Tools) {
		t.Errorf("%d entries gone, %d said so", l.Discovered-len(l.Tools), dropped)
	}
	for _, part := range []string{"idempotentHint is not a boolean", "as a task only", "listed twice", "description is no string"} {
		if !hasIssue(l, part) {
			t.Errorf("no issue about %q", part)
		}
	}
}

// TestScanAgreesWithTheDecoder: whatever object there is, the fields are those that
// encoding/json finds, byte for byte.
func TestScanAgreesWithTheDecoder(t *testing.T) {
	value := rapid.SampledFrom([]string{`1`, `-1.50e3`, `"a\"}],\\"`, `"é"`, `true`, `null`, `{"a":[1,{"b":"]"}]}`, `[]`, `[ {} , "," ]`})
	space := rapid.SampledFrom([]string{"", " ", "\n\t"})
	key := rapid.SampledFrom([]string{`"id"`, `"a\u0062"`, `"\""`, `"x{"`, `""`})
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		b.WriteString("{")
		for i := range rapid.IntRange(0, 5).Draw(t, "n") {
			if i > 0 {
				b.WriteString(",")
			}
			for _, s := range []string{space.Draw(t, "s"), key.Draw(t, "k"), space.Draw(t, "s"), ":", space.Draw(t, "s"), value.Draw(t, "v"), space.Draw(t, "s")} {
				b.WriteString(s)
			}
		}
		b.WriteString("}")
		want := map[string]json.RawMessage{}
		if err := json.Unmarshal([]byte(b.String()), &want); err != nil {
			t.Fatal(err)
		}
		got := map[string]json.RawMessage{}
		rawjson.Fields([]byte(b.String()), func(k, v []byte) { got[string(k)] = v })
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("%s\n%s", b.String(), d)
		}
	})
}

// TestLineReader: whatever the chunks, every line comes once, and one over the cap
// without its bytes.
func TestLineReader(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = chunkBytes + readBuffer + 100
		var in bytes.Buffer
		var want []string
		for i, n := range rapid.SliceOf(rapid.SampledFrom([]int{0, 1, 10, readBuffer - 1, readBuffer, readBuffer + 1, limit - 1, limit, limit + 1, chunkBytes + 1, 3 * chunkBytes})).Draw(t, "lines") {
			line := strings.Repeat(string(rune('a'+i%26)), n)
			in.WriteString(line + "\n")
			if n > limit {
				line = "over"
			}
			want = append(want, line)
		}
		tail := rapid.SampledFrom([]string{"", "tail"}).Draw(t, "tail")
		if in.WriteString(tail); tail != "" {
			want = append(want, "tail")
		}
		r := newLineReader(&in, limit)
		var got []string
		for {
			f, err := r.next()
			if errors.Is(err, io.EOF) {
				break
			}
			if f.over {
				got = append(got, "over")
				continue
			}
			got = append(got, string(f.data))
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatal(d)
		}
	})
}

func TestEventReader(t *testing.T) {
	in := ": comment\r\nevent: endpoint\r\ndata: /x\r\n\r\nid: 3\nretry: 250\n\ndata: a\ndata: b\n\ngarbage\n\ndata:" + strings.Repeat("x", 5000) +
		"\n\n: " + strings.Repeat("a comment ", 500) + "\ndata: short\n\ndata: " + strings.Repeat("y", 900) + "\ndata: " + strings.Repeat("y", 900) +
		"\n\ndata: {\"result\":\"" + strings.Repeat("z", 5000) + "\",\"id\":7}\ndata: more\n\ndata: last\n\ndata: cut"
	r := newEventReader(strings.NewReader(in), 1000)
	var got []string
	for {
		ev, err := r.next()
		if err != nil {
			break
		}
		if ev.data.over {
			got = append(got, fmt.Sprint("over ", ev.data.id))
			continue
		}
		got = append(got, ev.name+"|"+string(ev.data.data))
	}
	if d := cmp.Diff([]string{"endpoint|/x", "|a\nb", "over 0", "|short", "over 0", "over 7", "|last"}, got); d != "" {
		t.Error(d)
	}
	if r.lastID != "3" || r.retry != 250*time.Millisecond {
		t.Errorf("last id %q, retry %v", r.lastID, r.retry)
	}
}

func TestEnvironment(t *testing.T) {
	own := []string{"PATH=/bin", "HOME=/h", "LC_TIME=C", "SECRET=x", "SSH_AUTH_SOCK=/s", "https_proxy=p", "NODE_EXTRA_CA_CERTS=c", "=odd", "Path=w", "SystemRoot=r"}
	get := func(s config.Server, goos string) map[string]string {
		e := newEnvironment(s, own, goos, "/state", "run", 3)
		delete(e, envRun)
		delete(e, envGen)
		return e
	}
	base := map[string]string{"PATH": "/bin", "HOME": "/h", "LC_TIME": "C", "https_proxy": "p", "NODE_EXTRA_CA_CERTS": "c"}
	with := func(kv ...string) map[string]string {
		m := map[string]string{}
		for k, v := range base {
			m[k] = v
		}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = kv[i+1]
		}
		return m
	}
	tests := []struct {
		name string
		s    config.Server
		goos string
		want map[string]string
	}{
		{"base", config.Server{}, "linux", base},
		{"configured wins", config.Server{Env: map[string]string{"HOME": "mine", "X": "1"}}, "linux", with("HOME", "mine", "X", "1")},
		{"inherit", config.Server{InheritEnv: []string{"SSH_AUTH_SOCK", "NONE"}}, "linux", with("SSH_AUTH_SOCK", "/s")},
		{"all", config.Server{InheritAll: true}, "linux", with("SECRET", "x", "SSH_AUTH_SOCK", "/s", "Path", "w", "SystemRoot", "r")},
		{"uv", config.Server{Command: "/usr/bin/uvx"}, "linux", with("UV_CACHE_DIR", "/state/uv-cache")},
		{"own uv cache", config.Server{Command: "uv", Env: map[string]string{"UV_CACHE_DIR": "/c"}}, "linux", with("UV_CACHE_DIR", "/c")},
	}
	for _, tt := range tests {
		if d := cmp.Diff(tt.want, get(tt.s, tt.goos)); d != "" {
			t.Errorf("%s: %s", tt.name, d)
		}
	}
	win := get(config.Server{Env: map[string]string{"path": "mine"}}, "windows")
	if win["path"] != "mine" || win["PATH"]+win["Path"] != "" || win["SystemRoot"] != "r" {
		t.Errorf("windows: %v", win)
	}
}

// A line of many small things that are no message costs no more than a line of noise.
func TestManyMessagesOnOneLineAreNoise(t *testing.T) {
	m := newMux(func() {}, newNoise(func(uint64, bool) {}))
	for n, noise := range map[int]uint64{2: 2, 1000: 1} { // two are taken apart, and each is a log object
		before := m.noise.total
		m.inbound(frame{data: []byte(strings.Repeat("{}", n))})
		if got := m.noise.total - before; got != noise {
			t.Errorf("%d objects on a line: %d of noise, want %d", n, got, noise)
		}
	}
	m.noise.stop()
}

// Ids count up, so that a server can guess the next one. Its answer to a request that
// has not left yet settles nothing.
func TestAnswerBeforeTheQuestion(t *testing.T) {
	m := newMux(func() {}, newNoise(func(uint64, bool) {}))
	p := &pending{}
	if err := m.add(p); err != nil {
		t.Fatal(err)
	}
	answer := frame{data: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"result":{}}`, p.id)}
	m.inbound(answer)
	if m.stray.Load() != 1 || len(p.reply) != 0 {
		t.Fatalf("%d stray answers, %d replies", m.stray.Load(), len(p.reply))
	}
	if !m.enter(p) {
		t.Fatal("not entered")
	}
	m.inbound(answer)
	if len(p.reply) != 1 {
		t.Error("the real answer was dropped")
	}
}

func TestNoiseIsReportedAtMostOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type rep struct {
			N   uint64
			Bad bool
		}
		var got []rep
		n := newNoise(func(lines uint64, bad bool) { got = append(got, rep{lines, bad}) })
		for range 500 {
			n.add(1)
		}
		time.Sleep(2 * time.Second)
		n.add(600)
		time.Sleep(2 * time.Second)
		n.add(1)
		time.Sleep(5 * time.Minute)
		n.add(1)
		n.stop()
		n.add(1)
		want := []rep{{500, false}, {1100, true}, {1101, true}, {1101, true}, {1101, false}, {1102, false}}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	})
}

func TestSpawnerRefusesAfterClose(t *testing.T) {
	s := NewSpawner()
	s.Close()
	s.Close()
	if _, err := s.start(birth{}); !errors.Is(err, errSpawnerClosed) {
		t.Errorf("got %v", err)
	}
}

func hasIssue(l messages.Listing, part string) bool {
	for _, i := range l.Issues {
		if strings.Contains(i.Message, part) {
			return true
		}
	}
	return false
}

func TestProvesRefusal(t *testing.T) {
	for status, want := range map[int]bool{400: true, 401: true, 404: true, 429: true, 408: false, 499: false, 500: false, 503: false} {
		if got := provesRefusal(status); got != want {
			t.Errorf("%d: %t", status, got)
		}
	}
}
