package harness

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Marker is the environment variable that every process of a bridge carries.
const Marker = "MCPBRIDGE_RUN"

// guardVerb is how a guardian is told from any other bridgectl.
const guardVerb = "guard-processes"

// Proc is a process as /proc shows it. Started tells it from a later process with
// the same id.
type Proc struct {
	PID, PPID int
	State     string
	Started   string
	Cmd       string
}

// String names the process for a failure.
func (p Proc) String() string {
	return fmt.Sprintf("pid %d (parent %d, %s): %s", p.PID, p.PPID, p.State, p.Cmd)
}

// Alive reports whether this very process still runs; a zombie does not.
func (p Proc) Alive() bool {
	now, ok := Process(p.PID)
	return ok && now.Started == p.Started && now.State != "Z" && now.State != "X"
}

// Kill ends the process with SIGKILL if it still is the same one.
func (p Proc) Kill() {
	if p.Alive() {
		if proc, err := os.FindProcess(p.PID); err == nil {
			_ = proc.Kill()
		}
	}
}

// Process looks one process up; ok is false when there is none (or no /proc).
func Process(pid int) (Proc, bool) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return Proc{}, false
	}
	// The name stands in brackets and may hold anything: count from the last one.
	i := bytes.LastIndexByte(stat, ')')
	f := strings.Fields(string(stat[i+1:]))
	if i < 0 || len(f) < 20 {
		return Proc{}, false
	}
	cmd, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
	ppid, _ := strconv.Atoi(f[1])
	return Proc{PID: pid, PPID: ppid, State: f[0], Started: f[19], Cmd: strings.ReplaceAll(strings.TrimRight(string(cmd), "\x00"), "\x00", " ")}, true
}

// Processes lists what runs now, zombies left out.
func Processes() []Proc {
	entries, _ := os.ReadDir("/proc")
	var out []Proc
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, ok := Process(pid); ok && p.State != "Z" {
			out = append(out, p)
		}
	}
	return out
}

// Marked lists the live processes that carry the run's marker, wherever they hang
// in the process tree.
func Marked(runID string) []Proc {
	var out []Proc
	for _, p := range Processes() {
		env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.PID), "environ"))
		if err != nil {
			continue
		}
		for kv := range bytes.SplitSeq(env, []byte{0}) {
			if string(kv) == Marker+"="+runID {
				out = append(out, p)
				break
			}
		}
	}
	return out
}

// Named lists the live processes with this text in their command line.
func Named(text string) []Proc {
	var out []Proc
	for _, p := range Processes() {
		if strings.Contains(p.Cmd, text) && p.PID != os.Getpid() {
			out = append(out, p)
		}
	}
	return out
}

// Guardians lists the live guardians of the daemons of this world.
func (w *World) Guardians() []Proc {
	var out []Proc
	for _, p := range Named(guardVerb) {
		env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.PID), "environ"))
		if err == nil && bytes.Contains(append(env, 0), []byte("TMPDIR="+filepath.Join(w.Home, "tmp")+"\x00")) {
			out = append(out, p)
		}
	}
	return out
}

// Tree lists a process and everything below it.
func Tree(pid int) []Proc {
	all := Processes()
	children := map[int][]Proc{}
	var out []Proc
	for _, p := range all {
		children[p.PPID] = append(children[p.PPID], p)
		if p.PID == pid {
			out = append(out, p)
		}
	}
	for i := 0; i < len(out); i++ {
		out = append(out, children[out[i].PID]...)
	}
	return out
}

// AliveOf keeps those that still run.
func AliveOf(procs []Proc) []Proc {
	var out []Proc
	for _, p := range procs {
		if p.Alive() {
			out = append(out, p)
		}
	}
	return out
}
