package upstream

import (
	"encoding/json"
	"fmt"
	"strings"

	"mcpbridge/internal/rawjson"
	"mcpbridge/messages"
)

// plainSchema stands in for an input schema that is none.
var plainSchema = json.RawMessage(`{"type":"object"}`)

// maxListIssues bounds the issues of one listing; what comes beyond is counted.
const maxListIssues = 100

// adapter turns raw tools/list entries into definitions (requirement C4): it reads
// what it needs leniently, repairs what it must, says so, and keeps every entry's
// bytes. One odd tool never hides the others.
type adapter struct {
	server string
	seen   map[string]bool
	out    messages.Listing
	more   int // issues beyond the bound, and how many of them are of entries that were dropped
	lost   int
}

// Adapt makes definitions of the entries of a listing that was kept.
func Adapt(server string, entries []json.RawMessage) []messages.ToolDef {
	a := newAdapter(server)
	for _, e := range entries {
		if json.Valid(e) {
			a.add(e)
		}
	}
	return a.out.Tools
}

func newAdapter(server string) *adapter {
	return &adapter{server: server, seen: map[string]bool{}}
}

func (a *adapter) issue(sev messages.Severity, stage messages.Stage, tool, format string, args ...any) {
	if len(a.out.Issues) >= maxListIssues {
		a.more++
		if sev == messages.SeverityError && stage == messages.StageAdaptTool {
			a.lost++
		}
		return
	}
	a.out.Issues = append(a.out.Issues, messages.Issue{Stage: stage, Severity: sev, Server: a.server, Tool: tool,
		Message: fmt.Sprintf(format, args...)})
}

func (a *adapter) warn(tool, format string, args ...any) {
	a.issue(messages.SeverityWarning, messages.StageAdaptTool, tool, format, args...)
}

func (a *adapter) drop(tool, format string, args ...any) {
	a.issue(messages.SeverityError, messages.StageAdaptTool, tool, format, args...)
}

// listing returns the result.
func (a *adapter) listing() messages.Listing {
	if a.more > 0 {
		n, lost := a.more, a.lost
		a.more, a.lost = 0, 0
		a.out.Issues = append(a.out.Issues, messages.Issue{Stage: messages.StageAdaptTool, Severity: messages.SeverityWarning,
			Server: a.server, Message: fmt.Sprintf("%d more issues of this listing are not shown; %d of them are entries that were dropped", n, lost)})
	}
	return a.out
}

// toolFields are the raw fields of one entry.
type toolFields struct {
	name, title, description, input, output, annotations, execution []byte
}

// add adapts one entry, which must be valid JSON.
func (a *adapter) add(raw []byte) {
	a.out.Discovered++
	nth := a.out.Discovered
	if !rawjson.IsObject(raw) {
		a.drop("", "entry %d of tools/list is no object and was dropped", nth)
		return
	}
	raw = append([]byte(nil), raw...)
	var f toolFields
	rawjson.Fields(raw, func(k, v []byte) {
		switch string(k) {
		case "name":
			f.name = v
		case "title":
			f.title = v
		case "description":
			f.description = v
		case "inputSchema":
			f.input = v
		case "outputSchema":
			f.output = v
		case "annotations":
			f.annotations = v
		case "execution":
			f.execution = v
		}
	})
	name, ok := asString(f.name)
	if !ok || strings.TrimSpace(name) == "" {
		a.drop("", "entry %d of tools/list has no name and was dropped", nth)
		return
	}
	if a.seen[name] {
		a.drop(name, "listed twice by the server: the first definition is kept")
		return
	}
	a.seen[name] = true
	d := messages.ToolDef{Name: name, Raw: raw}
	d.Title, _ = asString(f.title)
	d.Description = a.description(name, f.description)
	d.InputSchema = a.inputSchema(name, f.input)
	switch {
	case rawjson.IsNull(f.output):
	case rawjson.IsObject(f.output):
		d.OutputSchema = f.output
	default:
		a.warn(name, "outputSchema is no object and is ignored")
	}
	a.annotations(&d, f.annotations)
	a.execution(name, f.execution)
	a.out.Tools = append(a.out.Tools, d)
}

func (a *adapter) description(name string, raw []byte) string {
	s, ok := asString(raw)
	if !ok && !rawjson.IsNull(raw) {
		a.warn(name, "description is no string and is ignored")
	}
	if strings.TrimSpace(s) == "" {
		return fmt.Sprintf("Tool %q from MCP server %q.", name, a.server)
	}
	return s
}

// inputSchema makes sure that the schema is one of an object, which is what MCP and
// every provider ask for.
func (a *adapter) inputSchema(name string, raw []byte) json.RawMessage {
	switch {
	case rawjson.IsNull(raw):
		a.warn(name, `inputSchema is missing: {"type":"object"} is used`)
		return plainSchema
	case !rawjson.IsObject(raw):
		a.warn(name, `inputSchema is no object: {"type":"object"} is used`)
		return plainSchema
	}
	fields, typ := 0, []byte(nil)
	rawjson.Fields(raw, func(k, v []byte) {
		fields++
		if string(k) == "type" {
			typ = v
		}
	})
	switch t, _ := asString(typ); {
	case t == "object":
		return raw
	case fields == 0:
		a.warn(name, `inputSchema is empty: {"type":"object"} is used`)
		return plainSchema
	case typ == nil:
		a.warn(name, `inputSchema has no type: "object" is added`)
		return append([]byte(`{"type":"object",`), raw[1:]...)
	default:
		a.warn(name, `inputSchema has type %s instead of "object": {"type":"object"} is used`, typ)
		return plainSchema
	}
}

func (a *adapter) annotations(d *messages.ToolDef, raw []byte) {
	if rawjson.IsNull(raw) {
		return
	}
	if !rawjson.IsObject(raw) {
		a.warn(d.Name, "annotations are no object and are ignored")
		return
	}
	d.Annotations = raw
	rawjson.Fields(raw, func(k, v []byte) {
		switch string(k) {
		case "readOnlyHint":
			a.hint(d.Name, "readOnlyHint", v, &d.Hints.ReadOnly)
		case "destructiveHint":
			a.hint(d.Name, "destructiveHint", v, &d.Hints.Destructive)
		case "idempotentHint":
			a.hint(d.Name, "idempotentHint", v, &d.Hints.Idempotent)
		case "openWorldHint":
			a.hint(d.Name, "openWorldHint", v, &d.Hints.OpenWorld)
		case "title":
			if d.Title == "" {
				d.Title, _ = asString(v)
			}
		}
	})
}

func (a *adapter) hint(tool, name string, raw []byte, into **bool) {
	switch string(raw) {
	case "true", "false":
		b := string(raw) == "true"
		*into = &b
	case "null":
		*into = nil
	default:
		*into = nil
		a.warn(tool, "%s is not a boolean and is ignored", name)
	}
}

func (a *adapter) execution(tool string, raw []byte) {
	rawjson.Fields(raw, func(k, v []byte) {
		if string(k) == "taskSupport" && string(v) == `"required"` {
			a.warn(tool, "the server runs this tool as a task only: it will refuse a plain call")
		}
	})
}
