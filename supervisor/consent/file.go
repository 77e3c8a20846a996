package consent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"mcpbridge/messages"
	"mcpbridge/supervisor/internal/files"
)

// maxFile bounds what is read of one file.
const maxFile = 64 << 20

// file is one JSON document that is replaced as a whole, behind its owner's back.
type file struct {
	path string // "" = memory only
	log  *slog.Logger

	saving files.Behind

	mu     sync.Mutex
	damage error // why it could not be read; it agrees to nothing
	moved  bool  // the damaged one was put aside
	failed error // why the last write did not succeed
}

// read decodes the file into v; a file that is not there leaves v alone.
func (f *file) read(v any) {
	if f.path == "" {
		return
	}
	b, err := readPrivate(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		f.damage = err
	}
}

// readPrivate reads a regular file that nobody else can write to.
func readPrivate(path string) ([]byte, error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, errors.New("it is no regular file")
	}
	if runtime.GOOS != "windows" && fi.Mode().Perm()&0o022 != 0 {
		return nil, errors.New("others can write to it")
	}
	h, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	b, err := io.ReadAll(io.LimitReader(h, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("it is larger than %d MiB", maxFile>>20)
	}
	return b, err
}

// save writes what make returns, soon. make is called without locks of the file.
func (f *file) save(make_ func() any) {
	if f.path == "" {
		return
	}
	f.saving.Do(func() { f.write(make_()) })
}

func (f *file) write(v any) {
	f.mu.Lock()
	aside := f.damage != nil && !f.moved
	f.mu.Unlock()
	err := f.replace(v, aside)
	f.mu.Lock()
	f.failed = err
	f.moved = f.moved || aside && err == nil
	f.mu.Unlock()
	if err != nil {
		f.log.Error("what was agreed to is not saved; it counts until the bridge ends", "err", err)
	}
}

func (f *file) replace(v any, aside bool) error {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return fmt.Errorf("save %s: %w", f.path, err)
	}
	if aside {
		if err := os.Rename(f.path, f.path+".damaged"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("put %s aside: %w", f.path, err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return err
	}
	return files.Write(f.path, append(b, '\n'))
}

// flush waits until everything is written, or could not be.
func (f *file) flush() error {
	f.saving.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

// issue tells what is wrong with the file, and what that means.
func (f *file) issue(server, means string) (messages.Issue, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := messages.Issue{File: f.path, Stage: messages.StageRunning, Severity: messages.SeverityError, Server: server}
	switch {
	case f.damage != nil && !f.moved:
		i.Message = fmt.Sprintf("this file cannot be used: %v; %s", f.damage, means)
	case f.failed != nil:
		i.Message = "what was agreed to is not saved and counts until the bridge ends only: " + f.failed.Error()
	default:
		return i, false
	}
	return i, true
}
