package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Violation is one broken promise, with the calls and nonces that show it.
type Violation struct {
	Property string
	Text     string
}

// String is the line for people.
func (v Violation) String() string { return v.Property + ": " + v.Text }

// properties in the order of the report, with what they say.
var properties = []struct{ name, text string }{
	{"history", "the accounts are whole and speak of the same calls"},
	{"P1", "no side effect begins twice or is sent again"},
	{"P2", "outcomes are true at the witness"},
	{"P3", "exactly one outcome, by deadline + 2 s"},
	{"P4", "lanes never overlap"},
	{"P5", "serial: a read with a free slot goes out at once"},
	{"P6", "the order of a lane respects real time"},
	{"P9", "no process outlives its daemon, or its successor's start"},
	{"P10", "resources return to where they were"},
	{"P11", "restarts keep to their schedule"},
	{"P12", "a drain accepts nothing and delivers the rest"},
	{"P13", "the journal knows what was sent"},
	{"P15", "when the faults stop, everything settles"},
	{"P17", "no call ended in a mistake of the bridge"},
	{"P18", "waiting and running are told apart, truly"},
}

// Report is what Check found.
type Report struct {
	Violations []Violation
	Checked    map[string]int    // how much there was to check, by property
	Skipped    map[string]string // properties that could not be checked, and why
	Counts     map[string]int    // calls, events, witness records, kills by kind, …
	Outcomes   map[string]int    // by outcome and code
	Recoveries []time.Duration   // from down to ready, sorted
	Notes      []string
	Length     time.Duration // from the first call to the last answer
}

func newReport() *Report {
	return &Report{Checked: map[string]int{}, Skipped: map[string]string{}, Counts: map[string]int{}, Outcomes: map[string]int{}}
}

// add notes a violation.
func (r *Report) add(property, format string, args ...any) {
	r.Violations = append(r.Violations, Violation{property, fmt.Sprintf(format, args...)})
}

// did counts something that a property was checked on.
func (r *Report) did(property string) { r.Checked[property]++ }

// Of returns the violations of one property.
func (r *Report) Of(property string) (out []Violation) {
	for _, v := range r.Violations {
		if v.Property == property {
			out = append(out, v)
		}
	}
	return out
}

// Vacuous lists the properties that met nothing to check.
func (r *Report) Vacuous() (out []string) {
	for _, p := range properties {
		if r.Checked[p.name] == 0 {
			out = append(out, p.name)
		}
	}
	return out
}

// shownPerProperty bounds the text: one mistake often breaks a promise many times.
const shownPerProperty = 12

// String is the whole report as text.
func (r *Report) String() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	calls := r.Counts["calls"]
	line("%d calls in %s (%.0f a second)", calls, r.Length.Round(100*time.Millisecond), float64(calls)/max(r.Length.Seconds(), 0.001))
	for _, k := range slices.Sorted(maps.Keys(r.Counts)) {
		if k != "calls" {
			line("  %-28s %7d", k, r.Counts[k])
		}
	}
	line("outcomes")
	for _, k := range slices.SortedFunc(maps.Keys(r.Outcomes), func(a, b string) int {
		return cmp.Or(cmp.Compare(r.Outcomes[b], r.Outcomes[a]), cmp.Compare(a, b))
	}) {
		line("  %-40s %7d", k, r.Outcomes[k])
	}
	r.recoveries(line)
	line("properties")
	for _, p := range properties {
		n := len(r.Of(p.name))
		verdict := "ok"
		switch {
		case n > 0:
			verdict = fmt.Sprintf("%d VIOLATIONS", n)
		case r.Skipped[p.name] != "":
			verdict = "NOT CHECKED: " + r.Skipped[p.name]
		case r.Checked[p.name] == 0:
			verdict = "NOT CHECKED: there was nothing to check"
		}
		line("  %-8s %8d checked  %-48s %s", p.name, r.Checked[p.name], p.text, verdict)
	}
	for _, n := range r.Notes {
		line("note: %s", n)
	}
	for _, p := range properties {
		vs := r.Of(p.name)
		for _, v := range vs[:min(len(vs), shownPerProperty)] {
			line("VIOLATION %s", v)
		}
		if more := len(vs) - shownPerProperty; more > 0 {
			line("VIOLATION %s: and %d more", p.name, more)
		}
	}
	line("%d violations", len(r.Violations))
	return b.String()
}

// recoveries draws the histogram from down to ready.
func (r *Report) recoveries(line func(string, ...any)) {
	n := len(r.Recoveries)
	if n == 0 {
		line("recoveries (down to ready): none")
		return
	}
	at := func(q float64) time.Duration {
		return r.Recoveries[min(n-1, int(q*float64(n)))].Round(time.Millisecond)
	}
	line("recoveries (down to ready): %d, median %s, p90 %s, p99 %s, longest %s", n, at(0.5), at(0.9), at(0.99), at(1))
	bounds := []time.Duration{50, 100, 200, 500, 1000, 2000, 5000, 10000}
	i := 0
	for _, bound := range bounds {
		bound *= time.Millisecond
		count := 0
		for ; i < n && r.Recoveries[i] <= bound; i++ {
			count++
		}
		if count > 0 {
			line("  <= %-6s %6d %s", bound, count, strings.Repeat("#", (60*count+n-1)/n))
		}
	}
	if i < n {
		line("  longer    %6d %s", n-i, strings.Repeat("#", (60*(n-i)+n-1)/n))
	}
}
