package forms

import (
	"encoding/json"
	"regexp"
	"unicode/utf8"
)

// Tool is what a provider is told of a tool.
type Tool struct {
	Name        string
	Description string
	Schema      json.RawMessage // a JSON Schema of an object
}

// maxOpenAIDescription is in characters.
const maxOpenAIDescription = 1024

var (
	openAIRules    = rules{items: true, topBanned: []string{"allOf", "anyOf", "oneOf", "enum", "not"}}
	anthropicParam = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,64}$`)
	anthropicRules = rules{inline: true, topBanned: []string{"allOf", "anyOf", "oneOf"}, property: anthropicParam.MatchString}
)

// anything is the parameters of a tool whose own cannot be offered.
func anything() *obj { return of("type", "object", "properties", newObj()) }

// OpenAI gives {"type":"function","function":{…}} and what was changed.
func OpenAI(t Tool) (json.RawMessage, []string) {
	var n notes
	params := tidy(t.Schema, openAIRules, &n)
	params = checked(params, checkOpenAI, &n)
	text := t.Description
	if utf8.RuneCountInString(text) > maxOpenAIDescription {
		text = clip(text, maxOpenAIDescription)
		n.add("the description is cut at %d characters", maxOpenAIDescription)
	}
	f := of("name", t.Name, "description", text, "parameters", params)
	return encode(of("type", "function", "function", f)), n.list
}

// Anthropic gives {"name":…,"description":…,"input_schema":{…}} and what was changed.
func Anthropic(t Tool) (json.RawMessage, []string) {
	var n notes
	schema := checked(tidy(t.Schema, anthropicRules, &n), checkAnthropic, &n)
	return encode(of("name", t.Name, "description", t.Description, "input_schema", schema)), n.list
}

// Gemini gives a function declaration, {"name":…,"description":…,"parameters":{…}},
// without parameters where the tool takes none, and what was changed.
func Gemini(t Tool) (json.RawMessage, []string) {
	var n notes
	tidied := &tidier{rules: geminiRules, notes: &n}
	top := tidy(t.Schema, geminiRules, &n)
	params := (&geminiWriter{tidier: tidied}).object(top)
	out := of("name", t.Name, "description", t.Description)
	if params != nil && checkGemini(params) != "" {
		n.add("the schema cannot be offered (%s): the tool is offered without parameters", checkGemini(params))
		params = nil
	}
	if params != nil {
		out.set("parameters", params)
	}
	return encode(out), n.list
}

// checked returns the schema if it passes, and one that takes anything if not.
func checked(schema *obj, check func(*obj) string, n *notes) *obj {
	// What was made is read back: the check sees what the provider will see.
	v, ok := decode(encode(schema))
	read, isObj := v.(*obj)
	why := "it nests too deep"
	if ok && isObj {
		why = check(read)
	}
	if why == "" {
		return schema
	}
	n.add("the schema cannot be offered (%s): any arguments are taken", why)
	return anything()
}
