package tether_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"tether"
	"tether/tethertest"
)

// began starts a sequence, and gives its elements one by one.
func began[E any](t *testing.T, sequence func(func(E, error) bool)) func() E {
	events := make(chan E)
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	go sequence(func(event E, err error) bool {
		if err != nil {
			return false
		}
		select {
		case events <- event:
			return true
		case <-over:
			return false
		}
	})
	return func() E {
		t.Helper()
		return received(t, events)
	}
}

// received is the next of this channel, within a minute.
func received[E any](t *testing.T, from <-chan E) E {
	t.Helper()
	select {
	case next := <-from:
		return next
	case <-time.After(time.Minute):
		t.Fatal("nothing comes")
		panic("unreachable")
	}
}

func TestWatch(t *testing.T) {
	server := tethertest.Start(t)
	locks := open(t, server.URL, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	server.Do("SET", "a", "1")
	next := began(t, locks.Watch(ctx, "a", "b"))
	seen := []tether.KeyEvent{next(), next()}
	if !slices.Equal(seen, []tether.KeyEvent{{Key: "a", Change: tether.Exists}, {Key: "b", Change: tether.Missing}}) {
		t.Fatal(seen)
	}
	server.Do("DEL", "a")
	if event := next(); event != (tether.KeyEvent{Key: "a", Change: tether.Deleted}) || event.IsThere() {
		t.Fatal(event)
	}
	server.Do("CLIENT", "KILL", "TYPE", "normal")
	server.Do("SET", "b", "1")
	if event := next(); event != (tether.KeyEvent{Key: "b", Change: tether.Added}) {
		t.Fatal(event)
	}
	cancel()
	for _, err := range locks.Watch(ctx, "a") {
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	for range locks.Watch(t.Context(), "a") {
		break
	}
	for _, err := range locks.Watch(t.Context()) {
		var refused *tether.Error
		if !errors.As(err, &refused) || refused.Code != "KEYS" {
			t.Fatal(err)
		}
	}
}

// A reader that takes nothing misses what cancels each other, and hears the last state of each key (P-WATCH-5).
func TestSlowWatcher(t *testing.T) {
	server := tethertest.Start(t)
	locks := open(t, server.URL, nil)
	there := map[string]bool{}
	changes := 0
	for event, err := range locks.Watch(t.Context(), "a", "b", "last") {
		if err != nil {
			t.Fatal(err)
		}
		if before, is := there[event.Key]; is && before == event.IsThere() {
			t.Fatal("told twice:", event)
		}
		there[event.Key] = event.IsThere()
		changes++
		if changes == 3 { // All states are known. Now the reader does not read.
			for number := range 4001 {
				if number%2 == 0 {
					server.Do("MSET", "a", "1", "b", "1")
				} else {
					server.Do("DEL", "a", "b")
				}
			}
			server.Do("SET", "last", "1")
		}
		if there["last"] {
			break
		}
	}
	if !there["a"] || !there["b"] || changes > 3*1024 {
		t.Fatal(there, changes)
	}
}

func TestPresence(t *testing.T) {
	server := tethertest.Start(t)
	locks, others := open(t, server.URL, nil), open(t, server.URL, nil)
	member := acquire(t, others.Temporary("member:1", "here"))
	next := began(t, locks.Presence(t.Context(), "member:"))
	if event := next(); event.Key != "member:1" || event.Change != tether.Joined || *event.Value != "here" || event.Token != member.Token() {
		t.Fatal(event)
	}
	server.Do("SET", "member:1", "there")
	if event := next(); event.Change != tether.Changed || *event.Value != "there" {
		t.Fatal(event)
	}
	server.Do("DEL", "member:1")
	if event := next(); event.Change != tether.Left || event.Reason == "" {
		t.Fatal(event)
	}
}

func TestElection(t *testing.T) {
	server := tethertest.Start(t)
	leaders := began(t, open(t, server.URL, nil).Observe(t.Context(), "lead"))
	if leader := leaders(); leader.Token != 0 {
		t.Fatal(leader)
	}
	type candidate struct {
		terms  chan *tether.Held
		resign chan struct{}
		ended  chan error
		result chan error
		stop   context.CancelFunc
	}
	stand := func(value string) *candidate {
		ctx, cancel := context.WithCancel(t.Context())
		c := &candidate{make(chan *tether.Held), make(chan struct{}), make(chan error, 10), make(chan error), cancel}
		locks := open(t, server.URL, nil)
		go func() {
			c.result <- locks.Elect("lead", value).Run(ctx, tether.Callbacks{
				Leading: func(ctx context.Context, term *tether.Held) {
					select {
					case c.terms <- term:
					case <-ctx.Done(): // Whoever is stopped last may lead once more, and nobody takes that term.
					}
					select {
					case <-c.resign:
					case <-ctx.Done():
					}
				},
				Ended: func(err error) { c.ended <- err },
			})
		}()
		return c
	}
	one := stand("one")
	first := received(t, one.terms)
	if leader := leaders(); *leader.Value != "one" || leader.Token != first.Token() {
		t.Fatal(leader)
	}
	other := stand("other")
	tethertest.Eventually(t, "the other waits", func() bool { return waiters(server) == 1 })
	close(one.resign) // And stands again, behind the other.
	if err := received(t, one.ended); err != nil {
		t.Fatal(err)
	}
	second := received(t, other.terms)
	if leader := leaders(); *leader.Value != "other" || leader.Token != second.Token() {
		t.Fatal(leader)
	}
	tethertest.Eventually(t, "the first waits again", func() bool { return waiters(server) == 1 })
	server.Do("DEL", "lead")
	if err := received(t, other.ended); !errors.Is(err, tether.ErrLost) {
		t.Fatal(err)
	}
	if third := received(t, one.terms); third.Token() <= second.Token() {
		t.Fatal("the tokens do not rise")
	}
	one.stop()
	other.stop()
	for _, c := range []*candidate{one, other} {
		if err := received(t, c.result); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	tethertest.Eventually(t, "nobody leads", func() bool { return server.Do("EXISTS", "lead") == "0" })
}

func waiters(server *tethertest.Server) int {
	found := regexp.MustCompile(`waiter-count (\d+)`).FindStringSubmatch(server.Do("LOCK.INFO", "lead"))
	if found == nil {
		return 0
	}
	number, _ := strconv.Atoi(found[1])
	return number
}
