package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// Difference is what lies between two configurations. It holds no secret.
type Difference struct {
	Added    []string       `json:"added"`   // servers, by name
	Removed  []string       `json:"removed"` // servers, by name
	Changed  []ServerChange `json:"changed"`
	Settings []Change       `json:"settings"` // beside the servers
}

// ServerChange is what changed in one server. Process says that what is started or
// connected to is another one; without it, a running process could go on.
type ServerChange struct {
	Server  string   `json:"server"`
	Process bool     `json:"process"`
	Changes []Change `json:"changes"`
}

// Change is one value. Both sides are as `config show` prints them, so that two secrets
// that differ look alike.
type Change struct {
	Path string `json:"path"`
	Old  string `json:"old"`
	New  string `json:"new"`
}

// String renders `path: old → new`.
func (c Change) String() string {
	none := func(s string) string {
		if s == "" {
			return "(nothing)"
		}
		return s
	}
	if c.Old == c.New {
		return c.Path + ": another value, not shown"
	}
	return c.Path + ": " + none(c.Old) + " → " + none(c.New)
}

// Empty reports whether both configurations do the same.
func (d Difference) Empty() bool {
	return len(d.Added)+len(d.Removed)+len(d.Changed)+len(d.Settings) == 0
}

// Diff tells what changes when a bridge goes from one configuration to another. Both are
// as Load returns them, or normalized.
func Diff(old, now *Config) Difference {
	d := Difference{Added: []string{}, Removed: []string{}, Changed: []ServerChange{}, Settings: []Change{}}
	before, after := byName(old), byName(now)
	for _, name := range slices.Sorted(maps.Keys(after)) {
		was, known := before[name]
		if !known {
			d.Added = append(d.Added, name)
		} else if c := diffServer(was, after[name]); len(c.Changes) > 0 {
			d.Changed = append(d.Changed, c)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, stays := after[name]; !stays {
			d.Removed = append(d.Removed, name)
		}
	}
	d.Settings = append(d.Settings, compare(settings(old), settings(now))...)
	return d
}

func byName(c *Config) map[string]*Server {
	out := make(map[string]*Server, len(c.Servers))
	for i := range c.Servers {
		out[c.Servers[i].Name] = &c.Servers[i]
	}
	return out
}

// processFields begin the paths of what makes a process or connection what it is.
var processFields = []string{"type", "command", "args", "env", "inherit_env", "cwd", "url", "headers", "state", "health"}

// processLimits are those limits that a process or connection is begun with.
var processLimits = []string{"limits.frame_bytes", "limits.tools", "limits.pages", "limits.nofile", "limits.memory", "limits.pids"}

func diffServer(was, is *Server) ServerChange {
	c := ServerChange{Server: is.Name, Changes: compare(serverValues(was), serverValues(is))}
	for _, x := range c.Changes {
		first := x.Path[:strings.IndexAny(x.Path+".", ".[")]
		c.Process = c.Process || slices.Contains(processFields, first) || slices.Contains(processLimits, x.Path)
	}
	return c
}

// shownValue is a value, and how it may be shown.
type shownValue struct{ real, shown string }

// serverValues lists a server's values by path: all that is shown, and beneath it what
// the references stand for.
func serverValues(s *Server) map[string]shownValue {
	out := map[string]shownValue{}
	flatten("", (&shower{}).server(s), out)
	keep := func(path, real string) {
		v := out[path]
		v.real = real
		out[path] = v
	}
	keep("command", s.Command)
	keep("cwd", s.Cwd)
	keep("url", s.URL)
	for i, a := range s.Args {
		keep("args["+strconv.Itoa(i)+"]", a)
	}
	for k, v := range s.Env {
		keep(join("env", k), v)
	}
	for k, v := range s.Headers {
		keep(join("headers", k), v)
	}
	state := ""
	switch {
	case s.Err != nil:
		state = "config_error: " + s.Err.Message
	case s.Blocked != "":
		state = "blocked: " + s.Blocked
	}
	out["state"] = shownValue{state, state}
	return out
}

func settings(c *Config) map[string]shownValue {
	s, root := &shower{}, mapping()
	s.put(root, "", "enabled", boolean(c.Enabled))
	if c.HasPermissions {
		s.block(root, "permissions", s.rules(c.Permissions))
	}
	s.block(root, "project_permissions", s.rules(c.ProjectRules))
	s.sections(root, c)
	out := map[string]shownValue{}
	flatten("", root, out)
	return out
}

// flatten lists the scalars below a node; an empty block counts as one.
func flatten(path string, n *yaml.Node, out map[string]shownValue) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			flatten(join(path, n.Content[i].Value), n.Content[i+1], out)
		}
	case yaml.SequenceNode:
		for i, c := range n.Content {
			flatten(path+"["+strconv.Itoa(i)+"]", c, out)
		}
	default:
		out[path] = shownValue{n.Value, n.Value}
	}
}

func compare(was, is map[string]shownValue) (out []Change) {
	paths := map[string]bool{}
	for p := range was {
		paths[p] = true
	}
	for p := range is {
		paths[p] = true
	}
	for _, p := range slices.Sorted(maps.Keys(paths)) {
		if was[p].real != is[p].real || was[p].shown != is[p].shown {
			out = append(out, Change{Path: p, Old: was[p].shown, New: is[p].shown})
		}
	}
	return out
}

// Lines renders a difference for people, one change a line.
func (d Difference) Lines() (out []string) {
	for _, s := range d.Added {
		out = append(out, "+ "+s)
	}
	for _, s := range d.Removed {
		out = append(out, "- "+s)
	}
	for _, c := range d.Changed {
		how := "goes on as it is"
		if c.Process {
			how = "starts anew"
		}
		out = append(out, fmt.Sprintf("~ %s (%s)", c.Server, how))
		for _, x := range c.Changes {
			out = append(out, "    "+x.String())
		}
	}
	for _, x := range d.Settings {
		out = append(out, "  "+x.String())
	}
	return out
}
