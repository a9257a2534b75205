package tether

import (
	"errors"
	"fmt"

	"tether/internal/core"
)

// What an error is, for errors.Is.
var (
	// ErrTaken says that another owner has the lock, or still had it when the time to wait was over.
	ErrTaken = errors.New("taken")
	// ErrDeadlock says that the request would wait for itself, or close a cycle of waits.
	ErrDeadlock = errors.New("deadlock")
	// ErrRefused says that the server refuses for another reason (see [Error.Code]), or that TLS does.
	ErrRefused = errors.New("refused")
	// ErrUnreachable says that there is no connection, or no answer within the time to wait.
	ErrUnreachable = errors.New("unreachable")
	// ErrNoModule says that the server lacks the module tether.
	ErrNoModule = errors.New("the server lacks the module tether")
	// ErrNoPush says that the server sends no pushes, which locks need: run `tether qualify` there.
	ErrNoPush = errors.New("the server sends no pushes")
	// ErrUnfit says that the times of the client do not fit the server's.
	ErrUnfit = errors.New("the times do not fit the server's")
	// ErrCrossSlot says that in a cluster the keys are of more than one slot.
	ErrCrossSlot = errors.New("the keys are of more than one slot")
	// ErrClosed says that the Locks was closed.
	ErrClosed = errors.New("closed")
	// ErrLost says that a hold was lost; a [LostError] has the reason.
	ErrLost = errors.New("lost")
	// ErrReleased is what [Held.Check] and the cause of [Held.Context] say after [Held.Release].
	ErrReleased = errors.New("tether: released")
)

var kinds = map[string]error{
	core.Taken: ErrTaken, core.Deadlock: ErrDeadlock, core.Refused: ErrRefused, core.Unreachable: ErrUnreachable,
	core.NoModule: ErrNoModule, core.NoPush: ErrNoPush, core.Unfit: ErrUnfit, core.CrossSlot: ErrCrossSlot,
	core.Closed: ErrClosed, core.Lost: ErrLost,
}

// Error says why a request failed. errors.Is knows its Kind.
type Error struct {
	Kind error  // One of the Err variables.
	Name string // The lock, or what else was asked for; empty where it is about no name.
	Code string // The first word of the server's error, as in NOPERM; else TLS, KEYS, OWNER, or the kind in capitals.
	Text string // The server's text, or the client's.
}

func (e *Error) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("tether: %v: %s", e.Kind, e.Text)
	}
	return fmt.Sprintf("tether: %q: %v: %s", e.Name, e.Kind, e.Text)
}

// Unwrap is the Kind.
func (e *Error) Unwrap() error { return e.Kind }

// LostError says that a hold was lost. errors.Is knows it as [ErrLost].
type LostError struct {
	Name string
	// Reason is the server's word (lease, deleted, expired, evicted, flushed, overwritten, moved, demoted, ended, or that of a
	// later server), or the client's: connection, silence, closed; stale where a server said that the token is not current
	// and the reason is not known.
	Reason string
}

func (e *LostError) Error() string { return fmt.Sprintf("tether: %q: lost: %s", e.Name, e.Reason) }

// Unwrap is [ErrLost].
func (e *LostError) Unwrap() error { return ErrLost }

func errorOf(name string, err *core.Error) error {
	return &Error{Kind: kinds[err.Name], Name: name, Code: err.Code, Text: err.Text}
}
