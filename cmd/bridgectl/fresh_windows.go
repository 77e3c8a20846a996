package main

import "fmt"

// godebug is a switch of the MCP library that brings back older, looser behaviour. It
// is read before main runs, so the only way to be without it is to start again.
const godebug = "MCPGODEBUG"

func (a *app) freshEnvironment() error {
	if v, _ := a.env(godebug); v != "" {
		return &failure{exit: exitUsage, code: "usage", err: fmt.Errorf("%s is set and loosens checks of the protocol", godebug), hint: "unset it and start again"}
	}
	return nil
}
