package forms

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Prompt is the text that tells a model of tools without function calling:
//
//	## MCP Tools
//
//	- name: description
//	  Parameters:
//	  - path (string, required): what it is
//
// What servers wrote is kept, but it cannot pass for a line of its own: further lines
// are indented, and control and invisible characters are taken out. "" for no tools.
func Prompt(tools []Tool) string {
	if len(tools) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("## MCP Tools\n\n")
	for _, t := range tools {
		fmt.Fprintf(&b, "- %s: %s\n", t.Name, Indent(t.Description, "  "))
		var n notes
		top := tidy(t.Schema, promptRules, &n)
		props := top.obj("properties")
		if len(props.keys) == 0 {
			b.WriteString("  Parameters: none\n")
			continue
		}
		b.WriteString("  Parameters:\n")
		req, _ := texts(top.list("required"))
		for _, name := range props.keys {
			p := props.vals[name].(*obj)
			word := "optional"
			if slices.Contains(req, name) {
				word = "required"
			}
			fmt.Fprintf(&b, "  - %s (%s, %s)", strings.Join(strings.Fields(Indent(name, "")), " "), say(p), word)
			if text := p.str("description"); strings.TrimSpace(text) != "" {
				b.WriteString(": " + Indent(text, "    "))
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

var promptRules = rules{inline: true, topBanned: []string{"allOf", "anyOf", "oneOf"}}

// say is a type in a few words.
func say(s *obj) string {
	if list := s.list("enum"); len(list) > 0 {
		var out []string
		for _, v := range list {
			if len(out) == 20 {
				out = append(out, "…")
				break
			}
			out = append(out, Indent(clip(string(encode(v)), 60), ""))
		}
		return "one of " + strings.Join(out, ", ")
	}
	if v, ok := s.vals["const"]; ok {
		if _, raw := v.(json.RawMessage); !raw {
			return Indent(clip(string(encode(v)), 60), "")
		}
	}
	names := listOfTypes(s.vals["type"])
	for _, k := range []string{"anyOf", "oneOf"} {
		for _, v := range s.list(k) {
			for _, n := range listOfTypes(v.(*obj).vals["type"]) {
				if !slices.Contains(names, n) {
					names = append(slices.Clone(names), n)
				}
			}
		}
	}
	for i, n := range names {
		if items := s.obj("items"); n == "array" && items != nil {
			if of := listOfTypes(items.vals["type"]); len(of) > 0 {
				names = slices.Clone(names)
				names[i] = "array of " + strings.Join(of, " or ")
			}
		}
	}
	if len(names) == 0 {
		return "any"
	}
	return strings.Join(names, " or ")
}

// Indent is foreign text for the inside of a text of ours: trimmed, every further line
// behind the indent, and without characters that steer a terminal or cannot be seen.
func Indent(s, indent string) string {
	s = strings.TrimSpace(strings.NewReplacer("\r\n", "\n", "\r", "\n", "\u2028", "\n", "\u2029", "\n", "\u0085", "\n").Replace(strings.ToValidUTF8(s, "\uFFFD")))
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t', r == '\u200c', r == '\u200d': // joiners: scripts and emoji need them
			return r
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r), unicode.Is(unicode.Co, r):
			return -1
		}
		return r
	}, s)
	return strings.ReplaceAll(s, "\n", "\n"+indent)
}
