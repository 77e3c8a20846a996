package actors

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain waits for the goroutines that end by themselves: a dead letter keeps one
// of protoactor's for a second.
func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		deadline := time.Now().Add(20 * time.Second)
		for err := goleak.Find(); err != nil; err = goleak.Find() {
			if time.Now().After(deadline) {
				fmt.Fprintln(os.Stderr, err)
				code = 1
				break
			}
		}
	}
	os.Exit(code)
}
