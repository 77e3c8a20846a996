package control

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"mcpbridge/messages"
)

// follow turns a subscription into a channel. The callback waits for the reader: a
// subscriber has a goroutine of its own, and one that is slow hears a gap event.
func follow[T any](ctx context.Context, subscribe func(func(T)) func()) (items <-chan T, stop func()) {
	ch := make(chan T, 64)
	ctx, cancel := context.WithCancel(ctx)
	unsubscribe := subscribe(func(v T) {
		select {
		case ch <- v:
		case <-ctx.Done():
		}
	})
	return ch, func() { cancel(); unsubscribe() }
}

// window is the part of the history that was asked for.
type window struct {
	n      int       // the last n; -1 = all
	since  time.Time // zero = no bound
	follow bool
}

func parseWindow(q url.Values) (window, *Error) {
	w := window{n: -1, follow: q.Get("follow") == "true"}
	if v := q.Get("n"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 {
			return w, &Error{Code: CodeBadRequest, Message: fmt.Sprintf("n is %q: give a number from 0 up", v)}
		}
		w.n = n
	}
	if v := q.Get("since"); v != "" {
		t, err := time.Parse(time.RFC3339Nano, v)
		if err != nil {
			return w, &Error{Code: CodeBadRequest, Message: fmt.Sprintf("since is %q: give a time as RFC 3339", v)}
		}
		w.since = t
	}
	return w, nil
}

// last cuts the history to the window.
func last[T any](w window, list []T, at func(T) time.Time) []T {
	if !w.since.IsZero() {
		list = slices.DeleteFunc(list, func(v T) bool { return at(v).Before(w.since) })
	}
	if w.n >= 0 && len(list) > w.n {
		list = list[len(list)-w.n:]
	}
	return list
}

// events sends the history, and with follow what happens from here on. A follower
// that is too slow, or that asks for more than is kept, hears a gap event with the
// number of events that are missing.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	win, e := parseWindow(q)
	servers, types := q["server"], q["type"]
	if e == nil {
		e = s.known(servers...)
	}
	for _, t := range types {
		if e == nil && !slices.Contains(eventTypes, messages.EventType(t)) {
			e = unknownType(t)
		}
	}
	var after uint64
	if v := q.Get("seq"); v != "" && e == nil {
		var err error
		if after, err = strconv.ParseUint(v, 10, 64); err != nil {
			e = &Error{Code: CodeBadRequest, Message: fmt.Sprintf("seq is %q: give the seq of the last event seen", v)}
		}
	}
	if e != nil {
		fail(w, e)
		return
	}
	wanted := func(ev messages.Event) bool {
		return ev.Type == messages.EventGap ||
			(len(servers) == 0 || slices.Contains(servers, ev.Server)) && (len(types) == 0 || slices.Contains(types, string(ev.Type)))
	}
	var live <-chan messages.Event
	if win.follow { // subscribed before the history is read, so that nothing falls between
		var stop func()
		live, stop = follow(r.Context(), s.o.Bridge.Subscribe)
		defer stop()
	}
	past := s.o.Bridge.Events(after)
	seen := after
	if len(past) > 0 {
		seen = past[len(past)-1].Seq
		if after == 0 && past[0].Type == messages.EventGap {
			past = past[1:] // nobody asked for what is forgotten
		}
	}
	past = last(win, slices.DeleteFunc(past, func(ev messages.Event) bool { return !wanted(ev) }), func(ev messages.Event) time.Time { return ev.Time })

	out := newLines(w)
	for _, ev := range past {
		out.send(ev)
	}
	out.flush()
	for win.follow && out.err == nil {
		select {
		case <-r.Context().Done():
			return
		case ev := <-live:
			if ev.Seq <= seen || !wanted(ev) {
				continue
			}
			out.send(ev)
			if len(live) == 0 {
				out.flush()
			}
		}
	}
}

// eventTypes are the words that ?type= takes; a misspelt one would match nothing for ever.
var eventTypes = []messages.EventType{
	messages.EventServerState, messages.EventServerSpawned, messages.EventServerReady, messages.EventServerExited,
	messages.EventServerRecycled, messages.EventServerIssue, messages.EventCatalogue, messages.EventCallAccepted,
	messages.EventCallDispatched, messages.EventCallRequeued, messages.EventCallCancel, messages.EventCallSettled, messages.EventCallJoined,
	messages.EventApprovalAsked, messages.EventApprovalDecided,
	messages.EventReplyLate, messages.EventLaneHeld, messages.EventLaneReleased, messages.EventPossibleOverlap,
	messages.EventDraining, messages.EventGap, messages.EventOwnership, messages.EventReloaded, messages.EventReloadRefused,
}

func unknownType(t string) *Error {
	names := make([]string, len(eventTypes))
	for i, v := range eventTypes {
		names[i] = string(v)
	}
	e := &Error{Code: CodeBadRequest, Message: fmt.Sprintf("no event is of type %q", t), Hint: "known: " + strings.Join(names, ", ")}
	if near := nearest(t, names, 1); len(near) == 1 {
		e.Hint = fmt.Sprintf("did you mean %q? %s", near[0], e.Hint)
	}
	return e
}

// logs sends the lines that are kept, and with follow those that come.
func (s *Server) logs(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	win, e := parseWindow(q)
	servers := q["server"]
	if e == nil {
		e = s.known(servers...)
	}
	if e != nil {
		fail(w, e)
		return
	}
	var live <-chan messages.LogLine
	if win.follow {
		var stop func()
		live, stop = follow(r.Context(), s.o.Bridge.SubscribeLogs)
		defer stop()
	}
	past := s.pastLogs(servers)
	var seen uint64
	if len(past) > 0 {
		seen = past[len(past)-1].Seq
	}
	out := newLines(w)
	for _, l := range last(win, past, func(l messages.LogLine) time.Time { return l.Time }) {
		out.send(l)
	}
	out.flush()
	for win.follow && out.err == nil {
		select {
		case <-r.Context().Done():
			return
		case l := <-live:
			// A line without a server is the bridge's word about the stream itself.
			if l.Seq <= seen || l.Server != "" && len(servers) > 0 && !slices.Contains(servers, l.Server) {
				continue
			}
			out.send(l)
			if len(live) == 0 {
				out.flush()
			}
		}
	}
}

// pastLogs merges the kept lines of the servers by their order of arrival.
func (s *Server) pastLogs(servers []string) []messages.LogLine {
	if len(servers) == 0 {
		return s.o.Bridge.Logs("", maxLogLines)
	}
	var out []messages.LogLine
	for _, n := range slices.Compact(slices.Sorted(slices.Values(servers))) {
		out = append(out, s.o.Bridge.Logs(n, maxLogLines)...)
	}
	slices.SortFunc(out, func(a, b messages.LogLine) int { return cmp.Compare(a.Seq, b.Seq) })
	return out
}

// maxLogLines is more than the bridge keeps: "everything there is".
const maxLogLines = 1 << 20

// lines writes NDJSON and remembers the first failure.
type lines struct {
	w   http.ResponseWriter
	rc  *http.ResponseController
	err error
}

func newLines(w http.ResponseWriter) *lines {
	w.Header().Set("Content-Type", "application/x-ndjson")
	return &lines{w: w, rc: http.NewResponseController(w)}
}

func (l *lines) send(v any) {
	if l.err == nil {
		l.err = encode(l.w, v)
	}
}

func (l *lines) flush() {
	if l.err == nil {
		l.err = l.rc.Flush()
	}
}
