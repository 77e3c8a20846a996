package supervisor

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	"mcpbridge/internal/planted"
	"mcpbridge/messages"
)

// defaultClient is who calls through the library.
const defaultClient = "library"

// Call runs one call to its one outcome and returns it. A deadline of ctx counts as
// the caller's deadline; a cancelled ctx means that the caller has left: the call is
// taken out of its queue, or given up where it was dispatched, and the outcome says
// which. On a bridge that drains or is closed the outcome is rejected/draining.
//
// A result over limits.result_bytes is cut; see Result.
func (b *Bridge) Call(ctx context.Context, call messages.CallTool) messages.Outcome {
	out := b.shorten(b.call(ctx, call), call)
	if out.Held && !call.Keeps {
		out.Held = false
		b.Delivered(out.CallID)
	}
	return out
}

func (b *Bridge) call(ctx context.Context, call messages.CallTool) messages.Outcome {
	if call.ID == "" {
		call.ID = b.runID + "-" + strconv.FormatUint(b.lastCall.Add(1), 36)
	}
	call.Client = cmp.Or(call.Client, defaultClient)
	if d, ok := ctx.Deadline(); ok && (call.Deadline.IsZero() || d.Before(call.Deadline)) {
		call.Deadline = d
	}
	reply := make(chan messages.Outcome, 1)
	m := messages.Submit{Call: call, Accepted: time.Now(), Reply: reply}
	b.readyToSubmit(&m)
	if !b.submit(m) {
		return refused(call)
	}
	left := ctx.Done()
	for {
		select {
		case out := <-reply:
			return out
		case <-left:
			left = nil
			if ctx.Err() == context.DeadlineExceeded && !call.Deadline.IsZero() {
				continue // the router has the same deadline, and calls it by its name
			}
			// It answers at once: not_sent, or outcome_unknown.
			b.send(b.refs.Router, messages.Cancel{CallID: call.ID, Left: true})
		case <-b.down:
			return given(reply, call, "the bridge was closed")
		}
	}
}

// submit hands a call to the router unless the door is shut.
func (b *Bridge) submit(m messages.Submit) bool {
	b.door.RLock()
	defer b.door.RUnlock()
	if b.shut && !planted.Is(planted.DrainAccepts) {
		return false
	}
	b.send(b.refs.Router, m)
	return true
}

func outcomeFor(call messages.CallTool, kind messages.OutcomeKind, code messages.Code, why string) messages.Outcome {
	return messages.Outcome{CallID: call.ID, Tool: call.Tool, Server: call.Server, Kind: kind, Code: code, Message: why}
}

// refused is the outcome of a call that came too late.
func refused(call messages.CallTool) messages.Outcome {
	o := outcomeFor(call, messages.Rejected, messages.CodeDraining, "the bridge is shutting down and takes no more calls")
	o.Hint = "try again once it has been started anew"
	return o
}

// given is the outcome of a call whose router is gone: its answer if that has come,
// else the least that can be claimed.
func given(reply <-chan messages.Outcome, call messages.CallTool, why string) messages.Outcome {
	select {
	case out := <-reply:
		return out
	default:
		return outcomeFor(call, messages.OutcomeUnknown, messages.CodeInternal, why)
	}
}

// cancelWait bounds the question whether a call is known; the router never takes
// that long.
const cancelWait = 5 * time.Second

// answerWait bounds every other question to the actors, which only a bug leaves without
// an answer.
const answerWait = 30 * time.Second

var errNoAnswer = errors.New("bug in the bridge: no answer; its log has the details")

// CancelCall asks to cancel a call by id and reports whether it was known. The server
// is told, and its answer still counts inside the deadline; the outcome comes from Call.
func (b *Bridge) CancelCall(id string) bool {
	found := make(chan bool, 1)
	b.send(b.refs.Router, messages.Cancel{CallID: id, Found: found})
	timer := time.NewTimer(cancelWait)
	defer timer.Stop()
	select {
	case ok := <-found:
		return ok
	case <-timer.C:
	case <-b.down:
	}
	return false
}

// Calls returns the calls that are queued or in flight, with what blocks them.
func (b *Bridge) Calls(ctx context.Context) ([]messages.CallInfo, error) {
	r, err := b.report(ctx)
	return r.Calls, err
}

// report asks the router for its calls. A closed bridge has none.
func (b *Bridge) report(ctx context.Context) (messages.CallsReport, error) {
	reply := make(chan messages.CallsReport, 1)
	b.send(b.refs.Router, messages.QueryCalls{Reply: reply})
	timer := time.NewTimer(answerWait)
	defer timer.Stop()
	select {
	case r := <-reply:
		return r, nil
	case <-timer.C:
		return messages.CallsReport{}, errNoAnswer
	case <-ctx.Done():
		return messages.CallsReport{}, ctx.Err()
	case <-b.down:
		return messages.CallsReport{}, nil
	}
}

// Operate asks one server to start, stop, restart, reset or drain, and returns once
// that has begun, or tells why it cannot be. Status and Subscribe tell how it goes on.
func (b *Bridge) Operate(ctx context.Context, verb messages.Verb, name string) error {
	reply := make(chan error, 1)
	b.send(b.refs.Servers, messages.Operate{Name: name, Verb: verb, Reply: reply})
	timer := time.NewTimer(answerWait)
	defer timer.Stop()
	select {
	case err := <-reply:
		return err
	case <-timer.C:
		return errNoAnswer
	case <-ctx.Done():
		return ctx.Err()
	case <-b.down:
		return errClosing
	}
}
