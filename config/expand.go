package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// neverRun is said of a reference that another tool would run a command for.
const neverRun = "${cmd:…} and $(…) run a command in other tools and are never run here: put what it prints into a variable or a file, and write ${NAME} or ${file:/path}"

// maxSecretFile bounds what ${file:…} reads.
const maxSecretFile = 64 << 10

// expander replaces references by what they stand for and remembers the values.
type expander struct {
	env    func(string) (string, bool)
	home   string
	base   string   // of relative ${file:…} paths
	values []string // every value that a reference gave
}

// expand replaces the references of one text. The error names the variable or file
// only, never a value.
func (e *expander) expand(s string) (string, error) {
	segs, err := split(s)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, g := range segs {
		if g.ref == nil {
			b.WriteString(g.lit)
			continue
		}
		v, err := e.lookup(g.ref)
		if err != nil {
			return "", err
		}
		e.values = append(e.values, v)
		b.WriteString(v)
	}
	return b.String(), nil
}

func (e *expander) lookup(r *reference) (string, error) {
	if r.file != "" {
		return e.readFile(r.file)
	}
	if r.runs {
		return "", errors.New(neverRun)
	}
	v, ok := e.env(r.name)
	if r.hasDef && v == "" {
		return r.def, nil
	}
	if !ok && r.input != "" {
		return "", fmt.Errorf("%s is not set: it answers ${input:%s}, which nobody is there to ask for", r.name, r.input)
	}
	if !ok {
		return "", fmt.Errorf("%s is not set", r.name)
	}
	return v, nil
}

// readFile reads a secret from a file and drops the line break at its end. Only
// regular files are read: a pipe or a device could hang the start.
func (e *expander) readFile(name string) (string, error) {
	p := resolvePath(name, e.base, e.home)
	st, err := os.Stat(p)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, plainPath(err))
	}
	if !st.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", name)
	}
	f, err := os.Open(p)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, plainPath(err))
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSecretFile+1))
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, plainPath(err))
	}
	if len(b) > maxSecretFile {
		return "", fmt.Errorf("%s is larger than %s", name, formatSize(maxSecretFile))
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r"), nil
}

// plainPath takes the path out of a file error whose message names it already.
func plainPath(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}

// resolvePath makes a path absolute: `~/` is the home directory, everything else
// that is relative starts at base.
func resolvePath(p, base, home string) string {
	if rest, ok := strings.CutPrefix(p, "~/"); ok && home != "" {
		return filepath.Join(home, rest)
	}
	if filepath.IsAbs(p) {
		return filepath.Clean(p)
	}
	return filepath.Join(base, p)
}

// texts visits every text of a server that may hold references, in a fixed order,
// with the field's name as messages give it.
func (w *Written) texts(visit func(field, text string)) {
	visit("command", w.Command)
	for i, a := range w.Args {
		visit(fmt.Sprintf("args[%d]", i), a)
	}
	for _, k := range slices.Sorted(maps.Keys(w.Env)) {
		visit(join("env", k), w.Env[k])
	}
	visit("cwd", w.Cwd)
	visit("url", w.URL)
	for _, k := range slices.Sorted(maps.Keys(w.Headers)) {
		visit(join("headers", k), w.Headers[k])
	}
}

// expandServer fills the server's fields from what was written. Each failure is
// reported under its field; all of them are.
func (e *expander) expandServer(s *Server, fail func(field, msg string)) {
	one := func(field, text string) string {
		if _, err := split(text); err != nil {
			return text // reported with the rest of the entry's form
		}
		v, err := e.expand(text)
		if err != nil {
			fail(field, err.Error())
		}
		return v
	}
	w := s.Written
	s.Command, s.Cwd, s.URL = one("command", w.Command), one("cwd", w.Cwd), one("url", w.URL)
	s.Args = make([]string, len(w.Args))
	for i, a := range w.Args {
		s.Args[i] = one(fmt.Sprintf("args[%d]", i), a)
	}
	each := func(name string, from map[string]string) map[string]string {
		to := make(map[string]string, len(from))
		for _, k := range slices.Sorted(maps.Keys(from)) {
			to[k] = one(join(name, k), from[k])
		}
		return to
	}
	s.Env, s.Headers = each("env", w.Env), each("headers", w.Headers)
}

// resolvePaths makes cwd and a command with a slash absolute, unless a reference in
// them is still to be expanded.
func (e *expander) resolvePaths(s *Server) {
	pending := func(now, written string) bool { return now == written && hasReference(written) }
	if !pending(s.Cwd, s.Written.Cwd) {
		s.Cwd = resolvePath(s.Cwd, e.base, e.home)
	}
	if !pending(s.Command, s.Written.Command) &&
		(strings.ContainsRune(s.Command, '/') || strings.ContainsRune(s.Command, filepath.Separator)) {
		s.Command = resolvePath(s.Command, e.base, e.home)
	}
}
