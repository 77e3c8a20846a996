package config

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestRedactor(t *testing.T) {
	r := NewRedactor([]string{"s3cret/&?<é", "long-secret", "long-secret-and-more", "abc", "", "abcdef", "defghi", "-----BEGIN KEY-----\nMIIEvQIBADANBg\n-----END KEY-----\n"})
	for in, want := range map[string]string{
		"":                              "",
		"nothing here":                  "nothing here",
		"abc is too short to hide":      "abc is too short to hide",
		"x s3cret/&?<é y":               "x *** y",
		"q=s3cret%2F%26%3F%3C%C3%A9":    "q=***",
		"q=s3cret%2f%26%3f%3c%c3%a9":    "q=***",
		`{"t":"s3cret/\u0026?\u003cé"}`: `{"t":"***"}`,
		"long-secret long-secret-and-more long-secret-an": "*** *** ***-an",
		"abcdefghi":        "***",
		"abcdefabcdef":     "******",
		"a MIIEvQIBADANBg": "a ***",
		base64.StdEncoding.EncodeToString([]byte("long-secret")): "***",
		"sec": "sec",
	} {
		if got := r.String(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	var none *Redactor
	if none.String("x") != "x" || NewRedactor(nil).String("some text") != "some text" {
		t.Error("a redactor without secrets changes nothing")
	}
	clean := strings.Repeat("an ordinary line of log text, nothing in it; ", 20)
	if n := testing.AllocsPerRun(100, func() { r.String(clean) }); n != 0 {
		t.Errorf("%v allocations for a clean text", n)
	}
}

// Whatever a text is made of, no spelling of a secret is left in it.
func TestRedactorLeavesNothing(t *testing.T) {
	secret := rapid.StringMatching(`[a-f/+&" é<%]{4,12}`)
	rapid.Check(t, func(t *rapid.T) {
		secrets := rapid.SliceOfN(secret, 1, 4).Draw(t, "secrets")
		var text strings.Builder
		for range rapid.IntRange(0, 8).Draw(t, "parts") {
			s := rapid.SampledFrom(secrets).Draw(t, "secret")
			j, _ := json.Marshal(s)
			text.WriteString(rapid.SampledFrom([]string{s, url.QueryEscape(s), url.PathEscape(s), base64.StdEncoding.EncodeToString([]byte(s)),
				strings.Trim(string(j), `"`), "plain ", s[:2]}).Draw(t, "form"))
		}
		got := NewRedactor(secrets).String(text.String())
		for _, s := range secrets {
			if strings.Contains(got, s) || strings.Contains(got, url.QueryEscape(s)) {
				t.Fatalf("%q is left in %q (from %q)", s, got, text.String())
			}
		}
	})
}

func TestCollectSecrets(t *testing.T) {
	s := DefaultServer()
	s.Env = map[string]string{"A": "env-value", "PORT": "8080", "DEBUG": "true", "N": "12", "E": ""}
	s.Headers = map[string]string{"Authorization": "Bearer token-value", "X": "header-value", "B": "Basic " + base64.StdEncoding.EncodeToString([]byte("me:pass-word"))}
	s.URL = "https://us%2Fer:p%40ssw@example.com/path?key=query%20value&n=1#frag"
	s.Args = []string{"--api-key", "arg-value", "plain-argument", "TOKEN=other-value"}
	got := collectSecrets(&s, []string{"expanded", "yes", "1234"})
	want := []string{"Basic bWU6cGFzcy13b3Jk", "Bearer token-value", "arg-value", "bWU6cGFzcy13b3Jk", "env-value", "expanded", "header-value",
		"other-value", "p%40ssw", "p@ssw", "pass-word", "query value", "query%20value", "token-value", "us%2Fer", "us/er"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func BenchmarkRedactor(b *testing.B) {
	var secrets []string
	for i := range 40 {
		secrets = append(secrets, strings.Repeat(string(rune('a'+i%26)), 6)+url.QueryEscape(strings.Repeat("x", i)))
	}
	r := NewRedactor(secrets)
	line := strings.Repeat("an ordinary line of log text, nothing in it; ", 5)
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		r.String(line)
	}
}

// TestCutTearsNothing: a text that is redacted piece by piece shows no more of a secret
// than one that is redacted whole.
func TestCutTearsNothing(t *testing.T) {
	red := NewRedactor([]string{"abcabcabcX", "secret-one", "one-and-two"})
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.SampledFrom([]string{"abcabcabcX", "secret-one", "one-and-two", "secret-one-and-two", "abc", "sec", " plain ", "x"}), 1, 40).Draw(t, "parts")
		text, kept, got := strings.Join(parts, ""), "", ""
		for rest := text; rest != ""; {
			n := min(len(rest), rapid.IntRange(1, 60).Draw(t, "piece"))
			piece := kept + rest[:n]
			rest = rest[n:]
			at := red.Cut(piece, len(piece))
			if at < 0 || at > len(piece) {
				t.Fatalf("cut %q at %d", piece, at)
			}
			got += red.String(piece[:at])
			kept = piece[at:]
		}
		got += red.String(kept)
		// Where a cut falls between two secrets that touch, each has its own mask.
		one := func(s string) string {
			for strings.Contains(s, mask+mask) {
				s = strings.ReplaceAll(s, mask+mask, mask)
			}
			return s
		}
		if want := red.String(text); one(got) != one(want) {
			t.Errorf("%q\npiece by piece %q\nwhole          %q", text, got, want)
		}
	})
	if long := NewRedactor([]string{"aaaaaaaa"}); long.Cut(strings.Repeat("a", 1000), 1000) == 0 {
		t.Error("a text of nothing but secrets is kept for ever")
	}
}
