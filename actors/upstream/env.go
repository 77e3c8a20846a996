package upstream

import (
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"mcpbridge/actors/upstream/own"
	"mcpbridge/config"
)

// The marks that every process of a bridge carries. With both, what escaped its
// process group is still found.
const (
	envRun = own.RunVar
	envGen = own.GenVar
)

// baseEnv is what a server gets of the bridge's own environment without asking.
var baseEnv = []string{
	"PATH", "HOME", "LANG", "TZ", "TMPDIR", "USER",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS",
}

// windowsEnv is what most programs on Windows cannot start without.
var windowsEnv = []string{
	"SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "TEMP", "TMP",
	"USERPROFILE", "USERNAME", "HOMEDRIVE", "HOMEPATH", "APPDATA", "LOCALAPPDATA",
	"PROGRAMDATA", "PROGRAMFILES", "PROGRAMFILES(X86)", "PROGRAMW6432",
	"PROCESSOR_ARCHITECTURE", "NUMBER_OF_PROCESSORS",
}

// environment is a child's environment by name.
type environment map[string]string

// newEnvironment builds the environment of a server's process: the minimal base
// out of own (the bridge's environment as KEY=value), what the server inherits
// beyond it, and what is configured, which wins.
func newEnvironment(s config.Server, own []string, goos, stateDir, runID string, gen uint64) environment {
	env := environment{}
	for _, kv := range own {
		name, value, ok := strings.Cut(kv, "=")
		if ok && name != "" && inherits(s, name, goos) {
			env.set(name, value, goos)
		}
	}
	for name, value := range s.Env {
		env.set(name, value, goos)
	}
	if _, set := env["UV_CACHE_DIR"]; !set && stateDir != "" && isUV(s.Command) {
		env["UV_CACHE_DIR"] = filepath.Join(stateDir, "uv-cache")
	}
	env[envRun] = runID
	env[envGen] = strconv.FormatUint(gen, 10)
	return env
}

func inherits(s config.Server, name, goos string) bool {
	if s.InheritAll {
		return true
	}
	same := func(n string) bool { return n == name || goos == "windows" && strings.EqualFold(n, name) }
	return slices.ContainsFunc(baseEnv, same) || strings.HasPrefix(name, "LC_") ||
		goos == "windows" && slices.ContainsFunc(windowsEnv, same) ||
		slices.ContainsFunc(s.InheritEnv, same)
}

// set adds a variable; on Windows, where case does not tell names apart, the later
// spelling replaces the earlier one.
func (e environment) set(name, value, goos string) {
	if goos == "windows" {
		for k := range e {
			if strings.EqualFold(k, name) {
				delete(e, k)
			}
		}
	}
	e[name] = value
}

// get finds a variable, without regard to case on Windows.
func (e environment) get(name string) string {
	if v, ok := e[name]; ok || runtime.GOOS != "windows" {
		return v
	}
	for k, v := range e {
		if strings.EqualFold(k, name) {
			return v
		}
	}
	return ""
}

// list renders the environment for exec, sorted and never nil.
func (e environment) list() []string {
	out := make([]string, 0, len(e))
	for k, v := range e {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return out
}

// markers are the two entries by which a process of this incarnation is known.
func (e environment) markers() [][]byte {
	if e[envRun] == "" {
		return nil
	}
	return [][]byte{
		[]byte(envRun + "=" + e[envRun] + "\x00"),
		[]byte(envGen + "=" + e[envGen] + "\x00"),
	}
}

// programName is a command without its directory and extension, in lower case.
func programName(command string) string {
	b := strings.ToLower(filepath.Base(command))
	return strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(b, ".exe"), ".cmd"), ".bat")
}

// isUV reports whether the command is uv's own, which would fill the user's cache.
func isUV(command string) bool { n := programName(command); return n == "uv" || n == "uvx" }
