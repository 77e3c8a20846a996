//go:build !unix

package witness

import "time"

// Now is the wall clock where no shared monotonic one is at hand.
func Now() int64 { return time.Now().UnixNano() }
