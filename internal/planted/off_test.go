//go:build !planted

package planted

import "testing"

// TestInactive: in an ordinary build no bug is active, whatever the environment says, and
// asking costs nothing.
func TestInactive(t *testing.T) {
	for _, i := range All {
		if Is(i.Bug) {
			t.Errorf("%s is active", i.Bug)
		}
	}
	if n := testing.AllocsPerRun(100, func() { _ = Is(RetryOnEOF) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
