package supervisor

import (
	"cmp"
	"encoding/json"

	"mcpbridge/messages"
	"mcpbridge/supervisor/internal/results"
)

// shorten cuts a result that is larger than its server's limits.result_bytes, and keeps
// the whole for its client (requirement D7).
func (b *Bridge) shorten(out messages.Outcome, call messages.CallTool) messages.Outcome {
	limit := (*b.limits.Load())[out.Server]
	if limit <= 0 || int64(len(out.Result)) <= limit && int64(len(out.RPCError)) <= limit {
		return out
	}
	whole, cut := &out.Result, results.Cut
	if int64(len(out.RPCError)) > limit {
		whole, cut = &out.RPCError, results.CutError
	}
	owner := results.Owner{Client: cmp.Or(call.Client, defaultClient), View: call.View, Server: out.Server}
	if id, ok := b.results.Put(owner, *whole); ok {
		out.ResultURI = messages.ResultScheme + id
	}
	*whole, out.Truncated = cut(*whole, limit, out.ResultURI), true
	return out
}

// Delivered says that the result of a call with Keeps is out of the caller's hands.
func (b *Bridge) Delivered(callID string) {
	b.send(b.refs.Router, messages.Delivered{CallID: callID})
}

// Result returns a result that was cut, whole, by the id at the end of Outcome.ResultURI:
// for ten minutes, or less where many are kept, and only for the client that made the
// call, through the same view. server narrows it to results of one server; "" for any. A
// client of "" is the library's own.
func (b *Bridge) Result(client, view, server, id string) (json.RawMessage, bool) {
	return b.results.Get(results.Owner{Client: cmp.Or(client, defaultClient), View: view, Server: server}, id)
}
