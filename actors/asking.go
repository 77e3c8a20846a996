package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/asynkron/protoactor-go/actor"

	"mcpbridge/actors/internal/dispatch"
	"mcpbridge/messages"
)

// ask puts a question to a person or program on a goroutine of its own, which may
// call back into the bridge, and brings the answer as a message. The context ends
// with the call's deadline, with the call, and with the router.
func (r *router) ask(ctx actor.Context, cmd dispatch.Ask) {
	asker := cmd.Of
	if asker == nil {
		asker = r.cfg.Approver
	}
	root, self, logger := ctx.ActorSystem().Root, ctx.Self(), r.cfg.Logger
	life, cancel := context.WithDeadline(context.Background(), cmd.Deadline)
	if r.asked == nil {
		r.asked = map[uint64]context.CancelFunc{}
	}
	r.asked[cmd.Token] = cancel
	go func() {
		defer cancel()
		root.Send(self, answerOf(life, asker, cmd, logger))
	}()
}

// answerOf is what the asker says. One that fails or panics has not said yes.
func answerOf(ctx context.Context, asker messages.Asker, cmd dispatch.Ask, logger *slog.Logger) (m messages.Answered) {
	m = messages.Answered{CallID: cmd.CallID, Token: cmd.Token}
	defer func() {
		if p := recover(); p != nil {
			logger.Error("bug in an approver", "call", cmd.CallID, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			m.Yes, m.Cannot, m.Err = false, false, "it panicked; the bridge's log has the details"
		}
	}()
	if asker == nil { // cannot happen: the core asks only where there is one
		m.Cannot = true
		return m
	}
	yes, err := asker(ctx, cmd.Approval)
	switch {
	case errors.Is(err, messages.ErrCannotAsk):
		m.Cannot = true
	case err != nil:
		m.Err = err.Error()
	default:
		m.Yes = yes
	}
	return m
}

func (r *router) stopAsking(token uint64) {
	if cancel := r.asked[token]; cancel != nil {
		cancel()
		delete(r.asked, token)
	}
}
