package gateway

import (
	"context"
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpbridge/messages"
)

// whole is a result as it was before it was cut: every byte of it must come back.
const whole = `{"content":[{"type":"text","text":"\u00e9 \\ \" \/ é"}], "n":9007199254740993,` + "\n\t\r" + `"x":1.50}`

func TestReadResult(t *testing.T) {
	eachWay(t, func(t *testing.T, d dialer) {
		b := newBackend(simple("fs", "read"))
		b.results = map[string]json.RawMessage{Anonymous + "|||abc": json.RawMessage(whole), Anonymous + "|||odd": json.RawMessage("{\"a\":\"\xff\"}"),
			"other|||def": json.RawMessage(whole), Anonymous + "|plan||ghi": json.RawMessage(whole)}
		for key, raw := range maps.Clone(b.results) { // a stream's client
			b.results[strings.Replace(key, Anonymous, "local", 1)] = raw
		}
		g, srv := start(t, b, Options{})
		cs, _, _ := d.connect(t, g, srv.URL)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		read := func(uri string) (*mcp.ReadResourceResult, error) {
			return cs.ReadResource(ctx, &mcp.ReadResourceParams{URI: uri})
		}
		res, err := read("mcpbridge://results/abc")
		if err != nil || len(res.Contents) != 1 || res.Contents[0].Text != whole || res.Contents[0].MIMEType != "application/json" || res.Contents[0].URI != "mcpbridge://results/abc" {
			t.Fatalf("%+v %v", res, err)
		}
		if res, err = read("mcpbridge://results/odd"); err != nil || string(res.Contents[0].Blob) != "{\"a\":\"\xff\"}" {
			t.Errorf("%+v %v", res, err)
		}
		_, none := read("mcpbridge://results/none")
		for _, uri := range []string{"mcpbridge://results/def", "mcpbridge://results/ghi", "mcpbridge://results/", "file:///etc/passwd", "abc"} {
			if _, err := read(uri); err == nil || err.Error() != none.Error() {
				t.Errorf("%s: %v, want %v", uri, err, none)
			}
		}
		if list, err := cs.ListResources(ctx, nil); err != nil || len(list.Resources) != 0 {
			t.Errorf("resources/list: %+v %v", list, err)
		}
	})
}

// A result counts until it is written, whichever way it goes.
func TestDelivered(t *testing.T) {
	b := newBackend(simple("fs", "read"))
	b.answer = func(_ context.Context, c messages.CallTool, _ <-chan struct{}) messages.Outcome {
		o := ok(c, `{"content":[]}`)
		o.Held = c.Keeps
		return o
	}
	g, srv := start(t, b, Options{})
	url := srv.URL + "/mcp"
	id := openAs(t, url, lastBatches)
	send(t, url, read1, headerSession, id)
	send(t, url, "["+read1+"]", headerSession, id)
	conn, r, done := serveLines(context.Background(), t, g)
	defer func() { conn.Close(); await(t, "the end of the stream", done) }()
	greet(t, conn, r, lastBatches)
	say(t, conn, strings.Replace(read1, `"id":1`, `"id":11`, 1))
	hear(t, r)
	say(t, conn, "["+strings.Replace(read1, `"id":1`, `"id":12`, 1)+"]")
	hear(t, r)
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		b.mu.Lock()
		n, calls := len(b.delivered), len(b.calls)
		b.mu.Unlock()
		if n == 4 && calls == 4 {
			return
		}
		if n > 4 || time.Now().After(end) {
			t.Fatalf("%d of %d results are told to be delivered", n, calls)
		}
	}
}

// What a client does not read is not kept for ever: with the stream it is gone.
func TestDeliveredWhenTheClientIsGone(t *testing.T) {
	o := newOutbox(nil)
	n := 0
	done := func() { n++ }
	_ = o.pushLine(outLine{make([]byte, outboxBytes), done}, true)
	if !o.crowded() {
		t.Error("there is room for more")
	}
	o.fail(errGone)
	if err := o.pushLine(outLine{[]byte("x"), done}, true); err == nil || n != 2 {
		t.Errorf("%d done, %v", n, err)
	}
}
