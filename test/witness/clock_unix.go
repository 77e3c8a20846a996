//go:build unix

package witness

import "golang.org/x/sys/unix"

// Now reads the machine's monotonic clock, which all processes share.
func Now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("witness: no monotonic clock: " + err.Error())
	}
	return ts.Nano()
}
