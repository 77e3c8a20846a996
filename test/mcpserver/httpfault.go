package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
)

// faulty is the middleware with the faults of HTTP.
type faulty struct {
	o    *options
	next http.Handler

	mu    sync.Mutex
	log   *os.File
	calls map[string]int // tools/call requests by session
}

// httpRecord is one line of -http-log.
type httpRecord struct {
	Method  string      `json:"method"`
	Path    string      `json:"path"`
	RPC     string      `json:"rpc,omitempty"`
	Headers http.Header `json:"headers"`
}

// ServeHTTP implements http.Handler.
func (f *faulty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, "unreadable body", http.StatusBadRequest)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	var rpc struct {
		Method string `json:"method"`
	}
	_ = json.Unmarshal(body, &rpc)
	f.record(httpRecord{r.Method, r.URL.RequestURI(), rpc.Method, r.Header})

	if name, value, ok := strings.Cut(f.o.httpHeader, ":"); ok && r.Header.Get(name) != strings.TrimSpace(value) {
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	switch isCall := rpc.Method == "tools/call"; {
	case f.o.httpHang:
		<-r.Context().Done()
	case f.o.httpNoGet && r.Method == http.MethodGet:
		http.Error(w, "no stream here", http.StatusMethodNotAllowed)
	case f.o.httpRedirect != "" && r.Method == http.MethodPost:
		http.Redirect(w, r, f.o.httpRedirect, http.StatusTemporaryRedirect)
	case isCall && f.o.httpStatus != 0:
		if f.o.httpStatus == http.StatusTooManyRequests || f.o.httpStatus == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "1")
		}
		http.Error(w, "not now", f.o.httpStatus)
	case f.forgotten(r.Header.Get("Mcp-Session-Id"), isCall):
		http.Error(w, "session not found", http.StatusNotFound)
	case isCall && f.o.httpCut:
		f.next.ServeHTTP(deaf{w}, r)
		panic(http.ErrAbortHandler) // net/http cuts the connection and says nothing
	default:
		f.next.ServeHTTP(w, r)
	}
}

// forgotten counts calls of a session and reports whether it is forgotten by now.
func (f *faulty) forgotten(session string, isCall bool) bool {
	if f.o.httpForget == 0 || session == "" {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if isCall {
		f.calls[session]++
	}
	return f.calls[session] > f.o.httpForget
}

func (f *faulty) record(rec httpRecord) {
	if f.log == nil {
		return
	}
	b, err := json.Marshal(rec)
	if err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	_, _ = f.log.Write(append(b, '\n'))
}

// deaf swallows an answer.
type deaf struct{ w http.ResponseWriter }

// Header implements http.ResponseWriter.
func (d deaf) Header() http.Header { return d.w.Header() }

// Write implements http.ResponseWriter.
func (d deaf) Write(b []byte) (int, error) { return len(b), nil }

// WriteHeader implements http.ResponseWriter.
func (d deaf) WriteHeader(int) {}

// Flush implements http.Flusher.
func (d deaf) Flush() {}
