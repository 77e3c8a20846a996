package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"mcpbridge/messages"
)

const (
	// maxCallBody bounds the text of one call; the bridge has limits of its own.
	maxCallBody = 64 << 20
	// progressBuffer is how many progress frames may wait for a slow reader; more
	// are dropped, because progress is news and not data.
	progressBuffer = 256
)

// call runs one call and streams its progress. The request's context is the
// caller's presence: when the connection closes, the caller has left.
func (s *Server) call(w http.ResponseWriter, r *http.Request) {
	req, e := readCall(w, r)
	if e != nil {
		fail(w, e)
		return
	}
	progress := make(chan json.RawMessage, progressBuffer)
	call := messages.CallTool{ID: req.ID, Tool: req.Tool, Timeout: time.Duration(req.Timeout), View: req.View,
		Client: LocalClient, DryRun: req.DryRun, IdempotencyKey: req.IdempotencyKey, Keeps: true}
	if req.Args != "" {
		call.Args = json.RawMessage(req.Args)
	}
	if req.Progress {
		call.OnProgress = func(params json.RawMessage) {
			select {
			case progress <- params:
			default:
			}
		}
	}
	outcome := make(chan messages.Outcome, 1)
	// r.Context ends with the daemon's drain too (BaseContext), but the bridge's own
	// drain gives calls in flight their time: only a caller that left ends this one.
	ctx, cancel := s.callerContext(r)
	defer cancel()
	go func() { outcome <- s.o.Bridge.Call(ctx, call) }()

	w.Header().Set("Content-Type", "application/x-ndjson")
	flush := http.NewResponseController(w)
	send := func(f CallFrame) {
		if encode(w, f) == nil {
			_ = flush.Flush()
		}
	}
	for {
		select {
		case p := <-progress:
			send(CallFrame{Progress: p})
		case o := <-outcome:
			for len(progress) > 0 { // what came before the outcome is told before it
				send(CallFrame{Progress: <-progress})
			}
			if o.Held {
				defer s.o.Bridge.Delivered(o.CallID)
			}
			send(CallFrame{Outcome: &o})
			return
		}
	}
}

// callerContext ends when the connection of r is closed, and not when the server
// is told to shut down.
func (s *Server) callerContext(r *http.Request) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	stop := context.AfterFunc(r.Context(), func() {
		if s.ctx.Err() == nil {
			cancel()
		}
	})
	return ctx, func() { stop(); cancel() }
}

func readCall(w http.ResponseWriter, r *http.Request) (CallRequest, *Error) {
	var req CallRequest
	// The body is read to its end: only then does net/http notice a caller that leaves.
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxCallBody))
	if err != nil {
		var tooBig *http.MaxBytesError
		if errors.As(err, &tooBig) {
			return req, &Error{Code: CodeBadRequest, Status: http.StatusRequestEntityTooLarge, Message: fmt.Sprintf("the call is larger than %d MiB", maxCallBody>>20)}
		}
		return req, &Error{Code: CodeBadRequest, Message: fmt.Sprintf("read call: %v", err)}
	}
	if err := json.Unmarshal(body, &req); err != nil {
		return req, &Error{Code: CodeBadRequest, Message: fmt.Sprintf("decode call: %v", err)}
	}
	if req.Tool == "" {
		return req, &Error{Code: CodeBadRequest, Message: "the call names no tool"}
	}
	if req.Timeout < 0 {
		return req, &Error{Code: CodeBadRequest, Message: fmt.Sprintf("timeout is %s: give a duration above 0 such as 30s, or none", time.Duration(req.Timeout))}
	}
	if req.IdempotencyKey != "" {
		if err := CheckKey(req.IdempotencyKey); err != nil {
			return req, &Error{Code: CodeBadRequest, Message: err.Error()}
		}
	}
	return req, nil
}
