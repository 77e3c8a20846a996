package results

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

const testURI = "mcpbridge://results/id"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type shape struct {
	Content []struct {
		Type, Text, Data string
	} `json:"content"`
	Structured json.RawMessage `json:"structuredContent"`
	IsError    bool            `json:"isError"`
	Meta       map[string]any  `json:"_meta"`
	Vendor     json.RawMessage `json:"vendor"`
}

func cut(t *testing.T, raw string, limit int64) (shape, string) {
	t.Helper()
	out := Cut(json.RawMessage(raw), limit, testURI)
	var s shape
	if err := json.Unmarshal(out, &s); err != nil {
		t.Fatalf("%v\n%.500s", err, out)
	}
	if int64(len(out)) > limit+reserve {
		t.Errorf("%d bytes for a limit of %d", len(out), limit)
	}
	last := s.Content[len(s.Content)-1].Text
	if !strings.Contains(last, fmt.Sprintf("%d bytes", len(raw))) || !strings.Contains(last, testURI) {
		t.Errorf("marker %q", last)
	}
	if s.Meta[metaTruncated] != true || s.Meta[metaURI] != testURI || s.Meta[metaBytes] != float64(len(raw)) {
		t.Errorf("_meta %v", s.Meta)
	}
	return s, string(out)
}

func TestCut(t *testing.T) {
	long := strings.Repeat(`é\"\ud83d\ude00`, 1000) // 19 bytes a time
	t.Run("one text", func(t *testing.T) {
		s, out := cut(t, `{"content":[{"type":"text","text":"`+long+`","x":1.50}],"vendor":{"b":9007199254740993,"a":1},"isError":true,"_meta":{"k":1e2}}`, 5000)
		if len(s.Content) != 2 || len(s.Content[0].Text) < 1000 || !utf8.ValidString(s.Content[0].Text) || strings.ContainsRune(s.Content[0].Text, utf8.RuneError) {
			t.Errorf("%d blocks, %.100q", len(s.Content), s.Content[0].Text)
		}
		if !s.IsError || string(s.Vendor) != `{"b":9007199254740993,"a":1}` || !strings.Contains(out, `"x":1.50}`) || !strings.Contains(out, `"k":1e2`) {
			t.Errorf("what is small has changed: %.300s … %.300s", out, out[len(out)-300:])
		}
	})
	t.Run("structured content stays whole or goes", func(t *testing.T) {
		raw := `{"content":[{"type":"text","text":"` + long + `"}],"structuredContent":{"a":[1.0, 2]}}`
		if s, _ := cut(t, raw, 4000); string(s.Structured) != `{"a":[1.0, 2]}` {
			t.Errorf("%s", s.Structured)
		}
		raw = `{"structuredContent":{"a":"` + long + `"},"content":[{"type":"text","text":"short"}]}`
		if s, _ := cut(t, raw, 4000); s.Structured != nil || s.Content[0].Text != "short" {
			t.Errorf("%s %v", s.Structured, s.Content)
		}
	})
	t.Run("blocks that fit stay, in order", func(t *testing.T) {
		s, _ := cut(t, `{"content":[{"type":"text","text":"one"},{"type":"image","data":"`+strings.Repeat("A", 9000)+`"},{"type":"hologram","data":"z"}]}`, 4000)
		if len(s.Content) != 3 || s.Content[0].Text != "one" || s.Content[1].Type != "hologram" {
			t.Errorf("%v", s.Content)
		}
	})
	t.Run("hardly any room", func(t *testing.T) {
		s, _ := cut(t, `{"content":[{"type":"text","text":"`+long+`"}],"isError":true}`, 1)
		if len(s.Content) != 1 {
			t.Errorf("%v", s.Content)
		}
	})
	t.Run("a server cannot write the marks", func(t *testing.T) {
		cut(t, `{"content":[{"type":"text","text":"`+long+`"}],"_meta":{"mcpbridge/truncated":false,"mcpbridge/result_uri":"file:///etc/passwd"}}`, 5000)
	})
	t.Run("no content at all", func(t *testing.T) { cut(t, `{"x":"`+long+`"}`, 2000) })
}

func TestCutError(t *testing.T) {
	raw := `{"code":-32050,"message":"` + strings.Repeat("m", 3000) + `","data":"` + strings.Repeat("d", 9000) + `"}`
	out := CutError(json.RawMessage(raw), 2000, testURI)
	var e struct {
		Code    int
		Message string
		Data    map[string]any
	}
	if err := json.Unmarshal(out, &e); err != nil {
		t.Fatal(err)
	}
	if e.Code != -32050 || len(e.Message) < 500 || len(e.Message) > 2000 || e.Data[metaURI] != testURI || e.Data[metaTruncated] != true {
		t.Errorf("%.300s", out)
	}
}

