package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"mcpbridge/internal/rawjson"
	"mcpbridge/messages"
)

// Progressive discovery: where the whole catalogue would fill a model's context, the
// aggregated endpoint lists three tools in its place.
//
//	search_tools   finds tools by what they do
//	describe_tool  shows one definition whole
//	call_tool      calls one
//
// They change what is listed, never what is allowed: call_tool is another way to write a
// tools/call of the tool that it names, and the backend judges, schedules, records and
// answers it as that. They cannot clash with a server's tool: every name at the
// endpoint has `__` in it, and these have not.
//
// A client that listed them before the catalogue shrank may go on using them.

// The names of the three.
const (
	searchTools  = "search_tools"
	describeTool = "describe_tool"
	callTool     = "call_tool"
)

// bytesPerToken is the estimate that config's discovery.over_tokens is held against:
// four bytes of a definition are about one token of a model.
const bytesPerToken = 4

// discovers reports whether a catalogue of that size is listed as the three tools. One
// server's own endpoint speaks its own names only.
func (sc *scope) discovers(size int) bool {
	d := sc.g.discovery.Load()
	switch {
	case sc.key.server != "":
		return false
	case d.MetaTools == "always":
		return true
	case d.MetaTools == "auto":
		return d.OverTokens > 0 && size/bytesPerToken > d.OverTokens
	}
	return false
}

// isMeta reports whether a call means one of the three.
func (sc *scope) isMeta(name string) bool {
	if d := sc.g.discovery.Load().MetaTools; sc.key.server != "" || d != "always" && d != "auto" {
		return false
	}
	return name == searchTools || name == describeTool || name == callTool
}

// maxServersNamed bounds, in bytes, the servers that search_tools names.
const maxServersNamed = 400

// metaEntries are the definitions of the three, in the order of their names.
func metaEntries(tools []messages.Tool) (names []string, entries [][]byte) {
	known := map[string]bool{}
	for i := range tools {
		known[tools[i].Server] = true
	}
	servers := slices.Sorted(maps.Keys(known))
	list, left := "", 0
	for i, s := range servers {
		if len(list)+len(s) > maxServersNamed {
			left = len(servers) - i
			break
		}
		if i > 0 {
			list += ", "
		}
		list += s
	}
	if left > 0 {
		list += fmt.Sprintf(" and %d more", left)
	}
	define := func(name, title, text, schema, hints string) {
		e := append([]byte(`{"name":`), rawjson.AppendString(nil, name)...)
		e = append(append(e, `,"title":`...), rawjson.AppendString(nil, title)...)
		e = append(append(e, `,"description":`...), rawjson.AppendString(nil, text)...)
		e = append(append(e, `,"inputSchema":`...), schema...)
		e = append(append(e, `,"annotations":`...), hints...)
		names, entries = append(names, name), append(entries, append(e, '}'))
	}
	define(callTool, "Call a tool",
		"Call a tool that search_tools found. What it does, and whether it is allowed, is that tool's own: look at describe_tool before the first call.",
		`{"type":"object","properties":{"name":{"type":"string","description":"the tool's name, as search_tools gives it"},"arguments":{"type":"object","description":"the tool's own arguments, by its inputSchema"}},"required":["name"]}`,
		`{"readOnlyHint":false,"destructiveHint":true,"idempotentHint":false,"openWorldHint":true}`)
	define(describeTool, "Describe a tool",
		"Show the whole definition of a tool that search_tools found: description, inputSchema, annotations.",
		`{"type":"object","properties":{"name":{"type":"string","description":"the tool's name, as search_tools gives it"}},"required":["name"]}`,
		`{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}`)
	define(searchTools, "Search tools",
		"Find tools by what they do, best first. Many tools are not listed here: search before concluding that something cannot be done. Then describe_tool and call_tool. Servers: "+list+".",
		`{"type":"object","properties":{"query":{"type":"string","description":"a few words, such as: create github issue. Empty: all, by name"},"server":{"type":"string","description":"only tools of this server"},"limit":{"type":"integer","minimum":1,"maximum":50,"description":"how many; 10 if absent"}},"required":["query"]}`,
		`{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}`)
	return names, entries
}

