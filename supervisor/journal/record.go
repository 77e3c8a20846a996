package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"mcpbridge/messages"
)

// formatVersion of the payloads; a segment names its own.
const formatVersion = 1

// record is the payload of a frame: one JSON object with exactly one of its pointers
// set, then, for an outcome with a stored result, a line feed and the server's bytes
// as they came.
type record struct {
	Segment  *segmentHead             `json:"segment,omitempty"`
	Dispatch *messages.DispatchRecord `json:"dispatch,omitempty"`
	Outcome  *messages.OutcomeRecord  `json:"outcome,omitempty"`
	Dropped  *dropped                 `json:"dropped,omitempty"`
	End      *time.Time               `json:"end,omitempty"`
	Raw      rawKind                  `json:"raw,omitempty"`
}

// segmentHead is the first record of each segment.
type segmentHead struct {
	Version int       `json:"version"`
	Run     string    `json:"run"`
	Created time.Time `json:"created"`
	Fsync   Fsync     `json:"fsync"`
	// Prev is the last sequence number of the segments before that is certainly on
	// the disk: if it is missing there, records were lost. Void is the last one that
	// counts: what stands above it in earlier segments was refused to its caller.
	// Both are absent when the segments before could not be read completely.
	Prev *uint64 `json:"prev,omitempty"`
	Void *uint64 `json:"void,omitempty"`
}

// dropped is written before retention removes segments.
type dropped struct {
	Seq   uint64    `json:"seq"`   // the highest sequence number that is gone
	Until time.Time `json:"until"` // settled calls up to here may be missing
}

type rawKind string

const (
	rawNone   rawKind = ""
	rawResult rawKind = "result"
	rawError  rawKind = "rpc_error"
)

// dispatchRecord brings a record into the form in which it will be read back.
func dispatchRecord(d messages.DispatchRecord, run string) record {
	if d.RunID == "" {
		d.RunID = run
	}
	for _, s := range []*string{&d.CallID, &d.RunID, &d.Client, &d.Server, &d.Tool, &d.ArgsDigest, &d.IdempotencyKey} {
		*s = clean(*s)
	}
	d.At = d.At.UTC().Round(0)
	return record{Dispatch: &d}
}

// outcomeRecord does the same, and enforces the bound on what is stored.
func outcomeRecord(o messages.OutcomeRecord, run string) record {
	if o.RunID == "" {
		o.RunID = run
	}
	o.CallID, o.RunID, o.Code = clean(o.CallID), clean(o.RunID), messages.Code(clean(string(o.Code)))
	o.At = o.At.UTC().Round(0)
	r := record{Outcome: &o}
	raw := o.Result
	switch {
	case len(o.Result) > 0:
		r.Raw = rawResult
	case len(o.RPCError) > 0:
		r.Raw, raw = rawError, o.RPCError
	default:
		return r
	}
	// JSON has no zero byte; whatever has one is no answer that could be given again.
	if len(raw) > messages.StoredResultMax || bytes.IndexByte(raw, 0) >= 0 {
		r.Raw, o.Result, o.RPCError, o.Dropped = rawNone, nil, nil, true
	}
	return r
}

// clean is what JSON makes of a string that is no UTF-8, so that memory and disk
// agree on it.
func clean(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func (r record) encode() ([]byte, error) {
	var raw json.RawMessage
	if r.Raw != rawNone {
		o := *r.Outcome
		if raw = o.Result; r.Raw == rawError {
			raw = o.RPCError
		}
		o.Result, o.RPCError = nil, nil
		r.Outcome = &o
	}
	b, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if r.Raw != rawNone {
		b = append(append(b, '\n'), raw...)
	}
	if len(b) > maxPayload {
		return nil, fmt.Errorf("a record of %d bytes is over the limit of %d", len(b), maxPayload)
	}
	return b, nil
}

func decodeRecord(payload []byte) (record, error) {
	var r record
	meta, raw, hasRaw := bytes.Cut(payload, []byte{'\n'})
	if err := json.Unmarshal(meta, &r); err != nil {
		return r, err
	}
	n := 0
	for _, set := range []bool{r.Segment != nil, r.Dispatch != nil, r.Outcome != nil, r.Dropped != nil, r.End != nil} {
		if set {
			n++
		}
	}
	switch {
	case n != 1:
		return r, errors.New("a record of an unknown kind")
	case hasRaw != (r.Raw != rawNone), hasRaw && r.Outcome == nil:
		return r, errors.New("a stored result where none belongs, or none where one does")
	case r.Raw == rawResult:
		r.Outcome.Result = raw
	case r.Raw == rawError:
		r.Outcome.RPCError = raw
	case r.Raw != rawNone:
		return r, fmt.Errorf("a stored result of the unknown kind %q", r.Raw)
	}
	return r, nil
}

// at is the time that the record speaks of.
func (r record) at() time.Time {
	switch {
	case r.Segment != nil:
		return r.Segment.Created
	case r.Dispatch != nil:
		return r.Dispatch.At
	case r.Outcome != nil:
		return r.Outcome.At
	case r.End != nil:
		return *r.End
	default:
		return time.Time{}
	}
}
