package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// settle is how long the files must be quiet: an editor writes a file in several steps.
	settle = 250 * time.Millisecond
	// settleAtMost bounds the wait in a directory that is never quiet.
	settleAtMost = 2 * time.Second
	// maxWatched bounds what is read of a file to compare it.
	maxWatched = 16 << 20
)

// places are the files that the configuration comes from, whether they exist or not, and
// what they held when they were last read.
type places struct {
	files []string

	mu     sync.Mutex
	seen   [sha256.Size]byte
	filled map[string]bool // those that held anything
}

func newPlaces(o Options) *places {
	p := &places{}
	if !o.Demo {
		p.files = o.sources().Places()
	}
	p.note()
	return p
}

// note remembers what the files hold; it comes before they are read.
func (p *places) note() {
	sum, filled := p.sum(), p.holding()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen, p.filled = sum, filled
}

// holding are the files that hold anything.
func (p *places) holding() map[string]bool {
	out := map[string]bool{}
	for _, f := range p.files {
		if fi, err := os.Stat(f); err == nil && fi.Size() > 0 {
			out[f] = true
		}
	}
	return out
}

// emptied names a file that held something and is there without any content: half of a
// write, or all of the servers gone at once by mistake. "" for none.
func (p *places) emptied() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for f := range p.filled {
		if fi, err := os.Stat(f); err == nil && fi.Mode().IsRegular() && fi.Size() == 0 {
			return f
		}
	}
	return ""
}

// changed reports whether the files hold something else than what was noted.
func (p *places) changed() bool {
	sum := p.sum()
	p.mu.Lock()
	defer p.mu.Unlock()
	return sum != p.seen
}

// sum is a digest over the files' contents and modes. A file that cannot be read counts as what it is.
func (p *places) sum() (out [sha256.Size]byte) {
	h := sha256.New()
	say := json.NewEncoder(h)
	for _, f := range p.files {
		fi, err := os.Stat(f)
		if err != nil {
			_ = say.Encode([]any{f, os.IsNotExist(err)})
			continue
		}
		_ = say.Encode([]any{f, fi.Mode()})
		if fi.Mode().IsRegular() {
			_ = say.Encode(contentOf(f))
		}
	}
	h.Sum(out[:0])
	return out
}

func contentOf(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return "unreadable"
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, io.LimitReader(f, maxWatched))
	return fmt.Sprintf("%x %t", h.Sum(nil), err == nil)
}

// directories are what has to be watched: a file is replaced by renaming another one over
// it, and one that is not there has nothing to watch but the place where it would appear.
// A link is followed, too.
func (p *places) directories() map[string]bool {
	out := map[string]bool{}
	for _, f := range p.files {
		out[existing(filepath.Dir(f))] = true
		if real, err := filepath.EvalSymlinks(f); err == nil {
			out[filepath.Dir(real)] = true
		}
	}
	return out
}

// existing is the nearest directory that exists, dir or one above it.
func existing(dir string) string {
	for {
		if fi, err := os.Stat(dir); err == nil && fi.IsDir() {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			return dir
		}
		dir = up
	}
}

// watch waits for changes of the places.
type watch struct {
	places   *places
	notifier *fsnotify.Watcher
}

// openWatch begins to watch. What cannot be watched is an error: somebody relies on it.
func openWatch(p *places) (*watch, error) {
	n, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("--watch: %w; without it, `bridgectl reload` and SIGHUP apply changes", err)
	}
	w := &watch{places: p, notifier: n}
	if err := w.follow(); err != nil {
		w.close()
		return nil, fmt.Errorf("--watch: %w; without it, `bridgectl reload` and SIGHUP apply changes", err)
	}
	return w, nil
}

func (w *watch) close() { _ = w.notifier.Close() }

// follow watches the directories that matter now, and no other ones.
func (w *watch) follow() error {
	want := w.places.directories()
	for _, dir := range w.notifier.WatchList() {
		if !want[dir] {
			_ = w.notifier.Remove(dir) // it may be gone
		}
	}
	for dir := range want {
		if err := w.notifier.Add(dir); err != nil { // one that is watched already stays so
			return fmt.Errorf("watch %s: %w", dir, err)
		}
	}
	return nil
}

// run calls changed whenever the files hold something else than what was last read, once
// they have been quiet for a moment, until ctx ends.
func (w *watch) run(ctx context.Context, log *slog.Logger, changed func()) {
	quiet := time.NewTimer(0) // a change since the start counts
	defer quiet.Stop()
	var first time.Time // of the changes that wait; zero = none
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-w.notifier.Events:
			if !ok {
				return
			}
		case err, ok := <-w.notifier.Errors:
			if !ok {
				return
			}
			log.Debug("events of the configuration files were lost; they are compared", "err", err)
		case <-quiet.C:
			first = time.Time{}
			// First the directories, then the look: what changes after it has its event.
			if err := w.follow(); err != nil {
				log.Warn("a change of the configuration may go unnoticed: `bridgectl reload` applies it", "err", err)
			}
			switch empty := w.places.emptied(); {
			case empty != "":
				log.Warn("a configuration file is empty, which is not taken for a wish: `bridgectl reload` applies it", "file", empty)
			case w.places.changed():
				changed()
			}
			continue
		}
		now := time.Now()
		if first.IsZero() {
			first = now
		}
		quiet.Reset(max(min(settle, time.Until(first.Add(settleAtMost))), 0))
	}
}
