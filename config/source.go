package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"mcpbridge/messages"
)

// source is one place that configuration comes from.
type source struct {
	layer   Layer
	file    string // as messages show it
	base    string // of relative paths
	trusted bool   // the operator's own word
	must    bool   // its absence or breakage is Load's error
}

// environment is what Load knows about the world, resolved once.
type environment struct {
	lookup    func(string) (string, bool)
	home      string
	workspace string
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

// sources lists the places to read, lowest precedence first (requirement A6).
func (o LoadOptions) sources(e environment) []source {
	if o.File != "" {
		return []source{{layer: LayerFile, file: o.File, base: filepath.Dir(absolute(o.File)), trusted: true, must: true}}
	}
	var out []source
	if dir := e.userDir(); dir != "" {
		out = append(out, source{layer: LayerUser, file: filepath.Join(dir, "config.yaml"), base: dir, trusted: true})
	}
	return append(out, source{layer: LayerProject, file: filepath.Join(e.workspace, ".mcpbridge", "config.yaml"),
		base: e.workspace, trusted: o.TrustProject})
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
	root, failure := parseYAML(s.file, data)
	if failure != nil {
		return nil, true, warning, failure
	}
	return &document{source: s, root: root}, true, warning, nil
}

// bytes reads the file, no more of it than a configuration may have, and tells
// whether everybody may write to it.
func (s source) bytes() (data []byte, world bool, err error) {
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
