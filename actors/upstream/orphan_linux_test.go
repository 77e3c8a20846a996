package upstream

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestChildDiesWithAKilledBridge(t *testing.T) {
	r := newRig(t, "")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fakeEnv+"=bridge", "TEST_RUN_ID="+r.o.RunID)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	pid, perr := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || perr != nil {
		t.Fatalf("bridge said %q", line)
	}
	// The ending of other threads must not have touched it.
	time.Sleep(100 * time.Millisecond)
	if !running(strconv.Itoa(pid)) {
		t.Error("the server died before its bridge")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	r.eventually("death of the server", func() bool { return len(r.marked()) == 0 })
}
