package config

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"mcpbridge/messages"
)

// entryState is one entry on its way into our words.
type entryState struct {
	*translator
	e      *foreignEntry
	out    *yaml.Node
	args   *yaml.Node // in front of which the rest of a command array goes
	before []*yaml.Node
	skip   bool
}

// aliases are other tools' words for our fields.
var aliases = map[string]string{
	"cmd": "command", "envs": "env", "environment": "env", "workdir": "cwd", "workingDirectory": "cwd", "working_directory": "cwd",
	"serverUrl": "url", "uri": "url", "baseUrl": "url", "httpUrl": "url", "http_headers": "headers", "requestHeaders": "headers",
	"transport": "type", "transportType": "type",
	"includeTools": "allow", "enabled_tools": "allow", "enabledTools": "allow", "available_tools": "allow", "allowedTools": "allow", "tools": "allow",
	"excludeTools": "deny", "disabledTools": "deny", "disabled_tools": "deny", "excludedTools": "deny",
	"timeout": "timeout", "tool_timeout_sec": "timeout", "startup_timeout_sec": "timeout", "startup_timeout_ms": "timeout",
	"initTimeout": "timeout", "requestTimeout": "timeout",
}

// ornaments say nothing about how a server is run.
var ornaments = []string{
	"description", "name", "title", "icon", "iconPath", "dev", "gallery", "version", "displayName", "display_name", "bundled", "source",
	"registry", "persistent", "directTools", "watchPaths", "$schema", "comment", "_comment", "//", "note", "notes", "author", "homepage",
	"tags", "category", "id", "config", "instructions", "serverInstructions", "chatMenu",
}

// lost are keys that mean something there and nothing here, and what to do instead.
var lost = map[string]string{
	"headersHelper":                "the command is not run: put what it prints into headers with ${NAME} or ${file:/path}",
	"envFile":                      "the file is not read: name its variables under env with ${NAME}, or set them for the bridge",
	"env_file":                     "the file is not read: name its variables under env with ${NAME}, or set them for the bridge",
	"oauth":                        "the bridge does not sign in by itself: put a token into headers",
	"auth":                         "the bridge does not sign in by itself: put a token into headers",
	"oauth_resource":               "the bridge does not sign in by itself: put a token into headers",
	"authProviderType":             "the bridge does not sign in by itself: put a token into headers",
	"trust":                        "there it skips the question before each call; here the permissions block decides",
	"settings":                     "they belong to an extension of the editor",
	"disable_standalone_sse":       "the bridge finds out by itself",
	"default_tools_approval_mode":  "here the permissions block decides",
	"alwaysAllow":                  "here the permissions block decides: {server: NAME, tool: NAME, action: allow}",
	"autoApprove":                  "here the permissions block decides: {server: NAME, tool: NAME, action: allow}",
	"supports_parallel_tool_calls": "here limits and effects decide",
}

// entry gives one server in our words; nil is one that is none of ours to start.
func (t *translator) entry(e *foreignEntry) *yaml.Node {
	t.doc.paths[e.node] = e.path
	if e.node.Kind != yaml.MappingNode {
		return e.node // the loader says what is wrong with it
	}
	s := &entryState{translator: t, e: e, out: mapping()}
	s.out.Line, s.out.Column = e.node.Line, e.node.Column
	t.doc.paths[s.out] = e.path
	s.fields(e.node, e.path)
	if s.skip {
		return nil
	}
	s.finish()
	if t.name == "zed" && get(e.node, "command") == nil && get(e.node, "url") == nil && get(e.node, "settings") != nil {
		t.warn(e.key, e.path, "left out: an extension of the editor starts this server; add it with its command to use it here")
		return nil
	}
	return s.out
}

func (s *entryState) fields(n *yaml.Node, path string) {
	d := decoder{server: s.e.name, issues: s.e.issue}
	fs, _ := d.fields(value{doc: s.doc, node: n, path: path})
	s.e.issue = d.issues
	for _, f := range fs {
		if inner := f.node; f.key == "config" && inner.Kind == yaml.MappingNode && likeServer(inner) {
			s.fields(inner, f.path)
			continue
		}
		s.field(f)
	}
}

func (s *entryState) warnf(v value, format string, args ...any) {
	s.say(&s.e.issue, v.node, v.path, messages.SeverityWarning, s.e.name, format, args...)
}

func (s *entryState) errorf(v value, format string, args ...any) {
	s.say(&s.e.issue, v.node, v.path, messages.SeverityError, s.e.name, format, args...)
}

// field takes one key.
func (s *entryState) field(f field) {
	key := f.key
	if a := aliases[key]; a != "" && (key != "tools" || f.node.Kind != yaml.MappingNode) {
		key = a
	}
	if isNull(f.node) {
		return
	}
	switch key {
	case "command":
		s.command(f.value)
	case "args":
		s.args = s.texts(f.value, "args")
	case "env", "headers":
		s.merge(key, s.pairs(f.value, key))
	case "cwd":
		s.put(key, s.scalar(f.value, "cwd"))
	case "url":
		s.url(f)
	case "type":
		s.kind(f.value)
	case "enabled", "disabled", "isActive":
		s.enabled(f)
	case "allow", "deny":
		s.tools(key, f)
	case "timeout":
		s.timeout(f)
	case "env_keys", "env_vars", "bearer_token_env_var", "env_http_headers":
		s.byName(f)
	case "startup":
		if f.node.Value == "false" {
			n := s.like(f.node, f.path, "!!str", "lazy")
			s.note(n, "from startup: false")
			s.put("connect", n)
		}
	default:
		s.other(f)
	}
}

