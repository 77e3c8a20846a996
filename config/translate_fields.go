package config

import (
	"os"
	"regexp"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"mcpbridge/messages"
)

// transportWords are the spellings of the transports; the key is folded.
var transportWords = map[string]Transport{
	"stdio": Stdio, "local": Stdio, "command": Stdio,
	"http": HTTP, "streamablehttp": HTTP, "httpstream": HTTP, "streamable": HTTP, "remote": HTTP,
	"sse": SSE,
}

// kind takes the type of a server in any of its spellings.
func (s *entryState) kind(v value) {
	n := v.node
	if n.Kind == yaml.MappingNode { // {"transport": {"type": "http", "url": …}}, which no tool reads and people write
		for _, f := range s.quiet(v) {
			s.field(f)
		}
		return
	}
	s.doc.paths[n] = v.path
	word := strings.ReplaceAll(fold(n.Value), " ", "")
	switch {
	case s.name == "goose" && (word == "builtin" || word == "platform" || word == "frontend" || word == "inlinepython"):
		s.skip = true
		s.warn(s.e.key, s.e.path, "left out: %s is part of %s itself, not a server to start", quote(s.e.name), s.tool)
	case s.name == "opencode" && word == "remote":
		// There a remote server is tried over Streamable HTTP and then over SSE, which
		// is what a url without a type means here.
	case transportWords[word] != "":
		c := s.like(n, v.path, "!!str", string(transportWords[word]))
		s.put("type", c)
	default:
		s.put("type", n) // the loader says what is wrong with it
	}
}

func (s *entryState) url(f field) {
	n := s.scalar(f.value, "url")
	if have := get(s.out, "url"); have != nil && f.key == "httpUrl" {
		s.warnf(value{doc: s.doc, node: have, path: s.doc.paths[have]}, "ignored: httpUrl stands beside it")
		set(s.out, "url", n)
	} else {
		s.put("url", n)
	}
	switch {
	case get(s.e.node, "type") != nil:
	case f.key == "httpUrl":
		set(s.out, "type", s.like(n, f.path, "!!str", string(HTTP)))
	case f.key == "url" && s.urlIs != "" && get(s.e.node, "httpUrl") == nil && get(s.e.node, "command") == nil:
		t := s.like(n, f.path, "!!str", string(s.urlIs))
		s.note(t, "a url without a type means %s to %s", s.urlIs, s.tool)
		set(s.out, "type", t)
	}
}

// enabled folds the two flags into one; where they contradict each other, off counts.
func (s *entryState) enabled(f field) {
	n := f.node
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" {
		s.doc.paths[n] = f.path
		set(s.out, "enabled", n)
		return
	}
	on := strings.EqualFold(n.Value, "true") == (f.key != "disabled")
	c := s.like(n, f.path, "!!bool", strconv.FormatBool(on))
	have := get(s.out, "enabled")
	if have != nil && have.Value != c.Value {
		s.warnf(f.value, "enabled and disabled contradict each other; the server stays disabled")
		c.Value = "false"
	}
	set(s.out, "enabled", c)
}

// tools takes a list of the tools that are offered, or left out.
func (s *entryState) tools(key string, f field) {
	n := f.node
	s.doc.paths[n] = f.path
	block := get(s.out, "tools")
	if block == nil {
		block = mapping()
		block.Line, block.Column = n.Line, n.Column
		s.doc.paths[block] = s.e.path
		set(s.out, "tools", block)
	}
	if key == "allow" && n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		if s.name == "goose" {
			drop(s.out, "tools", block)
			return // there an empty list stands for all
		}
		none := list()
		none.Line, none.Column = n.Line, n.Column
		s.doc.paths[none] = f.path
		none.Content = []*yaml.Node{s.like(n, f.path, "!!str", "*")}
		s.warnf(f.value, "the list is empty, so this server offers no tool")
		set(block, "deny", none)
		return
	}
	if n.Kind == yaml.ScalarNode && n.Value == "*" {
		all := list()
		all.Line, all.Column = n.Line, n.Column
		all.Content, n = []*yaml.Node{n}, all
		s.doc.paths[n] = f.path
	}
	if get(block, key) == nil {
		set(block, key, n)
	}
}

// drop takes a key away while its block is empty.
func drop(n *yaml.Node, key string, block *yaml.Node) {
	if len(block.Content) > 0 {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			n.Content = append(n.Content[:i], n.Content[i+2:]...)
			return
		}
	}
}

