package messages

import (
	"encoding/json"
	"time"
)

// DispatchRecord is what must be durable before the first byte of a side effect may
// leave (semantics section 1, Journal). It holds no argument and no secret: ArgsDigest
// is keyed.
type DispatchRecord struct {
	CallID         string    `json:"call_id"`
	RunID          string    `json:"run_id"`
	Generation     uint64    `json:"generation"`
	Attempt        int       `json:"attempt"`
	Client         string    `json:"client"`
	Server         string    `json:"server"`
	Tool           string    `json:"tool"` // the server's own name
	ArgsDigest     string    `json:"args_digest"`
	IdempotencyKey string    `json:"idempotency_key,omitempty"`
	Remote         bool      `json:"remote,omitempty"` // an HTTP server: no proof of death
	At             time.Time `json:"at"`
}

// OutcomeRecord closes a call that was dispatched, or takes the dispatch back: a
// call of which provably not one byte left is settled as not_sent.
type OutcomeRecord struct {
	CallID  string      `json:"call_id"`
	RunID   string      `json:"run_id"`
	Attempt int         `json:"attempt,omitempty"` // the last one that was recorded
	Outcome OutcomeKind `json:"outcome"`
	Code    Code        `json:"code,omitempty"`
	At      time.Time   `json:"at"`
	// Result and RPCError are kept only for calls with an idempotency key, and only
	// up to StoredResultMax bytes; Dropped says that there was more.
	Result   json.RawMessage `json:"result,omitempty"`
	RPCError json.RawMessage `json:"rpc_error,omitempty"`
	Dropped  bool            `json:"dropped,omitempty"`
}

// StoredResultMax bounds what the journal keeps of a result for a repeated key.
const StoredResultMax = 64 << 10

// OutcomeOpen is the word for an entry without an outcome.
const OutcomeOpen = "open"

// JournalEntry is a row of `calls --journal`: one side effect that was dispatched.
type JournalEntry struct {
	CallID         string     `json:"call_id"`
	RunID          string     `json:"run_id"`
	Generation     uint64     `json:"generation"`
	Client         string     `json:"client,omitempty"`
	Server         string     `json:"server"`
	Tool           string     `json:"tool"`
	IdempotencyKey string     `json:"idempotency_key"`
	Outcome        string     `json:"outcome"` // an OutcomeKind, or "open" while in flight
	Code           Code       `json:"code"`
	DispatchedAt   time.Time  `json:"dispatched_at"`
	SettledAt      *time.Time `json:"settled_at"`

	ArgsDigest string          `json:"-"`
	Remote     bool            `json:"-"`
	Result     json.RawMessage `json:"-"`
	RPCError   json.RawMessage `json:"-"`
	Dropped    bool            `json:"-"`
}

// Recorder is what the router needs of the journal. Neither method blocks, and their
// records become durable in the order of the calls.
//
// A call may be dispatched more than once: each attempt has a DispatchRecord of its
// own, which opens the entry (again), and an OutcomeRecord closes whatever was
// recorded of the call before it. An OutcomeRecord may come for a call whose
// DispatchRecord failed: it takes back what may have reached the disk all the same.
type Recorder interface {
	// Dispatch makes the record durable and then calls done, once, from any goroutine;
	// with an error when it cannot promise that.
	Dispatch(r DispatchRecord, done func(error))
	// Outcome appends the record; nobody waits for it.
	Outcome(r OutcomeRecord)
}

// Journal is the whole of it, as the bridge uses it.
type Journal interface {
	Recorder
	// Find returns the newest entry of an idempotency key, open ones included. It may
	// block; the router never calls it on its own goroutine.
	Find(client, server, tool, key string) (JournalEntry, bool)
}
