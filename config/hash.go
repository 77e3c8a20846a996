package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"mcpbridge/messages"
)

// hash is a digest over everything that changes what the bridge does. Comments,
// order of keys and the place of a definition do not count. Texts that may hold
// secrets go in as digests of their own, so that nothing on the way to it holds one.
func (c *Config) hash() string {
	// The plain types marshal whole, which here is what is wanted.
	h := struct {
		Config
		Servers []plainServer
	}{Config: *c}
	h.Issues, h.Files, h.Hash, h.Workspace, h.Origins = nil, nil, "", "", nil
	h.Permissions, h.ProjectRules = plainRules(c.Permissions), plainRules(c.ProjectRules)
	h.Config.Servers = nil
	for _, server := range c.Servers {
		s := plainServer(server)
		s.Source, s.Secrets, s.Written, s.Origins, s.Notes, s.Layer, s.Approval = "", nil, nil, nil, nil, "", nil
		if s.Err != nil {
			s.Err = &messages.Issue{Message: s.Err.Message}
		}
		s.URL, s.Command = digest(s.URL), digest(s.Command)
		s.Args, s.Env, s.Headers = digests(s.Args), digestMap(s.Env), digestMap(s.Headers)
		h.Servers = append(h.Servers, s)
	}
	slices.SortStableFunc(h.Servers, func(a, b plainServer) int { return strings.Compare(a.Name, b.Name) })
	b, err := json.Marshal(h)
	if err != nil {
		// Only a value that JSON has no word for (a NaN from code) can do this, and
		// Validate reports that; the digest is then of its text.
		b = []byte(err.Error())
	}
	return digest(string(b))
}

func plainRules(rules []Rule) []Rule {
	out := slices.Clone(rules)
	for i := range out {
		out[i].Source = ""
	}
	return out
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func digests(in []string) []string {
	out := make([]string, len(in))
	for i, s := range in {
		out[i] = digest(s)
	}
	return out
}

func digestMap(in map[string]string) map[string]string {
	out := make(map[string]string, len(in))
	for k, v := range in {
		out[k] = digest(v)
	}
	return out
}
