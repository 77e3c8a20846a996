package supervisor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"mcpbridge/config"
	"mcpbridge/messages"
	"mcpbridge/supervisor"
	"mcpbridge/supervisor/demo"
)

// demoConfig configures the demo server, played by the test binary itself. A program
// of your own names a command that speaks MCP on stdio, or reads its configuration
// with config.Load.
func demoConfig() *config.Config {
	self, err := os.Executable()
	if err != nil {
		log.Fatal(err)
	}
	cfg := demo.Config(self)
	cfg.Servers[0].Env = map[string]string{"MCPBRIDGE_TEST_DEMO_SERVER": "1"}
	return cfg
}

// Open a bridge, call a tool, close it.
func Example() {
	ctx := context.Background()
	b, err := supervisor.Open(ctx, demoConfig(), supervisor.WithStartupWait(20*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close(ctx)

	out := b.Call(ctx, messages.CallTool{Tool: "demo/add", Args: json.RawMessage(`{"a": 2, "b": 3}`)})
	fmt.Println(out.Kind, out.Text())

	// Whatever happens, there is exactly one outcome, and it says whether the call may
	// be repeated.
	out = b.Call(ctx, messages.CallTool{Tool: "demo/add", Args: json.RawMessage(`[2, 3]`)})
	fmt.Println(out.Kind, out.Code, out.SafeToRetry())
	// Output:
	// ok 5
	// rejected invalid_arguments true
}

// A server that dies comes back by itself; the call that killed it is settled at once.
func ExampleBridge_Call_crash() {
	ctx := context.Background()
	b, err := supervisor.Open(ctx, demoConfig(), supervisor.WithStartupWait(20*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close(ctx)

	out := b.Call(ctx, messages.CallTool{Tool: "demo/crash"})
	fmt.Println(out.Kind, out.Code, "generation", out.Generation)
	out = b.Call(ctx, messages.CallTool{Tool: "demo/echo", Args: json.RawMessage(`{"text": "still here"}`)})
	fmt.Println(out.Kind, out.Text(), "generation", out.Generation)
	// Output:
	// outcome_unknown connection_lost generation 1
	// ok still here generation 2
}

// The catalogue is an immutable snapshot.
func ExampleBridge_Catalogue() {
	ctx := context.Background()
	b, err := supervisor.Open(ctx, demoConfig(), supervisor.WithStartupWait(20*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close(ctx)

	for _, t := range b.Catalogue().Tools() {
		fmt.Println(t.Name, t.Effect, t.Permission)
	}
	// Output:
	// mcp__demo__add read_only allow
	// mcp__demo__crash side_effect allow
	// mcp__demo__echo read_only allow
	// mcp__demo__note_add side_effect allow
	// mcp__demo__note_list read_only allow
	// mcp__demo__slow_read read_only allow
}

// The endpoint can be mounted in a server of your own.
func ExampleBridge_Handler() {
	ctx := context.Background()
	b, err := supervisor.Open(ctx, demoConfig())
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close(ctx)

	mux := http.NewServeMux()
	mux.Handle("/mcp", b.Handler())
	srv := httptest.NewServer(mux)
	defer srv.Close()

	resp, err := http.Get(srv.URL + "/mcp")
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode != http.StatusNotFound)
	// Output: true
}

// Events tell what happens; the callback may call back into the bridge.
func ExampleBridge_Subscribe() {
	ctx := context.Background()
	ready := make(chan messages.Event, 1)
	b, err := supervisor.Open(ctx, demoConfig(), supervisor.WithEventHook(func(e messages.Event) {
		if e.Type == messages.EventServerReady {
			ready <- e
		}
	}))
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close(ctx)

	e := <-ready
	fmt.Println(e.Server, "is ready with", e.Count, "tools")
	// Output: demo is ready with 6 tools
}
