package control

import (
	"context"
	"errors"
	"net/http"

	"mcpbridge/messages"
)

// reload applies today's files. It goes on when the caller leaves: half a reload would be
// worse than one that nobody waits for.
func (s *Server) reload(w http.ResponseWriter, r *http.Request) {
	if s.o.Reload == nil {
		fail(w, &Error{Code: CodeRefused, Status: http.StatusConflict, Message: "this bridge was not started from configuration files"})
		return
	}
	c, err := s.o.Reload(context.WithoutCancel(r.Context()))
	if err != nil {
		var e *Error
		if !errors.As(err, &e) {
			e = &Error{Code: CodeFailed, Status: http.StatusServiceUnavailable, Message: err.Error()}
		}
		fail(w, e)
		return
	}
	now := s.o.Bridge.Config()
	reply(w, Reload{Changes: c, Issues: append([]messages.Issue{}, now.Issues...), Files: append([]string{}, now.Files...)})
}
