// Package harness runs the real thing for the tests: it builds bridgectl and the
// fixture server once per test binary, starts daemons in a world of their own
// (home, XDG directories, state and socket in temporary folders), and finds out
// what they left behind.
//
// A test package calls Main from its TestMain. Everything else takes a testing.TB
// and fails it by itself; whatever is started is stopped in t.Cleanup, where the
// harness also demands that no marked process is left and no data race was seen.
// Waiting is bounded by Patience, which is generous: nothing here measures speed.
package harness

import "time"

// Patience bounds every wait. It is long enough for a loaded machine; a test that
// runs into it has failed.
const Patience = 60 * time.Second

// M is a configuration or a part of one, written as JSON, which is YAML.
type M = map[string]any
