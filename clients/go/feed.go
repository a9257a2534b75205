package tether

import (
	"context"
	"sync"

	"tether/internal/core"
)

// What a slow reader may leave untaken, beside one event for each key (P-WATCH-5).
const maxUntaken = 1024

// A feed keeps events from the link for a reader, who takes them at its own pace.
type feed[E any] struct {
	merge func([]E) []E // Leaves out what cancels each other, and keeps the last state of each key.

	mu     sync.Mutex
	events []E
	limit  int
	end    error
	ready  chan struct{}
}

func newFeed[E any](merge func([]E) []E) *feed[E] {
	return &feed[E]{merge: merge, limit: maxUntaken, ready: make(chan struct{}, 1)}
}

func (f *feed[E]) add(event E) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, event)
	if len(f.events) > f.limit {
		f.events = f.merge(f.events)
		f.limit = len(f.events) + maxUntaken
	}
	f.wake()
}

func (f *feed[E]) finish(why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.end = why
	f.wake()
}

// reopen has it go on after its end.
func (f *feed[E]) reopen() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.end = nil
}

func (f *feed[E]) wake() {
	select {
	case f.ready <- struct{}{}:
	default:
	}
}

// take is the next event, or why none will come.
func (f *feed[E]) take(ctx context.Context, name string) (event E, err error) {
	for {
		if ctx.Err() != nil {
			return event, stopped(ctx, name)
		}
		f.mu.Lock()
		end, isThere := f.end, len(f.events) > 0
		if isThere {
			event, f.events = f.events[0], f.events[1:]
		} else {
			f.events, f.limit = nil, maxUntaken
		}
		f.mu.Unlock()
		switch {
		case isThere:
			return event, nil
		case end != nil:
			return event, end
		}
		select {
		case <-f.ready:
		case <-ctx.Done():
		}
	}
}

// follow gives the events of a watch one by one, and the error at the end. It goes where a node of a cluster refers to, and goes
// on there (P-CLUSTER-7).
func follow[E any](
	ctx context.Context, route *route, name string, events *feed[E], yield func(E, error) bool, begin, end func(*core.Core),
) {
	for {
		at, since := route.link, now()
		at.do(begin)
		err := func() error {
			defer at.do(end) // Also if the reader panics.
			for {
				event, err := events.take(ctx, name)
				if err != nil || !yield(event, nil) {
					return err
				}
			}
		}()
		if now()-since > settled {
			route.referrals = 0
		}
		if err == nil {
			return
		}
		if !route.follows(err) {
			var none E
			yield(none, err)
			return
		}
		events.reopen()
	}
}

// merged keeps the last event of each key, in the order of their first. join makes one of the first and the last; false drops both.
func merged[E any](events []E, key func(E) string, join func(first, last E) (E, bool)) []E {
	type span struct{ first, last E }
	spans, order := map[string]*span{}, []string{}
	for _, event := range events {
		name := key(event)
		if found := spans[name]; found != nil {
			found.last = event
		} else {
			spans[name] = &span{event, event}
			order = append(order, name)
		}
	}
	kept := make([]E, 0, len(order))
	for _, name := range order {
		if event, is := join(spans[name].first, spans[name].last); is {
			kept = append(kept, event)
		}
	}
	return kept
}
