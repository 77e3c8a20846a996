// Package witness is the test servers' own account of what they did, and the
// checker that reads it.
//
// A server appends one line per begin and end of a call to a file that it shares
// with every other incarnation of itself. A begin is on disk before the server
// acts and an end after it acted, so the log never claims less than what happened:
// a killed server leaves a begin without an end. Nothing here believes the bridge.
package witness

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
)

// Event is what a record tells.
type Event string

// The events. Start is written once by each process before its first call.
const (
	Start Event = "start"
	Begin Event = "begin"
	End   Event = "end"
)

// Class says how the fixture sees a tool, whatever the bridge was told about it.
type Class string

// The two classes of calls.
const (
	Read       Class = "read"
	SideEffect Class = "side_effect"
)

// Record is one line of the log.
type Record struct {
	Event  Event  `json:"ev"`
	Nonce  string `json:"nonce,omitempty"`
	Tool   string `json:"tool,omitempty"`
	Class  Class  `json:"class,omitempty"`
	Server string `json:"server"`
	PID    int    `json:"pid"`
	// MonoNS is the machine's monotonic clock, comparable between processes.
	MonoNS int64 `json:"mono_ns"`
}

// Log appends records to a file. Its methods may be called from any goroutine, and
// any number of processes may have the same file open.
type Log struct {
	mu     sync.Mutex
	f      *os.File
	server string
}

// Open opens the log for appending and writes the start record of this process.
func Open(path, server string) (*Log, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open witness log: %w", err)
	}
	l := &Log{f: f, server: server}
	if err := l.write(Record{Event: Start}); err != nil {
		return nil, err
	}
	return l, nil
}

// Begin records that a call is about to act.
func (l *Log) Begin(nonce, tool string, class Class) error {
	return l.write(Record{Event: Begin, Nonce: nonce, Tool: tool, Class: class})
}

// End records that a call has acted.
func (l *Log) End(nonce, tool string, class Class) error {
	return l.write(Record{Event: End, Nonce: nonce, Tool: tool, Class: class})
}

// write appends one line in one write call, so that lines of several processes
// never mix, and returns when it is on disk. The clock is read under the lock:
// the order of a process's lines is the order of their times.
func (l *Log) write(r Record) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r.Server, r.PID, r.MonoNS = l.server, os.Getpid(), Now()
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode witness record: %w", err)
	}
	if _, err := l.f.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("write witness log: %w", err)
	}
	if err := l.f.Sync(); err != nil {
		return fmt.Errorf("sync witness log: %w", err)
	}
	return nil
}

// ReadFile parses a log. A last line without its newline belongs to a process that
// was killed while writing and is left out.
func ReadFile(path string) ([]Record, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open witness log: %w", err)
	}
	defer func() { _ = f.Close() }()
	return Parse(f)
}

// Parse is ReadFile for an open log.
func Parse(r io.Reader) ([]Record, error) {
	var out []Record
	br := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := br.ReadBytes('\n')
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read witness log: %w", err)
		}
		var rec Record
		if err := json.Unmarshal(line, &rec); err != nil {
			return nil, fmt.Errorf("witness log line %d: %w", n, err)
		}
		out = append(out, rec)
	}
}
