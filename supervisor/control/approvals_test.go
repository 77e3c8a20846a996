package control

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"mcpbridge/messages"
)

func TestApprovals(t *testing.T) {
	f := newFake("fs")
	f.approvals = []messages.Approval{{ID: "call-x/y", Kind: messages.ApproveCall, Server: "fs", Args: json.RawMessage(`{"b":1.0,"a":"<"}`)}}
	f.changes = []messages.DefinitionChange{{ID: "definition-1", Server: "fs", Name: "mcp__fs__read", After: messages.Definition{Tool: "read"}},
		{ID: "definition-2", Server: "fs", Name: "mcp__fs__write", After: messages.Definition{Tool: "write"}}}
	c := serve(t, f)
	list, err := c.Approvals(t.Context())
	if err != nil || len(list.Approvals) != 1 || string(list.Approvals[0].Args) != `{"b":1.0,"a":"<"}` {
		t.Errorf("%+v %v", list, err)
	}
	for _, decide := range []func(context.Context, string) (messages.Approval, error){c.Approve, c.Deny} {
		if a, err := decide(t.Context(), "call-x/y"); err != nil || a.ID != "call-x/y" {
			t.Errorf("%+v %v", a, err)
		}
		var api *Error
		if _, err := decide(t.Context(), "nobody"); !errors.As(err, &api) || api.Code != CodeUnknownApproval || api.Hint == "" {
			t.Errorf("an id that nothing waits under: %v", err)
		}
	}
	for pattern, want := range map[string]int{"": 2, "fs/read": 1, "mcp__fs__*": 2, "nothing": 0} {
		if d, err := c.Definitions(t.Context(), pattern); err != nil || len(d.Changes) != want {
			t.Errorf("%q: %+v %v", pattern, d, err)
		}
	}
}
