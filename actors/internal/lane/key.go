package lane

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
)

// maxKey bounds a key; a longer value is replaced by its digest.
const maxKey = 128

// KeyOf is the lane that a call takes by the value of one of its arguments: path is
// its name, or several joined with dots for a value inside objects; args is the
// arguments object. It is "" when there is no such argument, or it is null: then the
// call takes all lanes.
//
// Equal JSON values give equal keys, however they are spelled. Of numbers that a
// float64 cannot tell apart some give equal keys too: that costs a wait.
func KeyOf(path string, args json.RawMessage) string {
	raw := args
	for _, name := range strings.Split(path, ".") {
		var object map[string]json.RawMessage
		if json.Unmarshal(raw, &object) != nil {
			return ""
		}
		var ok bool
		if raw, ok = object[name]; !ok {
			return ""
		}
	}
	var v any
	if json.Unmarshal(raw, &v) != nil || v == nil {
		return ""
	}
	key, err := json.Marshal(v)
	if err != nil { // cannot happen: it came from JSON
		return ""
	}
	if len(key) > maxKey {
		sum := sha256.Sum256(key)
		return "sha256:" + hex.EncodeToString(sum[:])
	}
	return string(key)
}
