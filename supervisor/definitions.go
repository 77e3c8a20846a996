package supervisor

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"mcpbridge/actors/upstream"
	"mcpbridge/config"
	"mcpbridge/messages"
	"mcpbridge/supervisor/internal/files"
)

const (
	definitionsDir  = "definitions"
	definitionsKey  = "key"
	definitionsHead = "mcpbridge definitions 1 "
	// maxDefinitions bounds one server's file: a listing is bounded before, at 32 MiB.
	maxDefinitions  = 40 << 20
	definitionsKept = 90 * 24 * time.Hour
	maxInstructions = 16 << 10
)

// stored is what a server said of itself when it was last up.
type stored struct {
	at           time.Time
	listing      messages.Listing
	instructions string
}

// saving is what waits to be written.
type saving struct {
	server string
	stored
}

// definitions keeps each server's last good listing in the state directory, so that
// its tools are offered while it is not up (requirement C8). A file is named by a keyed
// digest over all that says what the server is: of an entry that was changed nothing is
// known any more, and no name on the disk tells a secret. Files are written whole or not
// at all, for their owner only; one that is damaged is ignored, and its server says so.
//
// Without a state directory it keeps nothing.
type definitions struct {
	dir string
	key []byte
	log *slog.Logger
	max int64 // bytes of one file

	mu      sync.Mutex
	saved   map[string][sha256.Size]byte // by path: of the content apart from its time
	pending map[string]saving            // by path: the newest that is not written
	saving  files.Behind
}

// definitionsDoc is the content of a file, below a line with its checksum.
type definitionsDoc struct {
	Server       string            `json:"server"` // for people; the name of the file counts
	At           time.Time         `json:"at"`
	Discovered   int               `json:"discovered"`
	Truncated    bool              `json:"truncated"`
	Instructions string            `json:"instructions"`
	Issues       []messages.Issue  `json:"issues"`
	Tools        []json.RawMessage `json:"tools"` // as the server wrote them
}

// openDefinitions never fails: what cannot be read or written is not kept.
func openDefinitions(stateDir string, log *slog.Logger) *definitions {
	d := &definitions{log: log, max: maxDefinitions, saved: map[string][sha256.Size]byte{}, pending: map[string]saving{}}
	if stateDir == "" {
		return d
	}
	dir := filepath.Join(stateDir, definitionsDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		log.Warn("tool definitions are not kept", "err", err)
		return d
	}
	path := filepath.Join(dir, definitionsKey)
	key, err := os.ReadFile(path)
	if err != nil || len(key) != 32 {
		key = make([]byte, 32)
		_, _ = rand.Read(key) // never fails
		if err := files.Write(path, key); err != nil {
			log.Warn("tool definitions are not kept", "err", err)
			return d
		}
	}
	d.dir, d.key = dir, key
	return d
}

// path is where a server's definitions are kept; "" for nowhere.
func (d *definitions) path(s config.Server) string {
	if d.dir == "" {
		return ""
	}
	h := hmac.New(sha256.New, d.key)
	_ = json.NewEncoder(h).Encode([]any{s.Name, s.Type, s.Command, s.Args, s.Env, s.InheritEnv, s.InheritAll, s.Cwd, s.URL, s.Headers})
	return filepath.Join(d.dir, hex.EncodeToString(h.Sum(nil))+".json")
}

// load reads what is known of a server; nil for nothing. The issue, where there is
// one, is for the server's row.
func (d *definitions) load(s config.Server) (*stored, *messages.Issue) {
	path := d.path(s)
	if path == "" {
		return nil, nil
	}
	damaged := func(err error) (*stored, *messages.Issue) {
		return nil, &messages.Issue{Stage: messages.StageListTools, Severity: messages.SeverityWarning, Server: s.Name,
			Message: fmt.Sprintf("its tool definitions from an earlier run are ignored (%v): its tools are offered once it has started", err)}
	}
	fi, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return damaged(err)
	case !fi.Mode().IsRegular() || fi.Size() > d.max:
		return damaged(fmt.Errorf("%s is no file of ours", path))
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return damaged(err)
	}
	out, err := readDefinitions(s.Name, b)
	if err != nil {
		return damaged(fmt.Errorf("%s: %w", path, err))
	}
	d.mu.Lock()
	d.saved[path] = fingerprint(out)
	d.mu.Unlock()
	return out, nil
}