// timeout gives a time its unit: the one that the key or the tool has, else by its
// size. `config show` says which.
func (s *entryState) timeout(f field) {
	ours, unit, why := "call", s.unit, ", as "+s.tool+" counts"
	switch f.key {
	case "tool_timeout_sec":
		unit, why = "s", ""
	case "startup_timeout_sec":
		ours, unit, why = "start", "s", ""
	case "startup_timeout_ms":
		ours, unit, why = "start", "ms", ""
	case "initTimeout":
		ours = "start"
	}
	n := *f.node
	s.doc.paths[&n] = f.path
	if x, err := strconv.ParseFloat(n.Value, 64); n.Kind == yaml.ScalarNode && err == nil {
		if unit == "" {
			unit, why = "s", ", because it is below 1000 and no unit is known"
			if x >= 1000 {
				unit, why = "ms", ", because it is 1000 or more and no unit is known"
			}
		}
		n.Value, n.Tag = strconv.FormatFloat(x, 'f', -1, 64)+unit, "!!str"
		s.note(&n, "from %s: %s (%s%s)", f.key, oneWord(f.node.Value), map[string]string{"s": "seconds", "ms": "milliseconds"}[unit], why)
	}
	block := get(s.out, "timeouts")
	if block == nil {
		block = mapping()
		block.Line, block.Column = f.node.Line, f.node.Column
		s.doc.paths[block] = f.path
		set(s.out, "timeouts", block)
	}
	if get(block, ours) == nil {
		set(block, ours, &n)
	}
}

// oneWord is a value that may stand in a comment.
func oneWord(v string) string {
	if len(v) > 32 {
		v = v[:32]
	}
	return strings.Join(strings.Fields(v), " ")
}

var (
	bareName  = regexp.MustCompile(`^\$[A-Za-z_][A-Za-z0-9_]*`)
	braceRef  = regexp.MustCompile(`^\{(env|file):([^{}]+)\}`)
	pasted    = regexp.MustCompile(`<[A-Za-z][A-Za-z0-9_ -]*>`)
	sentPlain = regexp.MustCompile(`(^|\s)\$[A-Z_][A-Z0-9_]*$`)
)

// references rewrites the references of a text in our form, from left to right. What
// is none of the tool's references stays as it is.
func (s *entryState) references(v value, where, text string) string {
	var b strings.Builder
	for rest := text; rest != ""; {
		switch {
		case strings.HasPrefix(rest, "$${"):
			b.WriteString("$${")
			rest = rest[3:]
		case strings.HasPrefix(rest, "${"):
			end := strings.IndexByte(rest, '}')
			if end < 0 {
				if where != "args" {
					return text // the loader says that it is not closed
				}
				b.WriteString("$${")
				rest = rest[2:]
				continue
			}
			b.WriteString(s.reference(v, where, rest[:end+1]))
			rest = rest[end+1:]
		case s.brace && braceRef.MatchString(rest):
			m := braceRef.FindString(rest)
			b.WriteString("$" + m)
			rest = rest[len(m):]
		case s.bare && bareName.MatchString(rest):
			m := bareName.FindString(rest)
			b.WriteString("${" + m[1:] + "}")
			rest = rest[len(m):]
		case s.shell && where != "args" && strings.HasPrefix(rest, "$(") && strings.Contains(rest, ")"):
			end := strings.IndexByte(rest, ')')
			b.WriteString("${cmd:" + strings.ReplaceAll(rest[2:end], "}", "") + "}")
			rest = rest[end+1:]
		default:
			b.WriteByte(rest[0])
			rest = rest[1:]
		}
	}
	if !s.bare && (where == "env" || where == "headers" || where == "url") && sentPlain.MatchString(text) {
		s.warnf(v, "the text $NAME is passed on as it stands, as %s does too; write ${NAME} to have it replaced", s.tool)
	}
	if where == "env" || where == "headers" || where == "url" {
		if pasted.MatchString(text) {
			s.warnf(v, "holds a word in <angle brackets>: put the real value in place of it, without the brackets")
		}
	}
	return b.String()
}

// reference rewrites one `${…}`.
func (s *entryState) reference(v value, where, raw string) string {
	body := raw[2 : len(raw)-1]
	switch body {
	case "workspaceFolder", "workspaceRoot":
		return literal(s.workspace)
	case "CWD", "cwd":
		return literal(s.cwd)
	case "userHome":
		return literal(s.home)
	case "pathSeparator", "/":
		return string(os.PathSeparator)
	}
	if id, ok := strings.CutPrefix(body, "input:"); ok {
		if def := s.inputs[id]; def != "" && inputVariable(id) != "" {
			return "${env:" + inputVariable(id) + ":-" + def + "}"
		}
		return raw
	}
	if _, err := parseReference(raw); err == nil || where != "args" {
		return raw // broken ones are told by the loader
	}
	s.say(&s.e.issue, v.node, v.path, messages.SeverityWarning, s.e.name, "a text that looks like ${…} and is no reference is passed on as it stands")
	return "$" + raw
}

// literal protects a text from being read as a reference.
func literal(text string) string { return strings.ReplaceAll(text, "${", "$${") }
