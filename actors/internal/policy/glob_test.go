package policy

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"", "", true}, {"", "a", false}, {"a", "", false}, {"*", "", true}, {"**", "", true},
		{"read_*", "read_file", true}, {"read_*", "read_", true}, {"read_*", "write_file", false},
		{"*_file", "read_file", true}, {"*file*", "a/file/b", true}, {"a*b*c", "aXbYc", true}, {"a*b*c", "aXcYb", false},
		{"?", "a", true}, {"?", "", false}, {"?", "ab", false}, {"?", "é", true}, {"a?c", "aéc", true}, {"*?", "é", true},
		{"a.b", "axb", false}, {"[ab]", "a", false}, {"[ab]", "[ab]", true}, {`\*`, "*", false},
		{"a/*", "a/b/c", true}, {"A", "a", false}, {"*a*a*a*a*b", strings.Repeat("a", 10_000), false},
	} {
		if got := Match(c.pattern, c.name); got != c.want {
			t.Errorf("Match(%q, %.20q) = %v, want %v", c.pattern, c.name, got, c.want)
		}
	}
}

func TestMatchAgreesWithRegexp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringOfN(rapid.RuneFrom([]rune("ab*?é.")), 0, 8, -1).Draw(t, "pattern")
		name := rapid.StringOfN(rapid.RuneFrom([]rune("abé.*")), 0, 10, -1).Draw(t, "name")
		quoted := strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(pattern))
		want := regexp.MustCompile("^(?s:" + quoted + ")$").MatchString(name)
		if got := Match(pattern, name); got != want {
			t.Fatalf("Match(%q, %q) = %v, want %v", pattern, name, got, want)
		}
	})
}
