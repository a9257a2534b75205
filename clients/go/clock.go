package tether

import (
	"time"

	"tether/internal/core"
)

// Both clocks of P-FENCE-3 begin here.
var (
	beginning               = time.Now()
	bootBeginning, hasClock = sinceBoot()
	clock                   = core.Clock{HasBoot: hasClock}
)

// now is the time since the program began, in which the machine may have been suspended.
func now() time.Duration {
	boot, _ := sinceBoot()
	return clock.Elapsed(time.Since(beginning), boot-bootBeginning)
}
