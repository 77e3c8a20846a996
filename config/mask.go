package config

import "strings"

func same(s string) string { return s }

// maskText hides what is literal and keeps the references, without their defaults.
func maskText(s string) string { return maskAround(s, nil) }

// maskHeader also keeps the word that names the scheme.
func maskHeader(s string) string {
	return maskAround(s, []string{"Bearer ", "bearer ", "Basic ", "Token ", "token ", "ApiKey "})
}

func maskAround(s string, keep []string) string {
	segs, err := split(s)
	if err != nil {
		return mask
	}
	var b strings.Builder
	for i, g := range segs {
		if g.ref != nil {
			b.WriteString(shownReference(g.ref))
			continue
		}
		lit := g.lit
		for _, k := range keep {
			if i == 0 && strings.HasPrefix(lit, k) {
				b.WriteString(k)
				lit = lit[len(k):]
				break
			}
		}
		if lit != "" {
			b.WriteString(mask)
		}
	}
	return b.String()
}

// shownReference is a reference as written; a default may be a secret itself.
func shownReference(r *reference) string {
	if r.hasDef && r.def != "" {
		return "${" + r.name + ":-" + mask + "}"
	}
	if r.runs {
		return "${cmd:" + mask + "}"
	}
	return r.raw
}

func maskArg(args []string, i int) string {
	out := args[i]
	for _, secret := range argSecrets(args, i) {
		out = strings.Replace(out, secret, maskText(secret), 1)
	}
	return out
}

// maskURL hides user info, query values and the fragment; what is a reference stays.
// While the URL is taken apart, a private character stands for each reference, because what
// is inside of one is no part of the URL.
func maskURL(raw string) string {
	segs, err := split(raw)
	if err != nil || strings.ContainsFunc(raw, isStandIn) {
		return mask
	}
	var b, back []string
	for _, g := range segs {
		if g.ref == nil {
			b = append(b, g.lit)
			continue
		}
		if len(back)/2 > lastStandIn-firstStandIn {
			return mask
		}
		r := string(rune(firstStandIn + len(back)/2))
		b, back = append(b, r), append(back, r, shownReference(g.ref))
	}
	scheme, rest, ok := strings.Cut(strings.Join(b, ""), "://")
	if ok {
		scheme += "://"
	} else {
		scheme, rest = "", scheme
	}
	rest, fragment, hasFragment := strings.Cut(rest, "#")
	rest, query, hasQuery := strings.Cut(rest, "?")
	authority, path, hasPath := strings.Cut(rest, "/")
	if at := strings.LastIndex(authority, "@"); at >= 0 {
		user, password, ok := strings.Cut(authority[:at], ":")
		info := maskLiteral(user)
		if ok {
			info += ":" + maskLiteral(password)
		}
		authority = info + authority[at:]
	}
	out := scheme + authority
	if hasPath {
		out += "/" + path
	}
	if hasQuery {
		pairs := strings.Split(query, "&")
		for i, p := range pairs {
			if k, v, ok := strings.Cut(p, "="); ok {
				pairs[i] = k + "=" + maskLiteral(v)
			} else {
				pairs[i] = maskLiteral(p)
			}
		}
		out += "?" + strings.Join(pairs, "&")
	}
	if hasFragment {
		out += "#" + maskLiteral(fragment)
	}
	return strings.NewReplacer(back...).Replace(out)
}

const firstStandIn, lastStandIn = 0xE000, 0xF8FF

func isStandIn(r rune) bool { return r >= firstStandIn && r <= lastStandIn }

// maskLiteral masks every run of text between the stand-ins for references.
func maskLiteral(s string) string {
	var b strings.Builder
	inRun := false
	for _, r := range s {
		if isStandIn(r) {
			b.WriteRune(r)
		} else if !inRun {
			b.WriteString(mask)
		}
		inRun = !isStandIn(r)
	}
	return b.String()
}
