package config

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"mcpbridge/messages"
)

// ImportOptions say which file to import.
type ImportOptions struct {
	Load LoadOptions // File is the file; its Workspace stands for the current folder
	Text []byte      // what the file holds, where it is no file (standard input)
	From string      // one of Dialects, or "" or "auto": by name and content
}

// Imported is another tool's configuration in our words.
type Imported struct {
	Dialect string           // as in Dialects
	Tool    string           // for people
	YAML    string           // loads without an error, and holds no literal secret
	Servers []string         // that it holds
	Left    []string         // that could not be carried over
	Set     []string         // variables to set before it can start everything
	Issues  []messages.Issue // about the file

	values map[string]string // what each variable stands for, where the file tells
}

// Import turns a configuration of another tool into one of ours. Values that look like
// secrets are not repeated: references take their place. What cannot be carried
// over is said in comments.
func Import(o ImportOptions) (*Imported, error) {
	load := o.Load
	load.text = o.Text
	l := newLoader(load, false)
	l.all = true
	if o.From != "" && o.From != "auto" {
		if l.from = dialectNamed(o.From); l.from == nil {
			return nil, fmt.Errorf("no tool is known as %q: auto, %s", o.From, strings.Join(Dialects(), ", "))
		}
	}
	c, err := l.run(load)
	if err != nil {
		return nil, err
	}
	if len(l.docs) == 0 {
		return nil, &FileError{File: load.File, Message: "there is nothing in this file"}
	}
	doc := l.docs[0]
	if doc.dialect == nil {
		return nil, &FileError{File: load.File, Message: "this is a configuration of the bridge itself already; give --from to read it as another tool's"}
	}
	im := &importer{l: l, doc: doc, vars: map[string]string{}}
	out := &Imported{Dialect: doc.dialect.name, Tool: doc.dialect.tool}
	for _, i := range c.Issues {
		if !strings.Contains(i.Message, "`bridgectl config import`") {
			out.Issues = append(out.Issues, i)
		}
	}
	text, err := im.render(c, out)
	if err != nil {
		return nil, err
	}
	out.YAML, out.values = text, im.vars
	return out, nil
}

// importer writes one document.
type importer struct {
	l    *loader
	doc  *document
	vars map[string]string // name of a proposed variable → the value that it stands for
	set  []string          // the names, in order
	said []string          // about the server at hand
}

func (im *importer) render(c *Config, out *Imported) (string, error) {
	servers := mapping()
	from := get(im.doc.root, "mcp_servers")
	var left []string
	for i := 0; from != nil && i+1 < len(from.Content); i += 2 {
		name := from.Content[i].Value
		e := im.l.entries[name]
		if e == nil {
			continue
		}
		if e.firstError() != nil {
			issue := e.firstError()
			left = append(left, fmt.Sprintf("%s (line %d) was left out: %s", name, e.v.node.Line, issue.Message))
			out.Left = append(out.Left, name)
			continue
		}
		im.said = nil
		node := im.server(name, e, from.Content[i+1])
		key := str(name)
		key.HeadComment = comment(append(im.remarks(e), im.said...))
		servers.Content = append(servers.Content, key, node)
		out.Servers = append(out.Servers, name)
	}
	slices.Sort(im.set)
	out.Set = slices.Compact(im.set)

	root := mapping()
	root.HeadComment = comment(im.head(out))
	root.Content = append(root.Content, str("version"), number(1))
	key := str("mcp_servers")
	key.HeadComment = comment(left)
	if len(servers.Content) == 0 {
		servers.Style = yaml.FlowStyle
	}
	root.Content = append(root.Content, key, servers)
	key = str("permissions")
	key.HeadComment = comment(im.permissionsHead())
	root.Content = append(root.Content, key, starterRules())

	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(root), enc.Close()); err != nil {
		return "", fmt.Errorf("write the configuration: %w", err)
	}
	return b.String(), nil
}

func (im *importer) head(out *Imported) []string {
	lines := []string{"yaml-language-server: $schema=" + SchemaFile,
		fmt.Sprintf("Imported from %s: %s.", out.Tool, filepath.Base(im.doc.file)),
		"Check it with `bridgectl config check`."}
	if len(out.Set) > 0 {
		lines = append(lines, "What looked like a secret was not copied. Set in the environment of the bridge, or write ${file:/path}:")
		for _, name := range out.Set {
			lines = append(lines, "  "+name)
		}
	}
	return lines
}

func (im *importer) permissionsHead() []string {
	lines := []string{"Who may call what: the first rule that matches counts, and what none matches is denied."}
	for i, a := range im.doc.approved {
		if i == 0 {
			lines = append(lines, "These were allowed without a question before; to have it so again, put them first in this list:")
		}
		rule := mapping()
		rule.Style = yaml.FlowStyle
		rule.Content = []*yaml.Node{str("server"), str(a.server), str("tool"), str(a.tool), str("action"), str("allow")}
		if b, err := yaml.Marshal(rule); err == nil {
			lines = append(lines, "  - "+strings.TrimSpace(string(b)))
		}
	}
	return lines
}

// starterRules is the block that `config init` writes too.
func starterRules() *yaml.Node {
	out := list()
	for _, r := range [][2]string{{"read_only", "allow"}, {"idempotent", "ask"}, {"side_effect", "ask"}} {
		m := mapping()
		m.Style = yaml.FlowStyle
		m.Content = []*yaml.Node{str("effect"), str(r[0]), str("action"), str(r[1])}
		out.Content = append(out.Content, m)
	}
	return out
}

