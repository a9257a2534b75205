// Package tether takes locks that live as long as a connection, on a Redis or Valkey server with the module tether.
//
// A lock is held until it is released, or lost: the client tells its holder of a loss before the server gives the lock to
// another, also if the network or the server fails (the fence). [Held.Check] asks nobody; [Held.Context] is cancelled.
//
//	locks, err := tether.Open("redis://localhost:6379", nil)
//	...
//	err = locks.Lock("report").Do(ctx, func(ctx context.Context, held *tether.Held) error {
//		return write(ctx, held.Token())
//	})
//
// All locks of a [Locks] are on one connection of its own. It connects with the first request, and again whenever a later
// one needs it.
package tether
