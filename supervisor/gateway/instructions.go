package gateway

import (
	"fmt"
	"strings"

	"mcpbridge/messages"
)

// What servers say about themselves reaches a model with every conversation, so that it
// is bounded, in bytes: each one's, and all together.
const (
	maxInstructions     = 2 << 10
	maxAllInstructions  = 8 << 10
	noServers           = "This bridge has no MCP servers yet: add one under mcp_servers in its configuration (`bridgectl config init` writes a starter file), then `bridgectl reload`."
	instructionsPreface = "This bridge offers the tools of several MCP servers. What follows is what each server says about its own tools, in its words. It holds for the tools of that server only."
)

// instructions are what a client hears when a session begins. One server's own endpoint
// passes that server's words on; /mcp puts together those of all servers that the client
// sees tools of, and says whose they are. An empty bridge gives a hint (requirement B3).
func (sc *scope) instructions() string {
	servers := sc.g.backend.Status().Servers
	cat := sc.g.backend.Catalogue()
	if sc.key.server != "" {
		for _, s := range servers {
			if s.Name == sc.key.server {
				return messages.PlainText(s.Instructions, "")
			}
		}
		return ""
	}
	tools := sc.visible(cat)
	if len(servers) == 0 && len(tools) == 0 {
		return noServers
	}
	seen := map[string]bool{}
	for _, t := range tools {
		seen[t.Server] = true
	}
	var b strings.Builder
	said := map[string]bool{}
	left := 0
	for _, s := range servers { // sorted by name
		text := messages.PlainText(s.Instructions, "  ")
		if text == "" || !seen[s.Name] || said[s.Name] {
			continue
		}
		said[s.Name] = true
		text = cutBytes(text, maxInstructions)
		if b.Len()+len(text) > maxAllInstructions {
			left++
			continue
		}
		prefix := prefixOf(tools, s.Name)
		fmt.Fprintf(&b, "\n\nServer %q (tools %s):\n  %s", s.Name, prefix, text)
	}
	if b.Len() == 0 {
		return ""
	}
	if left > 0 {
		fmt.Fprintf(&b, "\n\nThe instructions of %d more servers are left out, because together they are too long.", left)
	}
	return instructionsPreface + b.String()
}

// prefixOf is how the tools of a server begin at /mcp.
func prefixOf(tools []messages.Tool, server string) string {
	prefix, n := "", 0
	for _, t := range tools {
		if t.Server != server {
			continue
		}
		if n++; n == 1 {
			prefix = t.EndpointName
			continue
		}
		i := 0
		for i < min(len(prefix), len(t.EndpointName)) && prefix[i] == t.EndpointName[i] {
			i++
		}
		prefix = prefix[:i]
	}
	if n == 1 {
		return prefix
	}
	return prefix + "…"
}

// cutBytes shortens at a rune.
func cutBytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n-len("…")], "") + "…"
}