// remarks are the warnings about a server, without those that an import answers.
func (im *importer) remarks(e *entry) (out []string) {
	for _, i := range e.issues {
		if i.Severity == messages.SeverityWarning && !strings.Contains(i.Message, "command lines are public") && i.Message != neverRun {
			out = append(out, strings.TrimPrefix(i.Path, e.v.path+".")+": "+i.Message)
		}
	}
	return out
}

// comment makes lines fit to stand behind #.
func comment(lines []string) string {
	for i, l := range lines {
		lines[i] = strings.Map(func(r rune) rune {
			if r < ' ' || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029 || r == 0xfeff {
				return ' '
			}
			return r
		}, l)
	}
	return strings.Join(lines, "\n")
}

// server writes one entry: as the file has it, in our words.
func (im *importer) server(name string, e *entry, n *yaml.Node) *yaml.Node {
	out := mapping()
	w := e.Written
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, v := n.Content[i].Value, n.Content[i+1]
		var nv *yaml.Node
		switch {
		case slices.Contains(stdioFields, key) && e.Type != Stdio, slices.Contains(remoteFields, key) && e.Type == Stdio:
			continue // it has no effect there
		case key == "command":
			nv = str(im.path(im.protect(name, "command", w.Command)))
		case key == "cwd":
			nv = str(im.cwd(im.protect(name, "cwd", w.Cwd)))
		case key == "args":
			nv = im.args(name, w.Args)
		case key == "env":
			nv = im.pairs(name, w.Env, v, im.envValue)
		case key == "headers":
			nv = im.pairs(name, w.Headers, v, im.header)
		case key == "url":
			nv = str(im.url(name, w.URL))
		default:
			nv = copyNode(v)
		}
		out.Content = append(out.Content, str(key), nv)
	}
	if e.Type == Stdio && w.Cwd == "" && slices.ContainsFunc(w.Args, relativeFile.MatchString) {
		out.Content = append(out.Content, str("cwd"), str(literal(im.doc.base)))
	}
	for path, how := range e.Notes {
		im.said = append(im.said, path+": "+how)
	}
	slices.Sort(im.said)
	return out
}

// relativeFile is an argument that names a file below the working directory.
var relativeFile = regexp.MustCompile(`^(\.|\.\.)$|^\.{0,2}[\w-]*/?[\w./-]*/[\w.-]+\.[A-Za-z]\w{0,4}$|^\.\.?/`)

// path makes a command with a slash in it independent of where the new file stands.
func (im *importer) path(command string) string {
	if strings.Contains(command, "/") && !hasReference(command) {
		return literal(resolvePath(command, im.doc.base, im.l.env.home))
	}
	return command
}

func (im *importer) cwd(dir string) string {
	if hasReference(dir) {
		return dir
	}
	return literal(resolvePath(dir, im.doc.base, im.l.env.home))
}

func (im *importer) args(server string, args []string) *yaml.Node {
	out := list()
	out.Style = yaml.FlowStyle
	for i, a := range args {
		found := argSecrets(args, i)
		if len(found) == 0 {
			a = im.references(server, "ARG"+strconv.Itoa(i), a)
		}
		for _, secret := range found {
			if !hasReference(secret) {
				a = strings.Replace(a, secret, im.propose(server, argHint(args, i), secret), 1)
			}
		}
		out.Content = append(out.Content, str(a))
	}
	return out
}

// argHint names the variable for a secret of a command line.
func argHint(args []string, i int) string {
	if m := assignment.FindStringSubmatch(args[i]); m != nil && secretName.MatchString(m[1]) {
		return m[1]
	}
	if i > 0 && secretName.MatchString(args[i-1]) && strings.HasPrefix(args[i-1], "-") {
		return args[i-1]
	}
	if strings.Contains(args[i], "://") {
		return "PASSWORD"
	}
	return "ARG" + strconv.Itoa(i)
}

func (im *importer) pairs(server string, texts map[string]string, order *yaml.Node, one func(server, key, v string) string) *yaml.Node {
	out := mapping()
	for i := 0; i+1 < len(order.Content); i += 2 {
		key := order.Content[i].Value
		if v, ok := texts[key]; ok {
			out.Content = append(out.Content, str(key), str(one(server, key, v)))
		}
	}
	if len(out.Content) == 0 {
		out.Style = yaml.FlowStyle
	}
	return out
}

func (im *importer) envValue(server, key, v string) string { return im.protect(server, key, v) }

// header keeps the word that names the scheme, and nothing else that is literal unless
// it is plainly harmless.
func (im *importer) header(server, key, v string) string {
	scheme, rest, ok := strings.Cut(v, " ")
	if ok && len(scheme) <= 7 && !hasReference(scheme) && rest != "" {
		return scheme + " " + im.protect(server, key, strings.TrimSpace(rest))
	}
	return im.protect(server, key, v)
}

// copyNode is a value without its place and comments.
func copyNode(n *yaml.Node) *yaml.Node {
	n = resolveAlias(n)
	c := &yaml.Node{Kind: n.Kind, Tag: n.Tag, Value: n.Value}
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" {
		c.SetString(n.Value)
	}
	if n.Kind != yaml.ScalarNode {
		c.Style = yaml.FlowStyle
	}
	for _, e := range n.Content {
		c.Content = append(c.Content, copyNode(e))
	}
	return c
}
