package actors

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// Digest is a keyed digest of a call's arguments; see NewDigest.
type Digest func(args json.RawMessage) string

// NewDigest returns a Digest under a secret key, without which nobody can find out
// arguments by trying. Objects that differ in the order of their members or in white
// space have one digest; numbers count as they are written. It is safe for concurrent
// use.
func NewDigest(key []byte) Digest {
	key = bytes.Clone(key)
	return func(args json.RawMessage) string {
		h := hmac.New(sha256.New, key)
		h.Write(canonical(args))
		return hex.EncodeToString(h.Sum(nil))
	}
}

// canonical has one spelling for equal values. What is no JSON stands for itself.
func canonical(raw json.RawMessage) []byte {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return raw
	}
	b, err := json.Marshal(v)
	if err != nil { // cannot happen: it came from JSON
		return raw
	}
	return b
}
