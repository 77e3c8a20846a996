package harness

import (
	"context"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Bearer adds a token to each request.
type Bearer struct {
	Token string
	Base  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b Bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.Token)
	return b.Base.RoundTrip(r)
}

// HTTPClient is one that carries the daemon's token.
func (d *Daemon) HTTPClient() *http.Client { return ClientOf(d.Token) }

// ClientOf is an HTTP client that carries a token.
func ClientOf(token string) *http.Client {
	return &http.Client{Transport: Bearer{token, http.DefaultTransport}}
}

// Base is the daemon's address without a path.
func (d *Daemon) Base() string { return strings.TrimSuffix(d.URL, "/mcp") }

// Session opens a session of the official client at the aggregated endpoint.
// version "" asks for the newest protocol.
func (d *Daemon) Session(t testing.TB, version string, opts *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	return connect(t, &mcp.StreamableClientTransport{Endpoint: d.URL, HTTPClient: d.HTTPClient()}, version, opts)
}

// StdioSession opens a session of the official client through `bridgectl stdio`.
func (d *Daemon) StdioSession(t testing.TB, version string) *mcp.ClientSession {
	t.Helper()
	return d.StdioSessionWith(t, version, nil)
}

// StdioSessionWith is StdioSession with options of the client.
func (d *Daemon) StdioSessionWith(t testing.TB, version string, opts *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	return connect(t, &mcp.CommandTransport{Command: d.StdioCommand(t)}, version, opts)
}

// StdioCommand is `bridgectl stdio`, joined to this daemon.
func (d *Daemon) StdioCommand(t testing.TB) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(Bridgectl(t), "stdio")
	cmd.Dir, cmd.Env = d.Work, d.Env("MCPBRIDGE_CONTROL="+d.Control)
	return cmd
}

func connect(t testing.TB, tr mcp.Transport, version string, opts *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	c := mcp.NewClient(&mcp.Implementation{Name: "harness", Version: "1"}, opts)
	cs, err := c.Connect(ctx, tr, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { _ = cs.Close() })
	return cs
}

// Context is one that ends after Patience.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	t.Cleanup(cancel)
	return ctx
}

// Soon is a deadline that is far enough away for a loaded machine.
func Soon() time.Time { return time.Now().Add(Patience) }