func readDefinitions(server string, b []byte) (*stored, error) {
	head, body, ok := bytes.Cut(b, []byte("\n"))
	sum, ours := strings.CutPrefix(string(head), definitionsHead)
	want := sha256.Sum256(body)
	if !ok || !ours || sum != hex.EncodeToString(want[:]) {
		return nil, errors.New("the file is damaged")
	}
	var doc definitionsDoc
	if err := json.Unmarshal(body, &doc); err != nil {
		return nil, err
	}
	out := &stored{at: doc.At, instructions: doc.Instructions, listing: messages.Listing{
		Tools: upstream.Adapt(server, doc.Tools), Discovered: doc.Discovered, Truncated: doc.Truncated, Issues: doc.Issues, StoredAt: doc.At}}
	if len(out.listing.Tools) != len(doc.Tools) || doc.Discovered < len(doc.Tools) {
		return nil, errors.New("the file does not hold what it says")
	}
	return out, nil
}

// fingerprint is of what a listing says, whenever that was.
func fingerprint(s *stored) [sha256.Size]byte {
	c := *s
	c.at = time.Time{}
	return sha256.Sum256(c.encode(""))
}

func (s *stored) encode(server string) []byte {
	doc := definitionsDoc{Server: server, At: s.at, Discovered: s.listing.Discovered, Truncated: s.listing.Truncated,
		Instructions: s.instructions, Issues: s.listing.Issues, Tools: make([]json.RawMessage, len(s.listing.Tools))}
	for i, t := range s.listing.Tools {
		doc.Tools[i] = t.Raw
	}
	var body bytes.Buffer
	e := json.NewEncoder(&body)
	e.SetEscapeHTML(false) // a server's bytes stay its own
	if e.Encode(doc) != nil {
		return nil
	}
	return body.Bytes()
}

// save keeps a server's newest listing. All the work is done in the background.
func (d *definitions) save(s config.Server, listing messages.Listing, instructions string) {
	path := d.path(s)
	if path == "" {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pending[path] = saving{s.Name, stored{at: time.Now().UTC(), listing: listing, instructions: instructions}}
	d.saving.Do(d.write)
}

// write saves all that waits.
func (d *definitions) write() {
	for {
		path, next, ok := d.next()
		if !ok {
			return
		}
		if err := d.put(path, next); err != nil {
			d.log.Warn("tool definitions were not saved; after a restart they are known once their server is up", "server", next.server, "err", err)
		}
	}
}

// next takes one of those that wait.
func (d *definitions) next() (string, saving, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for path, s := range d.pending {
		delete(d.pending, path)
		return path, s, true
	}
	return "", saving{}, false
}

// put writes one file, if it says anything new.
func (d *definitions) put(path string, s saving) error {
	for _, t := range s.listing.Tools {
		if !json.Valid(t.Raw) {
			return nil // a listing that no server sent: a dialer of the host's made it up
		}
	}
	print := fingerprint(&s.stored)
	d.mu.Lock()
	before := d.saved[path]
	d.mu.Unlock()
	if print == before {
		return nil
	}
	body := s.encode(s.server)
	if len(body) == 0 || int64(len(body)) > d.max-1024 {
		return fmt.Errorf("they are too big: %d bytes", len(body))
	}
	sum := sha256.Sum256(body)
	if err := files.Write(path, append([]byte(definitionsHead+hex.EncodeToString(sum[:])+"\n"), body...)); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.saved[path] = print
	return nil
}

// flush waits until everything is saved.
func (d *definitions) flush() { d.saving.Wait() }

// prune takes away what no server of the configuration has used for long, and what a
// write that did not end left behind.
func (d *definitions) prune(servers []config.Server, now time.Time) {
	if d.dir == "" {
		return
	}
	used := map[string]bool{filepath.Join(d.dir, definitionsKey): true}
	for _, s := range servers {
		used[d.path(s)] = true
	}
	list, err := os.ReadDir(d.dir)
	if err != nil {
		return
	}
	for _, e := range list {
		path := filepath.Join(d.dir, e.Name())
		if fi, err := e.Info(); err == nil && fi.Mode().IsRegular() && !used[path] && now.Sub(fi.ModTime()) > definitionsKept {
			_ = os.Remove(path) // the next start tries again
		}
	}
}

// clipWords bounds a server's instructions, at a rune.
func clipWords(s string) string {
	if len(s) > maxInstructions {
		s = s[:maxInstructions-len("…")]
		s += "…"
	}
	return strings.ToValidUTF8(s, "")
}
