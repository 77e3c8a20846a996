package policy

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseArgs(t *testing.T) {
	for _, c := range []struct{ in, want, err string }{
		{"", "{}", ""}, {"null", "{}", ""}, {" \n null\t", "{}", ""}, {"{}", "{}", ""}, {" {} ", "{}", ""},
		{`{"b":1.0,"a":9007199254740993,"c":1e400,"d":-0,"e":0.1000,"<":"\u003c\/"}`, `{"b":1.0,"a":9007199254740993,"c":1e400,"d":-0,"e":0.1000,"<":"\u003c\/"}`, ""},
		{`{ "a" : [ 1 , 2 ] }`, `{ "a" : [ 1 , 2 ] }`, ""},
		{"{\n  \"a\": \"x\\ny\",\r\n  \"<b>\": 1.50\n}", `{"a":"x\ny","<b>":1.50}`, ""},
		{"{\"a\":\"\u2028<&>\"}", "{\"a\":\"\u2028<&>\"}", ""},
		{"[]", "", "must be a JSON object, not an array"}, {`"x"`, "", "not a string"}, {"1", "", "not a number"}, {"true", "", "not a boolean"},
		{"{", "", "not valid JSON"}, {"{}x", "", "not valid JSON"}, {"{} {}", "", "not valid JSON"}, {"{'a':1}", "", "not valid JSON"},
		{`{"a":1,}`, "", "not valid JSON"}, {"{\"a\":\"x\ny\"}", "", "not valid JSON"}, {"\xff", "", "not valid JSON"},
		{`{"a":1,"a":2}`, "", `key "a" occurs twice`}, {`{"a":1,"\u0061":2}`, "", `key "a" occurs twice`},
		{`{"a":{"b":1,"b":2}}`, "", `key "b" occurs twice`},
		{strings.Repeat(`{"a":`, 511) + "1" + strings.Repeat("}", 511), strings.Repeat(`{"a":`, 511) + "1" + strings.Repeat("}", 511), ""},
		{strings.Repeat(`{"a":`, 600) + "1" + strings.Repeat("}", 600), "", "nests too deep"},
		{`{"a":` + strings.Repeat("[", 100_000), "", "not valid JSON"},
		{`{"a":"` + strings.Repeat("x", 2000) + `"}`, "", "one call may carry 2000"},
	} {
		limit := int64(0)
		if strings.Contains(c.err, "2000") {
			limit = 2000
		}
		got, err := ParseArgs(json.RawMessage(c.in), limit)
		switch {
		case c.err == "" && err != nil:
			t.Errorf("%.60q: %v", c.in, err)
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%.60q: error %v, want %q", c.in, err, c.err)
		case string(got.Raw) != c.want:
			t.Errorf("%.60q: got %q, want %q", c.in, got.Raw, c.want)
		}
	}
}

// TestParseArgsKeepsValues: what comes out means the same, and on one line is the
// same bytes.
func TestParseArgsKeepsValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := rapid.MapOf(rapid.String(), rapid.Float64Range(-1e9, 1e9)).Draw(t, "m")
		compact, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseArgs(compact, 0)
		if err != nil || string(got.Raw) != string(compact) {
			t.Fatalf("%s became %s (%v)", compact, got.Raw, err)
		}
		pretty, err := json.MarshalIndent(m, "", "\t")
		if err != nil {
			t.Fatal(err)
		}
		if got, err = ParseArgs(pretty, 0); err != nil || strings.ContainsAny(string(got.Raw), "\r\n") {
			t.Fatalf("%s became %s (%v)", pretty, got.Raw, err)
		}
	})
}
