//go:build planted

package planted

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if os.Getenv("PLANTED_TEST_CHILD") != "" {
		for _, i := range All {
			if Is(i.Bug) {
				os.Stdout.WriteString("active " + string(i.Bug) + "\n")
			}
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(t *testing.T, bug string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "PLANTED_TEST_CHILD=1", Env+"="+bug)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run()
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// TestChoose: one bug at most is active, and nobody can mistake the program for a whole one.
func TestChoose(t *testing.T) {
	out, errs, code := child(t, string(LaneLIFO))
	if code != 0 || out != "active lane-lifo\n" || !strings.Contains(errs, "BROKEN ON PURPOSE") || !strings.Contains(errs, "lane-lifo") {
		t.Errorf("%d %q %q", code, out, errs)
	}
	if out, errs, code := child(t, ""); code != 0 || out+errs != "" {
		t.Errorf("no bug: %d %q %q", code, out, errs)
	}
	out, errs, code = child(t, "lane-lofi")
	if code != 2 || out != "" {
		t.Errorf("an unknown name: %d %q", code, out)
	}
	for _, i := range All {
		if !strings.Contains(errs, string(i.Bug)) {
			t.Errorf("an unknown name: %s is not listed:\n%s", i.Bug, errs)
		}
	}
}
