package config

import (
	"encoding/base64"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// minSecret is the shortest value that is worth hiding: below it, replacing it would
// tear up innocent text and hide nothing.
const minSecret = 4

var shortNumber = regexp.MustCompile(`^[0-9]{1,6}$`)

// trivial reports whether a value is too common to be a secret.
func trivial(s string) bool {
	if len(s) < minSecret || shortNumber.MatchString(s) {
		return true
	}
	switch strings.ToLower(s) {
	case "true", "false", "null", "none":
		return true
	}
	return false
}

// collectSecrets gathers every value of a server that must not be shown: configured
// env and header values, the token after a scheme such as Bearer, user info and query
// values of the URL, secrets on the command line, and whatever is in more (the values of expanded
// references). Sorted, without duplicates.
func collectSecrets(s *Server, more []string) []string {
	var out []string
	pending := map[string]bool{} // texts whose references are not expanded
	if s.Written != nil {
		s.Written.texts(func(_, text string) {
			if hasReference(text) {
				pending[text] = true
			}
		})
	}
	add := func(whole, v string) {
		v = strings.TrimSpace(v)
		if trivial(v) || (pending[whole] && hasReference(v)) {
			return // the text of a reference is no secret; what it stands for is in more
		}
		out = append(out, v)
	}
	for name, v := range s.Env {
		if strings.EqualFold(name, "PATH") {
			continue // errors must be able to say where a command was looked for
		}
		add(v, v)
	}
	for _, v := range s.Headers {
		add(v, v)
		scheme, token, ok := strings.Cut(strings.TrimSpace(v), " ")
		if !ok {
			continue
		}
		add(v, token)
		if strings.EqualFold(scheme, "basic") {
			if b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(token)); err == nil {
				_, password, _ := strings.Cut(string(b), ":")
				add(v, password)
			}
		}
	}
	for _, v := range urlSecrets(s.URL) {
		add(s.URL, v)
	}
	for i, a := range s.Args {
		for _, v := range argSecrets(s.Args, i) {
			add(a, v)
			if plain, err := url.PathUnescape(v); err == nil {
				add(a, plain)
			}
		}
	}
	for _, v := range more {
		if v = strings.TrimSpace(v); !trivial(v) {
			out = append(out, v)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// urlSecrets lists user, password and query values of a URL, decoded and as written.
func urlSecrets(raw string) []string {
	u, err := url.Parse(raw)
	if err != nil {
		return nil
	}
	var out []string
	if u.User != nil {
		out = append(out, u.User.Username())
		if p, ok := u.User.Password(); ok {
			out = append(out, p)
		}
		if at := strings.LastIndex(raw, "@"); at > 0 {
			if _, info, ok := strings.Cut(raw[:at], "//"); ok {
				out = append(out, strings.SplitN(info, ":", 2)...)
			}
		}
	}
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		_, v, ok := strings.Cut(pair, "=")
		if !ok {
			continue
		}
		out = append(out, v)
		if plain, err := url.QueryUnescape(v); err == nil {
			out = append(out, plain)
		}
	}
	return out
}

var (
	// secretName knows names whose values are secrets, in any spelling.
	secretName = regexp.MustCompile(`(?i)(^|[^a-z])(token|secret|passw(or)?d|pass|pwd|passphrase|credentials?|bearer|authorization)([^a-z]|$)|(api|access|private|auth|secret|signing|encryption)[-_]?(key|token)|(token|secret|password)$`)
	// secretValue knows the shapes of tokens that services hand out.
	secretValue = regexp.MustCompile(`^(sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|xox[abeprs]-[\w-]{10,}|AKIA[0-9A-Z]{16}|AIza[\w-]{30,}|eyJ[\w-]{10,}\.[\w-]{10,}\..*|npm_[A-Za-z0-9]{20,}|hf_[A-Za-z0-9]{16,})$`)
	assignment  = regexp.MustCompile(`^(-{0,2}[A-Za-z_][A-Za-z0-9_.-]*)=(.+)$`)
)

// looksSecret reports whether a value kept under a name is a secret.
func looksSecret(name, val string) bool {
	return val != "" && (secretName.MatchString(name) || secretValue.MatchString(val))
}

// argSecret is the first of argSecrets, "" if an argument seems to carry none.
func argSecret(args []string, i int) string {
	if all := argSecrets(args, i); len(all) > 0 {
		return all[0]
	}
	return ""
}

// argSecrets are the secrets that an argument carries, as they stand in it: the value after
// `--api-key`, of `--api-key=X` or `TOKEN=X`, in `Header: value`, in a URL, or one that has
// the shape of a token.
func argSecrets(args []string, i int) []string {
	a := args[i]
	if m := assignment.FindStringSubmatch(a); m != nil && !strings.Contains(m[1], "://") {
		if looksSecret(m[1], m[2]) {
			return []string{strings.Trim(m[2], `"'`)}
		}
		return wordSecrets(m[2])
	}
	if i > 0 && strings.HasPrefix(args[i-1], "-") && !strings.HasPrefix(a, "-") && !strings.Contains(args[i-1], "=") && looksSecret(args[i-1], a) {
		return []string{a}
	}
	return wordSecrets(a)
}

// wordSecrets are the secrets in one word of a command line: a header, a URL, or a token.
func wordSecrets(a string) []string {
	if name, v, ok := strings.Cut(a, ":"); ok && !strings.Contains(a, "://") && secretName.MatchString(name) {
		v = strings.TrimSpace(v)
		if scheme, token, ok := strings.Cut(v, " "); ok && len(scheme) <= 6 {
			v = strings.TrimSpace(token)
		}
		if v == "" {
			return nil
		}
		return []string{v}
	}
	if _, rest, ok := strings.Cut(a, "://"); ok {
		var out []string
		rest, query, _ := strings.Cut(rest, "?")
		authority, _, _ := strings.Cut(rest, "/")
		if at := strings.LastIndex(authority, "@"); at >= 0 {
			if _, password, ok := strings.Cut(authority[:at], ":"); ok && password != "" {
				out = append(out, password)
			}
		}
		query, _, _ = strings.Cut(query, "#")
		for pair := range strings.SplitSeq(query, "&") {
			if k, v, ok := strings.Cut(pair, "="); ok && looksSecret(k, v) {
				out = append(out, v)
			}
		}
		return out
	}
	if secretValue.MatchString(a) {
		return []string{a}
	}
	return nil
}

// secretReference reports whether a text reads a secret: a file, or a variable
// whose name says so.
func secretReference(text string) bool {
	segs, err := split(text)
	if err != nil {
		return false
	}
	for _, g := range segs {
		if g.ref != nil && (g.ref.file != "" || secretName.MatchString(g.ref.name)) {
			return true
		}
	}
	return false
}
