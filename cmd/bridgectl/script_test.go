//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// patience is how long a script waits for something that certainly comes.
const patience = 30 * time.Second

func TestMain(m *testing.M) {
	// Under the race detector every process would linger for a second at its end.
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	testscript.Main(m, map[string]func(){"bridgectl": main})
}

// TestScripts runs the real program, built into this test binary, with daemons of
// its own. Each script has its own home and state directory.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			home := filepath.Join(e.WorkDir, "home")
			run := filepath.Join(e.WorkDir, "run")
			e.Setenv("HOME", home)
			e.Setenv("GORACE", os.Getenv("GORACE"))
			e.Setenv("XDG_RUNTIME_DIR", run)
			e.Setenv("XDG_STATE_HOME", "")
			e.Setenv("XDG_CONFIG_HOME", "")
			e.Setenv("MCPBRIDGE_CONTROL", "")
			e.Setenv("STATE", filepath.Join(home, ".local", "state", "mcpbridge"))
			return errors.Join(os.Mkdir(home, 0o700), os.Mkdir(run, 0o700))
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":       cmdExits,
			"await":       cmdAwait,
			"lines":       cmdLines,
			"jsoneq":      cmdJSON,
			"gone":        cmdGone,
			"signal":      cmdSignal,
			"occupy":      cmdOccupy,
			"get":         cmdGet,
			"interact":    cmdInteract,
			"callid":      cmdCallID,
			"joined":      cmdJoined,
			"childpid":    cmdChildPID,
			"interrupted": cmdInterrupted,
			"base":        cmdBase,
			"draining":    cmdDraining,
			"daemonpid":   cmdDaemonPID,
			"abandoned":   cmdAbandoned,
			"setid":       cmdSetID,
		},
	})
}

// exits CODE command…: the command must end with that code.
func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE command…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func eventually(ts *testscript.TestScript, what string, f func() bool) {
	for end := time.Now().Add(patience); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			ts.Fatalf("timeout: %s", what)
		}
	}
}

// await FILE [VAR=field…]: wait for a file; fields of its JSON go into variables.
func cmdAwait(ts *testscript.TestScript, _ bool, args []string) {
	path := ts.MkAbs(args[0])
	eventually(ts, "no file "+path, func() bool { _, err := os.Stat(path); return err == nil })
	if len(args) == 1 {
		return
	}
	var v map[string]any
	b, err := os.ReadFile(path)
	ts.Check(err)
	ts.Check(json.Unmarshal(b, &v))
	for _, a := range args[1:] {
		name, field, _ := strings.Cut(a, "=")
		value := fmt.Sprint(v[field])
		if f, ok := v[field].(float64); ok {
			value = strconv.Itoa(int(f))
		}
		ts.Setenv(name, value)
	}
}

// lines stdout|stderr N: the last command wrote that many lines.
func cmdLines(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[1])
	ts.Check(err)
	if got := strings.Count(ts.ReadFile(args[0]), "\n"); (got == want) == neg {
		ts.Fatalf("%d lines, want %d (negated: %v)", got, want, neg)
	}
}

// jsoneq stdout|stderr|FILE path value: a field of the JSON there, such as
// servers.0.state; `*` as value takes anything that is there. JSON text is compared
// as it is written.
func cmdJSON(ts *testscript.TestScript, neg bool, args []string) {
	var v any
	d := json.NewDecoder(strings.NewReader(ts.ReadFile(args[0])))
	d.UseNumber()
	ts.Check(d.Decode(&v))
	missing := false
	for _, key := range strings.Split(args[1], ".") {
		switch x := v.(type) {
		case map[string]any:
			var ok bool
			if v, ok = x[key]; !ok {
				missing = true
			}
		case []any:
			i, err := strconv.Atoi(key)
			ts.Check(err)
			if i >= len(x) {
				ts.Fatalf("%s has %d entries", args[1], len(x))
			}
			v = x[i]
		default:
			missing = true
		}
	}
	got, isText := v.(string)
	if !isText {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		ts.Check(e.Encode(v))
		got = strings.TrimSpace(b.String())
	}
	if ok := !missing && (args[2] == "*" || got == args[2]); ok == neg {
		ts.Fatalf("%s is %q (missing: %v), want %q (negated: %v)", args[1], got, missing, args[2], neg)
	}
}

