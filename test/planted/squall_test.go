//go:build linux

package planted

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	bugs "mcpbridge/internal/planted"
	"mcpbridge/test/harness"
	"mcpbridge/test/history"
)

// reigns are how long each of the three daemons of a squall lives, try by try.
var reigns = []time.Duration{2 * time.Second, 4 * time.Second, 7 * time.Second}

// findings is what a squall reports.
type findings struct {
	Violations []history.Violation `json:"violations"`
	Text       string              `json:"text"`
}

// squalls are run by a test binary of test/chaos over programs that are built once.
type squalls struct {
	binary string
	dir    string
}

func newSqualls(t *testing.T) *squalls {
	built.build(t, "bridgectl", "./cmd/bridgectl", "build", "-tags", "planted")
	built.build(t, "mcpserver", "./test/mcpserver", "build")
	return &squalls{built.build(t, "chaos.test", "./test/chaos", "test", "-c"), built.dir}
}

// blow is one squall; an error says that it did not come to a report.
func (s *squalls) blow(t *testing.T, bug bugs.Bug, reign time.Duration) (f findings, took time.Duration, err error) {
	report := filepath.Join(t.TempDir(), fmt.Sprintf("%s-%s.json", bug, reign))
	out, _, took := run(t, 4*time.Minute, filepath.Join(harness.Root(), "test", "chaos"), []string{harness.Prebuilt + "=" + s.dir},
		s.binary, "-test.run", "TestSquall$", "-test.v", "-squall.report", report, "-squall.bug", string(bug), "-squall.reign", reign.String())
	b, err := os.ReadFile(report)
	if err == nil {
		err = json.Unmarshal(b, &f)
	}
	if err != nil {
		return f, took, fmt.Errorf("%w\n%s", err, out[max(0, len(out)-4000):])
	}
	return f, took, nil
}

// verdict is what became of one bug.
type verdict struct {
	bugs.Info
	by    []string // "squall, try 1: P4"
	spent time.Duration
	text  string
	fail  string
}

// TestPlantedSqualls runs everything: all bugs, all catchers, and the table.
func TestPlantedSqualls(t *testing.T) {
	if os.Getenv("MCPBRIDGE_SQUALLS") == "" {
		t.Skip("minutes of squalls: make planted")
	}
	s := newSqualls(t)
	for catcher := range watchmen {
		if failed, out, _ := watch(t, catcher, ""); failed {
			t.Fatalf("the %s cries without a bug:\n%s", catcher, out)
		}
	}
	only := os.Getenv("MCPBRIDGE_SQUALLS") // a bug's name, or anything else for all
	var list []*verdict
	for _, i := range bugs.All {
		if only == string(i.Bug) || !slices.ContainsFunc(bugs.All, func(i bugs.Info) bool { return string(i.Bug) == only }) {
			list = append(list, &verdict{Info: i})
		}
	}
	// Two at a time: a squall waits more than it computes.
	var wg sync.WaitGroup
	slots := make(chan struct{}, 2)
	work := func(f func()) {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			f()
		})
	}
	for _, reign := range reigns {
		work(func() {
			f, _, err := s.blow(t, "", reign)
			switch {
			case err != nil:
				t.Errorf("a squall over the whole bridge: %v", err)
			case len(f.Violations) > 0:
				t.Errorf("the checker cries without a bug:\n%s", f.Text)
			}
		})
	}
	for _, v := range list {
		work(func() { s.judge(t, v) })
	}
	wg.Wait()
	t.Logf("\n%s", table(list))
	seen := 0
	for _, v := range list {
		if v.fail != "" {
			t.Errorf("%s (%s): %s", v.Bug, v.Does, v.fail)
		} else if !slices.Contains(v.By, bugs.Journal) {
			seen++
		}
	}
	if least := 20; len(list) == len(bugs.All) && seen < least {
		t.Errorf("the checker and the simulation caught %d bugs; at least %d are demanded", seen, least)
	}
}

// judge lets each catcher of a bug look for it.
func (s *squalls) judge(t *testing.T, v *verdict) {
	for _, catcher := range v.By {
		if catcher == bugs.Squall {
			s.chase(t, v)
			continue
		}
		failed, out, took := watch(t, catcher, v.Bug)
		v.spent += took
		if why := complaint(out); failed && why != "" {
			v.by = append(v.by, fmt.Sprintf("%s (%s)", catcher, took.Round(100*time.Millisecond)))
			if v.text == "" {
				v.text = why
			}
		} else {
			v.fail = "not caught by the " + catcher
		}
	}
}

// chase tries one squall after the other, each longer.
func (s *squalls) chase(t *testing.T, v *verdict) {
	var spent time.Duration
	for try, reign := range reigns {
		f, took, err := s.blow(t, v.Bug, reign)
		spent += took
		v.spent += took
		if err != nil {
			v.fail = "the squall came to no report: " + err.Error()
			return
		}
		for _, found := range f.Violations {
			if slices.Contains(v.Breaks, found.Property) {
				v.by = append(v.by, fmt.Sprintf("%s, try %d, %s (%s)", bugs.Squall, try+1, found.Property, spent.Round(time.Second)))
				v.text = found.Text
				return
			}
		}
		if try == len(reigns)-1 {
			v.fail = fmt.Sprintf("%d squalls report no %s; the last one said:\n%s", len(reigns), strings.Join(v.Breaks, " or "), f.Text)
		}
	}
}

func table(list []*verdict) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-28s %-9s %-58s %7s\n", "bug", "property", "caught by", "after")
	for _, v := range list {
		by := strings.Join(v.by, "; ")
		if v.fail != "" {
			by += " NOT CAUGHT"
		}
		fmt.Fprintf(&b, "%-28s %-9s %-58s %7s\n", v.Bug, strings.Join(v.Breaks, ","), by, v.spent.Round(100*time.Millisecond))
	}
	return b.String()
}
