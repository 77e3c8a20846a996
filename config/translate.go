package config

import (
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"mcpbridge/messages"
)

// translator turns another tool's document into one of ours. Every node keeps the
// place, and by doc.paths the name, that it has in the file, so that whatever is
// found later is told in the file's own words.
type translator struct {
	*dialect
	doc       *document
	home      string
	workspace string
	cwd       string
	goos      string
	noted     map[string]bool // unknown keys that were told
	entries   []foreignEntry
	inputs    map[string]string // answers that the file itself gives
}

// foreignEntry is one server as the file has it.
type foreignEntry struct {
	name  string
	key   *yaml.Node // where the name stands
	node  *yaml.Node
	path  string
	issue []found
}

// translate replaces the document's root by one in our words.
func translate(doc *document, d *dialect, env environment, goos string) {
	if goos == "" {
		goos = runtime.GOOS
	}
	t := &translator{dialect: d, doc: doc, home: env.home, workspace: doc.base, cwd: env.workspace, goos: goos, noted: map[string]bool{}}
	doc.dialect = d
	doc.paths, doc.notes, doc.said = map[*yaml.Node]string{}, map[*yaml.Node]string{}, map[*yaml.Node][]found{}
	if doc.root == nil {
		return
	}
	t.collect(doc.root)
	servers := mapping()
	servers.Line, servers.Column = doc.root.Line, doc.root.Column
	for _, e := range t.entries {
		n := t.entry(&e)
		if n == nil {
			continue
		}
		t.doc.said[n] = e.issue
		key := *e.key
		key.Kind, key.Tag, key.Value = yaml.ScalarNode, "!!str", e.name
		servers.Content = append(servers.Content, &key, n)
	}
	t.filter(doc.root, servers)
	root := mapping()
	root.Line, root.Column = doc.root.Line, doc.root.Column
	root.Content = []*yaml.Node{str("mcp_servers"), servers}
	doc.root = root
}

// say reports about the file, or about one of its entries.
func (t *translator) say(into *[]found, n *yaml.Node, path string, sev messages.Severity, server, format string, args ...any) {
	d := decoder{server: server, issues: *into}
	d.report(value{doc: t.doc, node: n, path: path}, sev, format, args...)
	*into = d.issues
}

func (t *translator) warn(n *yaml.Node, path, format string, args ...any) {
	t.say(&t.doc.general, n, path, messages.SeverityWarning, "", format, args...)
}

func (t *translator) fail(n *yaml.Node, path, format string, args ...any) {
	t.say(&t.doc.general, n, path, messages.SeverityError, "", format, args...)
}

var schemeOf = regexp.MustCompile(`^[a-z]+://`)

// serverKeys hold servers, those that win a clash of names first.
var serverKeys = []string{"mcp_servers", "mcpServers", "servers", "mcp.servers", "mcp", "context_servers"}

// collect finds the entries.
func (t *translator) collect(root *yaml.Node) {
	switch {
	case t.name == "docker":
		t.warn(root, "", "this file defines no server by itself: the catalogue of the Docker MCP gateway does; add one with command: docker, args: [mcp, gateway, run]")
		return
	case root.Kind == yaml.SequenceNode:
		t.array(root, "")
		return
	case root.Kind != yaml.MappingNode:
		t.fail(root, "", "expected an object that holds mcpServers, found %s", kindWord(root))
		return
	}
	keys := serverKeys
	if t.name == "goose" {
		keys = append(slices.Clone(keys), "extensions")
	}
	known := false
	for _, key := range keys {
		n := get(root, key)
		if n == nil {
			continue
		}
		path := join("", key)
		if key == "mcp" {
			if inner := get(n, "servers"); inner != nil {
				n, path = inner, "mcp.servers"
			} else if t.name == "gemini" {
				continue // lists of names, which filter takes
			}
		}
		known = true
		t.container(n, path)
	}
	if !known && !t.bareMap(root) && len(root.Content) > 0 {
		t.warn(root, "", "no server is defined here: none of the keys %s stands in this file", strings.Join(keys, ", "))
	}
	t.readInputs(root)
}

// container takes a mapping or list of servers.
func (t *translator) container(n *yaml.Node, path string) {
	switch {
	case isNull(n):
	case n.Kind == yaml.SequenceNode:
		t.array(n, path)
	case n.Kind != yaml.MappingNode:
		t.fail(n, path, "expected servers by name, found %s", kindWord(n))
	default:
		for i := 0; i+1 < len(n.Content); i += 2 {
			k := resolveAlias(n.Content[i])
			if k.Kind != yaml.ScalarNode {
				t.fail(k, path, "a server's name must be a word, not %s", kindWord(k))
				continue
			}
			if k.Value == "inputs" && n.Content[i+1].Kind == yaml.SequenceNode {
				continue
			}
			t.add(k.Value, k, resolveAlias(n.Content[i+1]), join(path, k.Value))
		}
	}
}