// other takes what has no word of ours.
func (s *entryState) other(f field) {
	own := serverKeySet()
	word := f.node.Kind == yaml.ScalarNode && slices.Contains([]string{"none", "annotations", "read_only"}, f.node.Value)
	switch {
	case own[f.key] && (f.key != "trust" || word):
		s.put(f.key, f.node)
		s.doc.paths[f.node] = f.path
	case lost[f.key] != "":
		if empty := f.node.Kind != yaml.ScalarNode && len(f.node.Content) == 0; !empty && f.node.Value != "false" && f.node.Value != "" || f.node.Kind != yaml.ScalarNode && !empty {
			s.once(f, "is not carried over: "+lost[f.key])
			if f.key == "alwaysAllow" || f.key == "autoApprove" {
				s.approved(f)
			}
		}
	case slices.Contains(ornaments, f.key):
	default:
		msg := "ignored: unknown key " + quote(f.key)
		known := make([]string, 0, len(own)+len(aliases))
		for k := range own {
			known = append(known, k)
		}
		for k := range aliases {
			known = append(known, k)
		}
		slices.Sort(known)
		if w := suggest(f.key, known); w != "" {
			msg += "; did you mean " + w + "?"
		}
		s.once(f, msg)
	}
}

// approved remembers what the tool was told to allow, for an import to propose.
func (s *entryState) approved(f field) {
	if f.node.Kind != yaml.SequenceNode {
		s.doc.approved = append(s.doc.approved, approval{server: s.e.name, tool: "*", key: f.key})
		return
	}
	for _, n := range f.node.Content {
		if n = resolveAlias(n); n.Kind == yaml.ScalarNode && n.Value != "" {
			s.doc.approved = append(s.doc.approved, approval{server: s.e.name, tool: n.Value, key: f.key})
		}
	}
}

// once warns of a key at its first place in the file.
func (s *entryState) once(f field, msg string) {
	if s.noted[f.key] {
		return
	}
	s.noted[f.key] = true
	d := decoder{server: s.e.name, issues: s.e.issue}
	d.reportAt(f.value, f.line, f.col, messages.SeverityWarning, msg)
	s.e.issue = d.issues
}

// put sets a field of ours, unless another spelling has set it already.
func (s *entryState) put(key string, n *yaml.Node) {
	if get(s.out, key) != nil {
		s.warnf(value{node: n, doc: s.doc, path: s.doc.paths[n]}, "a second word for %s, which was given already; this one is ignored", key)
		return
	}
	set(s.out, key, n)
}

// like makes a new value at the place of another.
func (s *entryState) like(n *yaml.Node, path, tag, v string) *yaml.Node {
	c := &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: v, Line: n.Line, Column: n.Column}
	s.doc.paths[c] = path
	return c
}

// scalar is a text of the entry with its references in our form.
func (s *entryState) scalar(v value, where string) *yaml.Node {
	n := v.node
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" {
		c := *n
		c.Value = s.references(v, where, n.Value)
		n = &c
	}
	s.doc.paths[n] = v.path
	return n
}

func (s *entryState) texts(v value, where string) *yaml.Node {
	if v.node.Kind != yaml.SequenceNode {
		s.doc.paths[v.node] = v.path
		return v.node
	}
	out := list()
	out.Line, out.Column = v.node.Line, v.node.Column
	s.doc.paths[out] = v.path
	for i, n := range v.node.Content {
		out.Content = append(out.Content, s.scalar(v.child(n, "["+strconv.Itoa(i)+"]"), where))
	}
	return out
}

// pairs is a mapping of texts.
func (s *entryState) pairs(v value, where string) *yaml.Node {
	if v.node.Kind != yaml.MappingNode {
		s.doc.paths[v.node] = v.path
		return v.node
	}
	out := mapping()
	out.Line, out.Column = v.node.Line, v.node.Column
	s.doc.paths[out] = v.path
	d := decoder{server: s.e.name, issues: s.e.issue}
	fs, _ := d.fields(v)
	s.e.issue = d.issues
	for _, f := range fs {
		if s.name == "mcphub" && where == "env" && f.node.Kind == yaml.ScalarNode && (f.node.Value == "" || isNull(f.node)) {
			s.inherit(f.value, f.key) // there an empty value means: as the parent has it
			continue
		}
		key := str(f.key)
		key.Line, key.Column = f.line, f.col
		out.Content = append(out.Content, key, s.scalar(f.value, where))
	}
	return out
}

