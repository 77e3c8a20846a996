package consent

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"mcpbridge/messages"
)

// Store is everything that a person has agreed to. Make one with Open.
type Store struct {
	dir string // "" = memory only
	log *slog.Logger

	servers file
	mu      sync.Mutex // of doc
	doc     serversDoc

	pins *Pins
}

// serversDoc is servers.json.
type serversDoc struct {
	Version int                    `json:"version"`
	Key     []byte                 `json:"key"`
	Servers map[string]serverGrant `json:"servers"` // by digest of workspace and name
}

type serverGrant struct {
	Name   string    `json:"name"` // for people
	Digest string    `json:"digest"`
	At     time.Time `json:"at"`
}

const docVersion = 1

var errVersion = errors.New("it was written by another version")

// Open reads what earlier lives of the bridge have written in dir; "" keeps everything
// in memory. It never fails: what cannot be read agrees to nothing, see Issues.
func Open(dir string, log *slog.Logger) *Store {
	s := &Store{dir: dir, log: log}
	if dir != "" {
		s.servers.path = filepath.Join(dir, "servers.json")
	}
	s.servers.log = log
	s.servers.read(&s.doc)
	if s.servers.damage == nil && s.doc.Version != 0 && (s.doc.Version != docVersion || len(s.doc.Key) != sha256.Size) {
		s.servers.damage = errVersion
	}
	if s.servers.damage != nil {
		s.doc = serversDoc{}
	}
	if len(s.doc.Key) != sha256.Size {
		s.doc.Key = make([]byte, sha256.Size)
		_, _ = rand.Read(s.doc.Key) // never fails
	}
	s.doc.Version = docVersion
	if s.doc.Servers == nil {
		s.doc.Servers = map[string]serverGrant{}
	}
	s.pins = openPins(dir, log)
	return s
}

// Pins are the definitions of tools.
func (s *Store) Pins() *Pins { return s.pins }

// Entry is one project entry: Place says where it stands (workspace and name), Text is
// everything that it says.
type Entry struct {
	Name  string
	Place string
	Text  []byte
}

func (s *Store) sum(parts ...string) string {
	h := hmac.New(sha256.New, s.doc.Key)
	for _, p := range parts {
		var n [8]byte
		for i, l := 0, len(p); i < 8; i, l = i+1, l>>8 {
			n[i] = byte(l)
		}
		h.Write(n[:])
		h.Write([]byte(p))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// ID is under which an entry is approved: another text has another one.
func (s *Store) ID(e Entry) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return "server-" + s.sum("id", e.Place, string(e.Text))[:10]
}

// Approved reports whether a person has agreed to exactly this entry.
func (s *Store) Approved(e Entry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, ok := s.doc.Servers[s.sum("place", e.Place)]
	return ok && hmac.Equal([]byte(g.Digest), []byte(s.sum("entry", e.Place, string(e.Text))))
}

// Approve notes a person's yes to an entry. It replaces what was agreed to in its
// place before.
func (s *Store) Approve(e Entry, now time.Time) {
	s.mu.Lock()
	s.doc.Servers[s.sum("place", e.Place)] = serverGrant{e.Name, s.sum("entry", e.Place, string(e.Text)), now.UTC()}
	s.mu.Unlock()
	s.servers.save(func() any {
		s.mu.Lock()
		defer s.mu.Unlock()
		d := s.doc
		d.Servers = map[string]serverGrant{}
		for k, v := range s.doc.Servers {
			d.Servers[k] = v
		}
		return d
	})
}

// Issues tells which files cannot be used or written.
func (s *Store) Issues() []messages.Issue {
	var out []messages.Issue
	if i, bad := s.servers.issue("", "no server of a project counts as approved: approve them again, which writes a new one"); bad {
		out = append(out, i)
	}
	return append(out, s.pins.issues()...)
}

// Close waits until everything is written.
func (s *Store) Close() error {
	return errors.Join(s.servers.flush(), s.pins.flush())
}

// grantsDoc is grants.json.
type grantsDoc struct {
	Version int                  `json:"version"`
	Grants  []messages.CallGrant `json:"grants"`
}

func (s *Store) grantsPath() string { return filepath.Join(s.dir, "grants.json") }

// TakeGrants returns the calls that were approved in an earlier life and not made, and
// forgets them on the disk first: a crash after that loses them, and nothing else.
func (s *Store) TakeGrants(now time.Time) []messages.CallGrant {
	if s.dir == "" {
		return nil
	}
	f := file{path: s.grantsPath(), log: s.log}
	var d grantsDoc
	f.read(&d)
	if err := os.Remove(f.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		s.log.Error("calls that were approved before ask again: their record cannot be removed", "err", err)
		return nil
	}
	if f.damage != nil || d.Version != docVersion {
		return nil
	}
	return slices.DeleteFunc(d.Grants, func(g messages.CallGrant) bool {
		left := g.Until.Sub(now)
		return left <= 0 || left > time.Hour // a clock that was set back must not make it last
	})
}

// KeepGrants writes the grants for the next life. Nothing may use one afterwards.
func (s *Store) KeepGrants(grants []messages.CallGrant) error {
	if s.dir == "" || len(grants) == 0 {
		return nil
	}
	f := file{path: s.grantsPath(), log: s.log}
	return f.replace(grantsDoc{docVersion, grants}, false)
}