// array takes a list of {name, …}, or of objects with one key each.
func (t *translator) array(n *yaml.Node, path string) {
	for i, e := range n.Content {
		e = resolveAlias(e)
		at := path + "[" + strconv.Itoa(i) + "]"
		name := get(e, "name")
		switch {
		case e.Kind != yaml.MappingNode:
			t.warn(e, at, "ignored: this is %s, not a server", kindWord(e))
		case name != nil && name.Kind == yaml.ScalarNode:
			t.add(name.Value, name, e, at)
		case len(e.Content) == 2 && resolveAlias(e.Content[1]).Kind == yaml.MappingNode:
			t.add(e.Content[0].Value, e.Content[0], resolveAlias(e.Content[1]), join(at, e.Content[0].Value))
		case likeServer(e):
			t.fail(e, at, "a server in a list needs a name")
		default:
			t.warn(e, at, "ignored: this is not a server (neither command nor url, nor one under a name)")
		}
	}
}

// add takes an entry; of two with one name in one place the later counts, as in the
// tools themselves, and of two places the one that comes first in serverKeys.
func (t *translator) add(name string, key, n *yaml.Node, path string) {
	e := foreignEntry{name: name, key: key, node: n, path: path}
	if plain := strings.Trim(schemeOf.ReplaceAllString(name, ""), "/"); plain != name && badName(plain) == "" && schemeOf.MatchString(name) {
		// A name is part of addresses here, and // does not survive in one.
		t.say(&e.issue, key, path, messages.SeverityWarning, plain, "this server is called %s here", quote(plain))
		e.name, name = plain, plain
	}
	for i := range t.entries {
		old := &t.entries[i]
		if old.name != name {
			continue
		}
		if parent(old.path) == parent(path) || strings.HasPrefix(parent(path), "[") {
			t.warn(old.key, old.path, "%s is defined again at line %d, and that entry counts", quote(name), key.Line)
			*old = e
		} else {
			t.warn(key, path, "%s is already defined at line %d (%s), and that entry counts", quote(name), old.key.Line, old.path)
		}
		return
	}
	t.entries = append(t.entries, e)
}

// bareMap takes a file whose top level holds nothing but servers.
func (t *translator) bareMap(root *yaml.Node) bool {
	some, all := false, true
	for _, v := range values(root) {
		if likeServer(v) {
			some = true
		} else {
			all = false
		}
	}
	if !some {
		return false
	}
	if all {
		t.container(root, "")
		return true
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		if !likeServer(resolveAlias(root.Content[i+1])) {
			t.fail(root.Content[i], join("", root.Content[i].Value), "this is not a server, while others beside it are: put the servers under \"mcpServers\": { … }")
			break
		}
	}
	return true
}

// likeServer reports whether an object has the look of an entry.
func likeServer(n *yaml.Node) bool {
	for _, key := range []string{"command", "cmd", "url", "httpUrl", "serverUrl", "uri", "baseUrl", "args"} {
		if get(n, key) != nil {
			return true
		}
	}
	return false
}

// filter applies lists of names that stand beside the servers.
func (t *translator) filter(root, servers *yaml.Node) {
	if t.name != "gemini" {
		return
	}
	names := func(n *yaml.Node) (out []string) {
		if n != nil && n.Kind == yaml.SequenceNode {
			for _, e := range n.Content {
				out = append(out, e.Value)
			}
		}
		return out
	}
	allowed, excluded := get(get(root, "mcp"), "allowed"), get(get(root, "mcp"), "excluded")
	for i := 0; i+1 < len(servers.Content); i += 2 {
		name, e := servers.Content[i].Value, servers.Content[i+1]
		at, path, why := allowed, "mcp.allowed", "disabled: the list does not name "+quote(name)
		if slices.Contains(names(excluded), name) {
			at, path, why = excluded, "mcp.excluded", "disabled: the list names "+quote(name)
		} else if len(names(allowed)) == 0 || slices.Contains(names(allowed), name) {
			continue
		}
		off := boolean(false)
		off.Line, off.Column = at.Line, at.Column
		t.doc.paths[off] = path
		set(e, "enabled", off)
		t.warn(at, path, "%s", why)
	}
}

// set puts a value under a key of a mapping, in place of another.
func set(n *yaml.Node, key string, v *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			n.Content[i+1] = v
			return
		}
	}
	k := str(key)
	k.Line, k.Column = v.Line, v.Column
	n.Content = append(n.Content, k, v)
}

// readInputs takes the questions that VS Code would ask. A question that is no
// password may bring its own answer.
func (t *translator) readInputs(root *yaml.Node) {
	t.inputs = map[string]string{}
	for _, list := range []*yaml.Node{get(root, "inputs"), get(get(root, "mcp"), "inputs")} {
		if list == nil || list.Kind != yaml.SequenceNode {
			continue
		}
		for _, in := range list.Content {
			in = resolveAlias(in)
			id, def, secret := get(in, "id"), get(in, "default"), get(in, "password")
			if id != nil && def != nil && def.Kind == yaml.ScalarNode && !isNull(def) && (secret == nil || secret.Value != "true") &&
				def.Value != "" && !strings.ContainsAny(def.Value, "${}") {
				t.inputs[id.Value] = def.Value
			}
		}
	}
}

// note remembers how a value was understood, for `config show`.
func (t *translator) note(n *yaml.Node, format string, args ...any) {
	t.doc.notes[n] = fmt.Sprintf(format, args...)
}
