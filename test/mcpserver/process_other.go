//go:build !unix

package main

import "os/exec"

// ownSession does nothing where there are no sessions.
func ownSession(*exec.Cmd) {}

func processGroup() int { return 0 }
