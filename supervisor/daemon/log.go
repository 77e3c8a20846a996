package daemon

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
)

// newLogHandler writes log lines to the file of the configuration, else to w.
func newLogHandler(p Plan, format string, w io.Writer) (slog.Handler, io.Closer, error) {
	var closer io.Closer = io.NopCloser(nil)
	if l := p.Config.Log; l.File != "" {
		f, err := openLogFile(l.File, l.MaxSize, l.Keep)
		if err != nil {
			return nil, nil, fmt.Errorf("log file: %w", err)
		}
		w, closer = f, f
	}
	o := &slog.HandlerOptions{Level: p.level}
	if format == "json" {
		return slog.NewJSONHandler(w, o), closer, nil
	}
	return slog.NewTextHandler(w, o), closer, nil
}

// logFile is a log of bounded size: when it is full it becomes FILE.1, that FILE.2,
// and so on, and the oldest goes.
type logFile struct {
	path string
	max  int64 // 0 = never rotated
	keep int

	mu   sync.Mutex
	f    *os.File
	size int64
}

func openLogFile(path string, maxSize int64, keep int) (*logFile, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	l := &logFile{path: path, max: maxSize, keep: keep}
	return l, l.open()
}

func (l *logFile) open() error {
	f, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	fi, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	l.f, l.size = f, fi.Size()
	return nil
}

// Write takes one line. A rotation that fails costs the rotation and never the line.
func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return 0, fs.ErrClosed
	}
	if l.max > 0 && l.size > 0 && l.size+int64(len(p)) > l.max {
		l.rotate()
	}
	n, err := l.f.Write(p)
	l.size += int64(n)
	return n, err
}

func (l *logFile) rotate() {
	name := func(i int) string { return fmt.Sprintf("%s.%d", l.path, i) }
	if l.keep > 0 {
		_ = os.Remove(name(l.keep))
		for i := l.keep - 1; i > 0; i-- {
			_ = os.Rename(name(i), name(i+1))
		}
		_ = l.f.Close()
		_ = os.Rename(l.path, name(1))
	} else {
		_ = l.f.Close()
		_ = os.Remove(l.path)
	}
	if err := l.open(); err != nil {
		l.f, l.size = os.Stderr, 0 // better there than nowhere
		l.max = 0
	}
}

// Close ends the log.
func (l *logFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.f
	l.f = nil
	if f == nil || f == os.Stderr {
		return nil
	}
	return f.Close()
}
