package gateway

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"math"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpbridge/internal/rawjson"
	"mcpbridge/messages"
)

// firstModern is the protocol revision that did away with sessions.
const firstModern = "2026-07-28"

func isModern(version string) bool { return version >= firstModern }

// The keys of _meta that are the bridge's own.
const (
	metaPrefix     = "mcpbridge/"
	metaProtocol   = "io.modelcontextprotocol/"
	metaIdemKey    = metaPrefix + "idempotency-key"
	metaTimeout    = metaPrefix + "timeout_ms"
	metaWantCallID = metaPrefix + "want_call_id"
	metaCallID     = metaPrefix + "call_id"
)

// toolCall is one tools/call, taken apart.
type toolCall struct {
	id       json.RawMessage // the request's id as the client wrote it
	modern   bool            // protocol 2026-07-28 or later
	name     string
	args     json.RawMessage // an object, or nil
	meta     json.RawMessage // for the server; nil for none
	progress json.RawMessage // the client's token; nil when not asked for
	idemKey  string
	timeout  time.Duration
	wantID   bool
}

// parseCall takes the params of a tools/call apart. Nothing in them is changed:
// name, arguments and what is passed on of _meta keep their bytes.
func parseCall(id, params json.RawMessage, modern bool) (*toolCall, *wireError) {
	if !rawjson.IsObject(params) {
		return nil, invalidParams("params must be an object with the name of a tool")
	}
	c := &toolCall{id: id, modern: modern}
	var name, args, meta json.RawMessage
	var dup string
	seen := 0
	rawjson.Object(params, func(m rawjson.Member) bool {
		bit, val := 0, params[m.ValStart:m.ValEnd]
		switch m.Key {
		case "name":
			bit, name = 1, val
		case "arguments":
			bit, args = 2, val
		case "_meta":
			bit, meta = 4, val
		}
		if seen&bit != 0 {
			dup = m.Key
			return false
		}
		seen |= bit
		return true
	})
	if dup != "" {
		return nil, invalidParams("the key %q occurs twice in params", dup)
	}
	if c.name = unquoteIf(name); c.name == "" {
		return nil, invalidParams("params.name must be the name of a tool")
	}
	switch {
	case rawjson.IsNull(args):
	case rawjson.IsObject(args):
		c.args = args
	default:
		return nil, invalidParams("arguments of %q must be an object", c.name)
	}
	switch {
	case rawjson.IsNull(meta):
	case rawjson.IsObject(meta):
		if werr := c.takeMeta(meta); werr != nil {
			return nil, werr
		}
	default:
		return nil, invalidParams("params._meta must be an object")
	}
	return c, nil
}

// takeMeta splits the client's _meta into what is for this hop and what is for the
// server.
func (c *toolCall) takeMeta(meta json.RawMessage) (werr *wireError) {
	var rest []byte
	rawjson.Object(meta, func(m rawjson.Member) bool {
		val := meta[m.ValStart:m.ValEnd]
		switch {
		case m.Key == "progressToken":
			if rawjson.IsString(val) || rawjson.IsNumber(val) {
				c.progress = val
			} else if !rawjson.IsNull(val) {
				werr = invalidParams("_meta.progressToken must be a string or a number")
			}
		case m.Key == metaIdemKey:
			if c.idemKey = unquoteIf(val); c.idemKey == "" || utf8.RuneCountInString(c.idemKey) > 256 {
				werr = invalidParams("_meta[%q] must be a string of 1 to 256 characters", metaIdemKey)
			}
		case m.Key == metaTimeout:
			ms, err := strconv.ParseFloat(string(val), 64)
			if err != nil || !rawjson.IsNumber(val) || ms < 0 || ms > math.MaxInt64/2e6 {
				werr = invalidParams("_meta[%q] must be a number of milliseconds, 0 or more", metaTimeout)
				break
			}
			c.timeout = time.Duration(ms * float64(time.Millisecond))
		case m.Key == metaWantCallID:
			if c.wantID = rawjson.IsKind(val, "t"); !c.wantID && !rawjson.IsKind(val, "f") {
				werr = invalidParams("_meta[%q] must be true or false", metaWantCallID)
			}
		case strings.HasPrefix(m.Key, metaPrefix), strings.HasPrefix(m.Key, metaProtocol):
		default:
			if rest == nil {
				rest = append(make([]byte, 0, len(meta)), '{')
			} else {
				rest = append(rest, ',')
			}
			rest = append(rest, meta[m.KeyStart:m.ValEnd]...)
		}
		return werr == nil
	})
	if rest != nil {
		c.meta = append(rest, '}')
	}
	return werr
}

// newCallID names a call for the whole bridge. Cancelling goes by the client's own
// request id, so that this one is no secret.
func newCallID() string { return strings.ToLower(rand.Text()[:16]) }

