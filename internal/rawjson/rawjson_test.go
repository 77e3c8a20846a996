package rawjson

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMembers: Object and Fields see the same members, in their order, each with its own
// bytes; they say of everything else that it is no object.
func TestMembers(t *testing.T) {
	type pair struct{ Key, Val string }
	tests := map[string][]pair{
		`{}`: nil, ` { } `: nil,
		`{"a":1,"b":"x"}`: {{"a", "1"}, {"b", `"x"`}},
		"\t{ \"a\" : [1, {\"b\":2}] ,\n\"a\": null }": {{"a", `[1, {"b":2}]`}, {"a", "null"}},
		`{"\u0061":true,"q\"\\":"}"}`:                 {{"a", "true"}, {`q"\`, `"}"`}},
		`{"n":9007199254740993,"e":-1E+5}`:            {{"n", "9007199254740993"}, {"e", "-1E+5"}},
	}
	for text, want := range tests {
		if !json.Valid([]byte(text)) {
			t.Fatalf("%s is no JSON", text)
		}
		var fields, object []pair
		ok1 := Fields([]byte(text), func(k, v []byte) { fields = append(fields, pair{string(k), string(v)}) })
		ok2 := Object([]byte(text), func(m Member) bool {
			object = append(object, pair{m.Key, text[m.ValStart:m.ValEnd]})
			return true
		})
		if d := cmp.Diff(want, fields) + cmp.Diff(want, object); d != "" || !ok1 || !ok2 {
			t.Errorf("%s: %v %v\n%s", text, ok1, ok2, d)
		}
	}
	for _, text := range []string{``, ` `, `[]`, `"{}"`, `1`, `{`, `{"`, `{"a`, `{"a"`, `{"a":`, `{"a":}`, `{"a":1`, `{"a":"`, `{"a":[1`, `{"a" 1}`, `{1:2}`, `{"\`} {
		if Fields([]byte(text), func(_, _ []byte) {}) || Object([]byte(text), func(Member) bool { return true }) {
			t.Errorf("%q is taken for an object", text)
		}
	}
}

func TestArray(t *testing.T) {
	for text, want := range map[string][]string{`[]`: nil, ` [ 1 , "a,]" ,{"b":[2]}, null ] `: {"1", `"a,]"`, `{"b":[2]}`, "null"}} {
		var got []string
		if !Array([]byte(text), func(v []byte) bool { got = append(got, string(v)); return true }) || cmp.Diff(want, got) != "" {
			t.Errorf("%s: %q", text, got)
		}
	}
	for _, text := range []string{``, `{}`, `[`, `[1`, `[1,`, `["a`, `[1 2]`} {
		if Array([]byte(text), func([]byte) bool { return true }) {
			t.Errorf("%q is taken for an array", text)
		}
	}
}

func TestDrop(t *testing.T) {
	ours := func(key string) bool { return strings.HasPrefix(key, "x/") }
	for in, want := range map[string]string{
		`{}`: `{}`, `{ "a" : 1 }`: `{ "a" : 1 }`, `[1]`: `[1]`, `{"x/a":1}`: `{}`,
		`{"x/a":1,"b":{"x/c":2.0}}`: `{"b":{"x/c":2.0}}`, `{ "b" : 1.00 , "x/a": {"y":[1]}, "c":"x/" }`: `{"b" : 1.00,"c":"x/"}`,
		`{"x\/a":1,"\u0078/b":2,"b":3}`: `{"b":3}`, `{"b":1,"x/a":2,"x/a":3}`: `{"b":1}`,
	} {
		if got := string(Drop([]byte(in), ours)); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}
