package catalogue

import (
	"flag"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestNames(t *testing.T) {
	reserved := func(name string) bool { return name == "mcp__fs__taken" || name == "fs__builtin" }
	long45, long52 := strings.Repeat("s", 45), strings.Repeat("t", 52)
	for _, c := range []struct {
		server, tool, full, endpoint string // ~ stands for the hash
		taken                        bool
	}{
		{"fs", "read_file", "mcp__fs__read_file", "fs__read_file", false},
		{"github", "search_repositories", "mcp__github__search_repositories", "github__search_repositories", false},
		{"a-b", "C-d", "mcp__a-b__C-d", "a-b__C-d", false},
		{"_a", "b_", "mcp___a__b_", "_a__b_", false},
		{"a.b", "c", "mcp__a_b__c__~", "a_b__c__~", false},
		{"fs", "a/b", "mcp__fs__a_b__~", "fs__a_b__~", false},
		{"fs", "日本", "mcp__fs______~", "fs______~", false},
		{"fs", "\xff", "mcp__fs_____~", "fs_____~", false},
		{"a__b", "c", "mcp__a__b__c__~", "a__b__c__~", false},
		{"a", "b__c", "mcp__a__b__c__~", "a__b__c__~", false},
		{"a_", "b", "mcp__a___b__~", "a___b__~", false},
		{"a", "_b", "mcp__a___b__~", "a___b__~", false},
		{"fs", "", "mcp__fs____~", "fs____~", false},
		{"fs", "taken", "mcp__fs__taken__~", "fs__taken", true},
		{"fs", "builtin", "mcp__fs__builtin", "fs__builtin__~", true},
		// 48 characters are the endpoint's, 64 the full name's.
		{"fs", strings.Repeat("x", 44), "mcp__fs__" + strings.Repeat("x", 44), "fs__" + strings.Repeat("x", 44), false},
		{"fs", strings.Repeat("x", 45), "mcp__fs__" + strings.Repeat("x", 45), "fs__" + strings.Repeat("x", 30) + "__~", false},
		{"fs", strings.Repeat("x", 55), "mcp__fs__" + strings.Repeat("x", 55), "fs__" + strings.Repeat("x", 30) + "__~", false},
		{"fs", strings.Repeat("x", 56), "mcp__fs__" + strings.Repeat("x", 41) + "__~", "fs__" + strings.Repeat("x", 30) + "__~", false},
		{long45, "x", "mcp__" + long45 + "__x", long45 + "__x", false},
		{long45, "xy", "mcp__" + long45 + "__xy", strings.Repeat("s", 30) + "__xy__~", false},
		{long45, long52, "mcp__" + strings.Repeat("s", 21) + "__" + strings.Repeat("t", 22) + "__~",
			strings.Repeat("s", 16) + "__" + strings.Repeat("t", 16) + "__~", false},
	} {
		full, endpoint, taken := Names(c.server, c.tool, reserved)
		hash := Hash(c.server, c.tool)
		if want := strings.ReplaceAll(c.full, "~", hash); full != want {
			t.Errorf("%q %q: full name %s, want %s", c.server, c.tool, full, want)
		}
		if want := strings.ReplaceAll(c.endpoint, "~", hash); endpoint != want {
			t.Errorf("%q %q: endpoint name %s, want %s", c.server, c.tool, endpoint, want)
		}
		if taken != c.taken {
			t.Errorf("%q %q: taken %v", c.server, c.tool, taken)
		}
	}
	// Names are kept in people's rules and prompts: the hash may never change.
	if got := Hash("fs", "a/b"); got != "u42xwv3vxtod" {
		t.Errorf("the hash changed: %s", got)
	}
}

var (
	inside   = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	withHash = regexp.MustCompile(`__[a-z2-7]{12}$`)
)

// part draws a name that is likely to make trouble.
func part(t *rapid.T, label string) string {
	return rapid.OneOf(
		rapid.StringMatching(`[A-Za-z0-9_-]{1,12}`),
		rapid.StringOfN(rapid.RuneFrom([]rune("ab_")), 1, 6, -1),
		rapid.StringOfN(rapid.RuneFrom([]rune("a_.-/é")), 1, 80, -1),
		rapid.StringMatching(`[ab]_?_?[ab]__[a-z2-7]{12}`),
	).Draw(t, label)
}

var pairs = flag.Int("names.pairs", 5_000, "random pairs of TestNamesAreInjective")

// TestNamesAreInjective draws pairs until there were enough: within each draw for a
// small counterexample, and over all of them in one space.
func TestNamesAreInjective(t *testing.T) {
	type pair struct{ server, tool string }
	all, drawn := map[string]pair{}, 0
	check := func(t *rapid.T) {
		owners := map[string]pair{} // full and endpoint names live in one space
		n := rapid.IntRange(2, 40).Draw(t, "n")
		for range n {
			p := pair{part(t, "server"), part(t, "tool")}
			drawn++
			_, first, _ := Names(p.server, p.tool, nil)
			// A hostile server may name a tool like the hashed name of another.
			for _, q := range []pair{p, {p.server, strings.TrimPrefix(first, p.server+"__")}} {
				full, endpoint, _ := Names(q.server, q.tool, nil)
				again, againEndpoint, _ := Names(q.server, q.tool, nil)
				if full != again || endpoint != againEndpoint {
					t.Fatalf("%q: not stable", q)
				}
				if len(full) > MaxName || len(endpoint) > MaxEndpointName || !inside.MatchString(full) || !inside.MatchString(endpoint) {
					t.Fatalf("%q: %s and %s do not fit", q, full, endpoint)
				}
				for _, name := range []string{full, endpoint} {
					for _, space := range []map[string]pair{owners, all} {
						if other, ok := space[name]; ok && other != q {
							t.Fatalf("%q and %q are both %s", other, q, name)
						}
						space[name] = q
					}
				}
				plain := "mcp__" + q.server + "__" + q.tool
				if full != plain && !withHash.MatchString(full) {
					t.Fatalf("%q: %s is neither plain nor hashed", q, full)
				}
			}
		}
	}
	for drawn < *pairs && !t.Failed() {
		rapid.Check(t, check)
	}
	t.Logf("%d pairs, %d names", drawn, len(all))
}
