package config

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"mcpbridge/messages"
)

// LoadOptions say where to look. The zero value is what `bridgectl supervise` does
// without flags.
type LoadOptions struct {
	File         string                      // --config: read this file alone
	Workspace    string                      // --workspace; "" = the current directory
	TrustProject bool                        // --trust-project: the project layer is the operator's own word
	Env          func(string) (string, bool) // nil = the process environment
	Home         string                      // "" = $HOME

	text []byte // what File holds, where it is no file
}

// Load reads the layers, checks them and resolves what they say. It starts nothing
// and connects to nothing (requirement A11).
//
// Everything that is wrong is in Config.Issues, with its position: a broken layer
// costs that layer only, a broken server itself (Server.Err). The error is a *FileError, and is
// only given for a LoadOptions.File that cannot be read or parsed; the Config is
// nil then.
func Load(o LoadOptions) (*Config, error) {
	return newLoader(o, true).run(o)
}

func newLoader(o LoadOptions, resolve bool) *loader {
	return &loader{env: o.environment(), resolve: resolve, cfg: Default(), top: &decoder{at: map[string]value{}}}
}

// loader carries one reading of the configuration.
type loader struct {
	env     environment
	resolve bool // expand references; `config check` looks at the form only
	cfg     *Config
	docs    []*document
	top     *decoder // of everything outside of mcp_servers
	issues  []messages.Issue
	order   map[string]int    // rank of each file, for sorting issues
	entries map[string]*entry // by server name: the one that counts
	every   []*entry          // every entry of every layer
	all     bool              // read every dialect, also those that only config import takes
	from    *dialect          // what to read the file as; nil = by its name and content
	ours    bool              // read the file as our own format
	defs    []field           // merged defaults of the trusted layers
}

func (l *loader) run(o LoadOptions) (*Config, error) {
	l.cfg.Workspace = l.env.workspace
	l.order, l.entries = map[string]int{}, map[string]*entry{}
	l.cfg.Foreign = map[string]bool{}
	if fi, err := os.Stat(l.env.workspace); o.Workspace != "" && (err != nil || !fi.IsDir()) {
		l.issues = append(l.issues, messages.Issue{Stage: messages.StageConfig, Severity: messages.SeverityError,
			Message: fmt.Sprintf("workspace %s: there is no such directory", o.Workspace)})
	}
	for i, s := range o.sources(l.env) {
		l.order[s.file] = i
		if !s.trusted {
			l.cfg.Foreign[s.file] = true
		}
		s.all = l.all
		doc, found, warning, failure := s.read()
		if warning != nil {
			l.issues = append(l.issues, *warning)
		}
		if found {
			l.cfg.Files = append(l.cfg.Files, s.file)
		}
		if failure != nil && (found || s.must) {
			if s.must {
				return nil, failure
			}
			l.issues = append(l.issues, failure.Issue())
			continue
		}
		if doc == nil {
			continue
		}
		if bad := l.foreign(doc); bad != nil {
			if s.must {
				return nil, bad
			}
			l.issues = append(l.issues, bad.Issue())
			continue
		}
		if doc.root == nil {
			continue
		}
		if bad := l.version(doc); bad != nil {
			if s.must {
				return nil, bad
			}
			l.issues = append(l.issues, bad.Issue())
			continue
		}
		l.docs = append(l.docs, doc)
	}
	l.layers()
	l.switches()
	l.finish()
	return l.cfg, nil
}

// foreign puts another tool's document into our words. Those that are not JSON are
// read only where the caller can say what became of them.
func (l *loader) foreign(doc *document) *FileError {
	d := l.from
	if d == nil && !l.ours {
		d = recognise(doc.file, doc.format, doc.root, !l.all)
	}
	if d == nil {
		return nil
	}
	if doc.format != formatJSON && !l.all {
		return &FileError{File: doc.file, Line: 1, Column: 1, Message: fmt.Sprintf("this is a configuration of %s in %s: `bridgectl config import %s` turns it into one of ours",
			d.tool, doc.format, doc.file)}
	}
	if doc.format != formatJSON && doc.layer == LayerFile && l.all && l.from == nil {
		l.issues = append(l.issues, messages.Issue{File: doc.file, Line: 1, Column: 1, Stage: messages.StageConfig, Severity: messages.SeverityWarning,
			Message: fmt.Sprintf("a configuration of %s: `bridgectl config import` turns it into one of ours, which supervise can read", d.tool)})
	}
	translate(doc, d, l.env, l.env.goos)
	for _, i := range doc.general {
		l.issues = append(l.issues, i.Issue)
	}
	return nil
}

