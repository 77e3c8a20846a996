package catalogue

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"strings"
)

// The lengths of requirement C2. Clients prefix endpoint names with a name of
// their own for the bridge, so those get less.
const (
	MaxName         = 64
	MaxEndpointName = 48

	fullPrefix = "mcp__"
	seam       = "__"
	hashLength = 12
)

// Names gives a tool's local names: `mcp__<server>__<tool>` and
// `<server>__<tool>`, both of [A-Za-z0-9_-]. Where that would not say exactly
// which server and tool are meant, or is too long, or is reserved, the name ends
// in `__` and 12 characters of a hash over the original pair. A name without hash
// holds `__` once (behind its prefix), one with hash at least twice, so neither
// can pass for the other. isReserved may be nil; taken tells that it was asked and said yes.
func Names(server, tool string, isReserved func(string) bool) (full, endpoint string, taken bool) {
	full, a := name(fullPrefix, server, tool, MaxName, isReserved)
	endpoint, b := name("", server, tool, MaxEndpointName, isReserved)
	return full, endpoint, a || b
}

func name(prefix, server, tool string, limit int, isReserved func(string) bool) (string, bool) {
	s, t := clean(server), clean(tool)
	plain := prefix + s + seam + t
	if s == server && t == tool && len(plain) <= limit && unambiguous(s, t) {
		if isReserved == nil || !isReserved(plain) {
			return plain, false
		}
		return hashed(prefix, s, t, limit, Hash(server, tool)), true
	}
	return hashed(prefix, s, t, limit, Hash(server, tool)), false
}

// unambiguous reports whether the join of the two can be taken apart in one way only.
func unambiguous(server, tool string) bool {
	return server != "" && tool != "" &&
		!strings.Contains(server, seam) && !strings.Contains(tool, seam) &&
		!strings.HasSuffix(server, "_") && !strings.HasPrefix(tool, "_")
}

// hashed joins what fits of the two parts, and the hash. The server keeps at least
// half of the room, so that a client's rules for `mcp__server__*` go on working.
func hashed(prefix, server, tool string, limit int, hash string) string {
	room := limit - len(prefix) - len(seam) - len(seam) - len(hash)
	if len(server)+len(tool) > room {
		server = server[:min(len(server), max(room/2, room-len(tool)))]
		tool = tool[:min(len(tool), room-len(server))]
	}
	return prefix + server + seam + tool + seam + hash
}

// clean replaces each character that providers do not take.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		default:
			return '_'
		}
	}, s)
}

// Hash is the 12 characters that tell pairs apart: the head of a SHA-256 over both
// names, the first with its length before it, so that no two pairs hash the same text.
func Hash(server, tool string) string {
	h := sha256.New()
	var length [8]byte
	binary.BigEndian.PutUint64(length[:], uint64(len(server)))
	h.Write(length[:])
	h.Write([]byte(server))
	h.Write([]byte(tool))
	sum := h.Sum(nil)
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum))[:hashLength]
}
