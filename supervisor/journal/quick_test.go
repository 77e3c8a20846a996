package journal

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"mcpbridge/messages"
)

// same holds quick against decodeRecord: where it says yes, both say the same.
func same(t interface {
	Helper()
	Fatalf(string, ...any)
}, q *quick, payload []byte) bool {
	t.Helper()
	got, ok := q.decode(payload)
	if !ok {
		return false
	}
	want, err := decodeRecord(payload)
	if err != nil {
		t.Fatalf("%q is read, and is no record: %v", payload, err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("%q: %s", payload, d)
	}
	return true
}

// TestQuick: a record comes back as it was written, and any other bytes as the general
// decoder has them, or not at all.
func TestQuick(t *testing.T) {
	q := newQuick()
	words := rapid.OneOf(rapid.StringMatching(`[a-zA-Z0-9_.:/ -]{0,20}`), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		at := time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "s"), rapid.SampledFrom([]int64{0, 1, 500, 120_000_000, 999_999_999}).Draw(t, "ns"))
		var r record
		plain := true
		text := func(name string) string {
			s := words.Draw(t, name)
			for _, c := range s {
				plain = plain && c >= ' ' && c < 0x7f && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&'
			}
			return s
		}
		if rapid.Bool().Draw(t, "dispatch") {
			r = dispatchRecord(messages.DispatchRecord{CallID: text("call"), RunID: text("run"), Generation: uint64(rapid.Uint32().Draw(t, "gen")),
				Attempt: rapid.IntRange(0, 9).Draw(t, "attempt"), Client: text("client"), Server: text("server"), Tool: text("tool"),
				ArgsDigest: text("digest"), IdempotencyKey: text("key"), Remote: rapid.Bool().Draw(t, "remote"), At: at}, "r")
		} else {
			o := messages.OutcomeRecord{CallID: text("call"), RunID: text("run"), Attempt: rapid.IntRange(0, 3).Draw(t, "attempt"),
				Outcome: messages.OutcomeKind(rapid.IntRange(0, 4).Draw(t, "kind")), Code: messages.Code(text("code")), At: at, Dropped: rapid.Bool().Draw(t, "dropped")}
			switch rapid.IntRange(0, 2).Draw(t, "raw") {
			case 1:
				o.Result = []byte("{\"a\":\n1}")
			case 2:
				o.RPCError = []byte(`{}`)
			}
			r = outcomeRecord(o, "r")
		}
		b, err := r.encode()
		if err != nil {
			t.Skip(err)
		}
		if read := same(t, q, b); !read && plain {
			t.Fatalf("%q: a plain record is left to the general decoder", b)
		}
		// One byte changed, taken out, or put in.
		i := rapid.IntRange(0, len(b)-1).Draw(t, "i")
		c := rapid.SampledFrom([]byte(`0129-+.eZT:"{},\ taz`+"\n\x01\xc3")).Draw(t, "c")
		same(t, q, append(append(append([]byte{}, b[:i]...), c), b[i+1:]...))
		same(t, q, append(append([]byte{}, b[:i]...), b[i+1:]...))
		same(t, q, append(append(append([]byte{}, b[:i]...), c), b[i:]...))
	})
}

// TestQuickTimes: the calendar is the general decoder's.
func TestQuickTimes(t *testing.T) {
	q := newQuick()
	read := 0
	for _, at := range []string{"2026-02-28T23:59:59Z", "2026-02-29T00:00:00Z", "2024-02-29T00:00:00.1Z", "2026-13-01T00:00:00Z", "2026-00-01T00:00:00Z",
		"2026-01-32T00:00:00Z", "2026-01-00T00:00:00Z", "2026-01-01T24:00:00Z", "2026-01-01T23:60:00Z", "2026-01-01T23:59:60Z", "2026-01-01T00:00:00.Z",
		"2026-01-01T00:00:00.123456789Z", "2026-01-01T00:00:00.1234567890Z", "2026-01-01T00:00:00,5Z", "2026-01-01T00:00:00+00:00", "0000-01-01T00:00:00Z",
		"9999-12-31T23:59:59.999999999Z", "2026-1-01T00:00:00Z", "2026-01-01t00:00:00Z", "2026-01-01T00:00:00z", "0001-01-01T00:00:00Z", ""} {
		if same(t, q, fmt.Appendf(nil, `{"outcome":{"call_id":"c","run_id":"r","outcome":"ok","at":%q}}`, at)) {
			read++
		}
	}
	if read != 6 {
		t.Errorf("%d of them are read", read)
	}
}
