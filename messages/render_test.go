package messages

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestText(t *testing.T) {
	// 12,345 bytes of image.
	image := strings.Repeat("A", 12345/3*4)
	tests := []struct{ name, result, text, envelope string }{
		{"nothing", ``, "", ""},
		{"no content", `{"content":[]}`, "", ""},
		{"texts", `{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`, "a\nb", "a\nb"},
		{"image", `{"content":[{"type":"image","mimeType":"image/png","data":"` + image + `"}]}`, "[image image/png 12.3 KB]", "[binary image/png 12.3 KB]"},
		{"small audio", `{"content":[{"type":"audio","mimeType":"audio/wav","data":"aGVsbG8="}]}`, "[audio audio/wav 5 B]", "[binary audio/wav 5 B]"},
		{"link", `{"content":[{"type":"resource_link","uri":"file:///a"}]}`, "[resource file:///a]", "[resource file:///a]"},
		{"embedded", `{"content":[{"type":"resource","resource":{"uri":"file:///b","text":"x"}}]}`, "[resource file:///b]", "[resource file:///b]"},
		{"embedded without", `{"content":[{"type":"resource"}]}`, "[resource]", "[resource]"},
		{"unknown", `{"content":[{"type":"hologram","x":1}]}`, "[hologram]", "[hologram]"},
		{"block of a wrong type", `{"content":[{"type":7},"loose"]}`, "[unknown]\n[unknown]", "[unknown]\n[unknown]"},
		{"structured only", `{"content":[],"structuredContent":{ "z" : 9007199254740993, "a" : [ 1.0 ] }}`, `{"z":9007199254740993,"a":[1.0]}`, `{"z":9007199254740993,"a":[1.0]}`},
		{"text before structured", `{"content":[{"type":"text","text":"t"}],"structuredContent":{"a":1}}`, "t", "t"},
		{"no object", `[1]`, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := Outcome{Kind: OK, Result: json.RawMessage(tt.result)}
			if got := o.Text(); got != tt.text {
				t.Errorf("Text = %q, want %q", got, tt.text)
			}
			if got := o.Envelope().Text; got != tt.envelope {
				t.Errorf("Envelope().Text = %q, want %q", got, tt.envelope)
			}
		})
	}
}

func TestContentCounts(t *testing.T) {
	o := Outcome{Kind: OK, Result: json.RawMessage(`{"content":[{"type":"text","text":"a"},{"type":"image"},{"type":"text","text":"b"}]}`)}
	if diff := cmp.Diff(map[string]int{"text": 2, "image": 1}, o.ContentCounts()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestErrorText(t *testing.T) {
	tests := []struct {
		name string
		o    Outcome
		want string
	}{
		{"ok", Outcome{Kind: OK}, ""},
		{"own message first", Outcome{Kind: ToolError, Message: "mine", Result: json.RawMessage(`{"content":[{"type":"text","text":"theirs"}]}`)}, "mine"},
		{"JSON-RPC message", Outcome{Kind: ToolError, RPCError: json.RawMessage(`{"code":1,"message":"rpc"}`)}, "rpc"},
		{"text of the result", Outcome{Kind: ToolError, Result: json.RawMessage(`{"isError":true,"content":[{"type":"text","text":"theirs"}]}`)}, "theirs"},
		{"no text at all", Outcome{Kind: ToolError, Result: json.RawMessage(`{"isError":true,"content":[]}`)}, "MCP tool returned an error"},
		{"blank text", Outcome{Kind: ToolError, Result: json.RawMessage(`{"isError":true,"content":[{"type":"text","text":"  "}]}`)}, "MCP tool returned an error"},
		{"code alone", Outcome{Kind: NotSent, Code: CodeExpired}, "expired"},
	}
	for _, tt := range tests {
		if got := tt.o.ErrorText(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestEnvelope(t *testing.T) {
	ok := Outcome{CallID: "c", Server: "s", RemoteTool: "t", Kind: OK, Attempt: 1, Generation: 2,
		Result: json.RawMessage(`{"content":[{"type":"text","text":"hi"}],"structuredContent":{"n":9007199254740993},"_meta":{"call_id":"forged"}}`)}
	b, err := json.Marshal(ok.Envelope())
	if err != nil {
		t.Fatal(err)
	}
	want := `{"status":"ok","text":"hi","data":{"structured":{"n":9007199254740993}},"error":null,"meta":{"call_id":"c","server":"s","tool":"t",` +
		`"outcome":"ok","sent":true,"safe_to_retry":false,"attempt":1,"generation":2,"queued_ms":0,"ran_ms":0,"content_counts":{"text":1},"truncated":false}}`
	if string(b) != want {
		t.Errorf("got  %s\nwant %s", b, want)
	}
	bad := Outcome{Kind: NotSent, Code: CodeUnavailable, Message: "fs is quarantined"}.Envelope()
	if bad.Status != "error" || bad.Text != "fs is quarantined" || bad.Error == nil || bad.Error.Code != CodeUnavailable {
		t.Errorf("failed envelope: %+v", bad)
	}
}
