package upstream

import (
	"context"
	"io"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sdkConn is what the SDK's session sees of a connection: only the messages that
// are meant for it. Its Close only takes the session off; the peer ends the
// connection itself. (The SDK calls Close under a lock, so it must return at once.)
type sdkConn struct {
	mux   *mux
	link  link
	probe time.Duration
}

// Connect implements mcp.Transport.
func (c *sdkConn) Connect(context.Context) (mcp.Connection, error) { return c, nil }

// SessionID implements mcp.Connection.
func (c *sdkConn) SessionID() string { return "" }

// Close implements mcp.Connection.
func (c *sdkConn) Close() error {
	c.mux.sdkClosed()
	return nil
}

// Read implements mcp.Connection.
func (c *sdkConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case m := <-c.mux.sdk: // what has arrived counts, even if the connection is gone
		return m, nil
	default:
	}
	select {
	case m := <-c.mux.sdk:
		return m, nil
	case <-c.mux.sdkGone:
	case <-c.mux.gone:
	case <-ctx.Done():
	}
	return nil, io.EOF
}

// Write implements mcp.Connection. A server/discover that stays unanswered is
// answered in the server's name, so that the SDK goes on with initialize.
func (c *sdkConn) Write(ctx context.Context, msg jsonrpc.Message) error {
	if req, ok := msg.(*jsonrpc.Request); ok && req.IsCall() {
		id, _ := req.ID.Raw().(int64)
		c.mux.sdkRequest(id, req.Method)
		if req.Method == "server/discover" {
			defer func() { time.AfterFunc(c.probe, func() { c.mux.sdkAnswer(id, nil, errProbeSilent) }) }()
		}
	} else if !ok {
		c.mux.serverReqs.Add(-1)
	}
	return c.link.sdkSend(ctx, msg)
}
