package history

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"mcpbridge/messages"
	"mcpbridge/test/witness"
)

// Input is everything that is known about one experiment. Times in nanoseconds are
// the machine's monotonic clock (witness.Now); the bridge's events carry wall time,
// which Offset translates.
type Input struct {
	// Offset is wall time minus monotonic time, in nanoseconds.
	Offset  int64            `json:"offset"`
	Servers []Server         `json:"servers"`
	Runs    []Run            `json:"runs"` // in the order of their lives
	Witness []witness.Record `json:"witness"`
	Calls   []Call           `json:"calls"`
	// Journal is nil where there was none to ask; Report then says that P13 was not checked.
	Journal    *Journal    `json:"journal,omitempty"`
	Lives      []Life      `json:"lives,omitempty"`
	Kills      []Kill      `json:"kills,omitempty"`
	Leftovers  []Leftover  `json:"leftovers,omitempty"`
	Operations []Operation `json:"operations,omitempty"`
	Samples    []Sample    `json:"samples,omitempty"`
	Quiet      *Quiet      `json:"quiet,omitempty"`
	// Race says that the daemon was built with the race detector, whose memory is not its own.
	Race bool `json:"race,omitempty"`
}

// Server is what its configuration says.
type Server struct {
	Name           string        `json:"name"`
	Remote         bool          `json:"remote,omitempty"` // HTTP: no process of the bridge, no proof of death
	Serial         bool          `json:"serial,omitempty"` // else exclusive
	MaxReads       int           `json:"max_reads"`
	MaxSideEffects int           `json:"max_side_effects"`
	Keyed          bool          `json:"keyed,omitempty"` // has a lane_key: Call.LaneKey counts
	Group          string        `json:"group,omitempty"`
	AbandonAfter   time.Duration `json:"abandon_after"`
	Drain          time.Duration `json:"drain"` // what calls in flight get; 0 = not checked
	Restart        Restart       `json:"restart"`
}

// Restart is the part of the restart policy that has a schedule.
type Restart struct {
	Initial    time.Duration `json:"initial"`
	Multiplier float64       `json:"multiplier"`
	Max        time.Duration `json:"max"`
	Jitter     float64       `json:"jitter"`
	ResetAfter time.Duration `json:"reset_after"`
	Cooldown   time.Duration `json:"cooldown"`
}

// End says how a life of the daemon ended.
type End string

// The ends.
const (
	StillUp End = ""
	Killed  End = "killed"
	Drained End = "drained"
)

// Run is one life of the daemon.
type Run struct {
	ID     string           `json:"id"`
	Events []messages.Event `json:"events"`
	End    End              `json:"end"`
	// StopAsked is when it was told to end, EndedAt when its process was gone.
	StopAsked int64         `json:"stop_asked,omitempty"`
	EndedAt   int64         `json:"ended_at,omitempty"`
	Exit      int           `json:"exit"`
	Budget    time.Duration `json:"budget,omitempty"` // for a drain; 0 = not checked
}

// Call is one line of the callers' log.
type Call struct {
	ID         string          `json:"id"`
	Nonce      string          `json:"nonce"`
	Server     string          `json:"server"`
	Tool       string          `json:"tool"`
	Effect     messages.Effect `json:"effect"` // the operator's word on the tool
	Client     string          `json:"client"`
	Run        string          `json:"run,omitempty"` // which the caller believed to ask; the events know better
	Invoked    int64           `json:"invoked"`
	Returned   int64           `json:"returned"` // 0 = it never came back
	Timeout    time.Duration   `json:"timeout"`
	Outcome    string          `json:"outcome"` // an OutcomeKind's word, or one of the three below
	Code       messages.Code   `json:"code,omitempty"`
	Sent       bool            `json:"sent"`
	Attempt    int             `json:"attempt"`
	Generation uint64          `json:"generation,omitempty"`
	Errs       bool            `json:"errs,omitempty"` // the server answers it with an error, if at all
	LaneKey    string          `json:"lane_key,omitempty"`
	Answer     string          `json:"answer,omitempty"` // the nonce that the server's answer speaks of, where it does
	Joined     string          `json:"joined,omitempty"` // the call whose outcome an idempotency key gave
}

// What a caller may come back with instead of an outcome.
const (
	NoAnswer = "no_answer" // the daemon went away
	NoDaemon = "no_daemon" // none was there; nothing was asked
	Left     = "left"      // the caller hung up
)

// Journal is what `calls --journal -o json` said at the end, over all lives.
type Journal struct {
	Entries []messages.JournalEntry `json:"entries"`
	// Doubts are the reasons why the journal itself does not call itself whole.
	Doubts []string `json:"doubts,omitempty"`
}

// Life is one process as it was watched from outside. Last is a moment at which it
// certainly was alive, and no zombie.
type Life struct {
	PID   int   `json:"pid"`
	First int64 `json:"first"`
	Last  int64 `json:"last"`
}

// Kill is a fault that the experiment caused, for the report and for reading it.
type Kill struct {
	What string `json:"what"`
	Name string `json:"name"`
	PID  int    `json:"pid,omitempty"`
	At   int64  `json:"at"`
}

// Leftover is a process of a run that still lived when it should not.
type Leftover struct {
	Run  string `json:"run"`
	What string `json:"what"`
	// After is how long after the daemon's end it was seen alive.
	After time.Duration `json:"after"`
}

// Operation is an operator's wish. It came true, if it did, between the moment at which
// it was uttered and the one at which its answer was there; 0 = at once.
type Operation struct {
	Verb   messages.Verb `json:"verb"`
	Server string        `json:"server"`
	At     int64         `json:"at"`
	Done   int64         `json:"done,omitempty"`
}

// Sample is what the daemon used at a moment. Those named baseline were taken at rest
// before the faults, those named rest at rest after them.
type Sample struct {
	Name       string `json:"name"`
	At         int64  `json:"at"`
	Goroutines int    `json:"goroutines"`
	FDs        int    `json:"fds"`
	RSS        int64  `json:"rss"`
}

// The names of the samples that P10 compares.
const (
	Baseline = "baseline"
	Rest     = "rest"
)

// Quiet is what was found after the faults had stopped and time had been given.
type Quiet struct {
	After    time.Duration `json:"after"`     // how long it took
	NotReady []string      `json:"not_ready"` // servers
	Open     []string      `json:"open"`      // calls
	Failed   []string      `json:"failed"`    // fresh calls that did not come back ok
}

// Save writes the input as JSON, so that a finding can be looked at again.
func (in *Input) Save(path string) error {
	b, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode history: %w", err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		return fmt.Errorf("save history: %w", err)
	}
	return nil
}

// Load reads what Save wrote.
func Load(path string) (*Input, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("load history: %w", err)
	}
	in := new(Input)
	if err := json.Unmarshal(b, in); err != nil {
		return nil, fmt.Errorf("decode history %s: %w", path, err)
	}
	return in, nil
}

// mono translates an event's time.
func (in *Input) mono(t time.Time) int64 { return t.UnixNano() - in.Offset }
