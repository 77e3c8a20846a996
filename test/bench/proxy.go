package bench

import (
	"context"
	"errors"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Proxy is the plain pass-through proxy that anybody would write with the SDK in an
// afternoon: one upstream session, its tools registered on one SDK server, each call
// decoded and passed on. It is what the bridge's endpoint is measured against.
func Proxy(ctx context.Context, upstream *mcp.ClientSession) (http.Handler, error) {
	srv := mcp.NewServer(&mcp.Implementation{Name: "plain-proxy", Version: "1"}, nil)
	for tool, err := range upstream.Tools(ctx, nil) {
		if err != nil {
			return nil, err
		}
		srv.AddTool(tool, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			res, err := upstream.CallTool(ctx, &mcp.CallToolParams{Name: req.Params.Name, Arguments: req.Params.Arguments})
			var rpc *jsonrpc.Error
			if errors.As(err, &rpc) {
				return nil, rpc
			}
			return res, err
		})
	}
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return srv }, nil), nil
}
