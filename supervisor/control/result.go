package control

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"mcpbridge/messages"
)

// result gives a result that was cut back as a whole, as its server wrote it.
func (s *Server) result(w http.ResponseWriter, r *http.Request) {
	raw, ok := s.o.Bridge.Result(LocalClient, r.URL.Query().Get("view"), "", r.PathValue("id"))
	if !ok {
		fail(w, &Error{Code: CodeNotFound, Status: http.StatusNotFound, Message: "there is no such result",
			Hint: "a result that was cut is kept for ten minutes at most, for the view that it was called through"})
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(raw) // a caller that left is told nothing
}

// Result returns a result that was cut, whole, by its URI or the id at its end; view is
// the one that the call was made through.
func (c *Client) Result(ctx context.Context, uri, view string) (json.RawMessage, error) {
	q := url.Values{}
	if view != "" {
		q.Set("view", view)
	}
	resp, err := c.do(ctx, http.MethodGet, "/v1/results/"+url.PathEscape(strings.TrimPrefix(uri, messages.ResultScheme)), q, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read the result: %w", c.classify(ctx, err))
	}
	return raw, nil
}
