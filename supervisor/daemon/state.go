package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"mcpbridge/internal/flock"
	"mcpbridge/supervisor/internal/files"
)

const (
	lockName  = "daemon.lock"
	tokenName = "token"
)

// state is the daemon's state directory, locked for the life of the daemon.
type state struct {
	dir  string
	lock *os.File
}

// openState makes or checks the directory and locks it. The lock belongs to the open
// file, so that it ends with the process, however that ends.
func openState(dir string) (*state, error) {
	if err := privateDir(dir); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|openNoFollow, 0o600)
	if err != nil {
		return nil, fmt.Errorf("state directory %s: %w", dir, err)
	}
	if err := flock.Lock(f); err != nil {
		defer f.Close()
		if !errors.Is(err, flock.ErrLocked) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		who := "a bridge"
		if pid := readPID(f); pid > 0 {
			who = fmt.Sprintf("a bridge with pid %d", pid)
		}
		return nil, fmt.Errorf("%s already runs on the state directory %s: use it (bridgectl status), end it first (SIGTERM), or give this one another directory with --state-dir", who, dir)
	}
	if err := errors.Join(f.Truncate(0), writeAt(f, strconv.Itoa(os.Getpid())+"\n")); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	return &state{dir, f}, nil
}

func writeAt(f *os.File, s string) error {
	_, err := f.WriteAt([]byte(s), 0)
	return err
}

// readPID reads who holds the lock; 0 where it cannot be read.
func readPID(f *os.File) int {
	b := make([]byte, 32)
	n, _ := f.ReadAt(b, 0)
	pid, _ := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	return pid
}

// close frees the directory; the lock file stays, because taking it away could take
// it from a daemon that just opened it.
func (s *state) close() { _ = s.lock.Close() }

// privateDir makes sure that dir is a directory of this user that nobody else can
// read. Symbolic links are refused: whoever made one could point it elsewhere.
func privateDir(dir string) error {
	fi, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
			return fmt.Errorf("state directory: %w; give another one with --state-dir", err)
		}
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("state directory: %w; give another one with --state-dir", err)
		}
		fi, err = os.Lstat(dir)
	}
	switch {
	case err != nil:
		return fmt.Errorf("state directory: %w", err)
	case fi.Mode()&fs.ModeSymlink != 0:
		return usage("state directory %s is a symbolic link: give the directory itself with --state-dir", dir)
	case !fi.IsDir():
		return usage("state directory %s is no directory", dir)
	case runtime.GOOS == "windows":
		return nil // no modes; the user's profile protects it
	}
	if uid, ok := owner(fi); ok && uid != os.Geteuid() {
		return usage("state directory %s belongs to user %d: give a directory of your own with --state-dir", dir, uid)
	}
	if fi.Mode().Perm()&0o077 == 0 {
		return nil
	}
	// Others can look in. An empty directory, or one that was ours before, is simply
	// closed; one with other things in it may be shared on purpose.
	if !oursAlone(dir) {
		return usage("state directory %s is open to others and holds other files: `chmod 700 %s`, or give another directory with --state-dir", dir, dir)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	return nil
}

func oursAlone(dir string) bool {
	list, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	if len(list) == 0 {
		return true
	}
	fi, err := os.Lstat(filepath.Join(dir, lockName))
	return err == nil && fi.Mode().IsRegular()
}

// Ready is the content of the ready file.
type Ready struct {
	PID       int    `json:"pid"`
	URL       string `json:"url"`
	Control   string `json:"control"`
	TokenFile string `json:"token_file"` // "" with auth none
}

func writeReady(path string, r Ready) error {
	b, err := json.Marshal(r)
	if err == nil {
		err = files.Write(path, append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("ready file: %w", err)
	}
	return nil
}

// removeReady takes the ready file away if it is still this daemon's.
func removeReady(path string) {
	b, err := os.ReadFile(path)
	var r Ready
	if err == nil && json.Unmarshal(b, &r) == nil && r.PID == os.Getpid() {
		_ = os.Remove(path)
	}
}

// MakeStateDir makes the state directory, or checks the one that is there, for a
// program that puts something into it before a daemon runs.
func MakeStateDir(dir string) error { return privateDir(dir) }