// root is the document as a value.
func (d *document) value() value { return value{doc: d, node: d.root} }

// version refuses a document written for another format: reading it half would be
// worse than not at all.
func (l *loader) version(doc *document) *FileError {
	fs, _ := l.top.quietFields(doc.value())
	for _, f := range fs {
		if f.key == "version" && !isNull(f.node) && f.node.Value != "1" {
			return &FileError{File: doc.file, Line: f.node.Line, Column: f.node.Column, Message: "version: this build reads version 1 only"}
		}
	}
	return nil
}

// layers walks the documents from the lowest to the highest: first what is outside
// of servers, and the defaults, then the servers.
func (l *loader) layers() {
	servers := map[*document]field{}
	for _, doc := range l.docs {
		fs, _ := l.top.fields(doc.value())
		readers := l.top.sections(l.cfg, l.env.home)
		for key := range projectKeys {
			readers[key] = nil
		}
		readers["defaults"], readers["$schema"] = nil, nil
		for _, f := range fs {
			read, known := readers[f.key]
			switch {
			case !known:
				l.top.unknown(f, readers)
			case !doc.trusted && !projectKeys[f.key] && f.key != "$schema":
				l.top.reportAt(f.value, f.line, f.col, messages.SeverityWarning,
					"ignored: a project may only add servers and deny or ask rules; put it into your own configuration, or start with --trust-project")
			case f.key == "permissions":
				l.permissions(f)
			case f.key == "mcp_servers":
				servers[doc] = f
			case isNull(f.node) || f.key == "version" || f.key == "$schema":
			case f.key == "defaults":
				l.defaults(f.value)
			default:
				l.top.at[f.rel] = f.value
				read(f.value)
			}
		}
	}
	for _, doc := range l.docs {
		if f, ok := servers[doc]; ok && !isNull(f.node) {
			l.servers(f.value)
		}
	}
}

// permissions takes one layer's block. A trusted project comes before the operator's own
// rules, as everything of a higher layer counts first; an untrusted one is kept apart.
func (l *loader) permissions(f field) {
	if !f.doc.trusted {
		l.cfg.ProjectRules = l.top.projectRules(f)
		return
	}
	l.cfg.Permissions = append(l.top.rules(f), l.cfg.Permissions...)
	l.cfg.HasPermissions = true
	l.top.at[f.rel] = f.value
}

// defaults checks a block once, by reading it as if it were a server, and keeps its
// fields for every entry.
func (l *loader) defaults(v value) {
	fs, ok := l.top.fields(v)
	if !ok {
		return
	}
	kept := []field{}
	for _, f := range fs {
		if slices.Contains(identityFields, f.key) {
			l.top.reportAt(f.value, f.line, f.col, messages.SeverityError, "belongs to one server; defaults hold what is common to all")
			continue
		}
		f.inherited, f.rel = true, f.key
		if inner, ok := l.top.quietFields(f.value); ok {
			f.merged = inner
		}
		kept = append(kept, f)
	}
	probe := &entry{v: v, doc: v.doc}
	d := &decoder{at: map[string]value{}}
	s, w := DefaultServer(), &Written{}
	v.merged, v.rel = kept, ""
	d.serverObject(v, &s, w)
	s.Written, s.Env, s.Headers = w, w.Env, w.Headers
	probe.Server, probe.at, probe.issues = s, d.at, d.issues
	probe.check(probe.problem)
	probe.checkReferences(probe.problem)
	probe.checkText(probe.problem)
	for _, i := range probe.issues {
		l.issues = append(l.issues, i.Issue)
	}
	l.defs = overlay(l.defs, kept)
}

