//go:build planted

package planted

import (
	"fmt"
	"os"
)

// Env is the variable that names the active bug.
const Env = "MCPBRIDGE_PLANTED"

var active = choose(os.Getenv(Env))

// Is reports whether the bug is active.
func Is(b Bug) bool { return b == active }

// choose takes the name of a bug; "" is none.
func choose(name string) Bug {
	if name == "" {
		return ""
	}
	for _, i := range All {
		if string(i.Bug) == name {
			fmt.Fprintf(os.Stderr, "*** THIS PROGRAM IS BROKEN ON PURPOSE: %s is %q: %s. Never use it for real work. ***\n", Env, name, i.Does)
			return i.Bug
		}
	}
	fmt.Fprintf(os.Stderr, "%s: no bug has the name %q; they are:\n", Env, name)
	for _, i := range All {
		fmt.Fprintf(os.Stderr, "  %-28s %s\n", i.Bug, i.Does)
	}
	os.Exit(2)
	return ""
}
