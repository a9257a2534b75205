package tether

import (
	"time"

	"golang.org/x/sys/unix"
)

// On macOS, CLOCK_MONOTONIC runs on in suspend; what Go's own clock reads does not.
func sinceBoot() (time.Duration, bool) {
	var at unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &at)
	return time.Duration(at.Nano()), err == nil
}
