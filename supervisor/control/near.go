package control

import (
	"cmp"
	"slices"
	"strings"
)

// nearest returns up to n of names that a person may have meant by what they wrote,
// closest first: few edits away, or one holds the other.
func nearest(wrote string, names []string, n int) []string {
	type hit struct {
		name string
		d    int
	}
	w := strings.ToLower(wrote)
	var hits []hit
	for _, name := range names {
		l := strings.ToLower(name)
		d := distance(w, l)
		limit := max(1, min(len(w), len(l))/3)
		switch {
		case d <= limit:
		case len(w) >= 3 && (strings.Contains(l, w) || strings.Contains(w, l) && len(l) >= 3):
			d = limit + 1
		default:
			continue
		}
		hits = append(hits, hit{name, d})
	}
	slices.SortStableFunc(hits, func(a, b hit) int { return cmp.Or(a.d-b.d, strings.Compare(a.name, b.name)) })
	var out []string
	for _, h := range hits[:min(n, len(hits))] {
		out = append(out, h.name)
	}
	return out
}

// distance is the number of insertions, deletions and replacements between a and b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			up := row[j+1]
			cost := diag
			if a[i] != b[j] {
				cost++
			}
			row[j+1] = min(cost, up+1, row[j]+1)
			diag = up
		}
	}
	return row[len(b)]
}
