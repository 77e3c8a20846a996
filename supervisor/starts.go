package supervisor

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"mcpbridge/config"
	"mcpbridge/supervisor/internal/files"
)

const (
	startsFile = "starts.json"
	startsKept = 90 * 24 * time.Hour // package caches are cleaned sometimes
)

// startMemory remembers which command lines have come up before: the first time one
// runs it may have to download itself, and gets the longer budget (requirement B2).
// It lives in memory and, where there is a state directory, in a small file. A file
// that cannot be read or written costs patience, nothing else.
type startMemory struct {
	path string // "" = memory only
	log  *slog.Logger

	mu     sync.Mutex
	seen   map[string]time.Time
	saving files.Behind
}

// startsDoc is the file's content.
type startsDoc struct {
	Version int                  `json:"version"`
	Starts  map[string]time.Time `json:"starts"` // hash of the command line → last good start
}

func newStartMemory(stateDir string, log *slog.Logger) *startMemory {
	m := &startMemory{log: log, seen: map[string]time.Time{}}
	if stateDir == "" {
		return m
	}
	m.path = filepath.Join(stateDir, startsFile)
	b, err := os.ReadFile(m.path)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			log.Warn("the record of earlier starts cannot be read; every server gets its first_start budget once", "err", err)
		}
		return m
	}
	var d startsDoc
	if err := json.Unmarshal(b, &d); err != nil {
		log.Warn("the record of earlier starts is damaged and will be written anew", "file", m.path, "err", err)
		return m
	}
	for h, at := range d.Starts {
		if time.Since(at) < startsKept {
			m.seen[h] = at
		}
	}
	return m
}

// commandHash names a command line without telling what it says.
func commandHash(s config.Server) string {
	h := sha256.New()
	enc := json.NewEncoder(h)
	_ = enc.Encode(append([]string{s.Command, s.Cwd}, s.Args...))
	return hex.EncodeToString(h.Sum(nil))
}

// budget is what the next start of s may take. Nothing is downloaded to reach a URL.
func (m *startMemory) budget(s config.Server) time.Duration {
	if s.Remote() {
		return s.Timeouts.Start
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.seen[commandHash(s)]; ok {
		return s.Timeouts.Start
	}
	return max(s.Timeouts.FirstStart, s.Timeouts.Start)
}

// succeeded notes a good start. The file is written in the background.
func (m *startMemory) succeeded(s config.Server) {
	if s.Remote() {
		return
	}
	h := commandHash(s)
	m.mu.Lock()
	defer m.mu.Unlock()
	at, known := m.seen[h]
	m.seen[h] = time.Now()
	if m.path == "" || known && time.Since(at) < 24*time.Hour {
		return
	}
	m.saving.Do(m.write)
}

// write saves the record.
func (m *startMemory) write() {
	m.mu.Lock()
	b, err := json.Marshal(startsDoc{1, m.seen})
	m.mu.Unlock()
	if err == nil {
		err = os.MkdirAll(filepath.Dir(m.path), 0o700)
	}
	if err == nil {
		err = files.Write(m.path, b)
	}
	if err != nil {
		m.log.Warn("the record of starts was not saved; the next life of the bridge will be patient with servers that it has seen", "err", err)
	}
}

// flush waits until the record is saved.
func (m *startMemory) flush() { m.saving.Wait() }
