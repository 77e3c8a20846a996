// Package demo is the small MCP server that is embedded in the binary, so that the
// first command works with nothing else installed: `bridgectl demo-server` serves
// it on stdio, `bridgectl supervise --demo` configures it.
//
// Its tools are honest: each does what its description says, and its annotations
// say what it does. Notes live in memory and end with the process, which makes a
// restart visible.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// CrashStatus is the exit status of the tool `crash`.
const CrashStatus = 3

// The bounds of slow_read: long enough to be watched, short enough not to hang a lane.
const (
	defaultSteps = 5
	maxSteps     = 100
	defaultDelay = 200 * time.Millisecond
	maxDelay     = 10 * time.Second
)

// Options of Serve.
type Options struct {
	In      io.ReadCloser
	Out     io.WriteCloser
	Stderr  io.Writer      // where `crash` says goodbye
	Version string         // what the server reports as its version
	Exit    func(code int) // called by `crash`; os.Exit in a process of its own
}

// Serve runs the server until its input ends or ctx is done. An input that ends is
// no error: that is how a client says goodbye on stdio.
func Serve(ctx context.Context, o Options) error {
	err := newServer(o).Run(ctx, &mcp.IOTransport{Reader: o.In, Writer: o.Out})
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) || errors.Is(err, mcp.ErrConnectionClosed) {
		return nil
	}
	return fmt.Errorf("serve demo: %w", err)
}

// notes is the store behind note_add and note_list.
type notes struct {
	mu   sync.Mutex
	next int
	all  []note
}

type note struct {
	ID   int    `json:"id" jsonschema:"number of the note, from 1"`
	Text string `json:"text" jsonschema:"what was noted"`
}

func (n *notes) add(text string) note {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.next++
	v := note{n.next, text}
	n.all = append(n.all, v)
	return v
}

func (n *notes) list() []note {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]note{}, n.all...)
}

type echoIn struct {
	Text string `json:"text" jsonschema:"what to repeat"`
}

type addIn struct {
	A float64 `json:"a" jsonschema:"first number"`
	B float64 `json:"b" jsonschema:"second number"`
}

type addOut struct {
	Sum float64 `json:"sum" jsonschema:"a + b"`
}

type slowIn struct {
	Steps   int `json:"steps,omitempty" jsonschema:"number of steps, 1 to 100; 5 when absent"`
	DelayMS int `json:"delay_ms,omitempty" jsonschema:"pause before each step in milliseconds, up to 10000; 200 when absent"`
}

type noteIn struct {
	Text string `json:"text" jsonschema:"what to note"`
}

type listOut struct {
	Notes []note `json:"notes" jsonschema:"every note of this process, oldest first"`
}

type crashIn struct {
	Reason string `json:"reason,omitempty" jsonschema:"why, for the server's stderr"`
}

// server is one running demo server.
type server struct {
	o     Options
	notes notes
}

func newServer(o Options) *mcp.Server {
	s := &server{o: o}
	m := mcp.NewServer(&mcp.Implementation{Name: "mcpbridge-demo", Version: o.Version}, &mcp.ServerOptions{
		Instructions: "A small server to try the bridge with. Notes are kept in memory and are gone after a restart.",
	})
	no, yes := false, true
	read := &mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: &no}
	mcp.AddTool(m, &mcp.Tool{Name: "echo", Title: "Echo", Description: "Repeats a text.", Annotations: read}, s.echo)
	mcp.AddTool(m, &mcp.Tool{Name: "add", Title: "Add", Description: "Adds two numbers.", Annotations: read}, s.add)
	mcp.AddTool(m, &mcp.Tool{Name: "slow_read", Title: "Slow read",
		Description: "Reads nothing, slowly: takes the given number of steps and reports progress after each.", Annotations: read}, s.slowRead)
	mcp.AddTool(m, &mcp.Tool{Name: "note_add", Title: "Add a note", Description: "Adds a note to the list that this process keeps in memory.",
		Annotations: &mcp.ToolAnnotations{DestructiveHint: &no, OpenWorldHint: &no}}, s.noteAdd)
	mcp.AddTool(m, &mcp.Tool{Name: "note_list", Title: "List the notes", Description: "Lists the notes of this process.", Annotations: read}, s.noteList)
	mcp.AddTool(m, &mcp.Tool{Name: "crash", Title: "Crash", Description: "Ends the server's process at once with exit status 3, without an answer.",
		Annotations: &mcp.ToolAnnotations{DestructiveHint: &yes, OpenWorldHint: &no}}, s.crash)
	return m
}

func text(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}

func (s *server) echo(_ context.Context, _ *mcp.CallToolRequest, in echoIn) (*mcp.CallToolResult, any, error) {
	return text(in.Text), nil, nil
}

func (s *server) add(_ context.Context, _ *mcp.CallToolRequest, in addIn) (*mcp.CallToolResult, addOut, error) {
	sum := in.A + in.B
	return text(fmt.Sprintf("%v", sum)), addOut{sum}, nil
}

func (s *server) slowRead(ctx context.Context, req *mcp.CallToolRequest, in slowIn) (*mcp.CallToolResult, any, error) {
	steps, delay := in.Steps, time.Duration(in.DelayMS)*time.Millisecond
	if steps == 0 {
		steps = defaultSteps
	}
	if in.DelayMS == 0 {
		delay = defaultDelay
	}
	if steps < 1 || steps > maxSteps {
		return nil, nil, fmt.Errorf("steps is %d: give a number from 1 to %d", in.Steps, maxSteps)
	}
	if delay < 0 || delay > maxDelay {
		return nil, nil, fmt.Errorf("delay_ms is %d: give a number from 1 to %d", in.DelayMS, maxDelay.Milliseconds())
	}
	token := req.Params.GetProgressToken()
	for i := 1; i <= steps; i++ {
		timer := time.NewTimer(delay)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, nil, fmt.Errorf("stopped after step %d of %d: %w", i-1, steps, context.Cause(ctx))
		case <-timer.C:
		}
		if token != nil {
			// A client that no longer listens is told nothing more; the read goes on.
			_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: token, Progress: float64(i), Total: float64(steps), Message: fmt.Sprintf("step %d of %d", i, steps)})
		}
	}
	return text(fmt.Sprintf("read %d steps", steps)), nil, nil
}

func (s *server) noteAdd(_ context.Context, _ *mcp.CallToolRequest, in noteIn) (*mcp.CallToolResult, note, error) {
	if strings.TrimSpace(in.Text) == "" {
		return nil, note{}, errors.New("text is blank: give the note some words")
	}
	n := s.notes.add(in.Text)
	return text(fmt.Sprintf("note %d added", n.ID)), n, nil
}

func (s *server) noteList(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, listOut, error) {
	all := s.notes.list()
	lines := make([]string, len(all))
	for i, n := range all {
		lines[i] = fmt.Sprintf("%d. %s", n.ID, n.Text)
	}
	if len(lines) == 0 {
		lines = []string{"no notes yet"}
	}
	return text(strings.Join(lines, "\n")), listOut{all}, nil
}

func (s *server) crash(_ context.Context, _ *mcp.CallToolRequest, in crashIn) (*mcp.CallToolResult, any, error) {
	reason := in.Reason
	if reason == "" {
		reason = "no reason given"
	}
	fmt.Fprintf(s.o.Stderr, "demo: asked to crash (%q): exiting with status %d\n", reason, CrashStatus)
	s.o.Exit(CrashStatus)
	return nil, nil, errors.New("the process was asked to crash and is still here")
}
