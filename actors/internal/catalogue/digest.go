package catalogue

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"mcpbridge/messages"
)

// Digest is the fingerprint of a definition: "sha256:<hex>" over the canonical
// JSON (keys sorted, numbers as written, no white space) of everything that tells a
// model or a person what the tool does.
func Digest(d messages.ToolDef) string {
	return DigestOf(Canonical(d))
}

// DigestOf is the digest of a canonical text.
func DigestOf(canonical []byte) string {
	sum := sha256.Sum256(canonical)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Canonical is the text that Digest is made over.
func Canonical(d messages.ToolDef) []byte {
	b, err := json.Marshal(map[string]any{
		"name": d.Name, "title": d.Title, "description": d.Description,
		"inputSchema": canonical(d.InputSchema), "outputSchema": canonical(d.OutputSchema),
		"annotations": canonical(d.Annotations),
	})
	if err != nil { // cannot happen: all of it came from JSON
		b = d.Raw
	}
	return b
}

// canonical decodes raw so that encoding it again has one spelling. What is no
// JSON counts as the text that it is.
func canonical(raw json.RawMessage) any {
	if len(raw) == 0 {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return string(raw)
	}
	return v
}