// merge joins what two keys say about env or headers; the first word counts.
func (s *entryState) merge(key string, n *yaml.Node) {
	have := get(s.out, key)
	if have == nil {
		set(s.out, key, n)
		return
	}
	if have.Kind != yaml.MappingNode || n.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if get(have, n.Content[i].Value) == nil {
			have.Content = append(have.Content, n.Content[i], n.Content[i+1])
		}
	}
}

func (s *entryState) inherit(v value, name string) {
	have := get(s.out, "inherit_env")
	if have == nil {
		have = list()
		have.Line, have.Column = v.node.Line, v.node.Column
		s.doc.paths[have] = v.path
		set(s.out, "inherit_env", have)
	}
	have.Content = append(have.Content, s.like(v.node, v.path, "!!str", name))
}

// byName takes fields whose values are names of variables.
func (s *entryState) byName(f field) {
	switch f.key {
	case "bearer_token_env_var":
		m := mapping()
		m.Line, m.Column = f.node.Line, f.node.Column
		s.doc.paths[m] = f.path
		set(m, "Authorization", s.like(f.node, f.path, "!!str", "Bearer ${env:"+f.node.Value+"}"))
		s.merge("headers", m)
	case "env_http_headers":
		if f.node.Kind != yaml.MappingNode {
			s.errorf(f.value, "expected headers with the names of variables")
			return
		}
		m := s.pairs(f.value, "")
		for i := 1; i < len(m.Content); i += 2 {
			m.Content[i] = s.like(m.Content[i], s.doc.paths[m.Content[i]], "!!str", "${env:"+m.Content[i].Value+"}")
		}
		s.merge("headers", m)
	default:
		if f.node.Kind != yaml.SequenceNode {
			s.errorf(f.value, "expected a list with the names of variables")
			return
		}
		for i, n := range f.node.Content {
			v := f.child(n, "["+strconv.Itoa(i)+"]")
			name := v.node
			if inner := get(name, "name"); inner != nil {
				name = inner
			}
			if f.key == "env_vars" {
				s.inherit(v, name.Value)
				continue
			}
			m := mapping() // env_keys: secrets that the tool keeps elsewhere
			m.Line, m.Column = v.node.Line, v.node.Column
			s.doc.paths[m] = f.path
			set(m, name.Value, s.like(v.node, v.path, "!!str", "${env:"+name.Value+"}"))
			s.merge("env", m)
		}
	}
}

// command takes a word, a whole command line as a list, or the older object of Zed.
func (s *entryState) command(v value) {
	switch v.node.Kind {
	case yaml.SequenceNode:
		words := s.texts(v, "args").Content
		if len(words) == 0 {
			s.errorf(v, "the list is empty; its first item is the command")
			return
		}
		s.put("command", words[0])
		s.before = words[1:]
	case yaml.MappingNode:
		for _, f := range s.quiet(v) {
			switch f.key {
			case "path":
				s.put("command", s.scalar(f.value, "command"))
			case "args", "env":
				s.field(f)
			}
		}
	default:
		s.put("command", s.scalar(v, "command"))
	}
}

func (s *entryState) quiet(v value) []field {
	fs, _ := (&decoder{}).fields(v)
	return fs
}

// finish joins the command line and undoes what only Windows needs.
func (s *entryState) finish() {
	args := s.args
	if len(s.before) > 0 {
		joined := list()
		joined.Line, joined.Column = s.before[0].Line, s.before[0].Column
		s.doc.paths[joined] = s.e.path
		joined.Content = slices.Clone(s.before)
		if args != nil && args.Kind == yaml.SequenceNode {
			joined.Content = append(joined.Content, args.Content...)
		}
		args = joined
	}
	if cmd := get(s.out, "command"); cmd != nil && s.goos != "windows" && args != nil && args.Kind == yaml.SequenceNode {
		if line, ok := unwrapCmd(cmd, args.Content); ok {
			s.warnf(value{doc: s.doc, node: cmd, path: s.doc.paths[cmd]}, "cmd /c is for Windows: here %s is started directly", quote(line[0].Value))
			s.doc.paths[line[0]] = s.doc.paths[args.Content[1]]
			set(s.out, "command", line[0])
			rest := *args
			rest.Content = line[1:]
			s.doc.paths[&rest] = s.doc.paths[args]
			args = &rest
		}
	}
	if args != nil {
		set(s.out, "args", args)
	}
}

// unwrapCmd takes the command out of `cmd /c npx.cmd …`.
func unwrapCmd(cmd *yaml.Node, args []*yaml.Node) ([]*yaml.Node, bool) {
	base := strings.ToLower(path.Base(strings.ReplaceAll(cmd.Value, `\`, "/")))
	if base != "cmd" && base != "cmd.exe" || len(args) < 2 || !strings.EqualFold(args[0].Value, "/c") || args[1].Kind != yaml.ScalarNode {
		return nil, false
	}
	word := *args[1]
	for _, x := range []string{".cmd", ".exe", ".bat"} {
		if n := len(word.Value) - len(x); n > 0 && strings.EqualFold(word.Value[n:], x) {
			word.Value = word.Value[:n]
			break
		}
	}
	return append([]*yaml.Node{&word}, args[2:]...), true
}
