package config

import (
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"mcpbridge/messages"
)

// document is one layer's file, parsed.
type document struct {
	source
	root *yaml.Node // nil: the file says nothing

	format format

	// What stands below is for another tool's file, whose root was replaced by one in our
	// words (translate).
	dialect  *dialect              // nil: our own format
	paths    map[*yaml.Node]string // where a node stands in the file
	notes    map[*yaml.Node]string // how a value was understood
	said     map[*yaml.Node][]found
	general  []found
	approved []approval
}

// approval is a tool that the user of another tool has allowed once and for all.
type approval struct{ server, tool, key string }

// value is one node with everything that a message about it needs.
type value struct {
	doc       *document
	node      *yaml.Node
	path      string // mcp_servers.fs.restart.burst
	rel       string // restart.burst: the path inside its entry
	inherited bool   // from a defaults block, where its faults were reported already
	merged    []field
}

// field is one key of a mapping. dup marks a key that was written twice.
type field struct {
	key       string
	line, col int
	dup       bool
	value
}

// where is the position in the form `file:line:col`.
func (v value) where() string {
	return fmt.Sprintf("%s:%d:%d", v.doc.file, v.node.Line, v.node.Column)
}

// child is the value under a key or index of v.
func (v value) child(n *yaml.Node, key string) value {
	n = resolveAlias(n)
	path, known := v.doc.paths[n]
	if !known {
		path = join(v.path, key)
	}
	return value{doc: v.doc, node: n, path: path, rel: join(v.rel, key), inherited: v.inherited}
}

var (
	plainKey = regexp.MustCompile(`^[\pL\pN_-]+$`)
	indexKey = regexp.MustCompile(`^\[[0-9]+\]$`)
)

// join appends a key to a path; `[2]` and keys that are no plain word take brackets.
func join(base, key string) string {
	switch {
	case indexKey.MatchString(key):
		return base + key
	case !plainKey.MatchString(key):
		return base + "[" + strconv.Quote(key) + "]"
	case base == "":
		return key
	default:
		return base + "." + key
	}
}

// found is an issue with the knowledge whether it was reported before.
type found struct {
	messages.Issue
	inherited bool
}

// decoder turns values into Go and collects what is wrong with them. Nothing stops
// it: a faulty value is reported and leaves the default in place.
type decoder struct {
	server string           // named in issues
	issues []found          // in the order of discovery, at most maxIssues
	failed int              // errors, those beyond maxIssues too
	at     map[string]value // by relative path: what was written, and where
}

func (d *decoder) report(v value, sev messages.Severity, format string, args ...any) {
	d.reportAt(v, v.node.Line, v.node.Column, sev, fmt.Sprintf(format, args...))
}

func (d *decoder) reportAt(v value, line, col int, sev messages.Severity, msg string) {
	if sev == messages.SeverityError {
		d.failed++
	}
	i := found{inherited: v.inherited, Issue: messages.Issue{File: v.doc.file, Line: line, Column: col,
		Path: v.path, Stage: messages.StageConfig, Severity: sev, Server: d.server, Message: msg}}
	if len(d.issues) < maxIssues {
		d.issues = append(d.issues, i)
	} else if sev == messages.SeverityError && !slices.ContainsFunc(d.issues, found.isError) {
		d.issues[maxIssues-1] = i // the first error always has a place: it keeps the server from starting
	}
}

func (f found) isError() bool { return f.Severity == messages.SeverityError }

func (d *decoder) errorf(v value, format string, args ...any) {
	d.report(v, messages.SeverityError, format, args...)
}

func (d *decoder) warnf(v value, format string, args ...any) {
	d.report(v, messages.SeverityWarning, format, args...)
}

