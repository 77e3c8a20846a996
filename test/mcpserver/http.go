package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// serveHTTP runs the SDK's server with the same tools behind the faults of
// httpfault.go until SIGTERM.
func serveHTTP(s *server) error {
	sdk := mcp.NewServer(&mcp.Implementation{Name: s.o.name, Version: "1.0.0"}, &mcp.ServerOptions{
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{ListChanged: true}},
	})
	s.publish(sdk)
	s.notify = func() { s.publish(sdk) }
	sdk.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if p, ok := req.GetParams().(*mcp.ListToolsParams); ok && method == "tools/list" {
				return s.listPage(p)
			}
			return next(ctx, method, req)
		}
	})
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return sdk },
		&mcp.StreamableHTTPOptions{JSONResponse: s.o.httpJSON, Stateless: s.o.httpStateless, MaxRequestBodyBytes: 64 << 20})
	f := &faulty{o: s.o, next: handler, calls: map[string]int{}}
	if s.o.httpLog != "" {
		log, err := os.OpenFile(s.o.httpLog, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return fmt.Errorf("open http log: %w", err)
		}
		f.log = log
	}
	ln, err := net.Listen("tcp", s.o.http)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	hs := &http.Server{Handler: f, ReadHeaderTimeout: 10 * time.Second}
	fmt.Printf("{\"url\":\"http://%s/mcp\"}\n", ln.Addr())
	stop := make(chan os.Signal, 1)
	if !s.o.ignoreTerm {
		signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	}
	go func() { <-stop; _ = hs.Close() }()
	if err := hs.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// publish gives the SDK's server the current tools; it tells its clients by itself.
func (s *server) publish(sdk *mcp.Server) {
	s.mu.Lock()
	tools := append([]tool(nil), s.tools...)
	s.mu.Unlock()
	have := map[string]bool{}
	for _, t := range tools {
		have[t.name] = true
		var def struct {
			Description string          `json:"description"`
			InputSchema json.RawMessage `json:"inputSchema"`
		}
		_ = json.Unmarshal(t.def, &def)
		sdk.AddTool(&mcp.Tool{Name: t.name, Description: def.Description, InputSchema: def.InputSchema}, s.handleHTTP)
	}
	s.mu.Lock()
	var gone []string
	for name := range s.published {
		if !have[name] {
			gone = append(gone, name)
		}
	}
	s.published = have
	s.mu.Unlock()
	if len(gone) > 0 {
		sdk.RemoveTools(gone...)
	}
}

// listPage answers tools/list as the stdio half does, odd cursors included.
func (s *server) listPage(p *mcp.ListToolsParams) (mcp.Result, error) {
	var cursor string
	if p != nil {
		cursor = p.Cursor
	}
	res := new(mcp.ListToolsResult)
	if err := json.Unmarshal(s.page(cursor), res); err != nil {
		return nil, fmt.Errorf("this list cannot be said over HTTP: %w", err)
	}
	return res, nil
}

// handleHTTP is the tool handler of every tool.
func (s *server) handleHTTP(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var progress func(int)
	if token := req.Params.GetProgressToken(); token != nil {
		progress = func(n int) {
			_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: float64(n)})
		}
	}
	work := ctx
	if s.o.honourCancel == "" {
		work = context.WithoutCancel(ctx)
	}
	a, _, ok := s.perform(work, req.Params.Name, req.Params.Arguments, progress)
	if !ok {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if a.rpcErr != nil {
		e := new(jsonrpc.Error)
		if err := json.Unmarshal(a.rpcErr, e); err != nil {
			return nil, err
		}
		return nil, e
	}
	return rawResult(a.result)
}

// rawContent carries a content block through the SDK byte for byte.
type rawContent struct {
	mcp.Content
	raw json.RawMessage
}

// MarshalJSON implements json.Marshaler.
func (r rawContent) MarshalJSON() ([]byte, error) { return r.raw, nil }

func rawResult(raw json.RawMessage) (*mcp.CallToolResult, error) {
	var r struct {
		Content    []json.RawMessage          `json:"content"`
		Structured json.RawMessage            `json:"structuredContent"`
		IsError    bool                       `json:"isError"`
		Meta       map[string]json.RawMessage `json:"_meta"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, err
	}
	res := &mcp.CallToolResult{IsError: r.IsError, Content: []mcp.Content{}}
	for _, c := range r.Content {
		res.Content = append(res.Content, rawContent{raw: c})
	}
	if r.Structured != nil {
		res.StructuredContent = r.Structured
	}
	for k, v := range r.Meta {
		if res.Meta == nil {
			res.Meta = mcp.Meta{}
		}
		res.Meta[k] = v
	}
	return res, nil
}
