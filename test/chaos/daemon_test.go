//go:build linux

package chaos

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"mcpbridge/messages"
	"mcpbridge/test/harness"
	"mcpbridge/test/history"
	"mcpbridge/test/witness"
)

// weather is how long a storm lasts, and how often the daemon falls in it.
type weather struct {
	last    time.Duration
	reign   time.Duration
	callers int
	rate    float64       // calls a second that make it a storm; 0 = whatever the machine gives
	lives   int           // the least, and every so many-th ends in a drain; the others are killed
	settle  time.Duration // what everything has to settle once the faults stop
}

func forecast(t *testing.T) weather {
	if v := os.Getenv("MCPBRIDGE_CHAOS"); v != "" {
		d, err := time.ParseDuration(v)
		if err != nil || d <= 0 {
			t.Fatalf("MCPBRIDGE_CHAOS is %q: give a duration such as 5m", v)
		}
		return weather{d, 12 * time.Second, 48, 100, 3, settleTime}
	}
	if testing.Short() {
		return weather{8 * time.Second, 2 * time.Second, 32, 0, 3, settleTime}
	}
	return weather{18 * time.Second, 4500 * time.Millisecond, 40, 0, 3, settleTime}
}

// TestDaemonStorm: whatever happens to servers, pipes, calls, the daemon itself and by the
// hand of its operator, the accounts of callers, bridge, servers and journal agree, and
// when the faults stop, everything settles.
func TestDaemonStorm(t *testing.T) {
	w := forecast(t)
	judgeStorm(t, w, blow(t, w))
}

// blow lets a storm go over the daemon, with env in its environment, and returns all accounts.
func blow(t *testing.T, w weather, env ...string) *history.Input {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)

	lab := harness.NewLab(t)
	remotes := []*remote{startRemote(t, lab, "remote", false), startRemote(t, lab, "plainweb", true, "-http-json", "-http-stateless")}
	town := residents(t, lab, remotes...)
	entries := harness.M{}
	in := &history.Input{Offset: time.Now().UnixNano() - witness.Now(), Race: harness.Race}
	for _, r := range town {
		entries[r.Name] = r.entry
		in.Servers = append(in.Servers, r.Server)
	}
	realm := newRealm(t, harness.Config(entries), env)
	eye := watch(lab.Path("witness"))
	first := realm.rise()
	awaitTown(t, first, town)
	in.Samples = first.samples(t, history.Baseline)

	crowd := &crowd{realm: realm, residents: town, stop: make(chan struct{})}
	furies := &furies{crowd: crowd, remotes: remotes, stop: make(chan struct{})}
	books := &ledger{}
	crowd.begin(w.callers, seed)
	furies.begin(seed)
	for start, lives := time.Now(), 1; ; lives++ {
		time.Sleep(w.reign)
		if lives > w.lives && time.Since(start) >= w.last {
			break
		}
		furies.gate.Lock()
		if lives%w.lives == 0 {
			realm.fall(history.Drained)
		} else {
			crowd.lastWords()
			realm.fall(history.Killed)
		}
		realm.rise()
		furies.gate.Unlock()
		books.read(t, realm.now)
	}
	close(furies.stop)
	furies.wg.Wait()
	calm := time.Now()
	close(crowd.stop)
	crowd.wg.Wait()

	in.Quiet = quiet(t, crowd, town, calm, w.settle)
	last := realm.now
	last.client.Close()
	time.Sleep(time.Second) // connections of the crowd are on their way out
	in.Samples = append(in.Samples, last.samples(t, history.Rest)...)
	books.read(t, last)
	in.Journal = books.complete(t, last, crowd.calls)
	realm.fall(history.Drained)

	in.Lives = eye.end()
	in.Runs, in.Leftovers = realm.runs, realm.leftovers
	in.Calls, in.Kills, in.Operations = crowd.calls, crowd.kills, crowd.operations
	records, err := witness.ReadFile(lab.Path("witness"))
	if err != nil {
		t.Fatal(err)
	}
	in.Witness = records
	return in
}

func judgeStorm(t *testing.T, w weather, in *history.Input) {
	r := history.Check(in)
	if r.Counts["fault: kill -9 of the daemon"] < 2 {
		t.Errorf("the daemon was killed %d times; a storm has at least 2", r.Counts["fault: kill -9 of the daemon"])
	}
	if r.Counts["operations"] == 0 {
		t.Error("no operator ever wished anything")
	}
	for _, p := range r.Vacuous() {
		if p != "P13" || in.Journal != nil {
			t.Errorf("%s met nothing to check: %s", p, r.Skipped[p])
		}
	}
	if rate := float64(len(in.Calls)) / r.Length.Seconds(); w.rate > 0 && rate < w.rate {
		t.Errorf("only %.0f calls a second: this was no storm", rate)
	}
	t.Logf("\n%s", r)
	if len(r.Violations) == 0 {
		return
	}
	t.Fail()
	path, err := savePath()
	if err == nil {
		err = in.Save(path)
	}
	t.Logf("the accounts are in %s (%v)", path, err)
}

// awaitTown blocks until every server is ready.
func awaitTown(t *testing.T, n *reign, town []*resident) {
	t.Helper()
	harness.Eventually(t, "every server is ready", func() bool { return len(notReady(n, town)) == 0 })
}

func notReady(n *reign, town []*resident) (out []string) {
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	st, err := n.client.Status(ctx)
	if err != nil {
		return []string{err.Error()}
	}
	for _, r := range town {
		if row, _ := st.Server(r.Name); row.State != messages.StateReady {
			out = append(out, fmt.Sprintf("%s is %s: %s", r.Name, row.State, row.Reason))
		}
	}
	return out
}

// settleTime is what a loaded machine needs for that.
const settleTime = 30 * time.Second

// quiet waits until everything is at rest and asks each server for fresh calls.
func quiet(t *testing.T, c *crowd, town []*resident, calm time.Time, settle time.Duration) *history.Quiet {
	n := c.realm.now
	q := &history.Quiet{}
	for {
		q.NotReady, q.Open = notReady(n, town), openCalls(n)
		q.After = time.Since(calm)
		if len(q.NotReady)+len(q.Open) == 0 || q.After > settle {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	for _, r := range town {
		for tool, effect := range map[string]messages.Effect{"read": messages.ReadOnly, "write": messages.SideEffect} {
			if len(q.Failed) > 0 {
				break // that is enough, and the others may take as long
			}
			call := c.call(n, wish{server: r, tool: tool, effect: effect, args: map[string]any{}, timeout: settle})
			if call.Outcome != messages.OK.String() {
				q.Failed = append(q.Failed, fmt.Sprintf("%s (nonce %s, %s/%s) ended as %s/%s", call.ID, call.Nonce, r.Name, tool, call.Outcome, call.Code))
			}
		}
	}
	t.Logf("everything was at rest %s after the faults", q.After.Round(time.Millisecond))
	return q
}

// openCalls lists what is still under way. A read that nobody waits for any more may
// keep its slot for ever, by design: its server never answers, and only when all slots
// are held so is it recycled.
func openCalls(n *reign) (out []string) {
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	list, err := n.client.Calls(ctx)
	if err != nil {
		return []string{err.Error()}
	}
	for _, c := range list.Calls {
		if c.State == messages.CallFenced && c.Lane == "read" {
			continue
		}
		out = append(out, fmt.Sprintf("%s of %s is %s, blocked by %v", c.CallID, c.Server, c.State, c.BlockedBy))
	}
	return out
}
