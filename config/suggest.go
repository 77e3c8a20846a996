package config

import "strings"

// suggest finds the known word that a typing error most likely meant, "" if none is
// near. Ties go to the earlier word, so that the answer is stable.
func suggest(word string, known []string) string {
	if len(word) > 64 {
		return "" // no key of ours is so long, and the distance is quadratic
	}
	w := fold(word)
	best, found := 1+len(w)/3, ""
	if best > 3 {
		best = 3
	}
	best++
	for _, k := range known {
		if d := distance(w, fold(k)); d < best {
			best, found = d, k
		}
	}
	return found
}

// fold makes `maxReads`, `max-reads` and `max_reads` one word.
func fold(s string) string {
	return joiners.Replace(strings.ToLower(s))
}

var joiners = strings.NewReplacer("_", "", "-", "")

// distance counts the insertions, deletions, substitutions and swaps of neighbours
// between two words (optimal string alignment).
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	before, last, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(x); i++ {
		row[0] = i
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(y)]
}