// fields lists the keys of a mapping in the order of the file. Merge keys (`<<`)
// are followed; what stands beside them wins.
func (d *decoder) fields(v value) ([]field, bool) {
	if v.merged != nil {
		return v.merged, true
	}
	if v.node.Kind != yaml.MappingNode {
		d.errorf(v, "expected keys with values, found %s", kindWord(v.node))
		return nil, false
	}
	out := []field{}
	index := map[string]int{}
	var bases []*yaml.Node
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		k, n := resolveAlias(v.node.Content[i]), v.node.Content[i+1]
		if k.ShortTag() == "!!merge" {
			if n = resolveAlias(n); n.Kind == yaml.SequenceNode {
				bases = append(bases, n.Content...)
			} else {
				bases = append(bases, n)
			}
			continue
		}
		if k.Kind != yaml.ScalarNode || isNull(k) {
			d.reportAt(v, k.Line, k.Column, messages.SeverityError, "a key must be a word, not "+kindWord(k))
			continue
		}
		f := field{key: k.Value, line: k.Line, col: k.Column, value: v.child(n, k.Value)}
		if first, twice := index[f.key]; twice {
			out[first].dup = true
			d.reportAt(f.value, k.Line, k.Column, messages.SeverityError,
				fmt.Sprintf("duplicate key %s: it stands already on line %d", quote(f.key), out[first].line))
			continue
		}
		index[f.key] = len(out)
		out = append(out, f)
	}
	for _, b := range bases {
		base := v
		base.node = resolveAlias(b)
		inherited, ok := d.fields(base)
		if !ok {
			continue
		}
		for _, f := range inherited {
			if _, own := index[f.key]; !own {
				index[f.key] = len(out)
				out = append(out, f)
			}
		}
	}
	return out, true
}

// foreign are keys of other tools that people bring along, and what they are here.
var foreign = map[string]string{
	"mcpServers": "mcp_servers", "servers": "mcp_servers", "disabled": "enabled: false", "transport": "type",
	"serverUrl": "url", "httpUrl": "url", "uri": "url", "cmd": "command", "environment": "env", "envs": "env",
	"timeout": "timeouts: {call: 60s}", "alwaysAllow": "permissions:", "autoApprove": "permissions:",
	"includeTools": "tools: {allow: […]}", "context_servers": "mcp_servers", "extensions": "mcp_servers", "excludeTools": "tools: {deny: […]}", "disabledTools": "tools: {deny: […]}",
	"http_headers": "headers", "workdir": "cwd", "workingDirectory": "cwd", "envFile": "env", "listen_address": "listen",
}

// foreignWords are other tools' words for our values.
var foreignWords = map[string]string{"streamablehttp": "http", "httpstream": "http", "remote": "http", "local": "stdio", "command": "stdio"}

// object hands each key of a mapping to its reader. A key without a value says
// nothing; an unknown one is an error with the word that was probably meant.
func (d *decoder) object(v value, readers map[string]func(value)) {
	fs, ok := d.fields(v)
	if !ok {
		return
	}
	for _, f := range fs {
		read, known := readers[f.key]
		if !known {
			d.unknown(f, readers)
			continue
		}
		if f.merged == nil && isNull(f.node) {
			continue
		}
		if d.at != nil {
			d.at[f.rel] = f.value
		}
		read(f.value)
	}
}

// strictObject is object for blocks in which a missing key means "everything": there
// a key without a value would open what its author wanted to narrow, and is an error.
func (d *decoder) strictObject(v value, readers map[string]func(value)) {
	if fs, ok := d.quietFields(v); ok {
		for _, f := range fs {
			if f.merged == nil && isNull(f.node) && readers[f.key] != nil {
				d.errorf(f.value, "no value; leave the key out to match everything")
			}
		}
	}
	d.object(v, readers)
}

// quietFields is fields without reports, for a mapping that is read again.
func (d *decoder) quietFields(v value) ([]field, bool) {
	quiet := decoder{}
	return quiet.fields(v)
}

func (d *decoder) unknown(f field, readers map[string]func(value)) {
	msg := fmt.Sprintf("unknown key %s", quote(f.key))
	if len(d.issues) >= maxIssues {
		d.reportAt(f.value, f.line, f.col, messages.SeverityError, msg) // counted, and not worth the search
		return
	}
	known := make([]string, 0, len(readers))
	for k := range readers {
		known = append(known, k)
	}
	sort.Strings(known)
	here := foreign[f.key]
	key, _, _ := strings.Cut(here, ":")
	if _, fits := readers[key]; fits && here != "" {
		msg += fmt.Sprintf("; here this is written %s", here)
	} else if w := suggest(f.key, known); w != "" {
		msg += fmt.Sprintf("; did you mean %s?", w)
	} else {
		msg += "; known here: " + strings.Join(known, ", ")
	}
	d.reportAt(f.value, f.line, f.col, messages.SeverityError, msg)
}