// TestCutStrings: wherever a text is cut, it is a text, and the beginning of the whole.
func TestCutStrings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		raw, _ := json.Marshal(text)
		if rapid.Bool().Draw(t, "escape all") {
			var b strings.Builder
			for _, r := range text {
				if r >= 0x10000 {
					r -= 0x10000
					fmt.Fprintf(&b, `\u%04x\u%04X`, 0xd800+r>>10, 0xdc00+r&0x3ff)
				} else {
					fmt.Fprintf(&b, `\u%04x`, r)
				}
			}
			raw = []byte(`"` + b.String() + `"`)
		}
		n := rapid.IntRange(2, len(raw)+2).Draw(t, "n")
		part := cutString(raw, n)
		var got string
		if err := json.Unmarshal(part, &got); err != nil || len(part) > n {
			t.Fatalf("%q to %d: %q %v", raw, n, part, err)
		}
		if !strings.HasPrefix(text, got) {
			t.Fatalf("%q is not the beginning of %q", got, text)
		}
	})
}

func put(t *testing.T, s *Store, client string, n int) string {
	t.Helper()
	id, ok := s.Put(Owner{Client: client, Server: "fs"}, json.RawMessage(strings.Repeat(" ", n)))
	if !ok || len(id) < 26 {
		t.Fatalf("id %q %v", id, ok)
	}
	return id
}

func (s *Store) has(client, id string) bool { _, ok := s.Get(Owner{Client: client}, id); return ok }

func TestStore(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		t.Run("dir "+dir, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := NewStore(dir)
				defer s.Close()
				whole := json.RawMessage(`{"a": 1.0}`)
				owner := Owner{Client: "alice", View: "plan", Server: "fs"}
				id, _ := s.Put(owner, whole)
				if dir != "" {
					if left, _ := os.ReadDir(dir); len(left) != 0 || s.byID[id].file == nil {
						t.Errorf("names in the directory: %v", left)
					}
				}
				for _, tc := range []struct {
					reader Owner
					ok     bool
				}{
					{owner, true}, {Owner{Client: "alice", View: "plan"}, true}, {Owner{Client: "bob", View: "plan"}, false},
					{Owner{Client: "alice"}, false}, {Owner{Client: "alice", View: "plan", Server: "web"}, false}, {Owner{}, false},
				} {
					if raw, ok := s.Get(tc.reader, id); ok != tc.ok || ok && string(raw) != string(whole) {
						t.Errorf("%+v: %s %v", tc.reader, raw, ok)
					}
				}
				time.Sleep(keepFor - time.Second)
				if _, ok := s.Get(owner, id); !ok {
					t.Error("gone before its time")
				}
				time.Sleep(time.Second)
				synctest.Wait()
				if _, ok := s.Get(owner, id); ok || len(s.byID)+len(s.order) != 0 || s.memory+s.disk != 0 {
					t.Error("kept beyond its time")
				}
			})
		})
	}
}

func TestStoreIsBounded(t *testing.T) {
	s := NewStore("")
	defer s.Close()
	mine := put(t, s, "quiet", 1<<20)
	var ids []string
	for range 40 {
		ids = append(ids, put(t, s, "greedy", 4<<20))
		if s.memory > keepMemory {
			t.Fatalf("%d bytes in memory", s.memory)
		}
	}
	if !s.has("quiet", mine) || !s.has("greedy", ids[39]) || s.has("greedy", ids[0]) {
		t.Error("the wrong ones gave way")
	}
	if _, ok := s.Put(Owner{Client: "greedy"}, make([]byte, keepMemory+1)); ok {
		t.Error("a result larger than everything was kept")
	}
	for range 2 * keepCount {
		ids = append(ids, put(t, s, "many", 1))
	}
	if len(s.order) > keepCount || len(s.byID) != len(s.order) || !s.has("quiet", mine) {
		t.Errorf("%d are kept", len(s.order))
	}
	s.Close()
	if _, ok := s.Put(Owner{}, []byte("{}")); ok || s.memory != 0 {
		t.Error("kept after the end")
	}
}

func TestStoreWithoutItsDirectory(t *testing.T) {
	s := NewStore(t.TempDir() + "/gone")
	defer s.Close()
	if id := put(t, s, "a", 10); !s.has("a", id) || s.memory != 10 {
		t.Error("not kept in memory")
	}
}
