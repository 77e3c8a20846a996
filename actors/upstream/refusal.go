package upstream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpbridge/internal/rawjson"
	"mcpbridge/messages"
)

const (
	maxErrorBody = 64 << 10
	// maxPause is the longest that a server can keep us from asking again.
	maxPause = 60 * time.Second
	// defaultPause is for a server that has too many requests and does not say how
	// long that will last.
	defaultPause = time.Second
)

// refused settles a request that got an HTTP error. A JSON-RPC error in the body is
// the server's answer; what the status says of the session counts for all.
func (r *remote) refused(p *pending, resp *http.Response) {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	lost := r.sessionLost(resp.StatusCode, body)
	after := r.slowDown(resp)
	raw := errorBody(body, p.id)
	switch {
	case lost || raw == nil || after > 0:
		r.mux.loseAs(p, messages.Reply{Err: describe(resp, r.red), Proven: provesRefusal(resp.StatusCode), After: after})
	default:
		r.mux.settle(p, messages.Reply{Kind: messages.ReplyError, Raw: raw})
	}
	switch {
	case lost:
		r.failAs("session ended by server", true)
	case resp.StatusCode == http.StatusUnauthorized:
		r.block(describe(resp, r.red))
	case resp.StatusCode != http.StatusForbidden || raw != nil && p.exec != nil:
	case p.method == "tools/list" || challenged(resp):
		r.block(describe(resp, r.red))
	default: // one tool may be forbidden, or everything
		r.check("tools/list")
	}
}

// provesRefusal reports whether an HTTP error means that the server did not take the
// request up. Those of a client do, but for the two by which a proxy in between says that
// it waited no longer.
func provesRefusal(status int) bool {
	const clientClosedRequest = 499 // nginx
	return status < 500 && status != http.StatusRequestTimeout && status != clientClosedRequest
}

// sessionLost reports whether an HTTP error says that the server does not know our
// session any more. 404 is what the protocol asks for; others say it in words.
func (r *remote) sessionLost(status int, body []byte) bool {
	r.mu.Lock()
	has := r.session != "" || r.sse && r.protocol != ""
	r.mu.Unlock()
	return has && saysSessionLost(status, body)
}

func saysSessionLost(status int, body []byte) bool {
	switch {
	case status == http.StatusNotFound, status == http.StatusGone:
		return true
	case status < 400 || status >= 500 || status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusTooManyRequests:
		return false
	}
	text := strings.ToLower(string(body[:min(len(body), 4<<10)]))
	if strings.Contains(text, "server not initialized") {
		return true
	}
	if !strings.Contains(text, "session") {
		return false
	}
	for _, word := range []string{"not found", "no valid", "invalid", "unknown", "expired", "missing", "required", "does not exist", "no such",
		"not initialized", "uninitialized", "terminated", "closed"} {
		if strings.Contains(text, word) {
			return true
		}
	}
	return false
}

// slowDown notes that the server wants no requests for a while, and returns for how long.
func (r *remote) slowDown(resp *http.Response) time.Duration {
	after := pauseOf(resp, time.Now())
	if after > 0 {
		r.mu.Lock()
		if until := time.Now().Add(after); until.After(r.pause) {
			r.pause = until
		}
		r.mu.Unlock()
	}
	return after
}

// paused is how long the server still wants no requests.
func (r *remote) paused() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pause.IsZero() {
		return 0
	}
	return time.Until(r.pause)
}

// pauseOf reads how long a server that is overloaded wants to be left alone: seconds
// or a date in Retry-After, at most maxPause.
func pauseOf(resp *http.Response, now time.Time) time.Duration {
	limited := resp.StatusCode == http.StatusTooManyRequests
	if !limited && resp.StatusCode != http.StatusServiceUnavailable {
		return 0
	}
	v := strings.TrimSpace(resp.Header.Get("Retry-After"))
	var after time.Duration
	if n, err := strconv.ParseUint(v, 10, 63); err == nil {
		after = time.Duration(min(n, uint64(maxPause/time.Second))) * time.Second
	} else if v != "" && strings.Trim(v, "0123456789") == "" {
		after = maxPause // more seconds than there are
	} else if at, err := http.ParseTime(v); err == nil {
		after = min(at.Sub(now), maxPause)
	}
	if after <= 0 && limited {
		after = defaultPause
	}
	return max(after, 0)
}

