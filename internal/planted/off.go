//go:build !planted

package planted

// Is reports whether the bug is active, which none is in an ordinary build.
func Is(Bug) bool { return false }
