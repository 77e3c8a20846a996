//go:build unix

package daemon

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"mcpbridge/messages"
	"mcpbridge/supervisor/control"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// running is a daemon of a test, in this process.
type running struct {
	plan   Plan
	cancel context.CancelFunc
	done   chan error
	logs   bytes.Buffer
}

// start runs a daemon with a configuration file of that text.
func start(t *testing.T, text string, change func(*Options)) *running {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &running{done: make(chan error, 1)}
	started := make(chan Plan, 1)
	o := Options{ConfigFile: file, Listen: "127.0.0.1:0", StateDir: filepath.Join(dir, "s"), Control: filepath.Join(dir, "c.sock"),
		ReadyFile: filepath.Join(dir, "ready"), Stderr: &r.logs, Env: os.LookupEnv, Started: func(p Plan) { started <- p }}
	if change != nil {
		change(&o)
	}
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(context.Background())
	t.Cleanup(r.cancel)
	go func() { r.done <- Run(ctx, o) }()
	select {
	case r.plan = <-started:
	case err := <-r.done:
		t.Fatalf("start: %v", err)
	case <-time.After(patience):
		t.Fatal("timeout")
	}
	return r
}

func (r *running) end(t *testing.T) {
	t.Helper()
	r.cancel()
	select {
	case err := <-r.done:
		if err != nil {
			t.Errorf("end: %v\n%s", err, r.logs.String())
		}
	case <-time.After(patience):
		t.Fatal("timeout")
	}
}

func TestRunAndEnd(t *testing.T) {
	r := start(t, "mcp_servers: {}\n", nil)
	c := control.NewClient(r.plan.Control)
	defer c.Close()
	v, err := c.Version(t.Context())
	if err != nil || v.PID != os.Getpid() || v.URL != r.plan.URL || v.TokenFile != r.plan.TokenFile {
		t.Errorf("%+v %v", v, err)
	}
	resp, err := http.Get(strings.TrimSuffix(r.plan.URL, "/mcp") + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if resp.StatusCode != 200 {
		t.Errorf("readyz %d", resp.StatusCode)
	}
	r.end(t)
	if _, err := os.Stat(r.plan.ReadyFile); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("ready file: %v", err)
	}
	if _, err := os.Stat(r.plan.Control); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("control socket: %v", err)
	}
}

func TestAFailedStartLeavesNothing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte("mcp_servers: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := Options{ConfigFile: file, Listen: l.Addr().String(), StateDir: filepath.Join(dir, "s"), Control: filepath.Join(dir, "c.sock"), Stderr: io.Discard, Env: os.LookupEnv}
	err = Run(t.Context(), o)
	if err == nil || IsUsage(err) || !strings.Contains(err.Error(), "in use") || !strings.Contains(err.Error(), "--listen") {
		t.Errorf("%v", err)
	}
	s, err := openState(o.StateDir)
	if err != nil {
		t.Fatalf("the lock is still held: %v", err)
	}
	s.close()
	if _, err := os.Stat(o.Control); err == nil {
		t.Error("a control socket is left")
	}
}

// certificate writes a key pair for localhost.
func certificate(t *testing.T) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	priv, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &priv.PublicKey, priv)
	if err != nil {
		t.Fatal(err)
	}
	pk, err := x509.MarshalPKCS8PrivateKey(priv)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := errors.Join(os.WriteFile(cert, certPEM, 0o600), os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pk}), 0o600)); err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(certPEM)
	return cert, key, pool
}

func TestNonLoopbackNeedsTokenEverywhere(t *testing.T) {
	cert, key, pool := certificate(t)
	r := start(t, fmt.Sprintf("mcp_servers: {}\ntls: {cert: %s, key: %s}\n", cert, key), func(o *Options) { o.Listen = "0.0.0.0:0" })
	defer r.end(t)
	token, err := os.ReadFile(r.plan.TokenFile)
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	defer tr.CloseIdleConnections()
	base := strings.TrimSuffix(r.plan.URL, "/mcp")
	if !strings.HasPrefix(base, "https://localhost:") {
		t.Fatalf("url %s", r.plan.URL)
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/", "/mcp"} {
		for _, auth := range []string{"", "Bearer wrong", "Basic " + strings.TrimSpace(string(token)), "Bearer " + strings.TrimSpace(string(token))} {
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, base+path, nil)
			if auth != "" {
				req.Header.Set("Authorization", auth)
			}
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			good := strings.HasPrefix(auth, "Bearer ") && auth != "Bearer wrong"
			if (resp.StatusCode == http.StatusUnauthorized) == good {
				t.Errorf("%s with %.12q: %d", path, auth, resp.StatusCode)
			}
		}
	}
}

// ill is a bridge of which nothing works.
type ill struct{ calls error }

func (i ill) Calls(context.Context) ([]messages.CallInfo, error) { return nil, i.calls }
func (ill) Ready() (bool, []string)                              { return false, []string{"fs", "db"} }
func (ill) Status() messages.Status {
	return messages.Status{Servers: []messages.ServerStatus{{Name: "fs", Required: true, State: messages.StateBackoff, Reason: "exit\n1"}, {Name: "x", State: messages.StateReady}}}
}

