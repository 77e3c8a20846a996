//go:build linux

package upstream

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"mcpbridge/messages"
)

// fuzzMax is the frame cap of the fuzzed streams: small, so that it is passed often.
const fuzzMax = 4096

// halves gives a stream out in pieces, so that every boundary falls somewhere else.
type halves struct{ b []byte }

func (h *halves) Read(p []byte) (int, error) {
	if len(h.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p, h.b[:(len(h.b)+1)/2])
	h.b = h.b[n:]
	return n, nil
}

// FuzzFraming: whatever a server writes to its stdout, each request gets exactly one
// reply, nothing panics, and nothing that is kept is larger than the cap.
func FuzzFraming(f *testing.F) {
	answer := `{"jsonrpc":"2.0","id":1000000000,"result":{"content":[]}}`
	for _, seed := range []string{
		answer + "\n", "\xef\xbb\xbf" + answer + "\r\n", answer + answer + "\n", "  " + answer + " \t \n\n  \n", answer, answer[:30], "[" + answer + "]\n",
		strings.Replace(answer, "1000000000", `"1000000001"`, 1) + "\n", "Server running on stdio\n" + answer + "\n", "\x1b[32mok\n42\nnull\n\"x\"\n{\"level\":\"info\"}\n",
		`{"jsonrpc":"2.0","result":{"x":"` + strings.Repeat("y", 2*fuzzMax) + `"},"id":1000000001}` + "\n" + answer,
		`[` + strings.Repeat(`{"id":1000000000,"result":{}},`, 300) + `{}]` + "\n",
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1000000000,"progress":1}}` + "\n",
		`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}` + "\n" + `{"jsonrpc":"2.0","id":7,"method":"ping"}` + "\n",
		`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25"}}` + "\n" + `{"jsonrpc":"2.0","id":null,"error":{"code":"x"}}` + "\n",
		strings.Repeat(`{"a":`, 5000) + strings.Repeat(`}`, 5000) + "\n", "{\"id\":1000000000,\"\x00\":\"\xff\xfe\"}\n", `{"id":1e9,"id":1000000001,"result":null,"error":null}` + "\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m := newMux(func() {}, newNoise(func(uint64, bool) {}))
		seen := 0
		calls := []*pending{{progress: func(p json.RawMessage) { seen += len(p) }}, {}}
		for _, p := range calls {
			if err := m.add(p); err != nil || !m.enter(p) {
				t.Fatal("not entered")
			}
		}
		m.sdkRequest(1, "initialize")
		drained := make(chan struct{})
		go func() { // the SDK's side
			defer close(drained)
			for {
				select {
				case msg := <-m.sdk:
					_ = msg
				case <-m.gone:
					return
				}
			}
		}()
		r := newLineReader(&halves{b}, fuzzMax)
		for {
			fr, err := r.next()
			if err != nil {
				break
			}
			if len(fr.data) > fuzzMax {
				t.Fatalf("a frame of %d bytes", len(fr.data))
			}
			m.inbound(fr)
		}
		m.close("over")
		<-drained
		kept := 0
		for i, p := range calls {
			if len(p.reply) != 1 {
				t.Fatalf("request %d has %d replies", i, len(p.reply))
			}
			rep := <-p.reply
			kept += len(rep.Raw)
			if len(rep.Raw) > 0 && !json.Valid(rep.Raw) {
				t.Fatalf("%v %q", rep.Kind, rep.Raw)
			}
			if (rep.Kind == messages.ReplyResult || rep.Kind == messages.ReplyError) != (len(rep.Raw) > 0) {
				t.Fatalf("%v %q", rep.Kind, rep.Raw)
			}
		}
		if kept+seen > len(b) {
			t.Fatalf("%d bytes made of %d", kept+seen, len(b))
		}
	})
}

// FuzzSSE: whatever an event stream holds, nothing panics, no event is larger than the
// cap, and together they are not more than what came.
func FuzzSSE(f *testing.F) {
	for _, seed := range []string{
		"event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n", ": ping\n\nid: 3\nretry: 250\ndata: a\ndata: b\n\n", "event: endpoint\r\ndata: /messages?s=1\r\n\r\n",
		"data:" + strings.Repeat("x", 2*fuzzMax) + "\n\ndata: y\n\n", "data: {\"id\":7,\"result\":\"" + strings.Repeat("x", 2*fuzzMax) + "\"}\n\n", "data\n\ndata:\n\n:\n\n", "data: no end",
		strings.Repeat("data: 0123456789\n", 1000) + "\n", strings.Repeat("data:x\n", fuzzMax/2+1) + "\n", "\xef\xbb\xbfdata: bom\n\n", "retry: 99999999999999999999\nid: \x00\n\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := newEventReader(&halves{b}, fuzzMax)
		total := 0
		for {
			ev, err := r.next()
			if err != nil {
				break
			}
			if len(ev.data.data) > fuzzMax || ev.data.over && len(ev.data.data) > 0 {
				t.Fatalf("an event of %d bytes", len(ev.data.data))
			}
			if total += len(ev.data.data); total > len(b) {
				t.Fatalf("%d bytes made of %d", total, len(b))
			}
		}
		if r.retry < 0 || bytes.ContainsAny([]byte(r.lastID), "\n") {
			t.Fatalf("retry %v, last id %q", r.retry, r.lastID)
		}
	})
}
