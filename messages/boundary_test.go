package messages

import (
	"sync"
	"sync/atomic"
	"testing"
)

// TestBoundaryHasOneWinner races enters against voids; one of them wins, once, and
// Entered agrees. Its worth is under -race.
func TestBoundaryHasOneWinner(t *testing.T) {
	for range 500 {
		var b Boundary
		var entered, void atomic.Int32
		var wg sync.WaitGroup
		start := make(chan struct{})
		for i := range 8 {
			wg.Go(func() {
				<-start
				if i%2 == 0 && b.Enter() {
					entered.Add(1)
				}
				if i%2 == 1 && b.Void() {
					void.Add(1)
				}
			})
		}
		close(start)
		wg.Wait()
		if entered.Load()+void.Load() != 1 {
			t.Fatalf("%d entered, %d void", entered.Load(), void.Load())
		}
		if b.Entered() != (entered.Load() == 1) {
			t.Fatalf("Entered() = %t, but %d entered", b.Entered(), entered.Load())
		}
	}
}

func TestBoundaryIsFinal(t *testing.T) {
	var entered, void Boundary
	if !entered.Enter() || entered.Void() || entered.Enter() || !entered.Entered() {
		t.Error("an entered boundary moved again")
	}
	if !void.Void() || void.Enter() || void.Void() || void.Entered() {
		t.Error("a void boundary moved again")
	}
}
