package config

import (
	"slices"
	"strings"

	"mcpbridge/messages"
)

// entry is one decoded server with what later steps need to speak about it.
type entry struct {
	Server
	v   value
	own []field // what the entry itself says, without defaults
	// approved is set on the copy of a project's entry that a person has agreed to.
	approved bool
	// replaces is where the user's own entry stands that this one takes the place of.
	replaces string
	doc      *document
	at       map[string]value
	issues   []found
}

// structure checks the whole of an entry: its transport, and the ranges of its values.
func (e *entry) structure() {
	_, typed := e.at["type"]
	d := &decoder{server: e.Name, at: e.at, issues: e.issues}
	has := func(field string) bool { v, ok := e.at[field]; return ok && !v.inherited }
	if !typed {
		t, problem := inferType(has("command"), has("url"))
		if problem != "" {
			d.errorf(e.v, "%s", problem)
		}
		e.Type = t
	}
	if e.Type != "" {
		others := stdioFields
		if e.Type == Stdio {
			others = remoteFields
		}
		for _, f := range others {
			if has(f) {
				d.warnf(e.at[f], "has no effect: the server's type is %s", shownType(e.Type))
			}
		}
	}
	e.issues = d.issues
	e.Server.check(e.problem)
	e.Server.checkReferences(e.problem)
	e.dropOtherTransport()
	e.Server.checkText(e.problem)
}

// noteHow keeps what translation noted about the fields.
func (e *entry) noteHow() {
	for rel, v := range e.at {
		if how := e.doc.notes[v.node]; how != "" {
			if e.Notes == nil {
				e.Notes = map[string]string{}
			}
			e.Notes[rel] = how
		}
	}
}

// dropOtherTransport forgets the fields that a server's type has no use for.
func (e *entry) dropOtherTransport() {
	w := e.Written
	switch e.Type {
	case Stdio:
		w.URL, w.Headers = "", nil
	case HTTP, SSE, Auto:
		w.Command, w.Args, w.Env, w.Cwd = "", nil, nil, ""
		e.InheritEnv, e.InheritAll = nil, false
	}
	s := &e.Server
	s.Command, s.Args, s.Env, s.Cwd, s.URL, s.Headers = w.Command, w.Args, w.Env, w.Cwd, w.URL, w.Headers
}

// problem reports a fault under the position of its field, or of the nearest thing
// around it that was written.
func (e *entry) problem(field string, sev messages.Severity, msg string) {
	at, path := e.v, join2(e.v.path, field)
	for f := field; f != ""; f = parent(f) {
		if v, ok := e.at[f]; ok {
			if at = v; e.doc.dialect != nil && !v.inherited {
				path = v.path + field[len(f):] // the file has its own word for it
			}
			break
		}
	}
	at.path = path
	if field != "" && slices.ContainsFunc(e.issues, func(i found) bool { return i.Path == at.path && i.Severity == messages.SeverityError }) {
		return // the field has its fault already; this one follows from it
	}
	d := decoder{server: e.Name, issues: e.issues}
	d.report(at, sev, "%s", msg)
	e.issues = d.issues
}

// parent cuts the last step off a path.
func parent(p string) string {
	return p[:max(strings.LastIndexAny(p, ".["), 0)]
}

// join2 appends a path to a path.
func join2(base, rel string) string {
	if rel == "" {
		return base
	}
	return base + "." + rel
}

// firstError is the issue that makes the entry a config_error, nil if it is sound. It
// is shown under the server alone, so its message names the field by itself.
func (e *entry) firstError() *messages.Issue {
	for _, i := range e.issues {
		if i.Severity != messages.SeverityError {
			continue
		}
		issue := i.Issue
		issue.Server = e.Name
		if field := strings.TrimPrefix(issue.Path, e.v.path+"."); issue.Path != e.v.path {
			issue.Path, issue.Message = e.v.path, field+": "+issue.Message
		}
		return &issue
	}
	return nil
}

// unresolved reports a reference that gave nothing usable. The message names field
// and variable by itself, because it also stands alone in the server's status.
func (e *entry) unresolved(field, msg string) {
	at, ok := e.at[field]
	if !ok {
		at = e.v
	}
	at.path = e.v.path
	d := decoder{server: e.Name, issues: e.issues}
	d.errorf(at, "%s: %s", field, msg)
	e.issues = d.issues
}

// checkEmpty catches a command or URL whose references gave nothing.
func (e *entry) checkEmpty() {
	if e.Type == Stdio && e.Command == "" {
		e.unresolved("command", "is empty"+emptyBecause(e.Written.Command))
	}
	if e.Type != Stdio && e.URL == "" {
		e.unresolved("url", "is empty"+emptyBecause(e.Written.URL))
	}
}

func (e *entry) unresolvedAs(field string, sev messages.Severity, msg string) {
	if sev == messages.SeverityError {
		e.unresolved(field, msg)
	}
}
