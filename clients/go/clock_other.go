//go:build !linux && !darwin && !windows

package tether

import "time"

func sinceBoot() (time.Duration, bool) { return 0, false }
