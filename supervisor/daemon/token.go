package daemon

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"mcpbridge/config"
	"mcpbridge/messages"
	"mcpbridge/supervisor/internal/files"
)

// defaultClient is the name of the generated token.
const defaultClient = "default"

// auth knows the clients by their tokens, of which it keeps digests only.
type auth struct{ clients []client }

type client struct {
	name   string
	digest [sha256.Size]byte
}

// loadAuth reads the generated token, or makes it, and the configured ones. A token
// that cannot be read costs that token only and is reported.
func loadAuth(dir string, cfg *config.Config, env func(string) (string, bool)) (*auth, []messages.Issue, error) {
	var issues []messages.Issue
	report := func(name, format string, args ...any) {
		issues = append(issues, messages.Issue{Path: "auth.tokens." + name, Stage: messages.StageConfig, Severity: messages.SeverityError, Message: fmt.Sprintf(format, args...)})
	}
	own, note, err := ownToken(filepath.Join(dir, tokenName))
	if err != nil {
		return nil, nil, err
	}
	if note != "" {
		issues = append(issues, messages.Issue{File: filepath.Join(dir, tokenName), Severity: messages.SeverityWarning, Message: note})
	}
	a := &auth{}
	a.add(defaultClient, own)
	names := make([]string, 0, len(cfg.Auth.Tokens))
	for n := range cfg.Auth.Tokens {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		token, err := readToken(cfg.Auth.Tokens[n], env)
		switch {
		case n == defaultClient:
			report(n, "this is the name of the generated token: choose another one")
		case err != nil:
			report(n, "%v; this client cannot log in", err)
		default:
			if other, ok := a.find(token); ok {
				report(n, "the same token as %q: every client needs its own", other)
				continue
			}
			a.add(n, token)
		}
	}
	return a, issues, nil
}

func readToken(ref config.TokenRef, env func(string) (string, bool)) (string, error) {
	var token, from string
	if ref.File != "" {
		from = ref.File
		b, err := os.ReadFile(ref.File)
		if err != nil {
			return "", err
		}
		token = string(b)
	} else {
		from = "$" + ref.Env
		token, _ = env(ref.Env)
	}
	token = strings.TrimSpace(token)
	if token == "" {
		return "", fmt.Errorf("%s is empty or not set", from)
	}
	if len(token) < 16 {
		return "", fmt.Errorf("%s holds fewer than 16 characters, which can be guessed", from)
	}
	return token, nil
}

// ownToken reads the generated token and makes it at the first start. note is worth
// telling a person.
func ownToken(path string) (token, note string, err error) {
	fi, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return "", "", fmt.Errorf("token file: %w", err)
	case !fi.Mode().IsRegular():
		return "", "", usage("token file %s is no regular file: remove it, and the next start makes a new one", path)
	default:
		b, err := os.ReadFile(path)
		if err != nil {
			return "", "", fmt.Errorf("token file: %w", err)
		}
		if token = strings.TrimSpace(string(b)); token != "" {
			if fi.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows" {
				if err := os.Chmod(path, 0o600); err != nil {
					return "", "", fmt.Errorf("token file: %w", err)
				}
				note = "others could read the token until now; its mode is 0600 again: remove the file and restart for a new token if somebody may have looked"
			}
			return token, note, nil
		}
	}
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	token = base64.RawURLEncoding.EncodeToString(b)
	if err := files.Write(path, []byte(token+"\n")); err != nil {
		return "", "", fmt.Errorf("token file: %w", err)
	}
	return token, "", nil
}

func (a *auth) add(name, token string) {
	a.clients = append(a.clients, client{name, sha256.Sum256([]byte(token))})
}

// find compares with every token in constant time, so that the time tells nothing.
func (a *auth) find(token string) (name string, ok bool) {
	d := sha256.Sum256([]byte(token))
	for _, c := range a.clients {
		if subtle.ConstantTimeCompare(d[:], c.digest[:]) == 1 && !ok {
			name, ok = c.name, true
		}
	}
	return name, ok
}

// authenticate names the client of a request by its bearer token.
func (a *auth) authenticate(r *http.Request) (client string, ok bool) {
	scheme, token, found := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if !found || !strings.EqualFold(scheme, "Bearer") || token == "" || len(r.Header.Values("Authorization")) != 1 {
		return "", false
	}
	return a.find(token)
}
