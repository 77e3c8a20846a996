package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"mcpbridge/internal/flock"
)

// FS is the file layer below a journal, small enough to be replaced by one that
// fails. Names are full paths. Nothing follows a symbolic link.
type FS interface {
	// Private makes dir, mode 0700, or checks that it is a directory of this user
	// and closes it to others.
	Private(dir string) error
	// Lock takes the file for this process, until it is closed.
	Lock(name string) (io.Closer, error)
	// List tells about every file in dir.
	List(dir string) ([]Stat, error)
	// Create makes a new file, mode 0600; it must not exist.
	Create(name string) (File, error)
	ReadFile(name string) ([]byte, error)
	// ReadAt reads up to len(p) bytes; fewer only at the end, with io.EOF.
	ReadAt(name string, p []byte, off int64) (int, error)
	// SyncFile brings a file of an earlier life to the disk.
	SyncFile(name string) error
	Truncate(name string, size int64) error
	Rename(from, to string) error
	Remove(name string) error
	// SyncDir makes creations, renames and removals in dir durable.
	SyncDir(dir string) error
}

// File is a segment that is being written.
type File interface {
	io.WriteCloser
	Sync() error
}

// Stat is what List tells about a file.
type Stat struct {
	Name    string // without its directory
	Size    int64
	Regular bool // neither a directory nor a link nor anything special
	Loose   bool // others could read it until now; it is closed to them again
}

// osFS is the operating system's file layer.
type osFS struct{}

func (osFS) Private(dir string) error {
	fi, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
			return err
		}
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := (osFS{}).SyncDir(filepath.Dir(dir)); err != nil {
			return err
		}
		fi, err = os.Lstat(dir)
	}
	switch {
	case err != nil:
		return err
	case fi.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("%s is a symbolic link: remove it, and a directory is made in its place", dir)
	case !fi.IsDir():
		return fmt.Errorf("%s is no directory: remove it, and one is made in its place", dir)
	}
	if uid, ok := owner(fi); ok && uid != os.Geteuid() {
		return fmt.Errorf("%s belongs to user %d: give the bridge a state directory of its own", dir, uid)
	}
	if fi.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows" {
		return os.Chmod(dir, 0o700)
	}
	return nil
}

func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|noFollow, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock.Lock(f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%s: another bridge has this journal open: %w", name, err)
	}
	return f, nil
}

func (osFS) List(dir string) ([]Stat, error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	out := make([]Stat, 0, len(list))
	for _, e := range list {
		fi, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		s := Stat{Name: e.Name(), Size: fi.Size(), Regular: fi.Mode().IsRegular()}
		if s.Regular && fi.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows" {
			s.Loose = true
			if err := os.Chmod(filepath.Join(dir, e.Name()), 0o600); err != nil {
				return nil, err
			}
		}
		out = append(out, s)
	}
	return out, nil
}

func (osFS) Create(name string) (File, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|noFollow, 0o600)
	if err != nil {
		return nil, err // not f: a nil *os.File in an interface is no nil
	}
	return f, nil
}

func (osFS) open(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|noFollow, 0)
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", name)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func (o osFS) ReadFile(name string) ([]byte, error) {
	f, err := o.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

func (o osFS) ReadAt(name string, p []byte, off int64) (int, error) {
	f, err := o.open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return f.ReadAt(p, off)
}

func (osFS) SyncFile(name string) error {
	f, err := os.OpenFile(name, os.O_RDWR|noFollow, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func (osFS) Truncate(name string, size int64) error {
	f, err := os.OpenFile(name, os.O_WRONLY|noFollow, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(size), f.Sync(), f.Close())
}

func (osFS) Rename(from, to string) error { return os.Rename(from, to) }

func (osFS) Remove(name string) error { return os.Remove(name) }
