//go:build unix

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
)

// godebug is a switch of the MCP library that brings back older, looser behaviour. It
// is read before main runs, so the only way to be without it is to start again.
const godebug = "MCPGODEBUG"

func (a *app) freshEnvironment() error {
	if v, _ := a.env(godebug); v == "" {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	a.err.line("%s is set and loosens checks of the protocol: starting again without it", godebug)
	env := slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, godebug+"=") })
	if err := syscall.Exec(self, os.Args, env); err != nil {
		return fmt.Errorf("start again without %s: %w", godebug, err)
	}
	return nil
}
