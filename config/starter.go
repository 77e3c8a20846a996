package config

import _ "embed"

//go:embed starter.yaml
var starter string

// Starter is the commented file that `config init` writes. It loads without a
// problem and starts nothing until a server is added.
func Starter() string { return starter }
