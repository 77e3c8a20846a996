package messages

// CodeRow is one row of the contract's table "Outcomes, codes, exit codes".
type CodeRow struct {
	Code    Code
	Kind    OutcomeKind // the outcome that carries the code; some codes have two rows
	Exit    int         // exit code of `bridgectl call`
	Classic string      // --codes classic
	MCP     string      // --codes mcp
}

// CodeTable is the contract's table. A code that occurs under two outcomes
// (cancelled, internal) has two rows.
var CodeTable = []CodeRow{
	{CodeNone, OK, 0, "ok", "ok"},
	{CodeToolError, ToolError, 5, "mcp_tool_error", "MCP_EXECUTION_ERROR"},
	{CodeResultTooLarge, ToolError, 5, "mcp_call_error", "MCP_PARSE_ERROR"},
	{CodeProtocolError, OutcomeUnknown, 8, "mcp_call_error", "MCP_PARSE_ERROR"},
	{CodeDenied, Rejected, 6, "permission_denied", "PERMISSION_DENIED"},
	{CodeApprovalRequired, Rejected, 6, "permission_denied", "PERMISSION_DENIED"},
	{CodeUnknownTool, Rejected, 7, "unknown_tool", "PERMISSION_DENIED"},
	{CodeToolChanged, Rejected, 7, "unknown_tool", "PERMISSION_DENIED"},
	{CodeInvalidArguments, Rejected, 7, "invalid_arguments", "MCP_PARAM_ERROR"},
	{CodeIdempotencyConflict, Rejected, 7, "invalid_arguments", "MCP_PARAM_ERROR"},
	{CodeOverloaded, Rejected, 7, "mcp_call_error", "MCP_NETWORK_ERROR"},
	{CodeDraining, Rejected, 7, "mcp_call_error", "MCP_NETWORK_ERROR"},
	{CodeJournalUnavailable, Rejected, 7, "mcp_call_error", "MCP_NETWORK_ERROR"},
	{CodeUnavailable, NotSent, 7, "mcp_call_error", "MCP_NETWORK_ERROR"},
	{CodeExpired, NotSent, 7, "mcp_call_error", "MCP_TIMEOUT"},
	{CodeCancelled, NotSent, 7, "mcp_call_error", "MCP_TIMEOUT"},
	{CodeTimeout, OutcomeUnknown, 8, "mcp_call_error", "MCP_TIMEOUT"},
	{CodeConnectionLost, OutcomeUnknown, 8, "mcp_call_error", "MCP_NETWORK_ERROR"},
	{CodeCancelled, OutcomeUnknown, 8, "mcp_call_error", "MCP_TIMEOUT"},
	{CodeInternal, NotSent, 7, "mcp_call_error", "MCP_EXECUTION_ERROR"},
	{CodeInternal, OutcomeUnknown, 8, "mcp_call_error", "MCP_EXECUTION_ERROR"},
}

// rpcInvalidParams is JSON-RPC's "Invalid params"; --codes mcp tells it apart.
const rpcInvalidParams = "-32602"

// row finds the table's row for the outcome.
func (o Outcome) row() CodeRow {
	for _, r := range CodeTable {
		if r.Code == o.Code && r.Kind == o.Kind {
			return r
		}
	}
	return CodeRow{o.Code, o.Kind, 1, "mcp_call_error", "MCP_EXECUTION_ERROR"}
}

// ExitCode is the exit code of `bridgectl call` for the outcome.
func (o Outcome) ExitCode() int { return o.row().Exit }

// ClassicCode and MCPCode are the older names that `--codes` asks for.
func (o Outcome) ClassicCode() string { return o.row().Classic }

// MCPCode is ClassicCode's twin for `--codes mcp`.
func (o Outcome) MCPCode() string {
	if o.Code == CodeToolError && rpcCode(o.RPCError) == rpcInvalidParams {
		return "MCP_PARAM_ERROR"
	}
	return o.row().MCP
}