func TestFront(t *testing.T) {
	f := &front{bridge: ill{}, hosts: []string{"127.0.0.1:7", "bridge.example"}, origins: []string{"https://app.example"}, loopback: true}
	h := f.handler(http.NotFoundHandler(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "metrics") }))
	get := func(path, host, origin string) (int, string) {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Host = host
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	tests := []struct {
		path, host, origin string
		status             int
		body               string
	}{
		{"/healthz", "127.0.0.1:7", "", 200, "ok\n"},
		{"/healthz", "127.0.0.1:8", "", 403, "allowed_hosts"},
		{"/healthz", "evil.example", "", 403, "allowed_hosts"},
		{"/healthz", "bridge.example", "", 200, "ok"},
		{"/healthz", "BRIDGE.example:7", "", 200, "ok"},
		{"/metrics", "127.0.0.1:7", "", 200, "metrics"},
		{"/metrics", "127.0.0.1:7", "https://evil.example", 403, "allowed_origins"},
		{"/metrics", "127.0.0.1:7", "https://app.example", 200, "metrics"},
		{"/metrics", "127.0.0.1:7", "http://localhost:3000", 200, "metrics"},
		{"/metrics", "127.0.0.1:7", "null", 403, "allowed_origins"},
		{"/readyz", "127.0.0.1:7", "", 503, "not ready: fs, db\n"},
		{"/readyz?verbose", "127.0.0.1:7", "", 503, "not ready: fs, db\n* fs backoff (\"exit\\n1\")\n  x ready\n"},
		{"/", "127.0.0.1:7", "", 404, "/mcp"},
		{"/v1/status", "127.0.0.1:7", "", 404, ""},
		{"/debug/pprof/", "127.0.0.1:7", "", 404, ""},
	}
	for _, tt := range tests {
		code, body := get(tt.path, tt.host, tt.origin)
		if code != tt.status || !strings.Contains(body, tt.body) {
			t.Errorf("%s %s %s: %d %q", tt.path, tt.host, tt.origin, code, body)
		}
	}
	f.bridge = ill{errors.New("no answer")}
	if code, _ := get("/healthz", "127.0.0.1:7", ""); code != 503 {
		t.Errorf("not alive: %d", code)
	}
	f.draining.Store(true)
	if code, body := get("/readyz", "127.0.0.1:7", ""); code != 503 || !strings.Contains(body, "draining") {
		t.Errorf("draining: %d %s", code, body)
	}
}

func TestPrepare(t *testing.T) {
	dir := t.TempDir()
	yaml := func(text string) string {
		f := filepath.Join(dir, "c.yaml")
		if err := os.WriteFile(f, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return f
	}
	env := func(k string) (string, bool) {
		v, ok := map[string]string{"HOME": "/home/u", "XDG_RUNTIME_DIR": "/run/u"}[k]
		return v, ok
	}
	p, err := Prepare(Options{ConfigFile: yaml("mcp_servers: {}\n"), Env: env})
	if err != nil {
		t.Fatal(err)
	}
	for what, got := range map[string][2]string{
		"listen": {p.Listen, "127.0.0.1:7332"}, "url": {p.URL, "http://127.0.0.1:7332/mcp"}, "state": {p.StateDir, "/home/u/.local/state/mcpbridge"},
		"control": {p.Control, "/run/u/mcpbridge/control.sock"}, "token": {p.TokenFile, "/home/u/.local/state/mcpbridge/token"},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: %s, want %s", what, got[0], got[1])
		}
	}
	if got := strings.Join(p.hosts("1"), " "); got != "127.0.0.1:1 localhost:1 [::1]:1 127.0.0.1:1" {
		t.Errorf("hosts %s", got)
	}
	bad := []struct{ name, text, listen, want string }{
		{"non-loopback without TLS", "mcp_servers: {}\n", "0.0.0.0:1", "set tls"},
		{"non-loopback name", "mcp_servers: {}\n", "example.com:1", "not loopback"},
		{"everywhere", "mcp_servers: {}\n", ":1", "not loopback"},
		{"non-loopback without token", "auth: {none: true}\ntls: {cert: a, key: b}\n", "10.0.0.1:1", "let everybody in"},
		{"no port", "mcp_servers: {}\n", "127.0.0.1", "HOST:PORT"},
		{"no such port", "mcp_servers: {}\n", "127.0.0.1:99999", "port"},
	}
	for _, b := range bad {
		if _, err := Prepare(Options{ConfigFile: yaml(b.text), Listen: b.listen, Env: env}); !IsUsage(err) || !strings.Contains(err.Error(), b.want) {
			t.Errorf("%s: %v", b.name, err)
		}
	}
	for _, good := range []string{"localhost:1", "[::1]:1", "127.0.0.2:0"} {
		if _, err := Prepare(Options{ConfigFile: yaml("auth: {none: true}\n"), Listen: good, Env: env}); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
}

// TestReadyFileReplacesNothingElse: what is not a ready file of an earlier life stays.
func TestReadyFileReplacesNothingElse(t *testing.T) {
	dir := t.TempDir()
	env := func(k string) (string, bool) { return dir, k == "HOME" }
	link, old := filepath.Join(dir, "link"), filepath.Join(dir, "old.json")
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "d"), 0o700), os.Symlink("d", link), os.WriteFile(old, []byte("{}"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"d": false, "link": false, "old.json": true, "new.json": true, "no/dir.json": false} {
		_, err := Prepare(Options{Demo: true, Executable: "x", ReadyFile: filepath.Join(dir, name), Env: env})
		if (err == nil) != want || err != nil && !IsUsage(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
