package control

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"mcpbridge/config"
	"mcpbridge/messages"
)

// settle is how soon the status is looked at again after an event: an event tells
// that something is about to show there. The last step is a safety net and goes on.
var settle = []time.Duration{2 * time.Millisecond, 20 * time.Millisecond, 200 * time.Millisecond, time.Second}

// wait answers when every asked server has reached the target, when one certainly
// never will, or when time is up.
func (s *Server) wait(w http.ResponseWriter, r *http.Request) {
	req, e := s.parseWait(r)
	if e != nil {
		fail(w, e)
		return
	}
	ctx := r.Context()
	changed := make(chan struct{}, 1)
	stop := s.o.Bridge.Subscribe(func(messages.Event) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	defer stop()
	var over <-chan time.Time
	if req.Timeout > 0 {
		t := time.NewTimer(req.Timeout)
		defer t.Stop()
		over = t.C
	}
	for step := 0; ; {
		res := s.check(req)
		hopeless := slices.ContainsFunc(res.Missing, func(m Missing) bool { return m.Hopeless })
		if res.Reached || hopeless {
			reply(w, res)
			return
		}
		again := time.NewTimer(settle[min(step, len(settle)-1)])
		select {
		case <-changed:
			step = 0
		case <-again.C:
			step++
		case <-over:
			reply(w, s.check(req))
			return
		case <-ctx.Done():
			again.Stop()
			if s.ctx.Err() != nil {
				fail(w, &Error{Code: CodeFailed, Status: http.StatusServiceUnavailable, Message: "the bridge is shutting down"})
			}
			return
		}
		again.Stop()
	}
}

func (s *Server) parseWait(r *http.Request) (WaitRequest, *Error) {
	q := r.URL.Query()
	req := WaitRequest{Servers: q["server"], For: Target(q.Get("for")), After: map[string]uint64{}}
	if e := s.known(req.Servers...); e != nil {
		return req, e
	}
	switch req.For {
	case "":
		req.For = ForReady
	case ForReady, ForStopped, ForQuarantined:
	default:
		return req, &Error{Code: CodeBadRequest, Message: fmt.Sprintf("cannot wait for %q: ready, stopped or quarantined", req.For)}
	}
	if v := q.Get("timeout"); v != "" {
		d, err := time.ParseDuration(v)
		if err != nil || d <= 0 {
			return req, &Error{Code: CodeBadRequest, Message: fmt.Sprintf("timeout is %q: give a duration such as 30s", v)}
		}
		req.Timeout = d
	}
	for _, v := range q["after"] {
		name, gen, _ := strings.Cut(v, "=")
		n, err := strconv.ParseUint(gen, 10, 64)
		if err != nil {
			return req, &Error{Code: CodeBadRequest, Message: fmt.Sprintf("after is %q: give server=generation", v)}
		}
		req.After[name] = n
	}
	return req, nil
}

// MarshalJSON shows the servers exactly as the status does: `[]`, never null.
func (r WaitResult) MarshalJSON() ([]byte, error) {
	type plain WaitResult
	p := struct {
		plain
		Servers json.RawMessage `json:"servers"`
	}{plain: plain(r)}
	st, err := json.Marshal(messages.Status{Servers: slices.Clone(r.Servers)})
	if err != nil {
		return nil, err
	}
	var rows struct {
		Servers json.RawMessage `json:"servers"`
	}
	if err := json.Unmarshal(st, &rows); err != nil {
		return nil, err
	}
	p.Servers = rows.Servers
	return json.Marshal(p)
}

// check compares the status with the target once.
func (s *Server) check(req WaitRequest) WaitResult {
	st := s.o.Bridge.Status()
	res := WaitResult{For: req.For, Servers: []messages.ServerStatus{}, Missing: []Missing{}}
	for _, c := range s.o.Bridge.Config().Servers {
		if len(req.Servers) > 0 && !slices.Contains(req.Servers, c.Name) {
			continue
		}
		row, ok := st.Server(c.Name)
		if ok && len(req.Servers) == 0 && !expected(c, row, req.For) {
			continue
		}
		if ok {
			res.Servers = append(res.Servers, row)
		}
		if !ok || !reached(row, req) {
			res.Missing = append(res.Missing, Missing{Server: c.Name, State: row.State, Reason: row.Reason, Hopeless: ok && hopeless(row, req.For)})
		}
	}
	res.Reached = len(res.Missing) == 0
	return res
}

// expected tells which servers are meant when none is named: for `ready` those that
// start by themselves, for the rest those that can run at all.
func expected(c config.Server, row messages.ServerStatus, target Target) bool {
	switch {
	case row.State == messages.StateDisabled:
		return false
	case target == ForReady:
		return row.State != messages.StateIdle || c.Connect != config.ConnectLazy
	default:
		return !hopeless(row, ForReady)
	}
}

func reached(row messages.ServerStatus, req WaitRequest) bool {
	switch req.For {
	case ForStopped:
		return row.State == messages.StateStopped || hopeless(row, ForReady)
	case ForQuarantined:
		return row.State == messages.StateQuarantined
	default:
		old, replaced := req.After[row.Name]
		return row.State == messages.StateReady && (!replaced || row.Generation > old)
	}
}

// hopeless says that only a person can change the state.
func hopeless(row messages.ServerStatus, target Target) bool {
	if target == ForStopped {
		return false
	}
	switch row.State {
	case messages.StateDisabled, messages.StateConfigError, messages.StateBlocked:
		return true
	default:
		return false
	}
}
