//go:build !planted

package planted

// Is reports whether the bug is active, which none is in an ordinary build.
func Is(Bug) bool { return false }

// Meet is called by each actor with each message that it takes, and does nothing in an
// ordinary build.
func Meet(string, any) {}
