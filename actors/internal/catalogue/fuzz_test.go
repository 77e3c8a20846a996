package catalogue

import (
	"regexp"
	"testing"
)

var localName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// FuzzNames: every pair of names has local ones that providers take; they depend on the
// pair alone, and two pairs never share one.
func FuzzNames(f *testing.F) {
	for _, s := range [][4]string{{"fs", "read_file", "fs", "read_files"}, {"a_", "b", "a", "_b"}, {"a__b", "c", "a", "b__c"}, {"", "", "", "_"}, {"日本", "a.b", "日本", "a/b"},
		{"a", "b__0123456789ab", "a", "b"}, {"mcp", "mcp__a", "mcp__mcp", "a"}, {"server\x00", "\xff\xfe", "server", "x"},
		{"0123456789012345678901234567890123456789", "01234567890123456789012345678901234567890123456789", "0123456789012345678901234567890123456789", "01234567890123456789012345678901234567890123456780"}} {
		f.Add(s[0], s[1], s[2], s[3])
	}
	f.Fuzz(func(t *testing.T, server, tool, server2, tool2 string) {
		full, endpoint, _ := Names(server, tool, nil)
		for name, limit := range map[string]int{full: MaxName, endpoint: MaxEndpointName} {
			if len(name) > limit || !localName.MatchString(name) {
				t.Fatalf("%q %q: %q", server, tool, name)
			}
		}
		if again, e, _ := Names(server, tool, nil); again != full || e != endpoint {
			t.Fatalf("%q %q: %q and then %q", server, tool, full, again)
		}
		reserved, _, taken := Names(server, tool, func(n string) bool { return n == full })
		if taken && reserved == full {
			t.Fatalf("%q is reserved and used", full)
		}
		full2, endpoint2, _ := Names(server2, tool2, nil)
		if same := server == server2 && tool == tool2; (full == full2) != same || (endpoint == endpoint2) != same {
			t.Fatalf("%q %q and %q %q: %q %q, %q %q", server, tool, server2, tool2, full, full2, endpoint, endpoint2)
		}
	})
}
