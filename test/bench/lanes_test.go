package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"

	"mcpbridge/messages"
	"mcpbridge/test/harness"
)

// TestBenchLanes measures how long calls of each class wait in a lane that runs side
// effects alone: 32 callers, every fourth call a side effect.
func TestBenchLanes(t *testing.T) {
	b := harness.Library(t, harness.Config(harness.M{"s": plain(t)}))
	const callers = 32
	var reads, effects, ratios []float64
	for range pick(5, 1) {
		var mu sync.Mutex
		var sum [2]float64
		var n [2]int
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				for k := range pick(40, 4) {
					tool, class := "read", 0
					if (i+k)%4 == 0 {
						tool, class = "write", 1
					}
					out := b.Call(context.Background(), messages.CallTool{Tool: "s/" + tool, Args: json.RawMessage(`{"sleep_ms":4}`)})
					if out.Kind != messages.OK {
						t.Errorf("%s: %s: %s", tool, out.Kind, out.ErrorText())
						return
					}
					mu.Lock()
					sum[class] += us(out.Queued) / 1000
					n[class]++
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if n[0] == 0 || n[1] == 0 {
			t.Fatal("one class did not run")
		}
		r, e := sum[0]/float64(n[0]), sum[1]/float64(n[1])
		reads, effects, ratios = append(reads, r), append(effects, e), append(ratios, max(r, e)/max(min(r, e), 0.001))
	}
	slices.Sort(reads)
	slices.Sort(effects)
	slices.Sort(ratios)
	mid := len(reads) / 2
	report("\n%-34s %12s %12s   ratio  goal", "mean wait in the lane", "reads", "side effects")
	report("%-34s %9.1f ms %9.1f ms   ×%.2f  %s", fmt.Sprintf("exclusive, %d callers, 25 %% effects", callers), reads[mid], effects[mid], ratios[mid], "at most 2")
}
