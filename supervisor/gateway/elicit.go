package gateway

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpbridge/internal/rawjson"
	"mcpbridge/messages"
)

// Asking the calling client by elicitation (ask_via: client). The question goes out
// with the call's own answer, as a request of the bridge; the client's response comes
// back as a message of its own, and only from the session that was asked.

// askPrefix marks the ids of our questions: no client's request has such an id in our
// direction, and the SDK numbers its own.
const askPrefix = "mcpbridge-ask-"

// maxQuestion is how many characters of arguments a question may show. Who cannot be
// shown all of it cannot agree to it.
const maxQuestion = 4000

// questions are the open ones, by id.
type questions struct {
	mu   sync.Mutex
	open map[string]question
}

// question is one that waits; of tells whose it is: a *session or a *stream.
type question struct {
	of     any
	answer chan json.RawMessage // capacity one: the whole response
}

func (q *questions) add(of any) (id string, answer <-chan json.RawMessage) {
	id = askPrefix + strings.ToLower(rand.Text()[:16])
	ch := make(chan json.RawMessage, 1)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.open == nil {
		q.open = map[string]question{}
	}
	q.open[id] = question{of, ch}
	return id, ch
}

func (q *questions) remove(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.open, id)
}

// take delivers a response to a question of ours; false where it is none.
func (q *questions) take(of any, env envelope) bool {
	if env.method != "" || !strings.HasPrefix(unquoteIf(env.id), askPrefix) {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	id := rawjson.Unquote(env.id)
	if one, ok := q.open[id]; ok && one.of == of {
		delete(q.open, id)
		one.answer <- append(json.RawMessage(nil), env.raw...)
	}
	return true // also one that is late, or of somebody else: nobody waits for it
}

// canElicit reports whether a session's client said that it can be asked.
func canElicit(ss *mcp.ServerSession) bool {
	ip := ss.InitializeParams()
	return ip != nil && ip.Capabilities != nil && ip.Capabilities.Elicitation != nil
}

// asker asks the client of a session or stream; send writes one message to it.
func (g *Gateway) asker(of any, send func([]byte)) messages.Asker {
	return func(ctx context.Context, a messages.Approval) (bool, error) {
		text, ok := questionText(a)
		if !ok {
			return false, messages.ErrCannotAsk
		}
		id, answer := g.questions.add(of)
		defer g.questions.remove(id)
		body := append([]byte(nil), `{"jsonrpc":"2.0","id":`...)
		body = rawjson.AppendString(body, id)
		body = append(body, `,"method":"elicitation/create","params":{"message":`...)
		body = rawjson.AppendString(body, text)
		send(append(body, `,"requestedSchema":{"type":"object","properties":{}}}}`...))
		select {
		case raw := <-answer:
			return accepted(raw)
		case <-ctx.Done():
			cancel := append([]byte(nil), `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`...)
			send(append(rawjson.AppendString(cancel, id), `,"reason":"the call has ended"}}`...))
			return false, ctx.Err()
		}
	}
}

// accepted reads the client's response: only a plain accept is a yes. A client that
// answers with an error cannot ask its user after all.
func accepted(raw json.RawMessage) (bool, error) {
	var r struct {
		Result struct {
			Action string `json:"action"`
		} `json:"result"`
		Error json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(raw, &r); err != nil || len(r.Error) > 0 {
		return false, messages.ErrCannotAsk
	}
	return r.Result.Action == "accept", nil
}

// questionText is what a person reads. Arguments are foreign text: what would hide or
// move anything is shown as an escape.
func questionText(a messages.Approval) (string, bool) {
	args := visible(string(a.Args))
	if utf8.RuneCountInString(args) > maxQuestion {
		return "", false
	}
	return fmt.Sprintf("Allow one call of %s/%s (%s)?\nArguments: %s", visible(a.Server), visible(a.RemoteTool), a.Effect, args), true
}

func visible(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\u{%x}`, r)
		}
	}
	return b.String()
}
