package messages

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
)

// block is what the text rendering reads of a content block; nothing is written
// back from it, so unknown fields and types survive in Outcome.Result.
type block struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Data     string `json:"data"`
	MIMEType string `json:"mimeType"`
	URI      string `json:"uri"`
	Resource *struct {
		URI string `json:"uri"`
	} `json:"resource"`
}

// result is what the rendering reads of a tool result.
type result struct {
	Content           []json.RawMessage `json:"content"`
	StructuredContent json.RawMessage   `json:"structuredContent"`
}

func (o Outcome) parse() (result, []block) {
	var r result
	if len(o.Result) == 0 || json.Unmarshal(o.Result, &r) != nil {
		return result{}, nil
	}
	blocks := make([]block, len(r.Content))
	for i, raw := range r.Content {
		if json.Unmarshal(raw, &blocks[i]) != nil {
			blocks[i] = block{Type: "unknown"}
		}
	}
	return r, blocks
}

// Text renders the result for reading (requirement D5): text blocks joined by
// newlines, stand-ins for the rest, and with structured content only, that as
// compact JSON.
func (o Outcome) Text() string {
	r, blocks := o.parse()
	if len(blocks) == 0 && len(r.StructuredContent) > 0 {
		var b bytes.Buffer
		if json.Compact(&b, r.StructuredContent) == nil {
			return b.String()
		}
	}
	parts := make([]string, len(blocks))
	for i, b := range blocks {
		parts[i] = b.render("")
	}
	return strings.Join(parts, "\n")
}

// render gives one block as text; prefix is put before the type of a binary block
// ("binary " in the envelope).
func (b block) render(prefix string) string {
	switch b.Type {
	case "text":
		return b.Text
	case "image", "audio":
		kind := b.Type
		if prefix != "" {
			kind = strings.TrimSpace(prefix)
		}
		return fmt.Sprintf("[%s %s %s]", kind, b.MIMEType, humanBytes(base64.RawStdEncoding.DecodedLen(len(strings.TrimRight(b.Data, "=")))))
	case "resource_link":
		return "[resource " + b.URI + "]"
	case "resource":
		if b.Resource != nil {
			return "[resource " + b.Resource.URI + "]"
		}
		return "[resource]"
	default:
		return "[" + b.Type + "]"
	}
}

func humanBytes(n int) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%d B", n)
	case n < 1000*1000:
		return fmt.Sprintf("%.1f KB", float64(n)/1000)
	default:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	}
}

// ContentCounts counts the result's content blocks by type.
func (o Outcome) ContentCounts() map[string]int {
	_, blocks := o.parse()
	counts := map[string]int{}
	for _, b := range blocks {
		counts[b.Type]++
	}
	return counts
}

// ErrorText is the message of a failed outcome: the bridge's own, else what the
// server said, else the fixed sentence of requirement D4.
func (o Outcome) ErrorText() string {
	if o.Kind == OK {
		return ""
	}
	if o.Message != "" {
		return o.Message
	}
	if o.Kind == ToolError {
		if len(o.RPCError) > 0 {
			var e struct {
				Message string `json:"message"`
			}
			if json.Unmarshal(o.RPCError, &e) == nil && e.Message != "" {
				return e.Message
			}
		}
		if t := o.Text(); strings.TrimSpace(t) != "" {
			return t
		}
		return "MCP tool returned an error"
	}
	return string(o.Code)
}

// Envelope is the compact form that agents put before a model.
type Envelope struct {
	Status string         `json:"status"` // ok | error
	Text   string         `json:"text"`
	Data   EnvelopeData   `json:"data"`
	Error  *EnvelopeError `json:"error"`
	Meta   EnvelopeMeta   `json:"meta"`
}

// EnvelopeData carries the structured content, byte for byte.
type EnvelopeData struct {
	Structured json.RawMessage `json:"structured"`
}

// EnvelopeError is nil for ok.
type EnvelopeError struct {
	Code       Code   `json:"code"`
	Message    string `json:"message"`
	Hint       string `json:"hint,omitempty"`
	ApprovalID string `json:"approval_id,omitempty"` // with approval_required
}

// EnvelopeMeta is the bridge's own account of the call; a server cannot write here
// (requirement D6).
type EnvelopeMeta struct {
	CallID        string         `json:"call_id"`
	Server        string         `json:"server"`
	Tool          string         `json:"tool"`
	Outcome       OutcomeKind    `json:"outcome"`
	Sent          bool           `json:"sent"`
	SafeToRetry   bool           `json:"safe_to_retry"`
	Attempt       int            `json:"attempt"`
	Generation    uint64         `json:"generation"`
	QueuedMS      float64        `json:"queued_ms"`
	RanMS         float64        `json:"ran_ms"`
	ContentCounts map[string]int `json:"content_counts"`
	Truncated     bool           `json:"truncated"`
	FirstCallID   string         `json:"first_call_id,omitempty"` // see Outcome.FirstID
}

// Envelope renders the outcome as `call -o envelope` shows it; binary blocks read
// `[binary image/png 12.3 KB]`, resources `[resource uri]`.
func (o Outcome) Envelope() Envelope {
	r, blocks := o.parse()
	parts := make([]string, len(blocks))
	for i, b := range blocks {
		parts[i] = b.render("binary ")
	}
	e := Envelope{Status: "ok", Text: strings.Join(parts, "\n"), Data: EnvelopeData{Structured: orNull(r.StructuredContent)},
		Meta: EnvelopeMeta{o.CallID, o.Server, o.RemoteTool, o.Kind, o.Sent(), o.SafeToRetry(), o.Attempt, o.Generation, ms(o.Queued), ms(o.Ran), o.ContentCounts(), o.Truncated, o.FirstID}}
	if len(blocks) == 0 && len(r.StructuredContent) > 0 {
		e.Text = o.Text()
	}
	if o.Kind != OK {
		e.Status = "error"
		e.Error = &EnvelopeError{o.Code, o.ErrorText(), o.Hint, o.ApprovalID}
		if e.Text == "" {
			e.Text = e.Error.Message
		}
	}
	return e
}

// rpcCode reads the number of a JSON-RPC error object as text, "" where there is none.
func rpcCode(raw json.RawMessage) string {
	var e struct {
		Code json.Number `json:"code"`
	}
	if len(raw) == 0 || json.Unmarshal(raw, &e) != nil {
		return ""
	}
	return e.Code.String()
}
