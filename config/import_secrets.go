package config

import (
	"regexp"
	"strings"
	"unicode"
)

// What an import may repeat of a file: a secret must not come out, so that what cannot be
// told from one stays behind too.

// keyName adds names to secretName that are secrets more often than not.
var keyName = regexp.MustCompile(`(?i)(^|[^a-z])(key|pin|cookie|session|signature|sig|dsn|jwt|sas)([^a-z]|$)|key$`)

var (
	harmlessPath = regexp.MustCompile(`^(~?/|\.{1,2}/|[A-Za-z]:[\\/])[^\s?#=]*$`)
	harmlessHost = regexp.MustCompile(`^[A-Za-z0-9.-]+(:[0-9]{1,5})?(,[A-Za-z0-9.:-]+)*$`)
	version      = regexp.MustCompile(`^v?[0-9]+([._-][0-9]+)*$`)
	wordRuns     = regexp.MustCompile(`[A-Za-z0-9]+`)
)

// mayBeSecret reports whether a literal value, kept under a name, could be a secret.
func mayBeSecret(name, v string) bool {
	switch {
	case trivial(v) && !secretName.MatchString(name):
		return false
	case looksSecret(name, v), keyName.MatchString(name):
		return true
	case strings.Contains(v, "://"):
		return len(urlSecrets(v)) > 0 || strings.Contains(v, "@")
	case harmlessPath.MatchString(v):
		return false
	case strings.Contains(v, "@"):
		return true
	case harmlessHost.MatchString(v) && strings.ContainsAny(v, ".:") && !mixed(v):
		return false
	case version.MatchString(v):
		return false
	}
	return !plainWord(v)
}

// plainWord reports a text that is too short and too plain to protect anything: words such
// as ERROR, streamable-http or us-west-2.
func plainWord(v string) bool {
	digits := strings.ContainsFunc(v, unicode.IsDigit)
	return len(v) <= 12 || len(v) <= 16 && !digits
}

// mixed reports a text that looks like no word: a run of letters and digits together, a
// very long run, or many digits among letters.
func mixed(v string) bool {
	digits, letters := 0, 0
	for _, run := range wordRuns.FindAllString(v, -1) {
		d := strings.IndexFunc(run, unicode.IsDigit) >= 0
		l := strings.IndexFunc(run, unicode.IsLetter) >= 0
		if d && l && len(run) >= 6 || len(run) >= 20 {
			return true
		}
	}
	for _, r := range v {
		if unicode.IsDigit(r) {
			digits++
		} else if unicode.IsLetter(r) {
			letters++
		} else if r > unicode.MaxASCII {
			letters++
		}
	}
	return letters > 3 && digits >= 4
}

// propose gives the reference that stands in for a value.
func (im *importer) propose(server, key, v string) string {
	name := variable(key)
	if name == "" {
		name = "VALUE"
	}
	for _, candidate := range []string{name, variable(server) + "_" + name} {
		if have, taken := im.vars[candidate]; candidate != "" && refName.MatchString(candidate) && !saysLittle(candidate) && (!taken || have == v) {
			return im.use(candidate, v)
		}
	}
	for n := 2; ; n++ {
		candidate := "MCP_" + variable(server) + "_" + name + "_" + string(rune('0'+n%10))
		if n > 9 {
			candidate += strings.Repeat("X", n/10)
		}
		if have, taken := im.vars[candidate]; !taken || have == v {
			return im.use(candidate, v)
		}
	}
}

// saysLittle reports names that say nothing without the server's.
func saysLittle(name string) bool {
	switch name {
	case "AUTHORIZATION", "PASSWORD", "KEY", "TOKEN", "USER", "VALUE", "API_KEY", "HOST", "URL", "PATH", "HOME":
		return true
	}
	return strings.HasPrefix(name, "ARG")
}

func (im *importer) use(name, v string) string {
	im.vars[name] = v
	im.set = append(im.set, name)
	return "${env:" + name + "}"
}

// variable makes a name fit for a variable.
func variable(s string) string {
	var b strings.Builder
	for _, r := range strings.ToUpper(s) {
		if r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			b.WriteRune(r)
		} else if b.Len() > 0 && !strings.HasSuffix(b.String(), "_") {
			b.WriteByte('_')
		}
	}
	return strings.Trim(b.String(), "_")
}

// protect repeats a text with references in place of what may be secret.
func (im *importer) protect(server, key, text string) string {
	return im.each(server, key, text, func(lit string) string {
		if mayBeSecret(key, lit) {
			return im.propose(server, key, lit)
		}
		return literal(lit)
	})
}

// references repeats a text whose literal part is known to be harmless.
func (im *importer) references(server, key, text string) string {
	return im.each(server, key, text, literal)
}

// each goes through a text; references stay, in the form that our own files have.
func (im *importer) each(server, key, text string, lit func(string) string) string {
	segs, err := split(text)
	if err != nil {
		return im.propose(server, key, text)
	}
	var b strings.Builder
	for _, g := range segs {
		r := g.ref
		switch {
		case r == nil:
			b.WriteString(lit(g.lit))
		case r.runs:
			im.said = append(im.said, key+": a command gave this value, which is never run here")
			b.WriteString(im.propose(server, key, r.raw))
		case r.input != "":
			b.WriteString("${env:" + r.name + "}")
			im.set = append(im.set, r.name)
		case r.hasDef && mayBeSecret(r.name, r.def):
			b.WriteString("${env:" + r.name + "}")
			im.set = append(im.set, r.name)
		default:
			b.WriteString(r.raw)
		}
	}
	return b.String()
}

// url repeats a URL without its user info, query values and fragment, and without parts of
// its path that look like keys.
func (im *importer) url(server, raw string) string {
	if hasReference(raw) && !strings.Contains(raw, "://") {
		return im.references(server, "url", raw)
	}
	rest, fragment, hasFragment := strings.Cut(raw, "#")
	rest, query, hasQuery := strings.Cut(rest, "?")
	scheme, rest, ok := strings.Cut(rest, "://")
	if !ok {
		return im.propose(server, "URL", raw)
	}
	authority, path, hasPath := strings.Cut(rest, "/")
	hide := func(key, v string) string {
		if v == "" || hasReference(v) {
			return im.references(server, key, v)
		}
		return im.propose(server, key, v)
	}
	out := scheme + "://"
	if at := strings.LastIndex(authority, "@"); at >= 0 {
		user, password, ok := strings.Cut(authority[:at], ":")
		out += hide("USER", user)
		if ok {
			out += ":" + hide("PASSWORD", password)
		}
		authority = authority[at+1:]
		out += "@"
	}
	out += im.references(server, "HOST", authority)
	if hasPath {
		for part := range strings.SplitSeq(path, "/") {
			out += "/"
			if len(part) >= 20 && mixed(part) && !hasReference(part) {
				out += im.propose(server, "PATH", part)
			} else {
				out += im.references(server, "PATH", part)
			}
		}
	}
	if hasQuery {
		for i, pair := range strings.Split(query, "&") {
			out += map[bool]string{true: "?", false: "&"}[i == 0]
			if k, v, ok := strings.Cut(pair, "="); ok {
				out += k + "=" + hide(k, v)
			} else {
				out += hide("QUERY", pair)
			}
		}
	}
	if hasFragment {
		out += "#" + hide("FRAGMENT", fragment)
	}
	return out
}
