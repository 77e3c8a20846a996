package main

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzSanitise: whatever strangers write, a terminal sees plain text, clean text is not
// touched, and JSON stays the same JSON.
func FuzzSanitise(f *testing.F) {
	for _, s := range []string{"plain", "a\tb\nc\r\n", "\x1b[31mred\x1b[0m", "\x1b]52;c;cHduZWQ=\x07", "\u202egnp.exe", "\u2066x\u2069", "\xff\xfe", "\u009b31m", "\U000e0041tag", "zero\u200bwidth\ufeff",
		"👩‍👩‍👧 नमस्ते", "\r overwritten", "\x7f\b\x00", `{"a":"\u001b[31m"}`, "{\"a\":\"\u009b\u202e\U000e0041\"}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, out := range []string{sanitise(s), oneLine(s)} {
			if !utf8.ValidString(out) {
				t.Fatalf("%q: %q is no text", s, out)
			}
			if len(out) > 10*len(s) {
				t.Fatalf("%d bytes made of %d", len(out), len(s))
			}
		}
		if strings.ContainsFunc(sanitise(s), func(r rune) bool { return hidden(r) && r != '\n' && r != '\t' }) {
			t.Fatalf("%q: %q", s, sanitise(s))
		}
		if strings.ContainsFunc(oneLine(s), hidden) || oneLine(oneLine(s)) != oneLine(s) || sanitise(sanitise(s)) != sanitise(s) {
			t.Fatalf("%q: %q", s, oneLine(s))
		}
		if !json.Valid([]byte(s)) || !utf8.ValidString(s) {
			return
		}
		var before, after any
		escaped := escapeJSON([]byte(s))
		if json.Unmarshal([]byte(s), &before) != nil {
			return // a number that Go cannot hold
		}
		if err := json.Unmarshal(escaped, &after); err != nil || !reflect.DeepEqual(before, after) {
			t.Fatalf("%q: %q %v", s, escaped, err)
		}
		if strings.ContainsFunc(string(escaped), func(r rune) bool { return r >= ' ' && hidden(r) }) {
			t.Fatalf("%q: %q", s, escaped)
		}
	})
}
