//go:build unix

package main

import (
	"os"
	"os/exec"
	"syscall"
)

func ownSession(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

func processGroup() int { return syscall.Getpgrp() }

func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// selfReport is what this process may do and has open. Its own look at the descriptors
// is left out.
func selfReport() map[string]any {
	out := map[string]any{"pgid": syscall.Getpgrp(), "pid": os.Getpid()}
	fds := map[string]string{}
	if entries, err := os.ReadDir("/proc/self/fd"); err == nil {
		for _, e := range entries {
			if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
				fds[e.Name()] = target
			}
		}
	}
	out["fds"] = fds
	if b, err := os.ReadFile("/proc/self/limits"); err == nil {
		out["limits"] = string(b)
	}
	if b, err := os.ReadFile("/proc/self/status"); err == nil {
		out["status"] = string(b)
	}
	if b, err := os.ReadFile("/proc/self/cgroup"); err == nil {
		out["cgroup"] = string(b)
	}
	return out
}
