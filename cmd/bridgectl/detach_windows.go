package main

import (
	"syscall"

	"golang.org/x/sys/windows"
)

// detached gives a process a group of its own and no console.
func detached() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.DETACHED_PROCESS}
}
