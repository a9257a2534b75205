package tether

import (
	"time"

	"golang.org/x/sys/unix"
)

func sinceBoot() (time.Duration, bool) {
	var at unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &at)
	return time.Duration(at.Nano()), err == nil
}
