package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"mcpbridge/messages"
)

// Journal answers GET /v1/journal; it is `calls --journal -o json`.
type Journal struct {
	// Entries are the side effects that were dispatched, latest first.
	Entries []messages.JournalEntry `json:"entries"`
	// Complete says that, within retention, "no entry" proves "not dispatched"; where it
	// does not, Doubts says why.
	Complete bool     `json:"complete"`
	Doubts   []string `json:"doubts,omitempty"`
	// Since is how far back it reaches: calls that were settled up to then may have been
	// removed by retention (journal.keep, journal.max_size). Absent: none was.
	Since *time.Time `json:"since,omitempty"`
}

// JournalMost bounds how many entries one answer holds.
const JournalMost = 1000

// journal tells of past side effects: all of them, or those of one call id or one
// idempotency key. That there is none is an answer, and no failure.
func (s *Server) journal(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	n := 0
	if v := q.Get("n"); v != "" {
		var err error
		if n, err = strconv.Atoi(v); err != nil || n < 1 || n > JournalMost {
			fail(w, &Error{Code: CodeBadRequest, Message: fmt.Sprintf("n is %q: give a number from 1 to %d", v, JournalMost)})
			return
		}
	}
	if q.Has("id") && q.Get("id") == "" {
		fail(w, &Error{Code: CodeBadRequest, Message: "the call id or key is empty: give one, or none for all entries"})
		return
	}
	entries, err := s.o.Bridge.JournalEntries(q.Get("id"), n)
	if err != nil {
		fail(w, &Error{Code: CodeNoJournal, Status: http.StatusConflict, Message: "the journal cannot be read: " + err.Error(),
			Hint: "`bridgectl status` shows what is wrong with it; as long as it cannot be used, side effects are refused"})
		return
	}
	if entries == nil {
		entries = []messages.JournalEntry{}
	}
	out := Journal{Entries: entries, Doubts: s.doubts()}
	since, damaged := s.o.Bridge.JournalReach()
	if !since.IsZero() {
		out.Since = &since
	}
	out.Complete = len(out.Doubts) == 0 && !damaged
	reply(w, out)
}

// doubts are the reasons why a call that has no entry may have been dispatched all the same.
func (s *Server) doubts() (out []string) {
	for _, i := range s.o.Bridge.Status().Issues {
		if i.Path == "journal" && i.Severity == messages.SeverityError {
			out = append(out, strings.TrimPrefix(i.File+": "+i.Message, ": "))
		}
	}
	if p := s.o.Bridge.Config().Journal.Fsync; p != "" && p != "always" {
		out = append(out, fmt.Sprintf("journal.fsync is %s: records may be missing if the machine itself went down", p))
	}
	return out
}

// Journal lists past side effects, latest first: all, or those of a call id or an
// idempotency key; n is how many at most, 0 for the bridge's default.
func (c *Client) Journal(ctx context.Context, idOrKey string, n int) (out Journal, err error) {
	q := url.Values{}
	if idOrKey != "" {
		q.Set("id", idOrKey)
	}
	if n != 0 {
		q.Set("n", strconv.Itoa(n))
	}
	return out, c.get(ctx, http.MethodGet, "/v1/journal", q, nil, &out)
}

// keyMost is how many characters an idempotency key may have.
const keyMost = 256

// CheckKey says what is wrong with an idempotency key that somebody gave. Text that is
// no UTF-8 must be found here: on the way to the bridge, JSON would make another key of it.
func CheckKey(key string) error {
	switch {
	case key == "":
		return errors.New("the idempotency key is empty: give 1 to 256 printable characters, or no key")
	case !utf8.ValidString(key) || strings.ContainsFunc(key, func(r rune) bool { return !unicode.IsPrint(r) }):
		return errors.New("the idempotency key has characters that cannot be printed: give 1 to 256 printable ones")
	case utf8.RuneCountInString(key) > keyMost:
		return fmt.Errorf("the idempotency key has %d characters: give 1 to 256, such as a digest of what makes the call the same", utf8.RuneCountInString(key))
	}
	return nil
}
