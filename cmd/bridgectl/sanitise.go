package main

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Words of servers, tools and files come from strangers. Before a terminal sees them,
// everything that could move the cursor, change the colours, write to the clipboard,
// hide text or turn its order around is shown as an escape instead.

// hidden reports whether a rune must not reach a terminal as it is: C0 and C1
// controls, marks that change the direction of text, tags, invisible characters that
// join or separate nothing, and separators that end a line. Newline and tab are
// judged by the caller. The joiners U+200C and U+200D stay: scripts and emoji need them.
func hidden(r rune) bool {
	switch {
	case r < 0x20, r >= 0x7f && r <= 0x9f:
		return true
	case r == 0x061c, r == 0x200b, r == 0x200e, r == 0x200f, r == 0xfeff, r == 0x180e, r == 0x00ad:
		return true
	case r >= 0x2028 && r <= 0x202e, r >= 0x2060 && r <= 0x206f, r >= 0xfff9 && r <= 0xfffb:
		return true
	case r >= 0xe0000 && r <= 0xe0fff:
		return true
	default:
		return false
	}
}

// sanitise shows s on several lines; newline and tab keep their meaning.
func sanitise(s string) string { return clean(s, true) }

// oneLine shows s on one line: a newline could fake a line of ours.
func oneLine(s string) string { return clean(s, false) }

func clean(s string, multi bool) string {
	if !needsCleaning(s, multi) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case multi && (r == '\n' || r == '\t'):
			b.WriteRune(r)
		case multi && r == '\r' && strings.HasPrefix(s[i+n:], "\n"):
			// a line end as others write it
		case !hidden(r):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case r <= 0xff:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
		i += n
	}
	return b.String()
}

func needsCleaning(s string, multi bool) bool {
	if !utf8.ValidString(s) {
		return true
	}
	for _, r := range s {
		if hidden(r) && !(multi && (r == '\n' || r == '\t')) {
			return true
		}
	}
	return false
}

// escapeJSON writes the same JSON with every hidden rune as \u escape. In valid JSON
// these stand in strings only, where an escape means the same; C0 is escaped already,
// and the newline after or between values is none of a string's.
func escapeJSON(b []byte) []byte {
	if !needsCleaning(string(b), true) {
		return b
	}
	var out strings.Builder
	for _, r := range string(b) {
		switch {
		case r < 0x20 || !hidden(r):
			out.WriteRune(r)
		case r <= 0xffff:
			fmt.Fprintf(&out, `\u%04x`, r)
		default:
			r -= 0x10000
			fmt.Fprintf(&out, `\u%04x\u%04x`, 0xd800+(r>>10), 0xdc00+(r&0x3ff))
		}
	}
	return []byte(out.String())
}
