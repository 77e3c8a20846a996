//go:build !linux

package own

import (
	"errors"
	"fmt"
	"os/exec"
	"sync/atomic"
)

// system is what only Linux needs.
type system struct{}

// What only Linux has: limits, adoption, the guardian, the sweep of an earlier life.

const (
	limitsFiles = false
	guards      = false
	lowest      = rung
	daemonRung  = rung
)

var lastTree atomic.Uint64

func (w *Owner) open() error {
	if w.o.Rung != "" && w.o.Rung != rung {
		return fmt.Errorf("%s=%s: here there is only %s", ForceVar, w.o.Rung, rung)
	}
	w.state.Rung, w.state.Memory, w.state.PIDs = rung, "none", "none"
	w.state.Forced, w.state.Reason = w.o.Rung != "", rungReason
	return nil
}

func (w *Owner) begin() {}

func (w *Owner) cgroups() []string { return nil }

func (w *Owner) startKnown(*exec.Cmd) error { return errors.ErrUnsupported }

func (w *Owner) forgetKnown(int) {}

func (w *Owner) close(clean bool) bool { return clean }

// IsLimits reports whether a start failed of its limits, which no repetition changes.
func IsLimits(err error) bool { return errors.Is(err, errors.ErrUnsupported) }

func noNewPrivileges() error { return nil }

// Guard is for Linux only.
func Guard() error { return errors.New("there is no guardian on this system") }

func (w *Owner) newTree(limits Limits) (*Tree, error) {
	if err := w.Check(limits); err != nil {
		return nil, fmt.Errorf("%w (%w)", err, errors.ErrUnsupported)
	}
	return &Tree{w: w, id: lastTree.Add(1)}, nil
}

// Note remembers nothing here.
func (t *Tree) Note() {}
