package messages

import (
	"encoding"
	"slices"
	"strings"
	"testing"
)

// enum is what every enum of this package can do.
type enum[T any] interface {
	*T
	encoding.TextUnmarshaler
}

// roundTrip takes every value of an enum to text and back. The table must have
// exactly count names: a constant without a name shows here.
func roundTrip[T interface {
	~uint8
	String() string
	encoding.TextMarshaler
}, P enum[T]](t *testing.T, names []string, last T) {
	t.Helper()
	if len(names) != int(last)+1 {
		t.Errorf("%T: %d names for %d values", last, len(names), int(last)+1)
	}
	for i := range names {
		v := T(i)
		b, err := v.MarshalText()
		if err != nil || names[i] == "" || string(b) != names[i] || v.String() != names[i] {
			t.Errorf("%T(%d): text %q, err %v, want %q", v, i, b, err, names[i])
		}
		var back T
		if err := P(&back).UnmarshalText(b); err != nil || back != v {
			t.Errorf("%T %q came back as %d, err %v", v, b, back, err)
		}
	}
	sorted := slices.Clone(names)
	slices.Sort(sorted)
	if len(slices.Compact(sorted)) != len(names) {
		t.Errorf("%T: a name occurs twice in %q", last, names)
	}
	if got := (last + 1).String(); !strings.HasPrefix(got, "bug: unknown") {
		t.Errorf("%T beyond the last: %q", last, got)
	}
	var v T
	err := P(&v).UnmarshalText([]byte("no such word"))
	if err == nil || !strings.Contains(err.Error(), names[0]) {
		t.Errorf("%T: an unknown word gives %v; want an error that lists the words", v, err)
	}
}

func TestEnums(t *testing.T) {
	roundTrip(t, outcomeNames[:], NotSent)
	roundTrip(t, stateNames[:], StateBlocked)
	roundTrip(t, effectNames[:], ReadOnly)
	roundTrip(t, effectSourceNames[:], FromConfig)
	roundTrip(t, permissionNames[:], Allow)
	for i, want := range []string{"not_entered", "result", "error", "lost", "too_large", "protocol", "unsent"} {
		if got := ReplyKind(i).String(); got != want {
			t.Errorf("ReplyKind(%d) = %q, want %q", i, got, want)
		}
	}
	if len(replyNames) != int(ReplyUnsent)+1 {
		t.Errorf("%d reply names", len(replyNames))
	}
}

func TestStatesThatList(t *testing.T) {
	lists := []State{StateIdle, StateStarting, StateReady, StateBackoff}
	for i := range stateNames {
		s := State(i)
		if want := slices.Contains(lists, s); s.Lists() != want || s.Accepts() != want {
			t.Errorf("%s: lists %t, accepts %t, want %t", s, s.Lists(), s.Accepts(), want)
		}
	}
}
