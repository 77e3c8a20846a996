package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"gopkg.in/yaml.v3"

	"mcpbridge/messages"
)

// source is one place that configuration comes from.
type source struct {
	layer   Layer
	file    string // as messages show it
	base    string // of relative paths
	trusted bool   // the operator's own word
	must    bool   // its absence or breakage is Load's error
	text    []byte // the configuration itself, where it is in no file
	// foreign files are read besides our own format: JSON only, or all.
	json, all bool
}

// environment is what Load knows about the world, resolved once.
type environment struct {
	lookup    func(string) (string, bool)
	home      string
	workspace string
	goos      string // "" = the one that runs
}

func (o LoadOptions) environment() environment {
	e := environment{lookup: o.Env, home: o.Home}
	if e.lookup == nil {
		e.lookup = os.LookupEnv
	}
	if e.home == "" {
		e.home, _ = e.lookup("HOME")
	}
	if e.home == "" && o.Env == nil {
		e.home, _ = os.UserHomeDir() // without a home there is no user layer
	}
	e.workspace = absolute(o.Workspace)
	return e
}

// absolute makes a path absolute where the current directory is known.
func absolute(p string) string {
	if a, err := filepath.Abs(p); err == nil {
		return a
	}
	return p
}

// serversVariable holds servers as JSON.
const serversVariable = "MCP_SERVERS"

// projectJSON are the files of other tools that are read in a workspace, lowest
// precedence first.
var projectJSON = []string{"mcp.json", ".mcp.json", "mcp_servers.json"}

// sources lists the places to read, lowest precedence first (requirement A6).
func (o LoadOptions) sources(e environment) []source {
	if o.File != "" {
		return []source{{layer: LayerFile, file: o.File, base: baseOf(o.File), trusted: true, must: true, json: true, text: o.text}}
	}
	var out []source
	if dir := e.userDir(); dir != "" {
		out = append(out, source{layer: LayerUser, file: filepath.Join(dir, "config.yaml"), base: dir, trusted: true})
	}
	for _, name := range projectJSON {
		out = append(out, source{layer: LayerProjectJSON, file: filepath.Join(e.workspace, name), base: e.workspace, trusted: o.TrustProject, json: true})
	}
	out = append(out, source{layer: LayerProject, file: filepath.Join(e.workspace, ".mcpbridge", "config.yaml"),
		base: e.workspace, trusted: o.TrustProject})
	if v, ok := e.lookup(serversVariable); ok && v != "" {
		out = append(out, source{layer: LayerEnv, file: serversVariable, base: e.workspace, trusted: true, json: true, text: []byte(v)})
	}
	return out
}

// toolFolders hold a project's configuration of one tool each: what is relative in it
// starts at the folder around them.
var toolFolders = []string{".vscode", ".cursor", ".roo", ".kilocode", ".kiro", ".amazonq", ".gemini", ".qwen", ".codex", ".zed", ".claude"}

// baseOf is where the relative paths of a file begin.
func baseOf(file string) string {
	dir := filepath.Dir(absolute(file))
	for d, up := dir, 0; up < 2; d, up = filepath.Dir(d), up+1 {
		if slices.Contains(toolFolders, filepath.Base(d)) && (up == 0 || filepath.Base(dir) == "settings") {
			return filepath.Dir(d)
		}
	}
	return dir
}

// userDir is the folder of the user layer, "" where there is none.
func (e environment) userDir() string {
	if x, ok := e.lookup("XDG_CONFIG_HOME"); ok && filepath.IsAbs(x) {
		return filepath.Join(x, "mcpbridge") // the XDG standard says to ignore a relative one
	}
	if e.home == "" {
		return ""
	}
	return filepath.Join(e.home, ".config", "mcpbridge")
}

// UserFile is the user layer's file, whether it exists or not; "" without a home.
func (o LoadOptions) UserFile() string {
	dir := o.environment().userDir()
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, "config.yaml")
}

// read parses a source. found is false where the file does not exist. A warning
// comes beside the document.
func (s source) read() (doc *document, found bool, warning *messages.Issue, failure *FileError) {
	data, world, err := s.bytes()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, false, nil, &FileError{File: s.file, Message: "there is no such file", Err: err}
	case err != nil:
		return nil, true, nil, &FileError{File: s.file, Message: "cannot be read: " + plainPath(err).Error(), Err: err}
	}
	if world {
		warning = &messages.Issue{File: s.file, Stage: messages.StageConfig, Severity: messages.SeverityWarning,
			Message: "everybody on this machine can change this file, and it decides what is run; chmod o-w it"}
	}
	doc, failure = s.parse(data)
	return doc, true, warning, failure
}

// parse reads the text of a source, whatever format it has, into a document.
func (s source) parse(data []byte) (*document, *FileError) {
	data, failure := plainText(s.file, data)
	if failure != nil {
		return nil, failure
	}
	f := formatYAML
	switch {
	case s.layer == LayerEnv:
		f = formatJSON
	case s.json || s.all:
		f = formatOf(s.file, data)
	}
	var root *yaml.Node
	switch f {
	case formatJSON:
		root, failure = parseJSON(s.file, data)
	case formatTOML:
		root, failure = parseTOML(s.file, data)
	default:
		root, failure = parseYAML(s.file, data)
	}
	if failure != nil {
		return nil, failure
	}
	return &document{source: s, root: root, format: f}, nil
}

// bytes reads the file, no more of it than a configuration may have, and tells
// whether everybody may write to it.
func (s source) bytes() (data []byte, world bool, err error) {
	if s.text != nil {
		return s.text, false, nil
	}
	st, err := os.Stat(s.file)
	if err != nil {
		return nil, false, err
	}
	if st.IsDir() {
		return nil, false, errors.New("it is a directory")
	}
	if !st.Mode().IsRegular() && !s.must {
		return nil, false, fmt.Errorf("it is not a regular file") // a pipe in a workspace would hang the start
	}
	f, err := os.Open(s.file)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	data, err = io.ReadAll(io.LimitReader(f, maxFileSize+1))
	return data, runtime.GOOS != "windows" && st.Mode().IsRegular() && st.Mode().Perm()&0o002 != 0, err
}
