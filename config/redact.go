package config

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
)

// mask stands where a secret stood.
const mask = "***"

// Redactor replaces secrets in texts by `***`: as they are, and as they look when
// URL-encoded, base64-encoded or escaped for JSON. It is immutable and safe for
// concurrent use; a text without a secret is returned as it is, without an allocation.
type Redactor struct {
	// The first two bytes of every pattern, as a bit set: nearly every position of an
	// innocent text is dismissed by one look.
	heads   [1 << 16 / 64]uint64
	byStart map[[minSecret]byte][]string // longest first
	longest int                          // of the patterns
}

// NewRedactor prepares the redaction of secrets, usually Server.Secrets. Values below
// four bytes are left out: they would tear up innocent text.
func NewRedactor(secrets []string) *Redactor {
	r := &Redactor{byStart: map[[minSecret]byte][]string{}}
	seen := map[string]bool{}
	for _, s := range secrets {
		for _, p := range spellings(s) {
			if len(p) < minSecret || seen[p] {
				continue
			}
			seen[p] = true
			r.longest = max(r.longest, len(p))
			head := uint16(p[0])<<8 | uint16(p[1])
			r.heads[head/64] |= 1 << (head % 64)
			start := [minSecret]byte([]byte(p[:minSecret]))
			r.byStart[start] = append(r.byStart[start], p)
		}
	}
	for _, ps := range r.byStart {
		slices.SortFunc(ps, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	}
	return r
}

// spellings lists the forms in which a secret may appear. Output is often relayed
// line by line, so the longer lines of a secret with several count for themselves.
func spellings(s string) []string {
	if len(s) < minSecret {
		return nil
	}
	out := []string{s, url.QueryEscape(s), url.PathEscape(s), lowerHex(url.QueryEscape(s)), lowerHex(url.PathEscape(s)),
		base64.StdEncoding.EncodeToString([]byte(s)), base64.RawStdEncoding.EncodeToString([]byte(s)),
		base64.URLEncoding.EncodeToString([]byte(s)), base64.RawURLEncoding.EncodeToString([]byte(s))}
	for _, html := range []bool{true, false} {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(html)
		if enc.Encode(s) == nil {
			out = append(out, strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(b.String()), `"`), `"`))
		}
	}
	if strings.ContainsAny(s, "\r\n") {
		for line := range strings.Lines(s) {
			if line = strings.TrimSpace(line); len(line) >= 2*minSecret {
				out = append(out, line)
			}
		}
	}
	return out
}

// lowerHex writes %2F as %2f, which some encoders do.
func lowerHex(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:i+3], bytes.ToLower(b[i+1:i+3]))
			i += 2
		}
	}
	return string(b)
}

// String is s with every secret replaced. Of several that begin at one place the
// longest counts, and those that overlap go together, so that no rest of one is left.
func (r *Redactor) String(s string) string {
	if r == nil || len(r.byStart) == 0 {
		return s
	}
	var b strings.Builder
	done := 0 // everything before is written
	end := 0  // where the secret that is being skipped ends
	for i := 0; i+minSecret <= len(s); i++ {
		head := uint16(s[i])<<8 | uint16(s[i+1])
		if r.heads[head/64]&(1<<(head%64)) == 0 {
			continue
		}
		n := r.match(s[i:])
		if n == 0 {
			continue
		}
		if i >= end {
			b.WriteString(s[done:max(i, done)])
			b.WriteString(mask)
		}
		end = max(end, i+n)
		done = end
	}
	if done == 0 {
		return s
	}
	b.WriteString(s[done:])
	return b.String()
}

// Cut says where the beginning of a text that goes on may be taken off, at most at, so
// that no secret is torn: neither one that is in s nor one of which s holds only the
// beginning. It is 0 where more of the text is needed. A text of nothing but secrets, each
// overlapping the next, is cut all the same: it must not be kept for ever.
func (r *Redactor) Cut(s string, at int) int {
	if r == nil || len(r.byStart) == 0 {
		return at
	}
	at = min(at, len(s)-r.longest+1)
	if at <= 0 {
		return 0
	}
	begin, end := -1, 0 // of the last run of secrets
	for i := 0; i < at && i+minSecret <= len(s); i++ {
		head := uint16(s[i])<<8 | uint16(s[i+1])
		if r.heads[head/64]&(1<<(head%64)) == 0 {
			continue
		}
		if n := r.match(s[i:]); n > 0 {
			if i >= end {
				begin = i
			}
			end = max(end, i+n)
		}
	}
	if end <= at {
		return at
	}
	if at-begin > 2*r.longest {
		return at
	}
	return begin
}

// match is the length of the longest secret at the beginning of s.
func (r *Redactor) match(s string) int {
	for _, p := range r.byStart[[minSecret]byte([]byte(s[:minSecret]))] {
		if strings.HasPrefix(s, p) {
			return len(p)
		}
	}
	return 0
}
