//go:build linux

package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"mcpbridge/messages"
	"mcpbridge/supervisor/control"
	"mcpbridge/test/harness"
)

// step is a call of the script. Steps with the same wave go out together.
type step struct {
	wave         int
	server, tool string
	key          string
	bytes        int
}

// script is what the callers do in a life with faults. The large results of keyed calls
// are stored, so that the journal's segments (8 KiB) are full with each of them and its
// retention (64 KiB) sets in with the fifth.
var script = []step{
	{wave: 1, server: "s", tool: "read"},
	{wave: 2, server: "s", tool: "write"},
	{wave: 3, server: "web", tool: "write"},
	{wave: 4, server: "s", tool: "big", key: "k1", bytes: 15000},
	{wave: 5, server: "s", tool: "write", key: "k2"},
	{wave: 6, server: "s", tool: "write", key: "k2"},
	{wave: 7, server: "web", tool: "read"},
	{wave: 8, server: "s", tool: "big", key: "k3", bytes: 15000},
	{wave: 9, server: "s", tool: "big", key: "k4", bytes: 15000},
	{wave: 10, server: "web", tool: "write", key: "k5"},
	{wave: 11, server: "s", tool: "big", key: "k6", bytes: 15000},
	{wave: 12, server: "s", tool: "big", key: "k7", bytes: 15000},
	{wave: 13, server: "s", tool: "read"},
	{wave: 14, server: "s", tool: "write"},
	{wave: 14, server: "web", tool: "write"},
	{wave: 14, server: "s", tool: "read"},
	{wave: 15, server: "s", tool: "write"},
}

// said is what a caller knows of its call.
type said struct {
	step
	id, nonce string
	answered  bool
	out       messages.Outcome
	sent      time.Time
}

func (c *said) effectful() bool { return c.tool != "read" }

// unavailable: refused, because it could not be recorded.
func (c *said) unavailable() bool { return c.out.Code == messages.CodeJournalUnavailable }

func (c *said) request(id string) control.CallRequest {
	args, _ := json.Marshal(map[string]any{"nonce": c.nonce, "bytes": c.bytes})
	if c.tool != "big" {
		args = fmt.Appendf(nil, `{"nonce":%q}`, c.nonce)
	}
	return control.CallRequest{ID: id, Tool: c.server + "/" + c.tool, Args: string(args), IdempotencyKey: c.key,
		Timeout: control.Duration(harness.Patience)}
}

// make makes the call. An error is "the daemon went away" or a finding.
func (c *said) make(t *testing.T, cl *control.Client) {
	c.sent = time.Now()
	out, err := cl.Call(context.Background(), c.request(c.id), nil)
	var lost *control.LostError
	var none *control.NoDaemonError
	switch {
	case err == nil:
		c.answered, c.out = true, out
	case !errors.As(err, &lost) && !errors.As(err, &none):
		t.Errorf("%s %s/%s: %v", c.nonce, c.server, c.tool, err)
	}
}

// play runs the steps wave by wave until the daemon dies. Calls with one key have one
// nonce: they are the same call.
func play(t *testing.T, d *harness.Daemon, prefix string, steps []step) []*said {
	cl := control.NewClient(d.Control)
	defer cl.Close()
	var calls []*said
	for i := 0; i < len(steps) && d.Alive(); {
		var wg sync.WaitGroup
		for wave := steps[i].wave; i < len(steps) && steps[i].wave == wave; i++ {
			c := &said{step: steps[i], id: fmt.Sprintf("%s-%d", prefix, i), nonce: fmt.Sprintf("%s-n%d", prefix, i)}
			if c.key != "" {
				c.key = prefix + "-" + c.key
				c.nonce = c.key
			}
			calls = append(calls, c)
			wg.Go(func() { c.make(t, cl) })
		}
		wg.Wait()
	}
	return calls
}
