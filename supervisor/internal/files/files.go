// Package files keeps small private files: Write replaces one as a whole, readable by its
// owner alone, and Behind does such work behind the back of whoever cannot wait for a disk.
package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// Write replaces a file, or makes it, with mode 0600. Who reads it sees the old content or
// the new, also after a crash of the machine, and never a part. Its folder must be there.
func Write(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("save %s: %w", path, err), os.Remove(f.Name()))
	}
	return nil
}

// Behind does work on a goroutine that lives only while there is some, one piece at a
// time. The zero value is ready; it may be used from any goroutine.
type Behind struct {
	mu   sync.Mutex
	next func()        // nil = nothing new
	idle chan struct{} // closed when the goroutine ends; nil while there is none
}

// Do has work done soon. What is asked for while another piece is being done comes after
// it; of several that wait, the last stands for all, so that work must take in everything
// that is new when it runs.
func (b *Behind) Do(work func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next = work
	if b.idle == nil {
		b.idle = make(chan struct{})
		go b.run()
	}
}

func (b *Behind) run() {
	for {
		b.mu.Lock()
		work := b.next
		b.next = nil
		if work == nil {
			close(b.idle)
			b.idle = nil
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
		work()
	}
}

// Wait blocks until nothing is left to do.
func (b *Behind) Wait() {
	b.mu.Lock()
	idle := b.idle
	b.mu.Unlock()
	if idle != nil {
		<-idle
	}
}