// challenged reports whether a 403 is about the credentials as a whole and not about
// what was asked with them.
func challenged(resp *http.Response) bool {
	c := strings.ToLower(strings.Join(resp.Header.Values("WWW-Authenticate"), ", "))
	return c != "" && !strings.Contains(c, "insufficient_scope")
}

// describe says what an HTTP error says: its status, what the server wants to see,
// and when to come again.
func describe(resp *http.Response, red redactor) string {
	s := statusError(resp.StatusCode).Error()
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired:
		c := resp.Header.Values("WWW-Authenticate")
		if resp.StatusCode == http.StatusProxyAuthRequired {
			c = resp.Header.Values("Proxy-Authenticate")
		}
		if text := shown(red.String(strings.Join(c, ", "))); text != "" {
			s += "; it asks for: " + text
		}
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if after := pauseOf(resp, time.Now()); after > 0 && resp.Header.Get("Retry-After") != "" {
			s += "; it asks to wait " + after.Round(time.Second).String()
		}
	}
	return s
}

// shown is shown of a server's words, which may repeat what it was told. What must not be
// seen goes first: a secret that is cut in two is not found any more.
func (r *remote) shown(s string) string { return shown(r.red.String(s)) }

// shown makes a server's words fit for one line of a message: nothing that a terminal
// would take for a command, and not long.
func shown(s string) string {
	const most = 300
	s = strings.Map(func(c rune) rune {
		switch {
		case unicode.IsSpace(c):
			return ' '
		case c == unicode.ReplacementChar || !unicode.IsPrint(c):
			return '?'
		}
		return c
	}, s[:min(len(s), 4*most)])
	s = strings.Join(strings.Fields(s), " ")
	if cut := []rune(s); len(cut) > most {
		s = string(cut[:most]) + "…"
	}
	return s
}

// block ends the session because the server wants other credentials.
func (r *remote) block(why string) {
	r.mu.Lock()
	r.blocked = true
	r.mu.Unlock()
	r.failAs(why, true)
}

// errorBody finds the JSON-RPC error in the body of a refused request. Its id may
// be missing: a server that refuses may not have read so far.
func errorBody(body []byte, id int64) json.RawMessage {
	body = bytes.TrimSpace(body)
	if !json.Valid(body) {
		return nil
	}
	var raw, version json.RawMessage
	fits := true
	rawjson.Fields(body, func(k, v []byte) {
		switch string(k) {
		case "jsonrpc":
			version = v
		case "error":
			raw = v
		case "id":
			if n, ok := asID(v); ok && n != id {
				fits = false
			}
		}
	})
	if !rawjson.IsObject(raw) || version == nil || !fits {
		return nil
	}
	return raw
}

// refusesInitialize keeps the protocol revisions that a server names when it takes
// initialize badly.
func (r *remote) refusesInitialize(method string, status int, body []byte) {
	if method != "initialize" || status >= 300 && status != http.StatusBadRequest {
		return
	}
	if v := revisions(body, r.asked); len(v) > 0 {
		r.mu.Lock()
		r.offered = v
		r.mu.Unlock()
	}
}

// wantsCredentials reports whether an HTTP error is about who asks, whatever its body says.
func wantsCredentials(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden
}

// revisions finds the protocol revisions that a refusal names and the older handshake
// can agree on, the newest first; asked is the one that was refused.
func revisions(refusal []byte, asked string) []string {
	if !bytes.Contains(bytes.ToLower(refusal), []byte("version")) {
		return nil
	}
	var out []string
	for _, v := range mcp.SupportedProtocolVersions() {
		if v < stateless && v != asked && bytes.Contains(refusal, []byte(v)) {
			out = append(out, v)
		}
	}
	slices.Sort(out)
	slices.Reverse(out)
	return out
}

func statusError(code int) error {
	return fmt.Errorf("HTTP %s", strings.TrimSpace(strconv.Itoa(code)+" "+http.StatusText(code)))
}
