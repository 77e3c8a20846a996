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
