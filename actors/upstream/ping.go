package upstream

import (
	"context"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"mcpbridge/messages"
)

// LastHeard implements Peer.
func (p *peer) LastHeard() time.Time { return p.mux.lastHeard() }

// Ping implements Peer. The revision without sessions has no ping, and some servers
// of the older ones do not know it: these are asked for the first page of their
// tools. Without tools there is nothing to ask them for.
func (p *peer) Ping(ctx context.Context) error {
	if p.info.Protocol >= stateless || p.noPing.Load() {
		if !p.info.HasTools {
			return nil
		}
		_, err := p.sign(ctx, "tools/list")
		return err
	}
	r, err := p.sign(ctx, "ping")
	if err == nil && r.Kind == messages.ReplyError && p.rpcError("ping", r).code == jsonrpc.CodeMethodNotFound {
		p.noPing.Store(true)
	}
	return err
}

// Confirm implements Peer. A server that answers it after all ignored the pings.
func (p *peer) Confirm(ctx context.Context) error {
	_, err := p.sign(ctx, "tools/list")
	if err == nil {
		p.noPing.Store(true)
	}
	return err
}

// sign asks for an answer of whatever kind: one that makes no sense came from
// somebody who is alive.
func (p *peer) sign(ctx context.Context, method string) (messages.Reply, error) {
	r, err := p.exchange(ctx, method, "")
	switch {
	case err != nil:
		return r, err
	case r.After > 0:
		return r, nil // it has too much to do, and says so
	case r.Kind == messages.ReplyLost || r.Kind == messages.ReplyNotEntered || r.Kind == messages.ReplyUnsent:
		if ctx.Err() != nil {
			return r, fmt.Errorf("%s: %w", method, ctx.Err())
		}
		return r, fmt.Errorf("%s: %s", method, r.Err)
	default:
		return r, nil
	}
}
