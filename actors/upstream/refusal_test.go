package upstream

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode"

	"pgregory.net/rapid"

	"mcpbridge/config"
)

func response(status int, header ...string) *http.Response {
	r := &http.Response{StatusCode: status, Header: http.Header{}}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

func TestPauseOf(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	date := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for _, tc := range []struct {
		status int
		after  string
		want   time.Duration
	}{
		{429, "7", 7 * time.Second}, {429, " 7 ", 7 * time.Second}, {429, "0", defaultPause}, {429, "", defaultPause}, {429, "-5", defaultPause},
		{429, "soon", defaultPause}, {429, "1.5", defaultPause}, {429, "86400", maxPause}, {429, "99999999999999999999999999", maxPause},
		{429, date(30 * time.Second), 30 * time.Second}, {429, date(-time.Hour), defaultPause}, {429, date(48 * time.Hour), maxPause},
		{429, "Monday, 30-Nov-26 12:00:09 GMT", 9 * time.Second}, {429, "Mon Nov 30 12:00:09 2026", 9 * time.Second},
		{503, "7", 7 * time.Second}, {503, "", 0}, {503, "soon", 0}, {503, date(-time.Hour), 0}, {503, "86400", maxPause},
		{500, "7", 0}, {404, "7", 0}, {200, "7", 0},
	} {
		if got := pauseOf(response(tc.status, "Retry-After", tc.after), now); got != tc.want {
			t.Errorf("%d %q: %s, want %s", tc.status, tc.after, got, tc.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		d := pauseOf(response(rapid.SampledFrom([]int{429, 503}).Draw(t, "status"), "Retry-After", rapid.String().Draw(t, "after")), now)
		if d < 0 || d > maxPause {
			t.Fatal(d)
		}
	})
}

func TestSaysSessionLost(t *testing.T) {
	for _, tc := range []struct {
		status int
		body   string
		want   bool
	}{
		{404, "", true}, {410, "", true}, {404, "<html>", true},
		{400, "Bad Request: No valid session ID provided", true}, {400, `{"error":{"message":"Bad Request: Server not initialized"}}`, true},
		{400, "Mcp-Session-Id header is required", true}, {400, "Session terminated", true}, {400, "SESSION EXPIRED", true}, {422, "unknown session", true},
		{400, "bad arguments", false}, {400, "a session of fun", false}, {400, "", false}, {401, "session expired", false}, {403, "invalid session", false},
		{429, "too many; session closed", false}, {500, "session not found", false}, {200, "session not found", false}, {302, "session not found", false},
		{400, strings.Repeat(" ", 5<<10) + "session not found", false}, // who says it says it at once
	} {
		if got := saysSessionLost(tc.status, []byte(tc.body)); got != tc.want {
			t.Errorf("%d %.60q: %t", tc.status, tc.body, got)
		}
	}
}

func TestDescribe(t *testing.T) {
	for want, resp := range map[string]*http.Response{
		"HTTP 401 Unauthorized": response(401),
		`HTTP 401 Unauthorized; it asks for: Bearer realm="x", Basic`:    response(401, "WWW-Authenticate", `Bearer realm="x"`, "WWW-Authenticate", "Basic"),
		"HTTP 403 Forbidden; it asks for: a b":                           response(403, "WWW-Authenticate", "a\t\n b"),
		"HTTP 407 Proxy Authentication Required; it asks for: Negotiate": response(407, "Proxy-Authenticate", "Negotiate"),
		"HTTP 429 Too Many Requests; it asks to wait 5s":                 response(429, "Retry-After", "5"),
		"HTTP 429 Too Many Requests":                                     response(429),
		"HTTP 500 Internal Server Error":                                 response(500, "WWW-Authenticate", "x", "Retry-After", "5"),
		"HTTP 599":                                                       response(599),
	} {
		if got := describe(resp, plainText{}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestShown: whatever a server says, it stays on its line and commands no terminal.
func TestShown(t *testing.T) {
	for in, want := range map[string]string{"": "", "a  b\r\nc": "a b c", "a\x1b[2Jb": "a?[2Jb", "\u202eabc": "?abc", "\x9b\xff": "??", "Zürich": "Zürich",
		strings.Repeat("x", 1000): strings.Repeat("x", 300) + "…"} {
		if got := shown(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		s := shown(rapid.String().Draw(t, "s") + string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")))
		if len([]rune(s)) > 301 || strings.ContainsFunc(s, func(c rune) bool { return !unicode.IsPrint(c) }) {
			t.Fatalf("%q", s)
		}
	})
}

func TestRevisions(t *testing.T) {
	for _, tc := range []struct {
		text string
		want []string
	}{
		{"Unsupported protocol version 2025-11-25 (supported versions: 2024-11-05, 2025-06-18)", []string{"2025-06-18", "2024-11-05"}},
		{`{"message":"Unsupported Protocol VERSION","data":{"supported":["2025-03-26"]}}`, []string{"2025-03-26"}},
		{"unsupported version 2025-11-25", nil}, {"unsupported version; try 1999-01-01", nil}, {"version: only 2026-07-28", nil},
		{"maintenance until 2025-06-18", nil}, {"", nil},
	} {
		if got := revisions([]byte(tc.text), legacy); !slices.Equal(got, tc.want) {
			t.Errorf("%q: %v, want %v", tc.text, got, tc.want)
		}
	}
}

// TestReadBody: whole up to the cap, given up beyond it, however the pieces come, and
// an end that is none is told.
func TestReadBody(t *testing.T) {
	const most = 100_000
	for _, n := range []int{0, 1, 16 << 10, 16<<10 + 1, most - 1, most, most + 1, 3 * most} {
		body := bytes.Repeat([]byte("abcdefgh"), n/8+1)[:n]
		for _, promised := range []int64{-1, int64(n), 1 << 40} {
			for how, r := range map[string]io.Reader{"whole": bytes.NewReader(body), "halves": iotest.HalfReader(bytes.NewReader(body)), "late end": iotest.DataErrReader(bytes.NewReader(body))} {
				f, err := readBody(r, most, promised)
				switch {
				case err != nil:
					t.Errorf("%d bytes, %s: %v", n, how, err)
				case f.over != (n > most):
					t.Errorf("%d bytes, %s: over %t", n, how, f.over)
				case !f.over && !bytes.Equal(f.data, body):
					t.Errorf("%d bytes, %s: came as %d", n, how, len(f.data))
				case f.over && len(f.data) > 0:
					t.Errorf("%d bytes, %s: %d of them are kept", n, how, len(f.data))
				}
			}
		}
		broken := errors.New("broken")
		if f, err := readBody(io.MultiReader(bytes.NewReader(body), iotest.ErrReader(broken)), most, -1); n <= most && (err != broken || !bytes.Equal(f.data, body)) {
			t.Errorf("%d bytes and no end: %v", n, err)
		}
	}
}

// TestEventReaderNoise: a stream of nothing ends; one that is of use now and then does
// not, however long it is.
func TestEventReaderNoise(t *testing.T) {
	const most = 1000
	noise := func(lines int) string { return strings.Repeat(": keep-alive\n\n", lines) }
	r := newEventReader(strings.NewReader(noise(100_000)), most)
	if _, err := r.next(); !errors.Is(err, errStreamNoise) {
		t.Errorf("%v", err)
	}
	r = newEventReader(strings.NewReader(strings.Repeat(noise(1000)+"data: x\n\n", 50)), most)
	for i := range 50 {
		if _, err := r.next(); err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
		r.useful()
	}
	r = newEventReader(strings.NewReader(strings.Repeat("event: ping\ndata: x\n\n", 100_000)), most)
	for {
		_, err := r.next()
		if errors.Is(err, errStreamNoise) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	r = newEventReader(strings.NewReader("id: "+strings.Repeat("i", maxEventID+1)+"\nid: a\x00b\ndata: x\n\nid: ok\ndata: x\n\n"), 1<<20)
	for _, want := range []string{"", "ok"} {
		if _, err := r.next(); err != nil || r.lastID != want {
			t.Errorf("id %.20q, %v", r.lastID, err)
		}
	}
}

// plainText hides nothing.
type plainText struct{}

func (plainText) String(s string) string { return s }

func (plainText) Cut(_ string, at int) int { return at }

// TestWordsAreHiddenBeforeTheyAreCut: what a refusing server repeats is hidden, also where
// the rest of it would be cut off.
func TestWordsAreHiddenBeforeTheyAreCut(t *testing.T) {
	red := config.NewRedactor([]string{"s3cret-bearer-token"})
	for n := 270; n < 310; n++ {
		resp := &http.Response{StatusCode: 401, Header: http.Header{"Www-Authenticate": {strings.Repeat("x", n) + "s3cret-bearer-token and more"}}}
		if got := describe(resp, red); strings.Contains(got, "s3cre") {
			t.Errorf("behind %d: %s", n, got[n:])
		}
	}
}
