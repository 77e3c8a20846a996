package messages

import (
	"encoding/json"
	"strings"

	"mcpbridge/messages/internal/forms"
)

// Form is a list of tools as one model provider takes it (requirement C7). The tools
// bear their full names (mcp__fs__read_file), under which Call takes them back.
type Form struct {
	Provider string            // "openai", "anthropic" or "gemini"
	Tools    []json.RawMessage // one for each tool, in the catalogue's order
	// Issues tell what of a tool the provider has no word for. Its schema is then wider
	// than the server's, not narrower, unless the issue says so; arguments are checked
	// against the server's own.
	Issues []Issue
}

// MarshalJSON gives the value of the request's field `tools`: for OpenAI (Chat
// Completions) a list of function tools, for Anthropic (Messages) a list of tools, for
// Gemini (generateContent) a list of one tool with all functionDeclarations.
func (f Form) MarshalJSON() ([]byte, error) {
	list := f.Tools
	if list == nil {
		list = []json.RawMessage{}
	}
	if f.Provider == "gemini" && len(list) > 0 {
		return marshalRaw([]map[string]any{{"functionDeclarations": list}})
	}
	return marshalRaw(list)
}

// OpenAI is the catalogue for function calling with OpenAI.
func (c *Catalogue) OpenAI() Form { return OpenAIForm(c.Tools()) }

// Anthropic is the catalogue for tool use with Anthropic.
func (c *Catalogue) Anthropic() Form { return AnthropicForm(c.Tools()) }

// Gemini is the catalogue for function calling with Gemini.
func (c *Catalogue) Gemini() Form { return GeminiForm(c.Tools()) }

// Prompt is the catalogue as text for a model without function calling; "" where it is empty.
func (c *Catalogue) Prompt() string { return PromptText(c.Tools()) }

// OpenAIForm gives tools in OpenAI's form.
func OpenAIForm(tools []Tool) Form { return form("openai", tools, forms.OpenAI) }

// AnthropicForm gives tools in Anthropic's form.
func AnthropicForm(tools []Tool) Form { return form("anthropic", tools, forms.Anthropic) }

// GeminiForm gives tools in Gemini's form.
func GeminiForm(tools []Tool) Form { return form("gemini", tools, forms.Gemini) }

// PromptText begins with `## MCP Tools` and has an entry `- name: description` with
// the parameters for each tool. What servers wrote is indented, so that it cannot pass
// for an entry of another tool.
func PromptText(tools []Tool) string {
	list := make([]forms.Tool, len(tools))
	for i, t := range tools {
		list[i] = formTool(t)
	}
	return forms.Prompt(list)
}

// PlainText is foreign text for the inside of a text of one's own: without characters
// that steer a terminal or cannot be seen, and with every further line behind indent.
func PlainText(s, indent string) string { return forms.Indent(s, indent) }

func formTool(t Tool) forms.Tool {
	return forms.Tool{Name: t.Name, Description: t.Def.Description, Schema: t.Def.InputSchema}
}

func form(provider string, tools []Tool, make func(forms.Tool) (json.RawMessage, []string)) Form {
	f := Form{Provider: provider}
	for _, t := range tools {
		raw, notes := make(formTool(t))
		f.Tools = append(f.Tools, raw)
		if len(notes) > 0 {
			f.Issues = append(f.Issues, Issue{Stage: StageAdaptTool, Severity: SeverityWarning, Server: t.Server, Tool: t.RemoteName,
				Message: "in the form for " + provider + ": " + strings.Join(notes, "; ")})
		}
	}
	return f
}
