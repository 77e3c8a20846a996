package witness

import (
	"fmt"
	"sort"
)

// Span is one execution of a call: from its begin to its end, or to the last sign
// of life of its process where there is no end.
type Span struct {
	Record
	EndNS int64
	Ended bool
}

// History is a parsed log, ready for questions.
type History struct {
	Records []Record
	Spans   []Span // in order of their begins
}

// NewHistory pairs begins with ends. The records may come in any order.
func NewHistory(records []Record) (*History, error) {
	h := &History{Records: append([]Record(nil), records...)}
	sort.SliceStable(h.Records, func(i, j int) bool { return h.Records[i].MonoNS < h.Records[j].MonoNS })
	type id struct {
		pid   int
		nonce string
	}
	open := map[id][]int{} // spans of one nonce that have no end yet, oldest first
	lastSign := map[int]int64{}
	for _, r := range h.Records {
		lastSign[r.PID] = r.MonoNS
		k := id{r.PID, r.Nonce}
		switch r.Event {
		case Start:
		case Begin:
			open[k] = append(open[k], len(h.Spans))
			h.Spans = append(h.Spans, Span{Record: r})
		case End:
			if len(open[k]) == 0 {
				return nil, fmt.Errorf("witness: end of %q by pid %d without a begin", r.Nonce, r.PID)
			}
			s := &h.Spans[open[k][0]]
			open[k] = open[k][1:]
			s.EndNS, s.Ended = r.MonoNS, true
		default:
			return nil, fmt.Errorf("witness: unknown event %q", r.Event)
		}
	}
	for i := range h.Spans {
		if s := &h.Spans[i]; !s.Ended {
			s.EndNS = lastSign[s.PID]
		}
	}
	return h, nil
}

// Load reads and pairs a log file.
func Load(path string) (*History, error) {
	records, err := ReadFile(path)
	if err != nil {
		return nil, err
	}
	return NewHistory(records)
}

// Begins counts how often a nonce began; Ends how often it ended.
func (h *History) Begins(nonce string) int { return h.count(Begin, nonce) }

// Ends counts how often a nonce ended.
func (h *History) Ends(nonce string) int { return h.count(End, nonce) }

func (h *History) count(e Event, nonce string) int {
	n := 0
	for _, r := range h.Records {
		if r.Event == e && r.Nonce == nonce {
			n++
		}
	}
	return n
}

// Counts returns begins and ends per nonce, for joining with many outcomes.
func (h *History) Counts() (begins, ends map[string]int) {
	begins, ends = map[string]int{}, map[string]int{}
	for _, r := range h.Records {
		switch r.Event {
		case Begin:
			begins[r.Nonce]++
		case End:
			ends[r.Nonce]++
		case Start:
		}
	}
	return begins, ends
}

// Twice lists the side effects that began more than once: there must be none.
func (h *History) Twice() []string {
	n := map[string]int{}
	for _, s := range h.Spans {
		if s.Class == SideEffect {
			n[s.Nonce]++
		}
	}
	var out []string
	for nonce, k := range n {
		if k > 1 {
			out = append(out, fmt.Sprintf("%s began %d times", nonce, k))
		}
	}
	sort.Strings(out)
	return out
}

// Overlaps lists pairs of side effects of one server that ran at the same time:
// for a lane with max_side_effects 1 there must be none.
func (h *History) Overlaps() []string {
	return h.overlaps(func(a, b Span) bool { return a.Class == SideEffect && b.Class == SideEffect })
}

// Intrusions lists reads that ran beside a side effect of the same server: under
// `isolation: exclusive` there must be none.
func (h *History) Intrusions() []string {
	return h.overlaps(func(a, b Span) bool { return a.Class != b.Class })
}

// overlaps sweeps the spans of each server in order of their begins.
func (h *History) overlaps(forbidden func(a, b Span) bool) []string {
	running := map[string][]Span{}
	var out []string
	for _, s := range h.Spans {
		live := running[s.Server][:0]
		for _, o := range running[s.Server] {
			if o.EndNS > s.MonoNS {
				live = append(live, o)
			}
		}
		for _, o := range live {
			if forbidden(o, s) {
				out = append(out, fmt.Sprintf("server %s: %s (%s, pid %d) still ran when %s (%s, pid %d) began",
					s.Server, o.Nonce, o.Class, o.PID, s.Nonce, s.Class, s.PID))
			}
		}
		running[s.Server] = append(live, s)
	}
	return out
}

// Survivors lists processes of one server that gave a sign of life after their
// successor had started: the old tree must be dead by then.
func (h *History) Survivors() []string {
	last := map[int]int64{}
	for _, r := range h.Records {
		last[r.PID] = r.MonoNS
	}
	current := map[string]int{}
	var out []string
	for _, r := range h.Records {
		if r.Event != Start {
			continue
		}
		if old, ok := current[r.Server]; ok && old != r.PID && last[old] > r.MonoNS {
			out = append(out, fmt.Sprintf("server %s: pid %d was alive after pid %d had started", r.Server, old, r.PID))
		}
		current[r.Server] = r.PID
	}
	return out
}

// MaxParallel is the largest number of calls of a class that one server ran at the
// same time.
func (h *History) MaxParallel(class Class) int {
	type edge struct {
		at    int64
		delta int
	}
	edges := map[string][]edge{}
	for _, s := range h.Spans {
		if s.Class == class && s.EndNS > s.MonoNS {
			edges[s.Server] = append(edges[s.Server], edge{s.MonoNS, 1}, edge{s.EndNS, -1})
		}
	}
	best := 0
	for _, es := range edges {
		sort.Slice(es, func(i, j int) bool {
			if es[i].at != es[j].at {
				return es[i].at < es[j].at
			}
			return es[i].delta < es[j].delta
		})
		now := 0
		for _, e := range es {
			now += e.delta
			best = max(best, now)
		}
	}
	return best
}

// PIDs lists the processes that wrote to the log, in the order in which they started.
func (h *History) PIDs() []int {
	var out []int
	for _, r := range h.Records {
		if r.Event == Start {
			out = append(out, r.PID)
		}
	}
	return out
}
