package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// wrapSelf runs the same program without -wrap, with stdin, stdout and stderr
// handed through, and ends with it: what npx and shell scripts do.
func wrapSelf() error {
	// The last word on a switch counts, so that nothing that looks like it is touched.
	cmd := exec.Command(os.Args[0], append(slices.Clone(os.Args[1:]), "-wrap=false")...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		os.Exit(exit.ExitCode())
	}
	return err
}

// startGrandchild starts a process that holds stdout and stderr open and sleeps.
func startGrandchild(setsid bool) error {
	cmd := exec.Command(os.Args[0], "-sleeper")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if setsid {
		ownSession(cmd)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start grandchild: %w", err)
	}
	go func() { _ = cmd.Wait() }()
	return nil
}

func sleepForever() {
	for {
		time.Sleep(time.Hour)
	}
}

// flood writes n bytes of lines (n < 0: without end).
func flood(w io.Writer, n int64) {
	line := strings.Repeat("noise on stderr ", 6) + "\n"
	for n != 0 {
		s := line
		if n > 0 && n < int64(len(s)) {
			s = s[:n]
		}
		if _, err := io.WriteString(w, s); err != nil {
			return
		}
		if n > 0 {
			n -= int64(len(s))
		}
	}
}
