package core

import "time"

// Clock makes one clock of two (P-FENCE-3): the differences of Elapsed are at least those of the monotonic clock and those of
// the one that runs on in suspend. The readings of both must begin at 0 at the same moment.
type Clock struct {
	HasBoot  bool          // There is a clock that runs on in suspend.
	Rounding time.Duration // By how much its differences may be too great.
}

// Elapsed is the time since both clocks were 0.
func (c Clock) Elapsed(mono, boot time.Duration) time.Duration {
	if !c.HasBoot {
		return mono
	}
	return max(mono, boot-c.Rounding)
}