// meta answers a call of search_tools or describe_tool, and turns one of call_tool into
// the call that it means; done says that out is the answer.
func (sc *scope) meta(ctx context.Context, c *toolCall, callID string, who caller) (inner *toolCall, out messages.Outcome, done bool) {
	refuse := func(code messages.Code, hint, format string, args ...any) (*toolCall, messages.Outcome, bool) {
		return nil, messages.Outcome{CallID: callID, Tool: c.name, Kind: messages.Rejected, Code: code, Message: fmt.Sprintf(format, args...), Hint: hint}, true
	}
	args, problem := metaArgs(c.args, c.name)
	if problem != "" {
		return refuse(messages.CodeInvalidArguments, "look at the inputSchema of "+c.name, "%s: %s", c.name, problem)
	}
	if c.name == callTool {
		call := *c
		call.name, call.args = args.name, args.arguments
		return &call, out, false
	}
	if c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	sc.g.backend.WaitListed(ctx, "")
	sc.searched.Store(true)
	l := sc.render(sc.g.backend.Catalogue(), who.client)
	late := func(err error) (*toolCall, messages.Outcome, bool) {
		out := messages.Outcome{CallID: callID, Tool: c.name, Kind: messages.NotSent, Code: messages.CodeCancelled, Message: "cancelled while the search index was made"}
		if errors.Is(err, context.DeadlineExceeded) {
			out.Code, out.Message, out.Hint = messages.CodeExpired, "the search index was not made before the deadline", "the index is made once for each change of the catalogue; repeat the call"
		}
		return nil, out, true
	}
	if c.name == describeTool {
		t, ok := l.cat.Lookup(args.name)
		if !ok || !t.Listed || !l.cat.InView(sc.key.view, t) {
			hint := "search_tools finds the names"
			x, err := sc.g.finder.index(ctx, l)
			if err != nil {
				return late(err)
			}
			if near, _ := x.find(args.name, 3, func(*messages.Tool) bool { return true }); len(near) > 0 {
				hint = "did you mean " + namesOf(near) + "? " + hint
			}
			return refuse(messages.CodeUnknownTool, hint, "unknown tool %q", clipText(args.name, 100))
		}
		t.Permission = sc.permission(t, who.client)
		who.shown.describe(t.EndpointName, t.Digest)
		return nil, textOutcome(c, callID, toolEntry(t, t.EndpointName)), true
	}
	x, err := sc.g.finder.index(ctx, l)
	if err != nil {
		return late(err)
	}
	found, total := x.find(args.query, args.limit, func(t *messages.Tool) bool { return args.server == "" || t.Server == args.server })
	return nil, textOutcome(c, callID, searchResult(found, total, func(t *messages.Tool) messages.Permission { return sc.permission(*t, who.client) })), true
}

func namesOf(tools []*messages.Tool) string {
	names := make([]string, len(tools))
	for i, t := range tools {
		names[i] = t.EndpointName
	}
	return strings.Join(names, ", ")
}

// searchDescription is how much of a description a search shows.
const searchDescription = 200

// searchResult is `{"tools":[{"name","description","effect","permission"}],"total"}`;
// permission is there where a call would not simply pass.
func searchResult(found []*messages.Tool, total int, permission func(*messages.Tool) messages.Permission) []byte {
	out := []byte(`{"tools":[`)
	for i, t := range found {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(out, `{"name":`...), rawjson.AppendString(nil, t.EndpointName)...)
		text := strings.Join(strings.Fields(t.Def.Description), " ")
		out = append(append(out, `,"description":`...), rawjson.AppendString(nil, clipText(text, searchDescription))...)
		out = append(append(out, `,"effect":`...), rawjson.AppendString(nil, t.Effect.String())...)
		if p := permission(t); p != messages.Allow {
			out = append(append(out, `,"permission":`...), rawjson.AppendString(nil, p.String())...)
		}
		out = append(out, '}')
	}
	out = append(out, `],"total":`...)
	return append(strconv.AppendInt(out, int64(total), 10), '}')
}

// clipText cuts at a rune.
func clipText(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// textOutcome is an answer of the bridge itself: no server was asked.
func textOutcome(c *toolCall, callID string, text []byte) messages.Outcome {
	result := append([]byte(`{"content":[{"type":"text","text":`), rawjson.AppendString(nil, string(text))...)
	return messages.Outcome{CallID: callID, Tool: c.name, Kind: messages.OK, Effect: messages.ReadOnly, Result: append(result, `}],"isError":false}`...)}
}

// metaArguments are those of the three together.
type metaArguments struct {
	name, query, server string
	limit               int
	arguments           json.RawMessage
}

const defaultSearchLimit, maxSearchLimit = 10, 50

// metaArgs reads them; problem says what is wrong with them.
func metaArgs(raw json.RawMessage, tool string) (a metaArguments, problem string) {
	a.limit = defaultSearchLimit
	var seen []string
	rawjson.Object(raw, func(m rawjson.Member) bool {
		val := raw[m.ValStart:m.ValEnd]
		if slices.Contains(seen, m.Key) {
			problem = fmt.Sprintf("%q occurs twice", clipText(m.Key, 60))
			return false
		}
		seen = append(seen, m.Key)
		text := func(into *string) {
			if rawjson.IsString(val) {
				*into = rawjson.Unquote(val)
			} else if !rawjson.IsNull(val) {
				problem = m.Key + " must be a string"
			}
		}
		switch m.Key {
		case "name":
			text(&a.name)
		case "query":
			text(&a.query)
		case "server":
			text(&a.server)
		case "limit":
			n, err := strconv.Atoi(string(val))
			if rawjson.IsNull(val) {
				break
			}
			if err != nil || n < 1 || n > maxSearchLimit {
				problem = fmt.Sprintf("limit must be a whole number from 1 to %d", maxSearchLimit)
			}
			a.limit = n
		case "arguments":
			if !rawjson.IsNull(val) && !rawjson.IsObject(val) {
				problem = "arguments must be an object, not a text that holds one"
			} else if rawjson.IsObject(val) {
				a.arguments = val
			}
		}
		return problem == ""
	})
	if problem == "" && tool != searchTools && a.name == "" {
		problem = "name is missing"
	}
	return a, problem
}
