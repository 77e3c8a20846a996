//go:build linux

package chaos

import (
	"encoding/json"
	"flag"
	"os"
	"testing"
	"time"

	"mcpbridge/test/history"
)

var (
	squallReport = flag.String("squall.report", "", "TestSquall: write the checker's findings to this `FILE`, as JSON")
	squallBug    = flag.String("squall.bug", "", "TestSquall: the planted `BUG` of the daemon, which must be built with the tag planted")
	squallReign  = flag.Duration("squall.reign", 1500*time.Millisecond, "TestSquall: how long each of its daemons lives")
)

// squallFindings is what a squall reports.
type squallFindings struct {
	Violations []history.Violation `json:"violations"`
	Text       string              `json:"text"`
}

// TestSquall is a storm of a few seconds over three daemons, the first of which is killed
// and the others drained. Package test/planted runs it over bridges with planted bugs and
// judges what the checker found; this test fails only where it could not look.
func TestSquall(t *testing.T) {
	if *squallReport == "" {
		t.Skip("a squall is run by package test/planted, with -squall.report (make planted)")
	}
	w := weather{last: 3 * *squallReign, reign: *squallReign, callers: 32, lives: 2, settle: 15 * time.Second}
	var env []string
	if *squallBug != "" {
		env = append(env, "MCPBRIDGE_PLANTED="+*squallBug)
	}
	in := blow(t, w, env...)
	r := history.Check(in)
	b, err := json.Marshal(squallFindings{r.Violations, r.String()})
	if err == nil {
		err = os.WriteFile(*squallReport, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Violations) > 0 && *squallBug == "" {
		if path, err := savePath(); err == nil {
			t.Logf("the accounts are in %s (%v)", path, in.Save(path))
		}
	}
}
