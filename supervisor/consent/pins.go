package consent

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"mcpbridge/messages"
)

const (
	// maxText is how much of one definition is kept for comparing; its digest always is.
	maxText = 64 << 10
	// maxPins bounds the names that one server can make the bridge remember.
	maxPins = 20_000
	// maxPinText bounds the texts of one server; beyond it digests must do.
	maxPinText = 32 << 20
)

// Pins are the definitions of tools as they were seen first, or approved since.
type Pins struct {
	dir string // "" = memory only
	log *slog.Logger

	mu      sync.Mutex
	servers map[string]*serverPins
}

type serverPins struct {
	file
	name    string
	pinned  map[string]pin
	bytes   int // of the texts
	strict  bool
	changes map[string]*messages.DefinitionChange // of the last listing, by tool
	denied  map[string]bool                       // ids that a person said no to
}

// pin is one definition that counts.
type pin struct {
	Digest string          `json:"digest"`
	Text   json.RawMessage `json:"text,omitempty"`
	At     time.Time       `json:"at"`
}

// pinsDoc is one file of pins/. Strict says that an earlier one was damaged: a tool
// without a pin is then not new, but unknown.
type pinsDoc struct {
	Version int            `json:"version"`
	Server  string         `json:"server"`
	Strict  bool           `json:"strict,omitempty"`
	Tools   map[string]pin `json:"tools"`
}

func openPins(dir string, log *slog.Logger) *Pins {
	p := &Pins{log: log, servers: map[string]*serverPins{}}
	if dir == "" {
		return p
	}
	p.dir = filepath.Join(dir, "pins")
	entries, err := os.ReadDir(p.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Error("the definitions that were seen before cannot be read", "err", err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		s := &serverPins{file: file{path: filepath.Join(p.dir, e.Name()), log: log}}
		s.load()
		if s.damage == nil && pinsFile(s.name) != e.Name() {
			s.damage = errors.New("it is about another server")
			s.name, s.strict, s.pinned, s.bytes = "", true, map[string]pin{}, 0
		}
		p.servers[e.Name()] = s
	}
	return p
}

// pinsFile is where a server's pins are: a name is foreign text and no path.
func pinsFile(server string) string {
	sum := sha256.Sum256([]byte(server))
	return hex.EncodeToString(sum[:16]) + ".json"
}

func (s *serverPins) load() {
	var d pinsDoc
	s.read(&d)
	if s.damage == nil && d.Version != docVersion {
		s.damage = errVersion
	}
	s.pinned = map[string]pin{}
	if s.damage != nil {
		s.strict = true
		return
	}
	s.name, s.strict = d.Server, d.Strict
	for tool, pinned := range d.Tools {
		s.put(tool, pinned)
	}
}

func (s *serverPins) put(tool string, p pin) {
	s.bytes -= len(s.pinned[tool].Text)
	if len(p.Text) > maxText || s.bytes+len(p.Text) > maxPinText {
		p.Text = nil
	}
	s.bytes += len(p.Text)
	s.pinned[tool] = p
}

// of finds or makes a server's pins; the lock is held.
func (p *Pins) of(server string) *serverPins {
	key := pinsFile(server)
	s := p.servers[key]
	if s == nil {
		s = &serverPins{pinned: map[string]pin{}, file: file{log: p.log}}
		if p.dir != "" {
			s.path = filepath.Join(p.dir, key)
		}
		p.servers[key] = s
	}
	s.name = server
	return s
}

// Observe holds a server's listing against what was seen before: what is new is
// pinned, and the rest is told. With takeOver changed definitions are pinned as they
// come. Calling it again with the same listing changes nothing.
func (p *Pins) Observe(server string, listing []messages.Definition, takeOver bool, now time.Time) map[string]messages.DefinitionChange {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.of(server)
	old := s.changes
	s.changes = map[string]*messages.DefinitionChange{}
	vanished := s.vanished(listing)
	wrote := false
	for _, d := range listing {
		if d.Tool == "" {
			continue
		}
		seen, known := s.pinned[d.Tool]
		c := messages.DefinitionChange{Server: server, After: d, At: now.UTC()}
		was, renamed := vanished[nameless(d)]
		switch {
		case known && seen.Digest == d.Digest:
			continue
		case takeOver:
		case known:
			c.Kind, c.Before = messages.Changed, messages.Definition{Tool: d.Tool, Digest: seen.Digest, Text: seen.Text}
		case s.strict || len(s.pinned) >= maxPins:
			c.Kind = messages.Unverified
		case renamed:
			c.Kind, c.Before = messages.Renamed, was
		}
		if c.Kind == messages.Unchanged {
			s.put(d.Tool, pin{d.Digest, d.Text, now.UTC()})
			wrote = true
			continue
		}
		c.ID = changeID(server, d)
		if before := old[d.Tool]; before != nil && before.ID == c.ID {
			c.At = before.At
		}
		s.changes[d.Tool] = &c
	}
	if wrote {
		p.save(s)
	}
	out := make(map[string]messages.DefinitionChange, len(s.changes))
	for tool, c := range s.changes {
		out[tool] = *c
	}
	return out
}

// vanished are the pinned definitions that the listing has no more, by what they say
// apart from their name.
func (s *serverPins) vanished(listing []messages.Definition) map[string]messages.Definition {
	listed := make(map[string]bool, len(listing))
	fresh := false
	for _, d := range listing {
		listed[d.Tool] = true
		_, known := s.pinned[d.Tool]
		fresh = fresh || !known
	}
	if !fresh { // nothing can be the new name of anything
		return nil
	}
	out := map[string]messages.Definition{}
	for _, tool := range slices.Sorted(maps.Keys(s.pinned)) {
		if !listed[tool] {
			d := messages.Definition{Tool: tool, Digest: s.pinned[tool].Digest, Text: s.pinned[tool].Text}
			out[nameless(d)] = d
		}
	}
	delete(out, "")
	return out
}

// nameless is what a definition says apart from the tool's name; "" where that is not
// known. (A stopgap description that names the tool counts as none.)
func nameless(d messages.Definition) string {
	var m map[string]json.RawMessage
	if len(d.Text) == 0 || json.Unmarshal(d.Text, &m) != nil {
		return ""
	}
	var description string
	if json.Unmarshal(m["description"], &description) == nil && strings.Contains(description, quoted(d.Tool)) {
		delete(m, "description")
	}
	delete(m, "name")
	b, err := json.Marshal(m)
	if err != nil {
		return ""
	}
	return string(b)
}

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return s
	}
	return string(b)
}

