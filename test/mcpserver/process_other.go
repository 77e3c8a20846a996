//go:build !unix

package main

import (
	"os"
	"os/exec"
)

// ownSession does nothing where there are no sessions.
func ownSession(*exec.Cmd) {}

func processGroup() int { return 0 }

func ownGroup(*exec.Cmd) {}

func selfReport() map[string]any { return map[string]any{"pid": os.Getpid()} }