// callBackend runs the call to its outcome. A panic of the backend comes back as an error.
func (sc *scope) callBackend(ctx context.Context, c *toolCall, callID string, who caller, progress func(json.RawMessage)) (o messages.Outcome, werr *wireError) {
	defer func() {
		if p := recover(); p != nil {
			sc.g.log.Error("panic in a call", "call_id", callID, "tool", c.name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			werr = &wireError{Code: codeInternal, Message: "internal error of the bridge"}
		}
	}()
	if sc.isMeta(c.name) {
		inner, out, done := sc.meta(ctx, c, callID, who)
		if done {
			return out, nil
		}
		c = inner
	}
	ct := sc.target(c.name)
	ct.ID, ct.Client, ct.Args, ct.Meta = callID, who.client, c.args, c.meta
	ct.Digest, ct.Ask = sc.seen(who.shown, c.name), who.ask
	ct.Timeout, ct.IdempotencyKey, ct.OnProgress = c.timeout, c.idemKey, progress
	ct.Keeps = true
	o = sc.g.backend.Call(ctx, ct)
	if o.CallID == "" {
		o.CallID = callID
	}
	return o, nil
}

// perform runs the call and gives its response; notify sends progress to the client
// until then.
func (sc *scope) perform(ctx context.Context, c *toolCall, callID string, who caller, notify func([]byte)) answer {
	if c.progress == nil {
		o, werr := sc.callBackend(ctx, c, callID, who, nil)
		return c.answer(o, werr)
	}
	p := newPump(c.progress, notify)
	o, werr := sc.callBackend(ctx, c, callID, who, p.progress)
	p.close() // what was reported comes before the result
	return c.answer(o, werr)
}

// answer is the response for what callBackend returned.
func (c *toolCall) answer(o messages.Outcome, werr *wireError) answer {
	if werr != nil {
		return errorAnswer(c.id, werr)
	}
	a := c.render(o)
	if o.Held {
		a.held = o.CallID
	}
	return a
}

// delivered tells the backend that an answer is written, or never will be.
func (g *Gateway) delivered(a answer) {
	if a.held != "" {
		g.backend.Delivered(a.held)
	}
}

// answer is one response body in three parts, so that a big result is not copied.
type answer struct {
	head, body, tail []byte
	code             int    // of a JSON-RPC error; 0 for a result
	held             string // the call whose result counts until it is delivered; "" for none
}

func (a answer) size() int { return len(a.head) + len(a.body) + len(a.tail) }

// line is the answer on one line, as the stdio framing wants it.
func (a answer) line() []byte {
	out := make([]byte, 0, a.size()+1)
	out = append(append(append(out, a.head...), rawjson.OneLine(a.body)...), a.tail...)
	return append(out, '\n')
}

func errorAnswer(id json.RawMessage, e *wireError) answer {
	return answer{head: errorBody(id, e), code: e.Code}
}

// render turns the outcome into the response. The server's own result or error
// goes out byte for byte, unless reading it would cost the client its session
// (sane.go), and but for two members of the result that are put in front where they
// must be: `resultType` for clients of 2026-07-28, which requires it, when the
// server spoke an older revision; and `_meta["mcpbridge/call_id"]` where the client
// asked for it. (An error object has no place for the latter.)
func (c *toolCall) render(o messages.Outcome) answer {
	if len(o.RPCError) > 0 {
		a := answer{head: appendHead(nil, c.id, "error"), body: saneError(o.RPCError), tail: []byte("}")}
		if raw, ok := rawjson.Lookup(a.body, "code"); ok {
			a.code, _ = strconv.Atoi(string(raw))
		}
		return a
	}
	head, body := appendHead(nil, c.id, "result"), c.result(o)
	if c.needsType(body) {
		open := rawjson.SkipSpace(body, 0) + 1
		head = append(append(head, body[:open]...), completeType...)
		if body = body[open:]; !rawjson.IsKind(body, "}") {
			head = append(head, ',')
		}
	}
	return answer{head: head, body: body, tail: []byte("}")}
}

// completeType is what protocol 2026-07-28 requires in each finished result.
const completeType = `"resultType":"complete"`

func (c *toolCall) needsType(result []byte) bool {
	if !c.modern {
		return false
	}
	_, has := rawjson.Lookup(result, "resultType")
	return !has
}

// result is the result object of the outcome.
func (c *toolCall) result(o messages.Outcome) json.RawMessage {
	res := o.Result
	answered := o.Kind == messages.OK || o.Kind == messages.ToolError
	if answered && rawjson.IsObject(res) && deeperThan(res, maxWireDepth) {
		o.Kind, o.Code, o.Result = messages.ToolError, messages.CodeResultTooLarge, nil
		o.Message = fmt.Sprintf("the answer nests deeper than %d levels, which most clients cannot read", maxWireDepth)
		o.Hint = "ask for less; `bridgectl call -o json` shows such an answer whole"
		res = nil
	}
	if !answered || !rawjson.IsObject(res) {
		return outcomeResult(o)
	}
	res = withoutOurs(res, o)
	if c.wantID {
		meta := json.RawMessage("{}")
		if m, ok := rawjson.Lookup(res, "_meta"); ok && rawjson.IsObject(m) {
			meta = m
		}
		res = rawjson.SetMember(res, "_meta", rawjson.SetMember(meta, metaCallID, rawjson.AppendString(nil, o.CallID)))
	}
	return res
}

// withoutOurs takes out of a server's own answer what only the bridge may say: a server
// that writes `mcpbridge/outcome` would tell a client that its call was not sent. Of a
// result that was cut, what the bridge has said of that stays.
func withoutOurs(res json.RawMessage, o messages.Outcome) json.RawMessage {
	forged := func(key string) bool {
		switch rest, ours := strings.CutPrefix(key, metaPrefix); {
		case !ours, o.Truncated && (rest == "truncated" || rest == "result_bytes"):
			return false
		default:
			return rest != "result_uri" || o.ResultURI == ""
		}
	}
	var clean []byte
	done := 0
	rawjson.Object(res, func(m rawjson.Member) bool { // several _meta: nobody says which one counts
		if m.Key == "_meta" {
			meta := res[m.ValStart:m.ValEnd]
			if rest := rawjson.Drop(meta, forged); len(rest) != len(meta) {
				clean = append(append(clean, res[done:m.ValStart]...), rest...)
				done = m.ValEnd
			}
		}
		return true
	})
	if done == 0 {
		return res
	}
	return append(clean, res[done:]...)
}

// outcomeResult is how an outcome that is not the server's own answer looks on the
// wire (contract, section Endpoints).
func outcomeResult(o messages.Outcome) json.RawMessage {
	text := o.ErrorText()
	if o.Kind == messages.OK { // a backend without a result: say so, never invent one
		o.Kind, o.Code, text = messages.OutcomeUnknown, messages.CodeInternal, "the bridge has no result for this call"
	}
	if o.Hint != "" {
		text += "\n" + o.Hint
	}
	out := append([]byte(nil), `{"content":[{"type":"text","text":`...)
	out = rawjson.AppendString(out, text)
	out = append(out, `}],"isError":true,"_meta":{"`+metaCallID+`":`...)
	out = rawjson.AppendString(out, o.CallID)
	out = append(out, `,"mcpbridge/outcome":`...)
	out = rawjson.AppendString(out, o.Kind.String())
	out = append(out, `,"mcpbridge/code":`...)
	out = rawjson.AppendString(out, string(o.Code))
	out = append(out, `,"mcpbridge/sent":`...)
	out = strconv.AppendBool(out, o.Sent())
	out = append(out, `,"mcpbridge/safe_to_retry":`...)
	out = strconv.AppendBool(out, o.SafeToRetry())
	if o.ApprovalID != "" {
		out = append(out, `,"mcpbridge/approval_id":`...)
		out = rawjson.AppendString(out, o.ApprovalID)
	}
	if o.RetryAfter > 0 {
		out = append(out, `,"mcpbridge/retry_after_ms":`...)
		out = strconv.AppendInt(out, o.RetryAfter.Milliseconds(), 10)
	}
	return append(out, "}}"...)
}

// sdkCall answers a tools/call that reached the SDK: one inside a JSON-RPC batch,
// or one right behind an initialize that was still under way. Big integers and
// unknown fields survive here too; white space need not.
func (sc *scope) sdkCall(ctx context.Context, req mcp.Request) (mcp.Result, error) {
	r, ok := req.(*mcp.CallToolRequest)
	if !ok || r.Params == nil {
		return nil, &jsonrpc.Error{Code: codeInvalidParams, Message: "params must be an object with the name of a tool"}
	}
	params, err := json.Marshal(r.Params)
	if err != nil {
		return nil, &jsonrpc.Error{Code: codeInvalidParams, Message: "params cannot be read"}
	}
	c, werr := parseCall(nil, params, isModern(r.ProtocolVersion()))
	if werr != nil {
		return nil, &jsonrpc.Error{Code: int64(werr.Code), Message: werr.Message}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(sc.lifeOf(ctx, r.Session), cancel)()
	o, werr := sc.callBackend(ctx, c, newCallID(), sc.callerOf(ctx, sc.g.sessions.get(r.Session.ID(), requestOf(ctx).client, sc)), nil)
	if werr != nil {
		return nil, &jsonrpc.Error{Code: int64(werr.Code), Message: werr.Message}
	}
	if o.Held { // the SDK does not tell when it has written
		defer sc.g.backend.Delivered(o.CallID)
	}
	if len(o.RPCError) > 0 {
		var e jsonrpc.Error
		if json.Unmarshal(saneError(o.RPCError), &e) != nil {
			e = jsonrpc.Error{Code: codeInternal, Message: "the server answered with an error that cannot be read"}
		}
		return nil, &e
	}
	res := c.result(o)
	if c.needsType(res) {
		res = rawjson.SetMember(res, "resultType", []byte(`"complete"`))
	}
	return &rawResult{raw: res}, nil
}

// lifeOf is the life of the session or stream that a call of the SDK's came by.
func (sc *scope) lifeOf(ctx context.Context, ss *mcp.ServerSession) context.Context {
	if life := requestOf(ctx).life; life != nil {
		return life
	}
	if s := sc.g.sessions.get(ss.ID(), requestOf(ctx).client, sc); s != nil {
		return s.ctx
	}
	return sc.g.base
}
