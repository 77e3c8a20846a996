// Package upstream is the bridge's client side: it starts one MCP server's process
// (or connects to its URL), speaks the protocol with it, and ends it.
//
// It is the only user of os/exec and, on the client side, of the MCP SDK. It knows
// no actors and decides nothing about restarts, lanes or outcomes: it reports.
//
// # Who reads what
//
// The SDK's session does the handshake and answers the server's requests; tools/call,
// tools/list and subscriptions/listen are ours, with request ids from 1_000_000_000
// on, so that results keep their bytes (mux.go, inbound.go). Both sit on one link:
// stdio.go over a child process, remote.go over HTTP. Of a server's notifications
// only list_changed and the progress of our own calls are looked at.
//
// # What is promised of processes
//
// A child has three pipes and no other descriptor, a process group of its own and
// an environment that holds nothing it was not meant to have. It is started from
// one thread that outlives it (Spawner). Its death is an event; the group is killed
// before the leader is reaped, the pipe is read until it would block, and Done
// means that nothing of the tree is alive, or that Exit.TreeAlive says so.
//
// Whatever it starts, and wherever that hides, is held by package own, which says what
// each system can promise.
package upstream

import (
	"context"
	"log/slog"
	"time"

	"mcpbridge/config"
	"mcpbridge/messages"
)

// Options describe one incarnation of one server.
type Options struct {
	Server     config.Server
	Gen        uint64
	RunID      string // of this life of the bridge; marks every process it starts
	ClientInfo config.ClientInfo
	Version    string // of the bridge, for ClientInfo without one
	StateDir   string // where UV_CACHE_DIR goes; "" = leave it alone
	Spawner    *Spawner
	Logger     *slog.Logger
	// Budget covers handshake and first full listing, from OnSpawned on; 0 = 30 s.
	Budget time.Duration
	// SkipProbe goes straight to initialize (see messages.PeerInfo.SkipProbe).
	SkipProbe bool

	// The hooks are called from the peer's own goroutines. They must not block and
	// may be called until Done is closed. All must be set.
	// OnSpawned: the process runs, or the connection is about to be made (pid 0). It
	// comes a second time, with another pid, when a server died of being asked for
	// the newest revision and was started again for the older handshake.
	OnSpawned     func(pid int)
	OnListChanged func()                            // the server says that its tools changed
	OnNoise       func(lines uint64, degraded bool) // stdout lines that were no JSON-RPC, in total
	OnStderr      func(line string)                 // one redacted line of the server's stderr

	tune *tuning // for tests; nil = defaultTuning
}

// Peer is one live incarnation: a process or an HTTP session, and the MCP session
// with it. All methods may be called from any goroutine.
type Peer interface {
	// Info is what the handshake taught.
	Info() messages.PeerInfo
	// List fetches all pages of tools/list. An error means that nothing was listed;
	// caps and cursor faults come as issues of the listing (requirement B7).
	List(ctx context.Context) (messages.Listing, error)
	// Call runs one attempt and blocks until its one reply. It passes
	// exec.Boundary immediately before the first byte can leave.
	Call(exec messages.Exec) messages.Reply
	// Ping asks for a sign of life as cheaply as this server understands. Any answer
	// is one, an error too; a server that can be asked nothing is taken to be well.
	// An error means that no answer came within ctx, or could not come.
	Ping(ctx context.Context) error
	// Confirm is the second opinion on a server that missed pings: it asks for the
	// first page of tools/list, whatever the server said that it can do.
	Confirm(ctx context.Context) error
	// LastHeard is when the server's last message came, of whatever kind, asked for
	// or not; at first, when the connection was made. Noise is no message.
	LastHeard() time.Time
	// Cancel tells the server that the call is no longer wanted (once), and returns
	// at once. The Call goes on waiting for its reply or the end of the peer.
	Cancel(callID string, attempt int, reason string)
	// Gone is closed when no reply can come any more; every pending Call then
	// returns at once.
	Gone() <-chan struct{}
	// Stop ends the peer by the ladder and returns at once. A further Stop may only
	// shorten what is left. A peer that is Gone kills what remains by itself.
	Stop(ladder messages.Ladder)
	// Done is closed when the process tree is proven dead (or the proof was given
	// up, see Exit.TreeAlive) and everything that the peer held is free.
	Done() <-chan struct{}
	// Exit tells how it ended; valid once Done is closed.
	Exit() messages.Exit
}

// DialFunc is the type of Dial, for tests that need a peer without a process.
type DialFunc func(ctx context.Context, o Options) (Peer, messages.Listing, error)

// Failure is the error of a Dial: everything that was started is gone again (or
// Exit.TreeAlive is set).
type Failure struct{ Exit messages.Exit }

// Error implements error.
func (f *Failure) Error() string { return string(f.Exit.Stage) + ": " + f.Exit.Reason }
