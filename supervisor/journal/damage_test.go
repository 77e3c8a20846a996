package journal

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// sampleJournal is a closed journal of two runs and several segments.
func sampleJournal(t testing.TB) (*faultFS, *clock, ledger) {
	d, c, l := newFaultFS(), &clock{t: epoch}, ledger{}
	for _, run := range []string{"a", "b"} {
		o := options(d, c, run)
		o.segmentMax = 900
		j := mustOpen(t, o)
		for n := range 4 {
			s := sample(run, n, c.now())
			s.CallID = run + "-" + s.CallID
			l[s.CallID] = &told{d: s, acked: true}
			if err := dispatch(j, s); err != nil {
				t.Fatal(err)
			}
			if n != 1 {
				o := settle(s, n, c.now())
				l[s.CallID].o = &o
				j.Outcome(o)
			}
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return d, c, l
}

// judge opens a journal that was tampered with. It may show less, and must say so.
func judge(t *testing.T, what string, d *faultFS, c *clock, l ledger) *Journal {
	t.Helper()
	j := mustOpen(t, options(d, c, "z"))
	defer j.Close()
	whole := l.check(j, demands{now: c.now(), outcomes: true})
	if whole != nil && !strings.Contains(whole.Error(), "is gone") && !strings.Contains(whole.Error(), "lost its outcome") {
		t.Fatalf("%s: %v", what, whole)
	}
	if whole != nil && len(j.Issues()) == 0 {
		t.Fatalf("%s: %v, and nothing was reported", what, whole)
	}
	return j
}

func TestBitFlips(t *testing.T) {
	src, c, l := sampleJournal(t)
	step := 1
	if testing.Short() || raceEnabled {
		step = 17
	}
	flips, reported := 0, 0
	for name, f := range src.files {
		for bit := 0; bit < len(f.data)*8; bit += step {
			d := src.crash(all)
			d.files[name].data[bit/8] ^= 1 << (bit % 8)
			what := fmt.Sprintf("%s bit %d", name, bit)
			j := judge(t, what, d, c, l)
			flips++
			if len(j.Issues()) == 0 {
				t.Fatalf("%s: not noticed", what)
			}
			reported++
			if !j.Damaged() && !strings.HasSuffix(name, keyName) {
				// Only the end of the last segment may look like an unfinished write.
				whole := l.check(j, demands{now: c.now(), outcomes: true})
				if whole != nil {
					t.Fatalf("%s: %v, and no damage seen:\n%s", what, whole, text(j))
				}
			}
		}
	}
	t.Logf("%d flipped bits, %d reported", flips, reported)
}

// TestScan flips every bit and cuts at every byte, below the journal: whatever still
// verifies is a record that was there.
func TestScan(t *testing.T) {
	src, _, _ := sampleJournal(t)
	for name, f := range src.files {
		num, ok := segmentNumber(strings.TrimPrefix(name, "/j/"))
		if !ok {
			continue
		}
		good := map[uint64]string{}
		frames, _ := scan(f.data, num)
		for _, fr := range frames {
			good[fr.seq] = string(fr.payload)
		}
		check := func(what string, b []byte, want int) {
			t.Helper()
			frames, holes := scan(b, num)
			for _, fr := range frames {
				if good[fr.seq] != string(fr.payload) {
					t.Fatalf("%s: %s: a record that never was: %d %s", name, what, fr.seq, fr.payload)
				}
			}
			if len(frames) < want || len(frames) < len(good) && len(holes) == 0 && !strings.HasPrefix(what, "cut") {
				t.Fatalf("%s: %s: %d of %d records, %d holes", name, what, len(frames), len(good), len(holes))
			}
		}
		for bit := range len(f.data) * 8 {
			f.data[bit/8] ^= 1 << (bit % 8)
			check(fmt.Sprintf("bit %d", bit), f.data, len(good)-1)
			f.data[bit/8] ^= 1 << (bit % 8)
		}
		for n := range f.data {
			check(fmt.Sprintf("cut to %d", n), f.data[:n], 0)
		}
		if frames, _ := scan(f.data, num+1); len(frames) > 0 {
			t.Error("records of another segment pass")
		}
	}
}

func TestTruncations(t *testing.T) {
	src, c, l := sampleJournal(t)
	names := 0
	newest := ""
	for name := range src.files {
		if strings.HasSuffix(name, suffix) {
			newest = max(newest, name)
			names++
		}
	}
	if names < 4 {
		t.Fatalf("only %d segments", names)
	}
	n, step := 0, 1
	if testing.Short() || raceEnabled {
		step = 5 // TestScan leaves nothing out
	}
	for name, f := range src.files {
		for size := 0; size < len(f.data); size += step {
			d := src.crash(all)
			d.files[name].data = d.files[name].data[:size]
			what := fmt.Sprintf("%s cut to %d", name, size)
			j := judge(t, what, d, c, l)
			n++
			if len(j.Issues()) == 0 && !(name == newest && size == 0) {
				t.Fatalf("%s: not noticed", what)
			}
			if strings.HasSuffix(name, suffix) && name != newest && !j.Damaged() {
				t.Fatalf("%s: no damage seen:\n%s", what, text(j))
			}
		}
	}
	t.Logf("%d truncations", n)
}

// TestMissing takes whole segments and single records away, and puts records twice.
func TestMissing(t *testing.T) {
	src, c, l := sampleJournal(t)
	newest := ""
	for name := range src.files {
		if strings.HasSuffix(name, suffix) {
			newest = max(newest, name)
		}
	}
	for name, f := range src.files {
		if !strings.HasSuffix(name, suffix) {
			continue
		}
		d := src.crash(all)
		delete(d.files, name)
		if j := judge(t, "without "+name, d, c, l); name != newest && !j.Damaged() {
			t.Errorf("without %s: no damage seen", name)
		}
		num, _ := segmentNumber(name[len("/j/"):])
		frames, _ := scan(f.data, num)
		for i, fr := range frames {
			last := name == newest && i == len(frames)-1
			d := src.crash(all)
			d.files[name].data = append(bytes.Clone(f.data[:fr.off]), f.data[fr.end:]...)
			if j := judge(t, fmt.Sprintf("%s without record %d", name, i), d, c, l); !j.Damaged() && !last {
				t.Errorf("%s without record %d: no damage seen", name, i)
			}
			d = src.crash(all)
			d.files[name].data = append(bytes.Clone(f.data[:fr.end]), f.data[fr.off:]...)
			if j := judge(t, fmt.Sprintf("%s with record %d twice", name, i), d, c, l); !j.Damaged() {
				t.Errorf("%s with record %d twice: not seen", name, i)
			}
		}
	}
}

// TestDamageStays: a start after the one that found the damage finds it too.
func TestDamageStays(t *testing.T) {
	src, c, l := sampleJournal(t)
	for name, f := range src.files {
		if !strings.HasSuffix(name, suffix) {
			continue
		}
		for _, at := range []int{5, len(f.data) / 2, len(f.data) - 3} {
			d := src.crash(all)
			d.files[name].data[at] ^= 4
			for range 3 {
				j := mustOpen(t, options(d, c, "z"))
				if err := dispatch(j, sample("z", 1, c.now())); err != nil {
					t.Fatal(err)
				}
				l["c-1"] = &told{d: sample("z", 1, c.now()), acked: true}
				if err := j.Close(); err != nil || !j.Damaged() {
					t.Fatalf("%s at %d: damaged %v, close %v\n%s", name, at, j.Damaged(), err, text(j))
				}
			}
			judge(t, name, d, c, l)
			delete(l, "c-1")
		}
	}
}

func FuzzReplay(f *testing.F) {
	src, c, _ := sampleJournal(f)
	for name, file := range src.files {
		if strings.HasSuffix(name, segmentName(1)) {
			f.Add(file.data)
		}
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		frames, holes := scan(b, 1)
		at := int64(0)
		for _, fr := range frames {
			for len(holes) > 0 && holes[0].off == at {
				at, holes = holes[0].end, holes[1:]
			}
			if fr.off != at || !bytes.Equal(appendFrame(nil, 1, fr.seq, fr.payload), b[fr.off:fr.end]) {
				t.Fatalf("frame at %d after %d", fr.off, at)
			}
			at = fr.end
		}
		if len(holes) == 1 {
			at = holes[0].end
		}
		if at != int64(len(b)) {
			t.Fatalf("%d of %d bytes accounted for", at, len(b))
		}
		d := newFaultFS()
		d.files["/j/"+segmentName(1)] = &inode{data: b}
		first := mustOpen(t, options(d.crash(all), c, "z"))
		defer first.Close()
		d.files["/j/"+segmentName(1)] = &inode{data: b}
		j := mustOpen(t, options(d, c, "z"))
		defer j.Close()
		if len(j.ix.calls) > len(frames) {
			t.Fatalf("%d calls from %d records", len(j.ix.calls), len(frames))
		}
	})
}
