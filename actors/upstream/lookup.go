package upstream

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"mcpbridge/actors/upstream/own"
)

// commandError says why a command cannot be started and what to do about it. It is
// permanent: trying again cannot help.
type commandError struct {
	reason string
	hint   string
	err    error
}

func (e *commandError) Error() string { return e.reason }
func (e *commandError) Unwrap() error { return e.err }

// lookCommand finds a program in the PATH of the environment that the child will
// have, not in the bridge's own. Names with a separator are relative to cwd.
func lookCommand(command, cwd string, env environment) (string, error) {
	if strings.TrimSpace(command) == "" {
		return "", &commandError{reason: "no command is configured", hint: "set command to the program that runs the server", err: fs.ErrNotExist}
	}
	if strings.ContainsRune(command, filepath.Separator) || strings.Contains(command, "/") {
		file := command
		if !filepath.IsAbs(file) {
			file = filepath.Join(cwd, file)
		}
		found, err := findExecutable(file, env)
		if err == nil {
			return found, nil
		}
		return "", notFound(fmt.Sprintf("%s: %s", file, plainReason(err)), command, err)
	}
	var denied error
	path := env.get("PATH")
	for _, dir := range filepath.SplitList(path) {
		if dir == "" {
			continue // an empty entry would mean the working directory
		}
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(cwd, dir)
		}
		found, err := findExecutable(filepath.Join(dir, command), env)
		if err == nil {
			return found, nil
		}
		if errors.Is(err, fs.ErrPermission) && denied == nil {
			denied = fmt.Errorf("%s: %w", filepath.Join(dir, command), err)
		}
	}
	if denied != nil {
		return "", notFound(fmt.Sprintf("%s is there but not executable (%v)", command, denied), command, denied)
	}
	return "", notFound(fmt.Sprintf("%s not found in PATH=%s", command, path), command, fs.ErrNotExist)
}

// findExecutable checks one candidate; on Windows it tries the extensions of PATHEXT.
func findExecutable(file string, env environment) (string, error) {
	if runtime.GOOS != "windows" {
		return file, checkExecutable(file)
	}
	exts := strings.Split(env.get("PATHEXT"), ";")
	if env.get("PATHEXT") == "" {
		exts = []string{".com", ".exe", ".bat", ".cmd"}
	}
	if filepath.Ext(file) != "" {
		exts = append([]string{""}, exts...)
	}
	err := fs.ErrNotExist
	for _, ext := range exts {
		if e := checkExecutable(file + ext); e == nil {
			return file + ext, nil
		} else if !errors.Is(e, fs.ErrNotExist) {
			err = e
		}
	}
	return "", err
}

func checkExecutable(file string) error {
	st, err := os.Stat(file)
	if err != nil {
		return err
	}
	if st.IsDir() {
		return fmt.Errorf("is a directory: %w", fs.ErrPermission)
	}
	if runtime.GOOS != "windows" && st.Mode().Perm()&0o111 == 0 {
		return fs.ErrPermission
	}
	return nil
}

func notFound(reason, command string, err error) error {
	return &commandError{reason: reason, hint: installHint(command, err), err: err}
}

func plainReason(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "no such file or directory"
	case errors.Is(err, fs.ErrPermission):
		return "not an executable file"
	default:
		return err.Error()
	}
}

// installHint says what brings a missing command.
func installHint(command string, err error) string {
	if errors.Is(err, fs.ErrPermission) {
		return "make the file executable (chmod +x) or give the interpreter as command"
	}
	switch programName(command) {
	case "npx", "npm", "node":
		return "install Node.js or give the full path of " + command
	case "uv", "uvx":
		return "install uv (docs.astral.sh/uv) or give the full path of " + command
	case "python", "python3", "pip", "pipx":
		return "install Python 3 or give the full path of " + command
	case "docker", "podman":
		return "install " + command + " or give its full path"
	case "bun", "bunx":
		return "install Bun or give the full path of " + command
	case "deno":
		return "install Deno or give the full path of " + command
	default:
		return "install it, give its full path, or set PATH in the server's env"
	}
}

// startError classifies what the system said when the process should start.
func startError(err error, path, cwd string) error {
	if st, cerr := os.Stat(cwd); cwd != "" && (cerr != nil || !st.IsDir()) {
		// The system reports a missing directory as if the program were missing.
		reason := "not a directory"
		if cerr != nil {
			reason = plainReason(cerr)
		}
		return &commandError{reason: fmt.Sprintf("working directory %s: %s", cwd, reason),
			hint: "create the directory or change cwd", err: err}
	}
	switch {
	case own.IsLimits(err):
		return &commandError{reason: err.Error(), hint: "change or remove the entry under limits", err: err}
	case errors.Is(err, fs.ErrNotExist):
		return &commandError{reason: path + " is there, but the interpreter in its first line is not",
			hint: "correct the #! line or give the interpreter as command", err: err}
	case errors.Is(err, fs.ErrPermission):
		return &commandError{reason: path + ": permission denied", hint: "check the rights of the file and of its directories", err: err}
	case errors.Is(err, syscall.ENOEXEC):
		return &commandError{reason: path + " is no program that this system can run",
			hint: "a script needs a #! line; a binary must be built for this machine", err: err}
	case errors.Is(err, syscall.E2BIG):
		return &commandError{reason: "arguments and environment are too long", hint: "shorten args and env", err: err}
	default:
		return err // short of memory, descriptors or processes: worth another try
	}
}
