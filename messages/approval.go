package messages

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// ApprovalKind says what a person is asked about.
type ApprovalKind string

// The three kinds of the contract.
const (
	ApproveCall       ApprovalKind = "call"       // one call with exactly these arguments
	ApproveDefinition ApprovalKind = "definition" // a tool whose definition is not the one that was seen first
	ApproveServer     ApprovalKind = "server"     // an entry of a project layer
)

// Approval is a question that waits for a person; a row of `approvals -o json`. An
// answer by ID is about exactly what the row shows: whatever changes afterwards is
// another question with another id.
type Approval struct {
	ID     string          `json:"id"`
	Kind   ApprovalKind    `json:"kind"`
	Server string          `json:"server"`
	Tool   string          `json:"tool"` // the full local name; "" for a server
	Args   json.RawMessage `json:"args"` // of a call
	Client string          `json:"client"`
	// ExpiresAt is when the question is forgotten; nil = it stays.
	ExpiresAt *time.Time `json:"expires_at"`

	RemoteTool string `json:"remote_tool,omitempty"` // the server's own name
	Effect     string `json:"effect,omitempty"`
	Rule       string `json:"rule,omitempty"` // who asks: `permissions[2]`, `default`
	// Change tells what is new about a definition.
	Change *DefinitionChange `json:"change,omitempty"`
	// Entry is a project's entry as it is written, references not expanded and
	// evident secrets masked; References are the ${…} that it reads.
	Entry      json.RawMessage `json:"entry,omitempty"`
	References []string        `json:"references,omitempty"`
	Source     string          `json:"source,omitempty"`
	// Replaces is where the operator's own entry of that name stands, which does not run
	// because of this one, and whose rules this one would come under.
	Replaces string `json:"replaces,omitempty"`
}

// MarshalJSON keeps the bytes of arguments and entry, and writes null for none.
func (a Approval) MarshalJSON() ([]byte, error) {
	type plain Approval
	p := plain(a)
	p.Args = orNull(p.Args)
	return marshalRaw(p)
}

// Asker puts a question to somebody and returns the answer; an error is a no. It may
// take its time, until ctx ends.
type Asker func(ctx context.Context, a Approval) (bool, error)

// ErrCannotAsk is returned by an asker that has nobody to ask: the call is then
// refused as if there were no asker.
var ErrCannotAsk = errors.New("there is nobody to ask")

// Definition is a tool's definition for comparing: Text is the canonical JSON of
// everything that Digest covers.
type Definition struct {
	Tool   string          `json:"tool"` // the server's own name
	Digest string          `json:"digest"`
	Text   json.RawMessage `json:"text,omitempty"` // nil where it is too large to be kept
}

// ChangeKind says how a definition differs from what was seen first.
type ChangeKind string

// A definition is held against the one that was pinned under its name (changed);
// against one that vanished under another name in the same listing (renamed); or
// there is nothing left to hold it against, because the record was damaged
// (unverified).
const (
	Unchanged  ChangeKind = ""
	Changed    ChangeKind = "changed"
	Renamed    ChangeKind = "renamed"
	Unverified ChangeKind = "unverified"
)

// DefinitionChange is one definition that a person has not seen.
type DefinitionChange struct {
	ID     string     `json:"id"` // of the approval
	Kind   ChangeKind `json:"kind"`
	Server string     `json:"server"`
	Name   string     `json:"name,omitempty"` // the tool's full local name, where it is in the catalogue
	// EndpointName is its name at the aggregated endpoint, where it is in the catalogue.
	EndpointName string     `json:"endpoint_name,omitempty"`
	Held         bool       `json:"held"` // not offered and not called until it is approved
	Before       Definition `json:"before"`
	After        Definition `json:"after"`
	At           time.Time  `json:"at"`
}

// CallGrant is a person's yes to one call that was not made yet: the same client,
// server, tool, definition and arguments (both as digests), once, until then.
type CallGrant struct {
	Client     string    `json:"client"`
	Server     string    `json:"server"`
	Tool       string    `json:"tool"`
	Definition string    `json:"definition"`
	Args       string    `json:"args"`
	Until      time.Time `json:"until"`
}
