// Package flock locks a file for one process.
//
// The lock belongs to the open file and ends with the process, however that ends, but not
// always at once: a child that was being made when its parent was killed holds the
// parent's files until it executes its program. Who starts in the same moment, as a
// supervisor does that starts a killed daemon again, must not take that for a second
// daemon. Lock therefore waits a moment for a lock that is held.
package flock

import (
	"errors"
	"os"
	"time"
)

// ErrLocked says that another process holds the lock.
var ErrLocked = errors.New("locked by another process")

// patience is how long a held lock is waited for: a multiple of what a fork takes on a
// loaded machine, and short enough for somebody who starts a second daemon by mistake.
const patience = 2 * time.Second

const pause = 10 * time.Millisecond

// Lock locks the open file for writing. It returns ErrLocked when another process held it
// for two seconds. The lock ends when the file is closed.
func Lock(f *os.File) error {
	for end := time.Now().Add(patience); ; time.Sleep(pause) {
		err := try(f)
		if !errors.Is(err, ErrLocked) || !time.Now().Before(end) {
			return err
		}
	}
}
