// Package secrets searches everything that the bridge says, writes or serves for the
// secrets that it was given.
package secrets

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mcpbridge/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// canary is a secret. Its core, at its beginning, is made of letters and digits that stand
// nowhere else, so that it is found also where the secret was cut, escaped or
// percent-encoded.
type canary struct{ core, whole string }

// canaries are secrets by name.
type canaries map[string]canary

// awkward is what most canaries end in; tame is what a header or an address can carry.
const (
	awkward = `+/ =&"é%41`
	tame    = "+/=&"
)

// hatch makes a canary and returns it.
func (c canaries) hatch(name, tail string) string {
	if _, ok := c[name]; ok {
		panic("two canaries are called " + name)
	}
	sum := sha256.Sum256([]byte(name))
	core := "cnry" + hex.EncodeToString(sum[:8]) // lower case: host names are written so
	c[name] = canary{core, core + tail}
	return core + tail
}

// forms are the texts that give a secret away: its core, which no escaping changes, and
// that in base64 wherever in the encoded text it begins.
func (c canary) forms() map[string]string {
	out := map[string]string{"as it is": c.core}
	for shift := range 3 {
		// The characters that also depend on what stands before or behind are cut off.
		enc := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("-", shift) + c.core))
		from, to := []int{0, 2, 3}[shift], (shift+len(c.core))/3*4
		out[fmt.Sprintf("base64+%d", shift)] = enc[from:to]
	}
	return out
}

// sinks are everything that the bridge gave out, by where.
type sinks struct {
	t     testing.TB
	env   []string // of the verbs that read the configuration themselves
	texts map[string]string
}

func (s *sinks) add(where, text string) {
	s.texts[fmt.Sprintf("%03d %s", len(s.texts), where)] = text
}

// run runs a verb and keeps what it says.
func (s *sinks) run(d *harness.Daemon, args ...string) harness.Result {
	s.t.Helper()
	r := d.RunIn(s.t, "", append([]string{"MCPBRIDGE_CONTROL=" + d.Control}, s.env...), args...)
	s.add("bridgectl "+strings.Join(args, " "), r.Stdout+"\n"+r.Stderr)
	return r
}

// folder keeps every file below a directory.
func (s *sinks) folder(dir string, except ...string) int {
	s.t.Helper()
	n := 0
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || slices.Contains(except, path) {
			return err
		}
		b, err := os.ReadFile(path)
		s.add("file "+path, path+"\n"+string(b))
		n++
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// leak is a canary where it should not be.
type leak struct{ canary, form, where, context string }

func (l leak) String() string {
	return fmt.Sprintf("%s, %s, in %s: …%q…", l.canary, l.form, l.where, l.context)
}

// search finds every canary in every sink, once per sink and form.
func (s *sinks) search(c canaries) (out []leak) {
	s.t.Helper()
	for _, name := range slices.Sorted(maps.Keys(c)) {
		for form, text := range c[name].forms() {
			for _, where := range slices.Sorted(maps.Keys(s.texts)) {
				all := s.texts[where]
				if i := strings.Index(all, text); i >= 0 {
					out = append(out, leak{name, form, where, all[max(0, i-150):min(len(all), i+len(text)+60)]})
				}
			}
		}
	}
	return out
}

// TestSearchFinds: the search itself finds a secret in each of its forms.
func TestSearchFinds(t *testing.T) {
	c := canaries{}
	v := c.hatch("probe", awkward)
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.RawURLEncoding} {
		for _, before := range []string{"", "u", "us", "user:"} {
			s := &sinks{t, nil, map[string]string{"x": "innocent " + enc.EncodeToString([]byte(before+v)) + " text"}}
			if len(s.search(c)) == 0 {
				t.Errorf("base64 behind %q is not found", before)
			}
		}
	}
	for _, text := range []string{v, url.QueryEscape(v), url.PathEscape(v), url.UserPassword("u", v).String(), fmt.Sprintf("%q", v), v[:len(v)-8]} {
		s := &sinks{t, nil, map[string]string{"x": "innocent " + text + " text"}}
		if len(s.search(c)) == 0 {
			t.Errorf("%s is not found", text)
		}
	}
	if s := (&sinks{t, nil, map[string]string{"x": "cnry *** *** text"}}); len(s.search(c)) != 0 {
		t.Error("it finds what is not there")
	}
}
