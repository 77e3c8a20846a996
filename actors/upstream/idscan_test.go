//go:build linux

package upstream

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// scanAll feeds the pieces and collects what was found after each of them.
func scanAll(prefix string, pieces ...string) string {
	s := newIDScan(prefix)
	var out []string
	for i, p := range pieces {
		s.feed([]byte(p))
		for {
			id, ok := s.take()
			if !ok {
				break
			}
			out = append(out, fmt.Sprintf("%d@%d", id, i))
		}
	}
	return strings.Join(out, " ")
}

func TestIDScan(t *testing.T) {
	tests := []struct {
		name   string
		pieces []string
		want   string // id@piece, where it must be known already
	}{
		{"first", []string{`{"jsonrpc":"2.0","id":1000000007,"result":{"conte`, `nt":[]}}`}, "1000000007@0"},
		{"as a string, with blanks", []string{` { "id" : "12" , "result" :`, ` 1}`}, "12@0"},
		{"cut in two", []string{`{"id":1`, `2`, `,"res`, `ult":{`}, "12@3"},
		{"behind the result", []string{`{"result":{"id":5,"x":[`, `{"id":6}]},"id":9`, `,"jsonrpc":"2.0"}`}, "9@2"},
		{"in the middle", []string{`{"jsonrpc":"2.0","result":{"a":"b"},"id":"9" ,`, `"x":[1,2],"y":{"z":1}}`}, "9@0"},
		{"an error", []string{`{"error":{"id":1},"id":9}`}, "9@0"},
		{"the key in escapes", []string{`{"\u0069d":9,"re\u0073ult":{}}`}, "9@0"},
		{"byte order mark", []string{"\xef\xbb\xbf", `{"id":9,"result":1}`}, "9@1"},
		{"the last of two", []string{`{"id":1,"id":2,"result":{}}`}, "2@0"},
		{"no result, no error", []string{`{"id":9,"x":"`, `"}`}, "9@1"},
		{"a batch", []string{`[{"id":1,"result":{}},{"result":[{"id":7}],"id":2},`, ` {"id":3,"error":{}}]`}, "1@0 2@0 3@1"},
		{"two on one line", []string{`{"id":1,"result":{}} {"id":2,"result":"`, `"}`}, "1@0 2@0"},
		{"deeper only", []string{`{"result":{"a":"b","id":9}}`, `{"result":["`, `","id",9]}`}, ""},
		{"inside a string", []string{`{"result":{"a":"\"id\":3,`, `\"id\":4}"},"x":"\\"}`}, ""},
		{"a request", []string{`{"method":"ping","id":3}`, `{"id":4,"method":"x","params":{}}`}, ""},
		{"a value called id", []string{`{"result":"id","x":9}`}, ""},
		{"an id of another kind", []string{`{"id":{"id":3},"result":1}{"id":[4],"result":1}{"id":null,"result":1}{"id":1.5,"result":1}`}, ""},
		{"an endless id", []string{`{"id":"` + strings.Repeat("1", 200) + `","result":1}`}, ""},
		{"an endless key", []string{`{"` + strings.Repeat("k", 200) + `":1,"id":3,"result":1}`}, "3@0"},
		{"brackets that do not fit", []string{`]]}}{"id":3,"result":{}}`}, "3@0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := scanAll("", tt.pieces...); got != tt.want {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
	if got := scanAll("data:", `da`, `ta: {"id":3,"result":1}`); got != "3@1" {
		t.Errorf("behind a prefix: %q", got)
	}
	if got := scanAll("data:", `: {"id":3,"result":1}`); got != "" {
		t.Errorf("behind another prefix: %q", got)
	}
}

// TestIDScanAgreesWithTheDecoder: whatever answer there is, however it is cut, the id
// is the one that encoding/json finds.
func TestIDScanAgreesWithTheDecoder(t *testing.T) {
	value := rapid.SampledFrom([]string{`1`, `-1.50e3`, `"a\"}],\\"`, `"\\"`, `"é"`, `true`, `null`, `{"id":[1,{"id":5,"b":"]"}]}`, `[]`, `[ {"id":3} , "," ]`, `"id"`})
	id := rapid.SampledFrom([]string{`1000000001`, `"1000000002"`, `1e9`, `null`, `"x"`, `{"id":4}`})
	space := rapid.SampledFrom([]string{"", " ", "\t "})
	key := rapid.SampledFrom([]string{`"a\u0062"`, `"\""`, `"x{"`, `""`, `"idx"`, `"Id"`})
	rapid.Check(t, func(t *rapid.T) {
		fields := []string{`"result":` + value.Draw(t, "result")}
		if rapid.Bool().Draw(t, "has id") {
			fields = append(fields, `"id"`+space.Draw(t, "s")+":"+space.Draw(t, "s")+id.Draw(t, "id"))
		}
		for range rapid.IntRange(0, 4).Draw(t, "more") {
			fields = append(fields, key.Draw(t, "k")+":"+space.Draw(t, "s")+value.Draw(t, "v"))
		}
		fields = rapid.Permutation(fields).Draw(t, "order")
		msg := space.Draw(t, "s") + "{" + strings.Join(fields, space.Draw(t, "s")+","+space.Draw(t, "s")) + "}"
		var want []int64
		var m map[string]json.RawMessage
		if err := json.Unmarshal([]byte(msg), &m); err != nil {
			t.Fatal(err)
		}
		if n, ok := asID(m["id"]); ok {
			want = append(want, n)
		}
		s := newIDScan("")
		var got []int64
		for rest := msg; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "cut")
			s.feed([]byte(rest[:n]))
			rest = rest[n:]
			for n, ok := s.take(); ok; n, ok = s.take() {
				got = append(got, n)
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("%s\n%s", msg, d)
		}
	})
}

// TestIDIsKnownBeforeTheLineEnds: who waits for an answer that is too large need not
// wait for its last byte, and the next line is read as ever.
func TestIDIsKnownBeforeTheLineEnds(t *testing.T) {
	pr, pw := io.Pipe()
	defer pr.Close()
	go func() {
		_, _ = io.WriteString(pw, `{"result":{"text":"`+strings.Repeat("x", 3*readBuffer)+`"},"id":42,`)
	}()
	r := newLineReader(pr, readBuffer)
	f, err := r.next()
	if err != nil || !f.over || !f.found || f.id != 42 {
		t.Fatalf("%+v %v", f, err)
	}
	go func() {
		_, _ = io.WriteString(pw, `"x":"`+strings.Repeat("y", 10*readBuffer)+"\"}\nnext\n")
	}()
	if f, err = r.next(); err != nil || string(f.data) != "next" {
		t.Fatalf("%+v %v", f, err)
	}
}
