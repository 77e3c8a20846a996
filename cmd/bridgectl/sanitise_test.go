package main

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestSanitise(t *testing.T) {
	tests := []struct{ name, in, multi, one string }{
		{"plain", "hello, wörld ✓ 日本", "hello, wörld ✓ 日本", "hello, wörld ✓ 日本"},
		{"lines", "a\n\tb", "a\n\tb", `a\n\tb`},
		{"crlf", "a\r\nb", "a\nb", `a\r\nb`},
		{"carriage return overwrites", "safe\rEVIL", `safe\rEVIL`, `safe\rEVIL`},
		{"colour", "\x1b[31mred\x1b[0m", `\x1b[31mred\x1b[0m`, `\x1b[31mred\x1b[0m`},
		{"title", "\x1b]0;owned\x07", `\x1b]0;owned\x07`, `\x1b]0;owned\x07`},
		{"hyperlink", "\x1b]8;;http://evil\x1b\\x", `\x1b]8;;http://evil\x1b\x`, `\x1b]8;;http://evil\x1b\x`},
		{"clipboard", "\x1b]52;c;aGk=\x07", `\x1b]52;c;aGk=\x07`, `\x1b]52;c;aGk=\x07`},
		{"C1 CSI", "\u009b31m", `\x9b31m`, `\x9b31m`},
		{"raw 8-bit CSI", "\x9b31m", `\x9b31m`, `\x9b31m`},
		{"backspace", "abc\b\b\bxyz", `abc\x08\x08\x08xyz`, `abc\x08\x08\x08xyz`},
		{"delete", "a\x7f", `a\x7f`, `a\x7f`},
		{"nul", "a\x00b", `a\x00b`, `a\x00b`},
		{"bidi override", "a\u202eb\u202c", `a\u202eb\u202c`, `a\u202eb\u202c`},
		{"bidi isolate", "\u2066x\u2069", `\u2066x\u2069`, `\u2066x\u2069`},
		{"marks", "\u200e\u200f\u061c", `\u200e\u200f\u061c`, `\u200e\u200f\u061c`},
		{"tags", "hi\U000e0041\U000e007f", `hi\U000e0041\U000e007f`, `hi\U000e0041\U000e007f`},
		{"variation selectors of the tag plane", "\U000e0100", `\U000e0100`, `\U000e0100`},
		{"zero width", "a\u200bb\ufeff\u2060", `a\u200bb\ufeff\u2060`, `a\u200bb\ufeff\u2060`},
		{"separators", "a\u2028b\u2029", `a\u2028b\u2029`, `a\u2028b\u2029`},
		{"joiners stay", "👩\u200d💻 می\u200cخواهم", "👩\u200d💻 می\u200cخواهم", "👩\u200d💻 می\u200cخواهم"},
		{"broken utf-8", "a\xffb\xc3", `a\xffb\xc3`, `a\xffb\xc3`},
		{"empty", "", "", ""},
	}
	for _, tt := range tests {
		if got := sanitise(tt.in); got != tt.multi {
			t.Errorf("%s: sanitise %q: got %q, want %q", tt.name, tt.in, got, tt.multi)
		}
		if got := oneLine(tt.in); got != tt.one {
			t.Errorf("%s: oneLine %q: got %q, want %q", tt.name, tt.in, got, tt.one)
		}
	}
}

func TestSanitiseProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) + rapid.String().Draw(t, "text")
		for name, f := range map[string]func(string) string{"sanitise": sanitise, "oneLine": oneLine} {
			out := f(in)
			if f(out) != out {
				t.Fatalf("%s is not idempotent on %q", name, in)
			}
			if !utf8.ValidString(out) {
				t.Fatalf("%s leaves broken UTF-8", name)
			}
			for _, r := range out {
				if hidden(r) && !(name == "sanitise" && (r == '\n' || r == '\t')) {
					t.Fatalf("%s leaves %U", name, r)
				}
			}
		}
	})
}

func TestEscapeJSONMeansTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		runes := rapid.SliceOf(rapid.OneOf(rapid.Rune(), rapid.SampledFrom([]rune{0x7f, 0x85, 0x9b, 0x202e, 0x2066, 0xe0041, 0xe007f, 0xfeff, '<', '\\', '"'})))
		in := map[string]string{"k": string(runes.Draw(t, "text"))}
		b, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		out := escapeJSON(b)
		var back map[string]string
		if err := json.Unmarshal(out, &back); err != nil || back["k"] != in["k"] {
			t.Fatalf("%s → %s: %v %q", b, out, err, back["k"])
		}
		for _, r := range string(out) {
			if hidden(r) {
				t.Fatalf("%U is left", r)
			}
		}
	})
}
