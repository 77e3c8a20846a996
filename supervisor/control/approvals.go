package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"mcpbridge/messages"
	"mcpbridge/supervisor"
)

// Approvals answers GET /v1/approvals; it is `approvals -o json`.
type Approvals struct {
	Approvals []messages.Approval `json:"approvals"`
}

// Definitions answers GET /v1/definitions; it is `tools diff -o json`.
type Definitions struct {
	Changes []messages.DefinitionChange `json:"changes"`
}

func (s *Server) approvals(w http.ResponseWriter, r *http.Request) {
	list, err := s.o.Bridge.Approvals(r.Context())
	if err != nil {
		fail(w, &Error{Code: CodeFailed, Status: http.StatusServiceUnavailable, Message: err.Error()})
		return
	}
	if list == nil {
		list = []messages.Approval{}
	}
	reply(w, Approvals{list})
}

// decide answers one approval: the verb of the path is approve or deny.
func (s *Server) decide(w http.ResponseWriter, r *http.Request) {
	id, verb := r.PathValue("id"), r.PathValue("verb")
	decide := s.o.Bridge.Approve
	switch verb {
	case "approve":
	case "deny":
		decide = s.o.Bridge.Deny
	default:
		fail(w, &Error{Code: CodeBadRequest, Message: fmt.Sprintf("unknown verb %q: approve or deny", verb)})
		return
	}
	a, err := decide(r.Context(), id)
	switch {
	case errors.Is(err, supervisor.ErrUnknownApproval):
		fail(w, &Error{Code: CodeUnknownApproval, Status: http.StatusNotFound, Message: err.Error(),
			Hint: "`bridgectl approvals` lists what waits; an answer counts once, and a question about a call is forgotten after ten minutes"})
	case err != nil:
		fail(w, &Error{Code: CodeFailed, Status: http.StatusServiceUnavailable, Message: err.Error()})
	default:
		reply(w, a)
	}
}

func (s *Server) definitions(w http.ResponseWriter, r *http.Request) {
	// What a server that is still starting will list is worth waiting for.
	s.o.Bridge.WaitListed(r.Context(), "")
	out := Definitions{Changes: []messages.DefinitionChange{}}
	match := matcher(r.URL.Query().Get("pattern"))
	for _, c := range s.o.Bridge.DefinitionChanges() {
		t, ok := s.o.Bridge.Catalogue().Lookup(c.Name)
		if !ok {
			t = messages.Tool{Name: c.Name, Server: c.Server, RemoteName: c.After.Tool}
		}
		if match(t) {
			c.EndpointName = t.EndpointName
			out.Changes = append(out.Changes, c)
		}
	}
	reply(w, out)
}

// Approvals lists what waits for a person.
func (c *Client) Approvals(ctx context.Context) (out Approvals, err error) {
	return out, c.get(ctx, http.MethodGet, "/v1/approvals", nil, nil, &out)
}

// Approve says yes to what Approvals showed under the id; Deny says no.
func (c *Client) Approve(ctx context.Context, id string) (messages.Approval, error) {
	return c.decide(ctx, id, "approve")
}

// Deny is Approve's no.
func (c *Client) Deny(ctx context.Context, id string) (messages.Approval, error) {
	return c.decide(ctx, id, "deny")
}

func (c *Client) decide(ctx context.Context, id, verb string) (out messages.Approval, err error) {
	return out, c.get(ctx, http.MethodPost, "/v1/approvals/"+url.PathEscape(id)+"/"+verb, nil, nil, &out)
}

// Definitions lists the definitions that nobody has approved, of tools whose names
// fit the pattern ("" = all).
func (c *Client) Definitions(ctx context.Context, pattern string) (out Definitions, err error) {
	q := url.Values{}
	if pattern != "" {
		q.Set("pattern", pattern)
	}
	return out, c.get(ctx, http.MethodGet, "/v1/definitions", q, nil, &out)
}