// servers decodes one layer's entries and lets them replace those of lower layers as a
// whole (requirement A3).
func (l *loader) servers(v value) {
	fs, ok := l.top.fields(v)
	if !ok {
		return
	}
	if len(fs) > maxServers {
		l.top.errorf(v, "more than %d servers; the rest is ignored", maxServers)
		fs = fs[:maxServers]
	}
	for _, f := range fs {
		if !f.dup && l.switchOff(f.key, f.value) {
			continue
		}
		defs := l.defs
		if !v.doc.trusted {
			defs = slices.DeleteFunc(slices.Clone(defs), func(d field) bool { return !slices.Contains(operationalFields, d.key) })
		}
		ev := f.value
		ev.rel = ""
		named := *f.node // what concerns the entry as a whole is shown at its name
		named.Line, named.Column = f.line, f.col
		ev.node = &named
		var broken []found
		var said []field
		if !isNull(f.node) {
			d := &decoder{server: f.key}
			if own, ok := d.fields(ev); ok {
				said, ev.merged = own, overlay(defs, own)
			}
			broken = d.issues
		}
		var e *entry
		if ev.merged == nil && !isNull(f.node) {
			e = &entry{Server: DefaultServer(), v: ev, doc: v.doc, issues: v.doc.said[f.node]} // not even keys: an issue says so
			e.Name, e.Layer, e.Source, e.Written = f.key, v.doc.layer, ev.where(), &Written{}
		} else {
			e = decodeServer(f.key, ev, v.doc.layer, v.doc.said[f.node])
		}
		e.own = said
		e.issues = slices.Concat(broken, e.issues)
		e.noteHow()
		if f.dup {
			e.problem("", messages.SeverityError, "two entries have this name, so neither counts; rename one")
		}
		e.checkSecrets(e.problem)
		l.shadow(e)
		l.entries[f.key] = e
		l.every = append(l.every, e)
	}
}

// switchOff applies an entry that says nothing but enabled: false to the one below it. A
// project may not switch off what the user's own configuration starts (requirement A12):
// it says so and changes nothing.
func (l *loader) switchOff(name string, v value) bool {
	below := l.entries[name]
	off := get(v.node, "enabled")
	if below == nil || off == nil || len(v.node.Content) != 2 || off.ShortTag() != "!!bool" || strings.EqualFold(off.Value, "true") {
		return false
	}
	if !v.doc.trusted && below.doc.trusted {
		l.top.reportAt(v, v.node.Line, v.node.Column, messages.SeverityWarning,
			"ignored: a project may not switch off the server of your own configuration at "+below.Source+"; switch it off there, or start with --trust-project")
		return true
	}
	e := *below
	e.at = maps.Clone(below.at)
	if e.at == nil {
		e.at = map[string]value{}
	}
	e.Enabled, e.issues = false, nil
	e.at["enabled"] = v.child(off, "enabled")
	l.entries[name] = &e
	return true
}

// shadow notes what an entry stands in for, and says what a broken one hides.
func (l *loader) shadow(e *entry) {
	below := l.entries[e.Name]
	if below == nil {
		return
	}
	if below.doc.trusted {
		e.replaces = below.Source
	} else {
		e.replaces = below.replaces
	}
	if e.firstError() != nil && below.firstError() == nil {
		e.problem("", messages.SeverityWarning, "this entry is broken and still replaces the valid one at "+below.Source+
			", which is not used; correct it or remove it")
	}
}

