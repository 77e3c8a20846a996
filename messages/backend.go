package messages

import (
	"context"
	"encoding/json"
	"log/slog"
)

// Backend is what the gateway needs of the bridge. The bridge implements it; the
// gateway knows nothing else.
type Backend interface {
	// Call runs one call to its one outcome. It returns when the outcome is known;
	// cancelling ctx means that the caller has left.
	Call(ctx context.Context, call CallTool) Outcome
	// CancelCall asks to cancel a call by id, as its client does; it reports
	// whether the call was known. The outcome still comes from Call.
	CancelCall(id string) bool
	// Delivered says that the result of a call with Keeps is out of the caller's hands.
	Delivered(callID string)
	// Result returns a result that was cut (requirement D7), by the id at the end of its
	// URI, whole: for the client that made the call, through the same view and, where
	// server is given, from that server. For all others it does not exist.
	Result(client, view, server, id string) (json.RawMessage, bool)
	// Catalogue returns the current snapshot, never nil.
	Catalogue() *Catalogue
	// WaitListed blocks until every server that is starting for the first time has
	// listed its tools or failed, ctx ends, or the configured list_wait is over.
	// server narrows it to one; "" means all.
	WaitListed(ctx context.Context, server string)
	// Subscribe calls f for each event, in order, from one goroutine, until stop
	// is called. A slow f loses events and hears a gap event instead.
	Subscribe(f func(Event)) (stop func())
	// Status returns a copy of the bridge's state.
	Status() Status
	// Logger is where the gateway logs; never nil.
	Logger() *slog.Logger
}
