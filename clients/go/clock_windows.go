package tether

import (
	"time"

	"golang.org/x/sys/windows"
)

func sinceBoot() (time.Duration, bool) { return windows.DurationSinceBoot(), true }
