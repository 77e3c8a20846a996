//go:build unix

package main

import "syscall"

// detached gives a process a session of its own: no terminal, no signals of ours.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
