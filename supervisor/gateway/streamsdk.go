package gateway

import (
	"context"
	"encoding/json"
	"io"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpbridge/internal/rawjson"
)

// enter notes a request that the SDK will answer; false means that there are too
// many. A subscription is answered only when it ends, so nobody waits for it.
func (s *stream) enter(req *jsonrpc.Request) bool {
	if req.Method == "subscriptions/listen" {
		s.greeted.Store(true)
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) >= maxSDKRequests {
		return false
	}
	s.pending[responseKey(req.ID)] = true
	return true
}

// sdkIdle is closed when the SDK owes no answer.
func (s *stream) sdkIdle() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = make(chan struct{})
	if len(s.pending) == 0 {
		close(s.idle)
	}
	return s.idle
}

func (s *stream) answered(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.pending[key] {
		return
	}
	delete(s.pending, key)
	if len(s.pending) == 0 && s.idle != nil {
		close(s.idle)
	}
}

// streamTransport is the SDK's side of a stream: an mcp.Transport and its one
// mcp.Connection.
type streamTransport stream

// Connect implements mcp.Transport.
func (t *streamTransport) Connect(context.Context) (mcp.Connection, error) { return t, nil }

// Read implements mcp.Connection.
func (t *streamTransport) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case m := <-t.incoming:
		return m, nil
	case <-t.sdkGone:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Write implements mcp.Connection. It never blocks: the SDK sends notifications to
// its sessions one after the other, and one that does not read must not hold up
// the others.
func (t *streamTransport) Write(_ context.Context, m jsonrpc.Message) error {
	s := (*stream)(t)
	b, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}
	if r, ok := m.(*jsonrpc.Response); ok {
		err = s.respond(responseKey(r.ID), b)
		s.answered(responseKey(r.ID))
		return err
	}
	if !s.greeted.Load() { // before the answer to initialize a client expects nothing
		return nil
	}
	return s.out.push(append(rawjson.OneLine(b), '\n'), false)
}

// responseKey is idKey for the SDK's form of an id.
func responseKey(id jsonrpc.ID) string {
	switch v := id.Raw().(type) {
	case string:
		return "s" + v
	case int64:
		return "n" + strconv.FormatInt(v, 10)
	default:
		return ""
	}
}

// Close implements mcp.Connection.
func (t *streamTransport) Close() error {
	t.sdkOnce.Do(func() { close(t.sdkGone) })
	return nil
}

// SessionID implements mcp.Connection.
func (t *streamTransport) SessionID() string { return "" }

// batch collects the answers to one JSON-RPC batch.
type batch struct {
	left  int
	parts []json.RawMessage
	done  []func() // see outLine
}

// over is when the whole batch is written.
func (b *batch) over() {
	for _, done := range b.done {
		done()
	}
}

// batch takes a JSON array apart, which revisions up to 2025-03-26 allow.
func (s *stream) batch(line []byte) {
	if ip := s.ss.InitializeParams(); ip == nil || negotiated(ip) > lastBatches {
		_ = s.respond("", errorBody(nil, invalidRequest("JSON-RPC batches are not part of this protocol revision; send one message a line")))
		return
	}
	var elems []json.RawMessage
	if json.Unmarshal(line, &elems) != nil || len(elems) == 0 {
		_ = s.respond("", errorBody(nil, invalidRequest("an empty batch")))
		return
	}
	b := &batch{}
	var todo []envelope
	s.mu.Lock()
	for _, e := range elems {
		env, nested, werr := parseEnvelope(e)
		key, hasID := idKey(env.id)
		switch {
		case werr == nil && nested:
			werr = invalidRequest("a batch inside a batch")
		case werr == nil && hasID && env.method != "" && s.batches[key] != nil:
			werr = invalidRequest("the id %s occurs twice", env.id)
		}
		if werr != nil {
			b.parts = append(b.parts, errorBody(env.id, werr))
			continue
		}
		if hasID && env.method != "" {
			s.batches[key] = b
			b.left++
		}
		todo = append(todo, env)
	}
	only := b.left == 0 && len(b.parts) > 0
	s.mu.Unlock()
	if only {
		_ = s.out.push(b.line(), false)
	}
	for _, env := range todo {
		s.dispatch(env)
	}
}

func (b *batch) line() []byte {
	out := []byte{'['}
	for i, p := range b.parts {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, rawjson.OneLine(p)...)
	}
	return append(out, "]\n"...)
}

// respond writes one response without waiting; key is its request's, "" for none.
func (s *stream) respond(key string, body []byte) error {
	return s.respondLine(key, outLine{b: append(rawjson.OneLine(body), '\n')}, false)
}

// respondLine puts a response on the wire, or into the batch that waits for it.
func (s *stream) respondLine(key string, line outLine, wait bool) error {
	defer s.greeted.Store(true)
	s.mu.Lock()
	if b := s.batches[key]; b != nil && key != "" {
		delete(s.batches, key)
		b.parts = append(b.parts, line.b[:len(line.b)-1])
		if line.done != nil {
			b.done = append(b.done, line.done)
		}
		if b.left--; b.left > 0 {
			s.mu.Unlock()
			return nil
		}
		line = outLine{b.line(), b.over}
	}
	s.mu.Unlock()
	return s.out.pushLine(line, wait)
}
