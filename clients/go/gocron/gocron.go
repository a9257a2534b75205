// Package gocron has gocron (github.com/go-co-op/gocron/v2) run each job on one machine at a time, with locks of tether, or all jobs
// on the leader of an election.
package gocron

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/go-co-op/gocron/v2"

	"tether"
)

// Locker is for gocron.WithDistributedLocker. A job whose lock another machine has is not run here: the lock does not wait. gocron
// releases it when the job is done; a job whose program dies does not keep it.
func Locker(locks *tether.Locks, options ...tether.Option) gocron.Locker {
	return &locker{locks, options}
}

type locker struct {
	locks   *tether.Locks
	options []tether.Option
}

func (l *locker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	held, err := l.locks.Lock(job, l.options...).TryAcquire(ctx)
	if err != nil {
		return nil, err
	}
	return unlocker{held}, nil
}

type unlocker struct{ held *tether.Held }

func (u unlocker) Unlock(ctx context.Context) error { return u.held.Release(ctx) }

// ErrNotLeader is what an Elector says while another machine leads.
var ErrNotLeader = errors.New("tether: this machine does not lead")

// Elector is for gocron.WithDistributedElector. Run must be running.
type Elector struct {
	election *tether.Election
	term     atomic.Pointer[tether.Held]
}

// NewElector makes a candidate of this name, with a value that says where it is.
func NewElector(locks *tether.Locks, name, value string) *Elector {
	return &Elector{election: locks.Elect(name, value)}
}

// Run stands for election until ctx ends, and returns why it ended.
func (e *Elector) Run(ctx context.Context) error {
	return e.election.Run(ctx, tether.Callbacks{
		Leading: func(ctx context.Context, term *tether.Held) {
			e.term.Store(term)
			<-ctx.Done()
			e.term.Store(nil)
		},
	})
}

// IsLeader says whether this machine leads: nil, [ErrNotLeader], or why it leads no more.
func (e *Elector) IsLeader(context.Context) error {
	if term := e.term.Load(); term != nil {
		return term.Check()
	}
	return ErrNotLeader
}