// gone PID: the process ends.
func cmdGone(ts *testscript.TestScript, neg bool, args []string) {
	pid, err := strconv.Atoi(args[0])
	ts.Check(err)
	if neg {
		if !alive(pid) {
			ts.Fatalf("process %d is gone", pid)
		}
		return
	}
	eventually(ts, "process "+args[0]+" is alive", func() bool { return !alive(pid) })
}

// alive is false for a zombie whose parent has not looked yet.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// signal NAME PID: send HUP, INT, TERM or KILL.
func cmdSignal(ts *testscript.TestScript, _ bool, args []string) {
	pid, err := strconv.Atoi(args[1])
	ts.Check(err)
	sig := map[string]syscall.Signal{"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL}[args[0]]
	if sig == 0 {
		ts.Fatalf("unknown signal %s", args[0])
	}
	ts.Check(syscall.Kill(pid, sig))
}

// bridgectl runs the program and decodes what it says.
func bridgectl(ts *testscript.TestScript, v any, args ...string) bool {
	out, err := exec.Command("bridgectl", append([]string{"--control", filepath.Join(ts.Getenv("XDG_RUNTIME_DIR"), "mcpbridge", "control.sock")}, args...)...).Output()
	return err == nil && json.Unmarshal(out, v) == nil
}

// callid VAR: wait for the one call that runs.
func cmdCallID(ts *testscript.TestScript, _ bool, args []string) {
	eventually(ts, "no call is running", func() bool {
		var got struct {
			Calls []struct {
				ID    string `json:"call_id"`
				State string
			}
		}
		if !bridgectl(ts, &got, "calls", "-o", "json") || len(got.Calls) != 1 || got.Calls[0].State != "running" {
			return false
		}
		ts.Setenv(args[0], got.Calls[0].ID)
		return true
	})
}

// joined VAR: wait for a call that has joined another one.
func cmdJoined(ts *testscript.TestScript, _ bool, args []string) {
	eventually(ts, "no call has joined", func() bool {
		var got struct {
			Calls []struct {
				ID    string `json:"call_id"`
				State string
			}
		}
		if !bridgectl(ts, &got, "calls", "-o", "json") {
			return false
		}
		for _, c := range got.Calls {
			if c.State == "joined" {
				ts.Setenv(args[0], c.ID)
				return true
			}
		}
		return false
	})
}

// interrupted arg…: runs bridgectl, waits for its call, interrupts it: 130 is the
// exit code, and what it wrote is a file of that name.
func cmdInterrupted(ts *testscript.TestScript, _ bool, args []string) {
	cmd := exec.Command("bridgectl", append([]string{"--control", filepath.Join(ts.Getenv("XDG_RUNTIME_DIR"), "mcpbridge", "control.sock")}, args...)...)
	var out bytes.Buffer
	cmd.Stdout = &out
	ts.Check(cmd.Start())
	timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	cmdCallID(ts, false, []string{"ID"})
	ts.Check(cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		ts.Fatalf("exit code %d, want 130: %s", code, out.String())
	}
	ts.Check(os.WriteFile(ts.MkAbs("interrupted"), out.Bytes(), 0o600))
}

// draining: the daemon has begun to end.
func cmdDraining(ts *testscript.TestScript, _ bool, _ []string) {
	eventually(ts, "the bridge is not draining", func() bool {
		var got struct{ Bridge struct{ Draining bool } }
		return bridgectl(ts, &got, "status", "-o", "json") && got.Bridge.Draining
	})
}

// base URL: $BASE is the address without the path.
func cmdBase(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv("BASE", strings.TrimSuffix(args[0], "/mcp"))
}

// daemonpid VAR: the process that serves the default socket; it is ended with the
// script, however that ends.
func cmdDaemonPID(ts *testscript.TestScript, _ bool, args []string) {
	var got struct{ Daemon struct{ PID int } }
	if !bridgectl(ts, &got, "version", "-o", "json") || got.Daemon.PID == 0 {
		ts.Fatalf("no daemon")
	}
	ts.Setenv(args[0], strconv.Itoa(got.Daemon.PID))
	ts.Defer(func() { _ = syscall.Kill(got.Daemon.PID, syscall.SIGTERM) })
}

// setid VAR: the id of the first approval that waits.
func cmdSetID(ts *testscript.TestScript, _ bool, args []string) {
	var got struct{ Approvals []struct{ ID string } }
	if !bridgectl(ts, &got, "approvals", "-o", "json") || len(got.Approvals) == 0 {
		ts.Fatalf("nothing waits for approval")
	}
	ts.Setenv(args[0], got.Approvals[0].ID)
}

// abandoned PID: a stdio that is joined to the daemon PID ends with 1 and a word when
// the daemon is told to end.
func cmdAbandoned(ts *testscript.TestScript, _ bool, args []string) {
	cmd := exec.Command("bridgectl", "stdio", "--control", filepath.Join(ts.Getenv("XDG_RUNTIME_DIR"), "mcpbridge", "control.sock"))
	in, err := cmd.StdinPipe()
	ts.Check(err)
	defer in.Close()
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	ts.Check(cmd.Start())
	timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	_, err = io.WriteString(in, `{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n")
	ts.Check(err)
	_, err = out.Read(make([]byte, 4096)) // it is joined
	ts.Check(err)
	cmdSignal(ts, false, []string{"TERM", args[0]})
	_, _ = io.Copy(io.Discard, out)
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(stderr.String(), "the bridge went away") {
		ts.Fatalf("exit code %d, stderr %q", code, stderr.String())
	}
}

// childpid VAR: the process of the first server.
func cmdChildPID(ts *testscript.TestScript, _ bool, args []string) {
	eventually(ts, "no server process", func() bool {
		var got struct{ Servers []struct{ PID int } }
		if !bridgectl(ts, &got, "status", "-o", "json") || len(got.Servers) == 0 || got.Servers[0].PID == 0 {
			return false
		}
		ts.Setenv(args[0], strconv.Itoa(got.Servers[0].PID))
		return true
	})
}

// occupy VAR: listen on a port for the rest of the script; its address goes to VAR.
func cmdOccupy(ts *testscript.TestScript, _ bool, args []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { _ = l.Close() })
	ts.Setenv(args[0], l.Addr().String())
}

// get STATUS URL [header: value…]: the body becomes a file named body.
func cmdGet(ts *testscript.TestScript, _ bool, args []string) {
	req, err := http.NewRequest(http.MethodGet, args[1], nil)
	ts.Check(err)
	for _, h := range args[2:] {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			req.Host = value
		}
		req.Header.Set(name, value)
	}
	resp, err := (&http.Client{Timeout: patience}).Do(req)
	ts.Check(err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	ts.Check(err)
	if fmt.Sprint(resp.StatusCode) != args[0] {
		ts.Fatalf("status %d, want %s: %s", resp.StatusCode, args[0], body)
	}
	ts.Check(os.WriteFile(ts.MkAbs("body"), body, 0o600))
}

// interact INPUT command…: feeds the lines of INPUT to the command one by one, each
// after an answer to the one before, keeps its stdin open until the last is answered,
// and writes what it says to a file named dialogue. Lines without an id expect no answer.
func cmdInteract(ts *testscript.TestScript, _ bool, args []string) {
	cmd := exec.Command(args[1], args[2:]...)
	path, err := exec.LookPath("bridgectl")
	ts.Check(err)
	if args[1] == "bridgectl" {
		cmd.Path, cmd.Err = path, nil
	}
	cmd.Dir = ts.MkAbs(".")
	for _, k := range []string{"HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "MCPBRIDGE_CONTROL", "PATH"} {
		cmd.Env = append(cmd.Env, k+"="+ts.Getenv(k))
	}
	in, err := cmd.StdinPipe()
	ts.Check(err)
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	ts.Check(cmd.Start())
	timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	var dialogue bytes.Buffer
	d := json.NewDecoder(io.TeeReader(out, &dialogue))
	for _, line := range strings.Split(strings.TrimSpace(ts.ReadFile(args[0])), "\n") {
		_, err := io.WriteString(in, line+"\n")
		ts.Check(err)
		for expected := strings.Contains(line, `"id"`); expected; {
			var answer map[string]any
			if err := d.Decode(&answer); err != nil {
				ts.Fatalf("no answer to %s: %v; stderr: %s", line, err, stderr.String())
			}
			_, isAnswer := answer["id"]
			expected = !isAnswer
		}
	}
	ts.Check(in.Close())
	_, _ = io.Copy(&dialogue, out)
	if err := cmd.Wait(); err != nil {
		ts.Fatalf("%v; stderr: %s", err, stderr.String())
	}
	ts.Check(os.WriteFile(ts.MkAbs("dialogue"), dialogue.Bytes(), 0o600))
	ts.Check(os.WriteFile(ts.MkAbs("dialogue.err"), stderr.Bytes(), 0o600))
}
