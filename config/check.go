package config

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"mcpbridge/messages"
)

// CheckOptions say what `config check` looks at.
type CheckOptions struct {
	Load    LoadOptions
	Files   []string // each for itself; none = the layers, or Load.File
	Resolve bool     // also look up references, commands and directories, and ask the hosts of URLs
}

// CheckReport is `config check -o json`.
type CheckReport struct {
	Valid   bool             `json:"valid"`
	Servers []CheckedServer  `json:"servers"`
	Issues  []messages.Issue `json:"issues"`
}

// CheckedServer is one entry: OK says that it is well formed.
type CheckedServer struct {
	Name      string `json:"name"`
	OK        bool   `json:"ok"`
	Enabled   bool   `json:"enabled"`
	Transport string `json:"transport"` // stdio | http | sse; "" where it cannot be told
	Source    string `json:"source"`    // file:line:col
}

// Check reads configuration files as Load does and reports every entry and every
// problem; CheckOptions.Files may be of other tools, too. It starts nothing, and unless asked
// it looks at the files alone: a variable that is not set here is no fault of the file.
func Check(o CheckOptions) CheckReport {
	report := CheckReport{Servers: []CheckedServer{}, Issues: []messages.Issue{}}
	if len(o.Files) == 0 {
		report.add(o.Load, o.Resolve, false)
	}
	for _, f := range o.Files {
		one := o.Load
		one.File = f
		report.add(one, o.Resolve, true)
	}
	report.Valid = !slices.ContainsFunc(report.Issues, func(i messages.Issue) bool { return i.Severity == messages.SeverityError })
	return report
}

func (r *CheckReport) add(o LoadOptions, resolve, every bool) {
	l := newLoader(o, resolve)
	l.all = every
	cfg, err := l.run(o)
	if err != nil {
		var fe *FileError // run returns no other kind
		if errors.As(err, &fe) {
			r.Issues = append(r.Issues, fe.Issue())
		}
		return
	}
	r.Issues = append(r.Issues, cfg.Issues...)
	missing := map[string][]messages.Issue{}
	if resolve {
		missing = l.lookUp(cfg.Servers)
	}
	for i := range cfg.Servers {
		s := &cfg.Servers[i]
		r.Issues = append(r.Issues, missing[s.Name]...)
		r.Servers = append(r.Servers, CheckedServer{Name: s.Name, OK: s.Err == nil && len(missing[s.Name]) == 0,
			Enabled: s.Enabled, Transport: shownType(s.Type), Source: s.Source})
	}
}

// lookUp tests whether what the servers need exists: on this machine, and where a server
// is remote, whether its host answers.
func (l *loader) lookUp(servers []Server) map[string][]messages.Issue {
	out := map[string][]messages.Issue{}
	hidden := map[string]*Redactor{}
	for _, s := range servers {
		hidden[s.Name] = NewRedactor(s.Secrets)
	}
	fail := func(name, field, msg string) {
		e := l.entries[name]
		e.issues = nil
		e.problem(field, messages.SeverityError, hidden[name].String(msg)) // hosts and paths may be made of references
		out[name] = append(out[name], e.issues[0].Issue)
	}
	var urls, names []string
	for i := range servers {
		s := &servers[i]
		switch {
		case !s.Startable():
		case s.Remote():
			urls, names = append(urls, s.URL), append(names, s.Name)
		default:
			l.lookUpCommand(s, func(field, msg string) { fail(s.Name, field, msg) })
		}
	}
	for i, msg := range probes(urls) {
		if msg != "" {
			fail(names[i], "url", msg)
		}
	}
	return out
}

func (l *loader) lookUpCommand(s *Server, fail func(field, msg string)) {
	e := l.entries[s.Name]
	if st, err := os.Stat(s.Cwd); err != nil || !st.IsDir() {
		fail("cwd", "there is no such directory: "+cmp.Or(e.Written.Cwd, e.doc.base))
	}
	path, own := s.Env["PATH"]
	if !own {
		path, _ = l.env.lookup("PATH")
	}
	if !findCommand(s.Command, path, l.env.lookup) {
		where := ""
		if !strings.ContainsRune(s.Command, '/') {
			where = " in PATH=" + path
		}
		fail("command", quote(e.Written.Command)+" not found"+where+"; install it or give the full path")
	}
}

// findCommand looks a command up as the start of a server will.
func findCommand(name, path string, env func(string) (string, bool)) bool {
	suffixes := []string{""}
	if runtime.GOOS == "windows" {
		ext, _ := env("PATHEXT")
		suffixes = append(suffixes, strings.Split(strings.ToLower(cmp.Or(ext, ".com;.exe;.bat;.cmd")), ";")...)
	}
	dirs := filepath.SplitList(path)
	if strings.ContainsRune(name, '/') || strings.ContainsRune(name, filepath.Separator) {
		dirs, name = []string{filepath.Dir(name)}, filepath.Base(name)
	}
	for _, dir := range dirs {
		for _, x := range suffixes {
			st, err := os.Stat(filepath.Join(dir, name+x))
			if err == nil && st.Mode().IsRegular() && (runtime.GOOS == "windows" || st.Mode().Perm()&0o111 != 0) {
				return true
			}
		}
	}
	return false
}
