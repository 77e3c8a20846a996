package demo

import (
	"mcpbridge/config"
	"mcpbridge/messages"
)

// Name is the demo server's name in the configuration.
const Name = "demo"

// Config is a complete configuration with the demo server under the name `demo`:
// its effects declared as an operator would, every tool allowed. executable is the
// path of this binary, which is started again as `demo-server`.
func Config(executable string) *config.Config {
	s := config.DefaultServer()
	s.Name = Name
	s.Layer = config.LayerDemo
	s.Source = "built in (--demo)"
	s.Type = config.Stdio
	s.Command = executable
	s.Args = []string{"demo-server"}
	s.Effects = map[string]messages.Effect{
		"echo": messages.ReadOnly, "add": messages.ReadOnly, "slow_read": messages.ReadOnly, "note_list": messages.ReadOnly,
		"note_add": messages.SideEffect, "crash": messages.SideEffect,
	}
	c := config.Default()
	c.Servers = []config.Server{s}
	c.Permissions = []config.Rule{{Server: Name, Action: messages.Allow, Source: "built in (--demo)"}}
	c.HasPermissions = true
	c.Normalize()
	return c
}
