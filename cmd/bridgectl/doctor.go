package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mcpbridge/config"
	"mcpbridge/messages"
	"mcpbridge/supervisor/control"
	"mcpbridge/supervisor/daemon"
)

// diagnosis is `doctor -o json`.
type diagnosis struct {
	OK       bool         `json:"ok"`
	Version  string       `json:"version"`
	Go       string       `json:"go"`
	OS       string       `json:"os"`
	Arch     string       `json:"arch"`
	Checks   []check      `json:"checks"`
	Programs []program    `json:"programs"`
	Servers  []serverCare `json:"servers"`
	// Processes is how processes are owned: by the bridge that runs, else by one that would
	// be started from here.
	Processes messages.Ownership `json:"processes"`
	Issues    []messages.Issue   `json:"issues"`
}

type check struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Text string `json:"text"`
}

// program is something that servers are often started with.
type program struct {
	Name    string `json:"name"`
	Path    string `json:"path"`
	Version string `json:"version"`
}

// serverCare says what is promised about a server's processes on this system.
type serverCare struct {
	Name      string   `json:"name"`
	Transport string   `json:"transport"`
	Rung      string   `json:"rung"`    // cgroup, subreaper, markers, group or job; "" for remote servers
	Command   string   `json:"command"` // the program found, "" for remote servers
	Ownership []string `json:"ownership"`
}

func (a *app) doctorCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Report on the environment",
		Long: `Report on the environment: versions, paths, state directory, control socket, the
programs that servers are often started with, and per server what is promised about
its processes on this system. The report holds no secrets and can be pasted into a
bug report. It starts no server.

Exit codes: 0 nothing is wrong · 1 a check failed.`,
		Example: "  bridgectl doctor\n  bridgectl doctor -o json",
		Args:    cobra.NoArgs,
	}
	load := a.loadFlags(cmd)
	out := outputFlag(cmd, "text", "json")
	cmd.RunE = func(*cobra.Command, []string) error {
		d := a.diagnose(*load)
		if out.value == "json" {
			if err := a.out.json(d); err != nil {
				return err
			}
		} else {
			a.out.diagnosis(d)
		}
		if !d.OK {
			return exitWith(exitFailure)
		}
		return nil
	}
	return cmd
}

func (a *app) diagnose(load config.LoadOptions) diagnosis {
	d := diagnosis{Version: buildVersion(), Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH,
		Programs: []program{}, Servers: []serverCare{}, Issues: []messages.Issue{}}
	add := func(name string, ok bool, format string, args ...any) {
		d.Checks = append(d.Checks, check{name, ok, fmt.Sprintf(format, args...)})
	}
	exe, err := os.Executable()
	add("bridgectl", err == nil, "%s", orElse(exe, "unknown"))

	dir, err := daemon.StateDir(a.stateDir, a.env)
	if err != nil {
		add("state directory", false, "%v", err)
	} else {
		ok, text := stateDirCheck(dir)
		add("state directory", ok, "%s", text)
	}
	path := control.Path(a.control, dir, a.env)
	add("control socket", true, "%s", path)
	text, running := askDaemon(path)
	add("daemon", true, "%s", text)
	if running != nil && running.TokenFile != "" {
		ok, text := tokenCheck(running.TokenFile)
		add("token file", ok, "%s", text)
	}
	add("PATH", true, "%s", os.Getenv("PATH"))

	cfg, err := config.Load(load)
	if err != nil {
		add("configuration", false, "%v", err)
	} else {
		read := orElse(strings.Join(cfg.Files, ", "), "no file; `bridgectl config init -w` writes "+orElse(load.UserFile(), "one"))
		add("configuration", true, "%s", read)
		d.Issues = append(d.Issues, cfg.Issues...)
	}
	var whose string
	if d.Processes, whose, err = a.processes(path, cfg); err != nil {
		add("processes", false, "%v", err)
	} else {
		add("processes", d.Processes.Guardian != "down", "%s: %s", whose, ownershipLine(d.Processes))
	}
	if cfg != nil {
		for _, s := range cfg.Servers {
			d.Servers = append(d.Servers, care(s, d.Processes))
		}
	}
	for _, name := range []string{"node", "npx", "uv", "uvx", "python3", "docker"} {
		d.Programs = append(d.Programs, findProgram(name))
	}
	d.OK = true
	for _, c := range d.Checks {
		d.OK = d.OK && c.OK
	}
	for _, i := range d.Issues {
		d.OK = d.OK && i.Severity != messages.SeverityError
	}
	return d
}

func stateDirCheck(dir string) (ok bool, text string) {
	fi, err := os.Lstat(dir)
	switch {
	case os.IsNotExist(err):
		return true, dir + " (not there yet: the first start makes it)"
	case err != nil:
		return false, err.Error()
	case fi.Mode()&os.ModeSymlink != 0:
		return false, dir + " is a symbolic link, which a bridge refuses"
	case !fi.IsDir():
		return false, dir + " is no directory"
	case runtime.GOOS != "windows" && fi.Mode().Perm()&0o077 != 0:
		return false, fmt.Sprintf("%s is open to others (mode %04o): chmod 700 %s", dir, fi.Mode().Perm(), dir)
	default:
		return true, fmt.Sprintf("%s (mode %04o)", dir, fi.Mode().Perm())
	}
}

// askDaemon tells who answers; running is nil when nobody does.
func askDaemon(path string) (text string, running *control.Version) {
	c := control.NewClient(path)
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), askBriefly)
	defer cancel()
	v, err := c.Version(ctx)
	if err != nil {
		return "none answers: " + err.Error(), nil
	}
	return fmt.Sprintf("version %s, pid %d, up %s, %s", v.Version, v.PID, short(time.Since(v.Started)), v.URL), &v
}

// tokenCheck looks whether clients can still read the token that the running bridge asks for.
func tokenCheck(path string) (ok bool, text string) {
	fi, err := os.Lstat(path)
	switch {
	case os.IsNotExist(err):
		return false, path + " is gone: clients that know the token go on, new ones need a restart of the bridge, which makes another"
	case err != nil:
		return false, err.Error()
	case !fi.Mode().IsRegular():
		return false, path + " is no regular file: remove it and restart the bridge, which makes a new token"
	case runtime.GOOS != "windows" && fi.Mode().Perm()&0o077 != 0:
		return false, fmt.Sprintf("%s is open to others (mode %04o): remove it and restart the bridge for a new token", path, fi.Mode().Perm())
	default:
		return true, path
	}
}

// findProgram looks in PATH and asks for the version.
func findProgram(name string) program {
	p := program{Name: name}
	path, err := exec.LookPath(name)
	if err != nil {
		return p
	}
	p.Path = path
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.WaitDelay = time.Second
	if out, err := cmd.Output(); err == nil {
		p.Version, _, _ = strings.Cut(strings.TrimSpace(string(out)), "\n")
	}
	return p
}
