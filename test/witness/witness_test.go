package witness

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func at(ev Event, nonce string, class Class, pid int, t int64) Record {
	return Record{Event: ev, Nonce: nonce, Tool: "t", Class: class, Server: "s", PID: pid, MonoNS: t}
}

// TestPlantedFaults plants each fault that the checker exists for, and clean
// histories beside them: a checker that finds nothing proves nothing.
func TestPlantedFaults(t *testing.T) {
	w, r := SideEffect, Read
	tests := []struct {
		name                                  string
		records                               []Record
		twice, overlaps, intrusions, survives int
		reads                                 int
	}{
		{name: "clean", records: []Record{at(Start, "", "", 1, 0), at(Begin, "a", w, 1, 1), at(End, "a", w, 1, 2), at(Begin, "b", w, 1, 3), at(End, "b", w, 1, 4)}},
		{name: "sent again after a crash", records: []Record{at(Begin, "a", w, 1, 1), at(Start, "", "", 2, 5), at(Begin, "a", w, 2, 6), at(End, "a", w, 2, 7)}, twice: 1},
		{name: "lane released on timeout", records: []Record{at(Begin, "a", w, 1, 1), at(Begin, "b", w, 1, 2), at(End, "b", w, 1, 3), at(End, "a", w, 1, 4)}, overlaps: 1},
		{name: "unfinished in a process that lives on", records: []Record{at(Begin, "a", w, 1, 1), at(Begin, "b", w, 1, 2), at(End, "b", w, 1, 3)}, overlaps: 1},
		{name: "unfinished, then the next process", records: []Record{at(Start, "", "", 1, 0), at(Begin, "a", w, 1, 1), at(Start, "", "", 2, 2), at(Begin, "b", w, 2, 3), at(End, "b", w, 2, 4)}},
		{name: "the old process lives on", records: []Record{at(Start, "", "", 1, 0), at(Begin, "a", w, 1, 1), at(Start, "", "", 2, 2), at(Begin, "b", w, 2, 3), at(End, "b", w, 2, 4), at(End, "a", w, 1, 5)}, overlaps: 1, survives: 1},
		{name: "reads side by side", records: []Record{at(Begin, "a", r, 1, 1), at(Begin, "b", r, 1, 2), at(Begin, "c", r, 1, 3), at(End, "a", r, 1, 4), at(End, "b", r, 1, 5), at(End, "c", r, 1, 6)}, reads: 3},
		{name: "a read beside a side effect", records: []Record{at(Begin, "a", w, 1, 1), at(Begin, "b", r, 1, 2), at(End, "a", w, 1, 3), at(End, "b", r, 1, 4)}, intrusions: 1, reads: 1},
		{name: "reads may repeat", records: []Record{at(Begin, "a", r, 1, 1), at(Start, "", "", 2, 2), at(Begin, "a", r, 2, 3), at(End, "a", r, 2, 4)}, reads: 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h, err := NewHistory(tt.records)
			if err != nil {
				t.Fatal(err)
			}
			got := [5]int{len(h.Twice()), len(h.Overlaps()), len(h.Intrusions()), len(h.Survivors()), h.MaxParallel(Read)}
			want := [5]int{tt.twice, tt.overlaps, tt.intrusions, tt.survives, tt.reads}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("[twice overlaps intrusions survivors reads] (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOtherServersMayOverlap(t *testing.T) {
	a, b := at(Begin, "a", SideEffect, 1, 1), at(Begin, "b", SideEffect, 2, 2)
	ae, be := at(End, "a", SideEffect, 1, 5), at(End, "b", SideEffect, 2, 6)
	b.Server, be.Server = "other", "other"
	h, err := NewHistory([]Record{a, b, ae, be})
	if err != nil {
		t.Fatal(err)
	}
	if got := h.Overlaps(); len(got) != 0 {
		t.Errorf("overlaps between different servers: %v", got)
	}
}

func TestEndWithoutBegin(t *testing.T) {
	if _, err := NewHistory([]Record{at(End, "a", Read, 1, 1)}); err == nil {
		t.Error("an end without a begin was accepted")
	}
}

func TestWriteAndRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.jsonl")
	l, err := Open(path, "s")
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{l.Begin("n", "write", SideEffect), l.End("n", "write", SideEffect), l.Begin("m", "read", Read)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	h, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if h.Begins("n") != 1 || h.Ends("n") != 1 || h.Begins("m") != 1 || h.Ends("m") != 0 {
		t.Errorf("spans = %+v", h.Spans)
	}
	if diff := cmp.Diff([]int{os.Getpid()}, h.PIDs()); diff != "" {
		t.Errorf("pids (-want +got):\n%s", diff)
	}
}

func TestHalfWrittenLastLine(t *testing.T) {
	got, err := Parse(strings.NewReader(`{"ev":"start","server":"s","pid":1,"mono_ns":1}` + "\n" + `{"ev":"beg`))
	if err != nil || len(got) != 1 {
		t.Errorf("got %d records, err %v; want the one whole line", len(got), err)
	}
	if _, err := Parse(strings.NewReader("nonsense\n")); err == nil {
		t.Error("a whole line that is no record was accepted")
	}
}
