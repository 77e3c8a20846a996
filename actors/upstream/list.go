package upstream

import (
	"context"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"mcpbridge/internal/rawjson"
	"mcpbridge/messages"
)

// rpcError is a JSON-RPC error that a server answered a request of ours with.
type rpcError struct {
	method  string
	code    int64
	message string
}

func (e *rpcError) Error() string {
	return fmt.Sprintf("%s: the server answered with error %d: %s", e.method, e.code, e.message)
}

// List implements Peer.
func (p *peer) List(ctx context.Context) (messages.Listing, error) {
	l, err := p.list(ctx)
	if err == nil {
		p.link.listed(l.Tools)
	}
	return l, err
}

// maxListing bounds the pages of one listing together: pages times frames would fill
// any memory.
const maxListing = 32 << 20

func (p *peer) list(ctx context.Context) (messages.Listing, error) {
	if !p.info.HasTools {
		return messages.Listing{}, nil
	}
	a := newAdapter(p.o.Server.Name)
	stop := func(format string, args ...any) (messages.Listing, error) {
		a.out.Truncated = true
		a.issue(messages.SeverityError, messages.StageListTools, "", format, args...)
		return a.listing(), nil
	}
	lim := p.o.Server.Limits
	cursors := map[string]bool{}
	fields, size := "", 0
	for page := 1; ; page++ {
		if lim.Pages > 0 && page > lim.Pages {
			return stop("tools/list has more than %d pages: the rest is not listed (limits.pages)", lim.Pages)
		}
		result, err := p.request(ctx, "tools/list", fields)
		if err != nil {
			var rpc *rpcError
			if page == 1 && errors.As(err, &rpc) && rpc.code == jsonrpc.CodeMethodNotFound {
				a.issue(messages.SeverityWarning, messages.StageListTools, "", "the server says that it has tools but does not know tools/list")
				return a.listing(), nil
			}
			return messages.Listing{}, err
		}
		if size += len(result); size > maxListing {
			return stop("the pages of tools/list add up to more than %d MiB: the rest is not listed", maxListing>>20)
		}
		cursor, full, err := addPage(a, result, lim.Tools)
		switch {
		case err != nil:
			return messages.Listing{}, err
		case full:
			return stop("tools/list has more than %d tools: the rest is not listed (limits.tools)", lim.Tools)
		case cursor == "":
			return a.listing(), nil
		case cursors[cursor]:
			return stop("tools/list repeats the cursor %.60q on page %d: the rest is not listed", cursor, page)
		}
		cursors[cursor] = true
		fields = string(appendString([]byte(`,"cursor":`), cursor))
	}
}

// addPage adapts the entries of one page and returns its cursor, "" for the last.
// full says that the cap on tools was passed.
func addPage(a *adapter, result []byte, limit int) (cursor string, full bool, err error) {
	var tools, next []byte
	rawjson.Fields(result, func(k, v []byte) {
		switch string(k) {
		case "tools":
			tools = v
		case "nextCursor":
			next = v
		}
	})
	if rawjson.IsNull(tools) {
		a.issue(messages.SeverityWarning, messages.StageListTools, "", "a page of tools/list has no tools field")
	} else if !rawjson.Array(tools, func(v []byte) bool {
		if limit > 0 && len(a.out.Tools) >= limit {
			full = true
			a.out.Discovered++
			return true
		}
		a.add(v)
		return true
	}) {
		return "", false, errors.New("tools/list: the field tools is no list")
	}
	if rawjson.IsNull(next) {
		return "", full, nil
	}
	cursor, ok := asString(next)
	if !ok {
		a.issue(messages.SeverityWarning, messages.StageListTools, "", "nextCursor is no string: taken as the last page")
	}
	return cursor, full, nil
}

// exchange sends one request of our own, waits for its reply, and gives up with ctx.
func (p *peer) exchange(ctx context.Context, method, fields string) (messages.Reply, error) {
	return p.ask(ctx, &pending{method: method, ctx: ctx}, fields)
}

func (p *peer) ask(ctx context.Context, q *pending, fields string) (messages.Reply, error) {
	method := q.method
	if err := p.mux.add(q); err != nil {
		return messages.Reply{}, fmt.Errorf("%s: %w", method, err)
	}
	q.body = appendRequest(nil, q.id, method, fields, p.era)
	p.link.send(q)
	var r messages.Reply
	select {
	case r = <-q.reply:
	case <-ctx.Done():
		if waited, entered := p.mux.abandon(q); waited {
			if entered {
				p.link.cancel(q, "no longer wanted")
			}
			return messages.Reply{}, fmt.Errorf("%s: %w", method, ctx.Err())
		}
		r = <-q.reply
	}
	return r, nil
}

// request is an exchange that must bring a result.
func (p *peer) request(ctx context.Context, method, fields string) ([]byte, error) {
	r, err := p.exchange(ctx, method, fields)
	if err != nil {
		return nil, err
	}
	return p.resultOf(ctx, method, r)
}

func (p *peer) resultOf(ctx context.Context, method string, r messages.Reply) ([]byte, error) {
	switch r.Kind {
	case messages.ReplyResult:
		return r.Raw, nil
	case messages.ReplyError:
		return nil, p.rpcError(method, r)
	default:
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%s: %w", method, ctx.Err())
		}
		return nil, fmt.Errorf("%s: %s", method, r.Err)
	}
}

// rpcError reads the server's error leniently.
func (p *peer) rpcError(method string, r messages.Reply) *rpcError {
	e := &rpcError{method: method}
	if rpc := sdkError(&envelope{err: r.Raw}); rpc != nil {
		e.code, e.message = rpc.Code, p.red.String(rpc.Message)
	}
	return e
}
