package policy

import "unicode/utf8"

// Match reports whether name fits pattern, in which `*` stands for any run of
// characters (none too) and `?` for exactly one. Nothing else is special: no
// path rules, no classes, no escapes. The work is at most len(pattern)·len(name).
func Match(pattern, name string) bool {
	p, n := 0, 0
	star, retry := -1, 0 // the last `*` seen, and where its run ends for now
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, retry = p, n
			p++
			continue
		case p < len(pattern) && pattern[p] == '?':
			_, size := utf8.DecodeRuneInString(name[n:])
			p, n = p+1, n+size
			continue
		case p < len(pattern) && pattern[p] == name[n]:
			p, n = p+1, n+1
			continue
		case star < 0:
			return false
		}
		// Only the last star can still grow: an earlier one that took more would
		// leave less for everything after it.
		_, size := utf8.DecodeRuneInString(name[retry:])
		retry += size
		p, n = star+1, retry
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// MatchAny reports whether one of the patterns fits.
func MatchAny(patterns []string, name string) bool {
	for _, p := range patterns {
		if Match(p, name) {
			return true
		}
	}
	return false
}