func changeID(server string, d messages.Definition) string {
	sum := sha256.Sum256([]byte(server + "\x00" + d.Tool + "\x00" + d.Digest))
	return "definition-" + hex.EncodeToString(sum[:])[:10]
}

// Hold notes which of a server's changes are held back, and under which local names
// the tools are known; what it does not mention has left the catalogue.
func (p *Pins) Hold(server string, held map[string]bool, names map[string]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for tool, c := range p.of(server).changes {
		c.Held, c.Name = held[tool], names[tool]
	}
}

// Changes lists what nobody has approved. With open only what still waits for a
// person: not what one has said no to.
func (p *Pins) Changes(open bool) []messages.DefinitionChange {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []messages.DefinitionChange
	for _, s := range p.servers {
		for _, c := range s.changes {
			if c.Name != "" && !(open && s.denied[c.ID]) {
				out = append(out, *c)
			}
		}
	}
	slices.SortFunc(out, func(a, b messages.DefinitionChange) int {
		return cmp.Or(cmp.Compare(a.Server, b.Server), cmp.Compare(a.After.Tool, b.After.Tool))
	})
	return out
}

// Decide is a person's answer to the change with that id. A yes pins the definition;
// after a no it stays as it is, and is asked about again when it changes or when the
// bridge starts anew.
func (p *Pins) Decide(id string, yes bool, now time.Time) (messages.DefinitionChange, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.servers {
		for tool, c := range s.changes {
			if c.ID != id {
				continue
			}
			if !yes {
				if s.denied == nil {
					s.denied = map[string]bool{}
				}
				s.denied[id] = true
				return *c, true
			}
			if c.Kind == messages.Renamed {
				s.bytes -= len(s.pinned[c.Before.Tool].Text)
				delete(s.pinned, c.Before.Tool)
			}
			s.put(tool, pin{c.After.Digest, c.After.Text, now.UTC()})
			delete(s.changes, tool)
			p.save(s)
			return *c, true
		}
	}
	return messages.DefinitionChange{}, false
}

// save writes a server's pins, soon.
func (p *Pins) save(s *serverPins) {
	s.save(func() any {
		p.mu.Lock()
		defer p.mu.Unlock()
		return pinsDoc{Version: docVersion, Server: s.name, Strict: s.strict, Tools: maps.Clone(s.pinned)}
	})
}

func (p *Pins) all() []*serverPins {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.servers))
}

func (p *Pins) issues() (out []messages.Issue) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.servers {
		if i, bad := s.issue(s.name, "every tool of this server waits for a person: `bridgectl tools diff` shows them, `bridgectl tools approve` takes them over"); bad {
			out = append(out, i)
		}
	}
	slices.SortFunc(out, func(a, b messages.Issue) int { return cmp.Compare(a.File, b.File) })
	return out
}

func (p *Pins) flush() error {
	var errs []error
	for _, s := range p.all() {
		errs = append(errs, s.flush())
	}
	return errors.Join(errs...)
}
