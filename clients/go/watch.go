package tether

import (
	"context"
	"iter"
	"strings"

	"tether/internal/core"
)

// Change is what happened to a key, or to a member.
type Change string

// The changes. A watched key is Exists or Missing first, and then Added and Deleted in turn. A member is Joined, may be Changed,
// and is Left.
const (
	Exists  Change = "exists"
	Missing Change = "missing"
	Added   Change = "added"
	Deleted Change = "deleted"

	Joined  Change = "add"
	Changed Change = "set"
	Left    Change = "del"
)

// KeyEvent is a change of a watched key.
type KeyEvent struct {
	Key    string
	Change Change
}

// IsThere tells whether the key exists now.
func (e KeyEvent) IsThere() bool { return e.Change == Exists || e.Change == Added }

// Watch tells the state of these keys, and then each change, also over reconnects. The sequence ends with an error: an [Error], or
// the context's. A reader that is slow by more than 1,024 events misses changes that cancel each other, never the last state.
func (l *Locks) Watch(ctx context.Context, keys ...string) iter.Seq2[KeyEvent, error] {
	return func(yield func(KeyEvent, error) bool) {
		w := &keyWatch{newFeed(mergeKeys), strings.Join(keys, " ")}
		var watch *core.Watch
		follow(ctx, l.route(keys...), w.name, w.feed, yield, func(c *core.Core) {
			if watch == nil {
				watch = c.Watch(keys, w)
			} else {
				c.GoOnWatching(watch)
			}
		}, func(c *core.Core) { c.Unwatch(watch) })
	}
}

type keyWatch struct {
	*feed[KeyEvent]
	name string
}

func (w *keyWatch) receive(event core.Event) {
	if event.Kind == core.WatchEnded {
		w.finish(errorOf(w.name, event.Err))
		return
	}
	w.add(KeyEvent{event.Key, Change(event.Change)})
}

func mergeKeys(events []KeyEvent) []KeyEvent {
	return merged(events, func(e KeyEvent) string { return e.Key }, func(first, last KeyEvent) (KeyEvent, bool) {
		switch {
		case first.Change != Exists && first.Change != Missing:
			return last, last == first // Else it is as before the first of them.
		case last.IsThere():
			return KeyEvent{last.Key, Exists}, true
		}
		return KeyEvent{last.Key, Missing}, true
	})
}

// Member is a temporary key below a prefix.
type Member struct {
	Key    string
	Change Change
	Token  uint64  // Not of one that Left.
	Value  *string // Nil where the server does not tell it, and of one that Left.
	Reason string  // Of one that Left; unknown where it left while there was no connection.
}

// Presence tells which temporary keys there are below a prefix, and then each change, also over reconnects. The sequence ends with an
// error: an [Error], or the context's.
func (l *Locks) Presence(ctx context.Context, prefix string) iter.Seq2[Member, error] {
	return func(yield func(Member, error) bool) {
		w := &presence{newFeed(mergeMembers), prefix}
		followPrefix(ctx, l.route(prefix), prefix, w.feed, yield, func(c *core.Core) *core.Presence { return c.Presence(prefix, w) })
	}
}

func followPrefix[E any](
	ctx context.Context, route *route, prefix string, events *feed[E], yield func(E, error) bool, begin func(*core.Core) *core.Presence,
) {
	var watch *core.Presence
	follow(ctx, route, prefix, events, yield, func(c *core.Core) {
		if watch == nil {
			watch = begin(c)
		} else {
			c.GoOnPresent(watch)
		}
	}, func(c *core.Core) { c.EndPresence(watch) })
}

type presence struct {
	*feed[Member]
	name string
}

func (w *presence) receive(event core.Event) {
	if event.Kind == core.PresenceEnded {
		w.finish(errorOf(w.name, event.Err))
		return
	}
	w.add(Member{event.Key, Change(event.Change), uint64(event.Token), event.Value, event.Reason})
}

func mergeMembers(events []Member) []Member {
	return merged(events, func(m Member) string { return m.Key }, func(first, last Member) (Member, bool) {
		switch wasThere := first.Change != Joined; {
		case last.Change == Left:
			return last, wasThere
		case wasThere:
			last.Change = Changed
		default:
			last.Change = Joined
		}
		return last, true
	})
}

// Leader is who leads an election.
type Leader struct {
	Token uint64  // 0: nobody leads.
	Value *string // What the leader said of itself, as where it is.
}

// Observe tells who leads an election, and then each change, also over reconnects. The sequence ends with an error: an [Error], or
// the context's.
func (l *Locks) Observe(ctx context.Context, election string) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		w := &observer{newFeed(func(all []Leader) []Leader { return all[len(all)-1:] }), election}
		followPrefix(ctx, l.route(election), election, w.feed, yield, func(c *core.Core) *core.Presence { return c.Observe(election, w) })
	}
}

type observer struct {
	*feed[Leader]
	name string
}

func (w *observer) receive(event core.Event) {
	if event.Kind == core.PresenceEnded {
		w.finish(errorOf(w.name, event.Err))
		return
	}
	w.add(Leader{uint64(event.Token), event.Value})
}
