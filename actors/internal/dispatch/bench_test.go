package dispatch

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"mcpbridge/messages"
)

// BenchmarkCall is one call through the core: Submit, Execute, CallDone, Settle.
func BenchmarkCall(b *testing.B) {
	for _, effect := range []string{"read", "write"} {
		b.Run(effect, func(b *testing.B) { benchmarkCall(b, ready(b, busy(0)), effect, 0) })
	}
	b.Run("write with a journal", func(b *testing.B) { benchmarkCall(b, journaled(b, busy(0)), "write", 0) })
	b.Run("read with a journal", func(b *testing.B) { benchmarkCall(b, journaled(b, busy(0)), "read", 0) })
	// With calls of other clients under way and waiting, as in a busy bridge.
	b.Run("read beside 1000", func(b *testing.B) { benchmarkCall(b, ready(b, busy(1000)), "read", 1000) })
}

func busy(others int) func(*messages.ServerLimits) {
	return func(l *messages.ServerLimits) { l.Serial, l.MaxReads, l.Queue = true, others+1, others }
}

func benchmarkCall(b *testing.B, h *harness, tool string, others int) {
	for i := range others {
		h.call(fmt.Sprint("other", i), "read", timeout(time.Duration(i+1)*time.Second))
	}
	c, now := h.core, start
	reply := make(chan messages.Outcome, 1)
	submit := messages.Submit{Call: messages.CallTool{ID: "a", Tool: "mcp__fs__" + tool, Client: "c", Args: json.RawMessage("{}")},
		Accepted: now, Checked: messages.CheckedArgs{Version: 1, Args: json.RawMessage("{}")}, Reply: reply, ArgsDigest: "digest"}
	var first messages.Message = submit
	b.ReportAllocs()
	for b.Loop() {
		var recorded messages.Recorded
		done := messages.CallDone{Key: fs, CallID: "a", Reply: okReply}
		for _, cmd := range c.Step(now, first, nil) {
			switch cmd := cmd.(type) {
			case Execute:
				cmd.Exec.Boundary.Enter()
				done.Gen, done.Attempt = cmd.Exec.Gen, cmd.Exec.Attempt
			case Record:
				recorded = messages.Recorded{CallID: "a", Attempt: cmd.Record.Attempt, Token: cmd.Token}
			}
		}
		if recorded.Token != 0 {
			for _, cmd := range c.Step(now, recorded, nil) {
				if e, ok := cmd.(Execute); ok {
					e.Exec.Boundary.Enter()
					done.Gen, done.Attempt = e.Exec.Gen, e.Exec.Attempt
				}
			}
		}
		for _, cmd := range c.Step(now, done, nil) {
			if s, ok := cmd.(Settle); ok {
				s.Reply <- s.Outcome
			}
		}
		if o := <-reply; o.Kind != messages.OK {
			b.Fatal(o.Kind, o.Message)
		}
	}
}

func BenchmarkIsError(b *testing.B) {
	raw := json.RawMessage(`{"content":[{"type":"image","data":"` + string(make([]byte, 1<<20)) + `"}],"isError":false}`)
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		isError(raw)
	}
}

func BenchmarkUnknownTool(b *testing.B) {
	var tools []messages.Tool
	for i := range 5000 {
		tools = append(tools, tool("fs", fmt.Sprint("some_tool_with_a_name_", i), messages.ReadOnly, 0))
	}
	h := ready(b, nil)
	h.step(messages.CatalogueChanged{Catalogue: catalogue(2, map[string]bool{"fs": true}, tools...)})
	reply := make(chan messages.Outcome, 1)
	for b.Loop() {
		h.core.Step(start, messages.Submit{Call: messages.CallTool{Tool: "fs__some_tool_with_a_nmae"}, Reply: reply}, nil)
	}
}
