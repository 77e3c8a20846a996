//go:build linux

package upstream

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpbridge/config"
	"mcpbridge/messages"
)

// BenchmarkCall compares a call through a Peer with one through a plain SDK session
// on the same server.
func BenchmarkCall(b *testing.B) {
	b.Run("peer", func(b *testing.B) {
		sp := NewSpawner()
		defer sp.Close()
		p, _, err := Dial(context.Background(), Options{
			Server:  config.Server{Name: "s", Type: config.Stdio, Command: os.Args[0], Env: map[string]string{fakeEnv: "sdk"}},
			Spawner: sp, SkipProbe: true, RunID: "bench", OnSpawned: func(int) {}, OnListChanged: func() {}, OnNoise: func(uint64, bool) {}, OnStderr: func(string) {}})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			r := p.Call(messages.Exec{CallID: "c", Attempt: 1, Remote: "echo", Args: json.RawMessage(`{"text":"hello"}`), Boundary: new(messages.Boundary)})
			if r.Kind != messages.ReplyResult {
				b.Fatal(r)
			}
		}
		p.Stop(messages.Ladder{})
		<-p.Done()
	})
	b.Run("sdk", func(b *testing.B) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), fakeEnv+"=sdk")
		s, err := mcp.NewClient(&mcp.Implementation{Name: "b", Version: "1"}, nil).Connect(context.Background(), &mcp.CommandTransport{Command: cmd},
			&mcp.ClientSessionOptions{ProtocolVersion: legacy})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: "echo", Arguments: json.RawMessage(`{"text":"hello"}`)}); err != nil {
				b.Fatal(err)
			}
		}
		_ = s.Close()
	})
}
