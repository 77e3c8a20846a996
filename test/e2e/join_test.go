package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"mcpbridge/messages"
	"mcpbridge/supervisor/control"
	"mcpbridge/test/harness"
)

// TestJoinedCallerStays: two callers with one key and one call. The first one leaves,
// however; the second is told what became of the call, and so is the journal.
func TestJoinedCallerStays(t *testing.T) {
	lab := harness.NewLab(t)
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"s": lab.Server(t, "s", "-honour-cancel", "answer")})})
	d.Await(t, "ready", "s")
	for _, how := range []string{"hangs up", "cancels", "runs out of time"} {
		t.Run(how, func(t *testing.T) {
			cl := control.NewClient(d.Control)
			defer cl.Close()
			nonce := fmt.Sprint("n", len(lab.History(t).Spans))
			req := control.CallRequest{ID: "first-" + nonce, Tool: "s/write", Args: `{"nonce":"` + nonce + `","sleep_ms":4000}`, IdempotencyKey: "k-" + nonce}
			type answer struct {
				out messages.Outcome
				err error
			}
			call := func(ctx context.Context, r control.CallRequest) <-chan answer {
				c := make(chan answer, 1)
				go func() {
					out, err := cl.Call(ctx, r, nil)
					c <- answer{out, err}
				}()
				return c
			}
			ctx, leave := context.WithCancel(context.Background())
			defer leave()
			second := req
			second.ID = "second-" + nonce
			if how == "runs out of time" {
				req.Timeout = control.Duration(1500 * time.Millisecond)
			}
			first := call(ctx, req)
			harness.Eventually(t, "the call runs", func() bool { return lab.History(t).Begins(nonce) == 1 })
			joined := call(context.Background(), second)
			harness.Eventually(t, "the second has joined", func() bool {
				list, err := cl.Calls(ctx)
				if err != nil {
					return false
				}
				for _, c := range list.Calls {
					if c.CallID == second.ID && c.State == messages.CallJoined {
						return true
					}
				}
				return false
			})
			switch how {
			case "hangs up":
				leave()
			case "cancels":
				if err := cl.Cancel(ctx, req.ID); err != nil {
					t.Error(err)
				}
			}
			switch a := <-first; {
			case how == "hangs up" && !errors.Is(a.err, context.Canceled), how != "hangs up" && a.out.Kind != messages.OutcomeUnknown:
				t.Errorf("the first: %v, %s/%s", a.err, a.out.Kind, a.out.Code)
			}
			if a := <-joined; a.err != nil || a.out.Kind != messages.OK || a.out.FirstID != req.ID || a.out.Text() == "cancelled" {
				t.Errorf("the second: %v, %s/%s: %s", a.err, a.out.Kind, a.out.Code, a.out.ErrorText())
			}
			h := lab.History(t)
			if h.Begins(nonce) != 1 || h.Ends(nonce) != 1 {
				t.Errorf("%d begins, %d ends", h.Begins(nonce), h.Ends(nonce))
			}
			j, err := cl.Journal(context.Background(), req.ID, 0)
			if err != nil || len(j.Entries) != 1 || j.Entries[0].Outcome != messages.OK.String() {
				t.Errorf("the journal: %+v, %v", j, err)
			}
		})
	}
}
