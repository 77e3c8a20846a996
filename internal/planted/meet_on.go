//go:build planted

package planted

import "sync/atomic"

var saboteur atomic.Pointer[func(actor string, message any)]

// Sabotage sets what happens, from now on, to every actor with every message that it
// takes; nil for nothing. It may panic, as a bug in the handler would.
func Sabotage(f func(actor string, message any)) {
	if f == nil {
		saboteur.Store(nil)
		return
	}
	saboteur.Store(&f)
}

// Meet is called by each actor with each message that it takes, before it handles it.
func Meet(actor string, message any) {
	if f := saboteur.Load(); f != nil {
		(*f)(actor, message)
	}
}
