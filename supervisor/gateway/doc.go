// Package gateway is the bridge's face towards MCP clients: one aggregated endpoint
// over every server, one endpoint per server, and the same over a byte stream.
//
//	/mcp                   every tool as <server>__<tool>
//	/mcp?view=NAME         what the view admits
//	/servers/{name}/mcp    one server, its own tool names
//	ServeStream            newline-delimited JSON-RPC, for `bridgectl stdio`
//
// It needs nothing of the bridge but a messages.Backend, and keeps no state about
// tools or calls: what is offered is the backend's catalogue, what becomes of a call
// is the backend's outcome. All methods may be used from any goroutine.
//
// # Two protocol eras on one path
//
// Revisions 2024-11-05 to 2025-11-25 have sessions, 2026-07-28 has none; the header
// Mcp-Protocol-Version tells which is spoken (on a stream, each request's _meta
// does). The SDK serves everything of both but what is about tools.
//
// # What is passed unchanged
//
// tools/call and tools/list are answered ahead of the SDK, without decoding what
// passes through. Arguments reach the backend, and results and JSON-RPC errors
// reach the client, byte for byte, but for keys of a result's _meta that begin with
// `mcpbridge/`: a server cannot speak for the bridge, so they are taken out. Three things
// are put in where they must be:
//
//   - a result for a 2026-07-28 client gets `"resultType":"complete"` when the server
//     left it out: that revision requires it, older servers do not know it;
//   - a result gets `_meta["mcpbridge/call_id"]` when the call's _meta has
//     `"mcpbridge/want_call_id": true`;
//   - on a stream, line breaks between tokens become blanks, and in an event stream
//     carriage returns do: framing has no room for them.
//
// Inside a JSON-RPC batch (revisions up to 2025-03-26) the SDK writes the answers;
// then white space and the escapes of <, > and & may differ too.
//
// A tool's definition keeps every field and its bytes but for its name, for what the
// catalogue had to adapt, and for optional fields that are null or of a wrong
// type, which would make strict clients refuse the whole list. A tool that the gate
// refuses or asks about says so in `_meta["mcpbridge/permission"]`.
//
// An outcome that is not the server's own answer is a result with isError, a text,
// and `_meta` keys mcpbridge/call_id, /outcome, /code, /sent, /safe_to_retry, and
// where they apply /approval_id and /retry_after_ms. Arguments that are no object
// are the one exception: JSON-RPC error -32602.
//
// Of a call's own _meta the bridge reads `mcpbridge/idempotency-key` (a string),
// `mcpbridge/timeout_ms` (a number) and `mcpbridge/want_call_id`. Those keys,
// progressToken and io.modelcontextprotocol/* end here; the rest goes to the server.
//
// # Discovery
//
// Where the definitions of a catalogue come to more than Options.Discovery allows (or
// always), /mcp lists search_tools, describe_tool and call_tool in its place (discover.go).
// The list then changes, and list_changed is sent, only when one of these three does, or
// when the catalogue crosses the limit; what search finds is always the present
// catalogue. Its index is made when the catalogue changes, from what did change
// (finder.go); a search that comes before it waits, to the deadline of its call.
// Every tool can still be called by its own name.
//
// # The life of a call
//
// Over HTTP, a client of the session era cancels with notifications/cancelled; that
// its connection breaks says nothing, and the call runs to its outcome. Ending the
// session leaves its calls. In the stateless era closing the response cancels. On a
// stream, notifications/cancelled cancels, and EOF leaves what is in flight. A
// cancelled call's response still ends with its outcome.
//
// An answer is plain JSON. It becomes an event stream at once when the client asked
// for progress, and after ten seconds otherwise, with a comment now and then, so
// that no proxy cuts it. Progress that a client does not take in time is dropped.
//
// # Who may come in
//
// Checked in this order, so that a web page learns nothing from the later ones:
//
//   - Host (403). On a loopback address: localhost, 127.0.0.1 and [::1] with the
//     listening port, and Options.AllowedHosts. On any other address: every address
//     literal and localhost, whatever the port (it may have been mapped), and
//     Options.AllowedHosts; a name that is not configured is refused, because a name
//     is what DNS rebinding needs.
//   - Origin (403). Absent, loopback on any port, or in Options.AllowedOrigins;
//     `null` and all others are refused, and so is what the browser marks as
//     cross-site. No CORS headers are sent.
//   - Token (401), by Options.Authenticate.
//   - Method (405), view (400, 404), server (404), session (404), type (415), size (413).
//
// A session belongs to the client and to the endpoint that opened it: to all others
// it does not exist. A client has at most 256; the one unused for longest gives way,
// and one without any request for an hour ends.
package gateway
