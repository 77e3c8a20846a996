package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sync"
)

var errKilled = errors.New("killed")

// survival says what of the unsynced data is there after a crash.
type survival int

const (
	lost survival = iota
	partly
	garbled // lengths are right, the second half of the data are zeros
	all
)

func (s survival) String() string { return [...]string{"lost", "partly", "garbled", "all"}[s] }

type inode struct{ data, synced []byte }

// faultFS is a disk in memory that counts its operations, fails where it is told
// to, and forgets what was not synced when it crashes.
type faultFS struct {
	mu      sync.Mutex
	files   map[string]*inode
	durable map[string]*inode // the names after a crash
	ops     int
	syncs   int
	log     []string
	dead    bool
	hook    func(n int, op string) error // an error fails operation n
	gate    chan struct{}                // when set, Sync waits for it
}

func newFaultFS() *faultFS {
	return &faultFS{files: map[string]*inode{}, durable: map[string]*inode{}}
}

// op counts an operation. Call it with mu held.
func (d *faultFS) op(name, file string) error {
	if d.dead {
		return errKilled
	}
	d.ops++
	d.log = append(d.log, name+" "+filepath.Base(file))
	if d.hook != nil {
		if err := d.hook(d.ops, name); err != nil {
			if errors.Is(err, errKilled) {
				d.dead = true
			}
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// crash is the disk after the machine went down.
func (d *faultFS) crash(how survival) *faultFS {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := newFaultFS()
	names := d.durable
	if how != lost {
		names = d.files
	}
	for name, f := range names {
		b := slices.Clone(f.synced)
		switch grown := len(f.data) - len(f.synced); {
		case how == all:
			b = slices.Clone(f.data)
		case how == partly && grown > 0:
			b = append(b, f.data[len(b):len(b)+grown/2]...)
		case how == garbled && grown > 0:
			b = slices.Clone(f.data)
			clear(b[len(f.synced)+grown/2:])
		}
		n.files[name] = &inode{b, slices.Clone(b)}
	}
	n.durable = maps.Clone(n.files)
	return n
}

func (d *faultFS) Private(string) error { return nil }

type nopCloser struct{}

func (nopCloser) Close() error { return nil }

func (d *faultFS) Lock(string) (io.Closer, error) { return nopCloser{}, nil }

func (d *faultFS) List(dir string) ([]Stat, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []Stat
	for name, f := range d.files {
		if filepath.Dir(name) == dir {
			out = append(out, Stat{Name: filepath.Base(name), Size: int64(len(f.data)), Regular: true})
		}
	}
	return out, nil
}

type faultFile struct {
	d    *faultFS
	name string
	f    *inode
}

func (d *faultFS) Create(name string) (File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.op("create", name); err != nil {
		return nil, err
	}
	if d.files[name] != nil {
		return nil, fs.ErrExist
	}
	f := &inode{}
	d.files[name] = f
	return &faultFile{d, name, f}, nil
}

func (f *faultFile) Write(p []byte) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if f.d.dead {
		return 0, errKilled
	}
	if err := f.d.op("write", f.name); err != nil {
		n := len(p) / 2 // the half of it arrived
		f.f.data = append(f.f.data, p[:n]...)
		return n, err
	}
	f.f.data = append(f.f.data, p...)
	return len(p), nil
}

func (f *faultFile) Sync() error {
	f.d.mu.Lock()
	gate := f.d.gate
	f.d.mu.Unlock()
	if gate != nil {
		<-gate
	}
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	f.d.syncs++
	if err := f.d.op("sync", f.name); err != nil {
		return err
	}
	f.f.synced = slices.Clone(f.f.data)
	return nil
}

func (f *faultFile) Close() error { return nil }

func (d *faultFS) ReadFile(name string) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.op("read", name); err != nil {
		return nil, err
	}
	if d.files[name] == nil {
		return nil, fs.ErrNotExist
	}
	return slices.Clone(d.files[name].data), nil
}

func (d *faultFS) ReadAt(name string, p []byte, off int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.op("read", name); err != nil {
		return 0, err
	}
	f := d.files[name]
	if f == nil {
		return 0, fs.ErrNotExist
	}
	if off > int64(len(f.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (d *faultFS) SyncFile(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.syncs++
	if err := d.op("sync", name); err != nil {
		return err
	}
	f := d.files[name]
	if f == nil {
		return fs.ErrNotExist
	}
	f.synced = slices.Clone(f.data)
	return nil
}

func (d *faultFS) Truncate(name string, size int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.op("truncate", name); err != nil {
		return err
	}
	f := d.files[name]
	if f == nil {
		return fs.ErrNotExist
	}
	if int64(len(f.data)) > size {
		f.data = f.data[:size:size]
	}
	if int64(len(f.synced)) > size {
		f.synced = f.synced[:size:size]
	}
	return nil
}

func (d *faultFS) Rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.op("rename", from); err != nil {
		return err
	}
	d.files[to] = d.files[from]
	delete(d.files, from)
	return nil
}

func (d *faultFS) Remove(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.op("remove", name); err != nil {
		return err
	}
	delete(d.files, name)
	return nil
}

func (d *faultFS) SyncDir(string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.syncs++
	if err := d.op("syncdir", ""); err != nil {
		return err
	}
	d.durable = maps.Clone(d.files)
	return nil
}
