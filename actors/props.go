package actors

import (
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"

	"mcpbridge/actors/upstream"
	"mcpbridge/messages"
)

// Refs are the addresses of the well-known actors of one bridge.
type Refs struct{ Router, Registry, Servers *actor.PID }

// Emit takes one event into the bridge's history. It sets Seq and Time and never blocks.
type Emit func(messages.Event)

// SessionConfig is what one incarnation needs.
type SessionConfig struct {
	Key messages.Key
	Gen uint64
	// Dial makes the peer; the session fills in the hooks of Options that it
	// handles itself (OnSpawned, OnListChanged, OnNoise) and leaves OnStderr to
	// whoever set it.
	Dial    upstream.DialFunc
	Options upstream.Options
	Router  *actor.PID
	Logger  *slog.Logger
	// Report is where the session leaves how it ended, before it says so: a parent that
	// has lost its word finds it there. It may be nil.
	Report *atomic.Pointer[messages.Exit]
}

// NewSession returns the properties of a session actor. Its parent must be
// server/<name>, which hears SessionSpawned, SessionReady, ToolsListed,
// SessionNoise and SessionEnded, and whose strategy must stop a failed session.
func NewSession(cfg SessionConfig) *actor.Props {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return actor.PropsFromProducer(func() actor.Actor { return &session{cfg: cfg} })
}

// SessionFailure is what a session panics with when its incarnation has ended
// without being asked to.
type SessionFailure struct {
	Key  messages.Key
	Gen  uint64
	Exit messages.Exit
}

// Error implements error.
func (f *SessionFailure) Error() string {
	return fmt.Sprintf("%s generation %d: %s: %s", f.Key, f.Gen, f.Exit.Stage, f.Exit.Reason)
}