// finish resolves the servers that count and puts everything in order.
func (l *loader) finish() {
	for _, name := range slices.Sorted(maps.Keys(l.entries)) {
		e := l.entries[name]
		l.settle(e)
		l.cfg.Servers = append(l.cfg.Servers, e.Server)
	}
	for _, i := range l.top.issues {
		l.issues = append(l.issues, i.Issue)
	}
	l.collect()
	slices.SortStableFunc(l.issues, func(a, b messages.Issue) int {
		return cmp.Or(cmp.Compare(l.rank(a.File), l.rank(b.File)), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if more := len(l.issues) - maxIssues; more > 0 {
		rest := l.issues[maxIssues:]
		sev := messages.SeverityWarning
		if slices.ContainsFunc(rest, func(i messages.Issue) bool { return i.Severity == messages.SeverityError }) {
			sev = messages.SeverityError
		}
		l.issues = append(l.issues[:maxIssues:maxIssues], messages.Issue{File: rest[0].File, Line: rest[0].Line, Column: rest[0].Column,
			Stage: messages.StageConfig, Severity: sev, Message: fmt.Sprintf("%d more problems from here on are not shown", more)})
	}
	l.cfg.Issues = l.issues
	l.cfg.Origins = map[string]string{}
	for rel, v := range l.top.at {
		l.cfg.Origins[rel] = v.where()
	}
	l.cfg.Normalize()
}

// collect adds what the entries found. A fault of a defaults block was reported
// with the block, and is not repeated for every server that inherits it.
func (l *loader) collect() {
	type fault struct {
		file, server, message string
		line, column          int
	}
	seen := map[fault]bool{}
	for _, i := range l.issues {
		seen[fault{i.File, i.Server, i.Message, i.Line, i.Column}] = true
	}
	for _, e := range l.every {
		for _, i := range e.issues {
			if !i.inherited || !seen[fault{i.File, "", i.Message, i.Line, i.Column}] {
				l.issues = append(l.issues, i.Issue)
			}
		}
	}
}

// rank sorts issues by file, in the order of the layers; what has no file comes last.
func (l *loader) rank(file string) int {
	if r, ok := l.order[file]; ok {
		return r
	}
	return len(l.order)
}

// settle makes an entry final: blocked, broken, or resolved.
func (l *loader) settle(e *entry) {
	e.Origins = map[string]string{}
	for rel, v := range e.at {
		e.Origins[rel] = v.where()
	}
	if _, said := e.at["connect"]; !said {
		e.Connect = l.cfg.connectMode(e.Connect, l.env.lookup)
	}
	e.Err = e.firstError()
	// An entry that is off starts nothing, so that nobody need agree to it, but one that
	// takes the place of the user's own takes that away.
	if !e.doc.trusted && e.Err == nil && (e.Enabled && e.Connect != ConnectDisabled || e.replaces != "") {
		e.Blocked = "approval"
		text := approvalText
		if e.replaces != "" {
			text += "it stands in for your own entry at " + e.replaces + ", which does not run either; rename it to have both, or "
		}
		e.problem("", messages.SeverityWarning, text+
			"read the entry, then `bridgectl approve` it (`bridgectl approvals` shows its id), or start with --trust-project")
		e.Approval = l.ask(e)
	}
	l.resolveEntry(e)
}

// resolveEntry expands the references of an entry that may start, and gathers what of
// it must not be shown.
func (l *loader) resolveEntry(e *entry) {
	x := &expander{env: l.env.lookup, home: l.env.home, base: e.doc.base}
	if l.resolve && (e.doc.trusted || e.approved) && e.Enabled && e.Connect != ConnectDisabled {
		x.expandServer(&e.Server, func(field, msg string) { e.unresolved(field, msg) })
		if e.Err = e.firstError(); e.Err == nil {
			e.checkEmpty()
			e.checkText(e.unresolvedAs)
			e.Err = e.firstError()
		}
	}
	if e.Type == Stdio {
		x.resolvePaths(&e.Server)
	}
	e.Secrets = collectSecrets(&e.Server, x.values)
}

// switches applies the variables of requirements A8 and A9.
func (l *loader) switches() {
	report := func(name, msg string) {
		l.issues = append(l.issues, messages.Issue{Path: name, Stage: messages.StageConfig, Severity: messages.SeverityError, Message: msg})
	}
	if v, ok := l.env.lookup("ENABLE_MCP"); ok && v != "" {
		switch strings.ToLower(v) {
		case "true", "1", "yes", "on":
			l.cfg.Enabled = true
		case "false", "0", "no", "off":
			l.cfg.Enabled = false
		default:
			report("ENABLE_MCP", fmt.Sprintf("%s is not known: true or false", quote(v)))
		}
	}
	if v, ok := l.env.lookup("MCP_CONNECT_MODE"); ok && v != "" && l.cfg.connectMode("", l.env.lookup) == "" {
		report("MCP_CONNECT_MODE", fmt.Sprintf("%s is not known: one of startup, lazy, disabled", quote(v)))
	}
}

// connectMode is the default for servers that say nothing.
func (c *Config) connectMode(otherwise Connect, env func(string) (string, bool)) Connect {
	v, _ := env("MCP_CONNECT_MODE")
	switch m := Connect(strings.ToLower(v)); m {
	case ConnectStartup, ConnectLazy, ConnectDisabled:
		return m
	}
	return otherwise
}
