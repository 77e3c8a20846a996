package messages

import (
	"fmt"
	"strings"
)

// Stage says how far something came before it went wrong (requirement B3).
type Stage string

// The stages, in the order in which a server passes them.
const (
	StageConfig    Stage = "config"
	StageSpawn     Stage = "spawn"
	StageConnect   Stage = "connect"
	StageHandshake Stage = "handshake"
	StageListTools Stage = "list_tools"
	StageAdaptTool Stage = "adapt_tool"
	StageRegister  Stage = "register"
	StageRunning   Stage = "running"
)

// Severity of an issue.
type Severity string

// An error costs something (a layer, a server, a tool); a warning costs nothing.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
)

// Issue is one problem worth a person's attention. Configuration issues carry a
// position; the others carry a server and often a tool. Messages say what to do
// and never hold a secret.
type Issue struct {
	File     string   `json:"file"`
	Line     int      `json:"line"`   // from 1; 0 = unknown
	Column   int      `json:"column"` // from 1; 0 = unknown
	Path     string   `json:"path"`   // mcp_servers.fs.command
	Stage    Stage    `json:"stage"`
	Severity Severity `json:"severity"`
	Server   string   `json:"server"`
	Tool     string   `json:"tool"`
	Message  string   `json:"message"`
}

// String renders `file:line:col: path: message`, leaving out what is not known.
func (i Issue) String() string {
	var b strings.Builder
	if i.File != "" {
		b.WriteString(i.File)
		if i.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", i.Line, max(i.Column, 1))
		}
		b.WriteString(": ")
	}
	switch {
	case i.Path != "":
		b.WriteString(i.Path + ": ")
	case i.Server != "" && i.Tool != "":
		fmt.Fprintf(&b, "%s: %s: tool %q: ", i.Server, i.Stage, i.Tool)
	case i.Server != "":
		fmt.Fprintf(&b, "%s: %s: ", i.Server, i.Stage)
	}
	b.WriteString(i.Message)
	return b.String()
}
