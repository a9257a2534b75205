package tether

import (
	"context"
	"errors"
	"testing"
	"time"

	"tether/tethertest"
)

// leader is a candidate that leads, and its first term.
type leader struct {
	server *tethertest.Server
	locks  *Locks
	terms  chan *Held
	resign chan struct{}
	ended  chan error
	result chan error // Of Run.
	first  *Held
}

func newLeader(t *testing.T, server *tethertest.Server, options *Options) *leader {
	l := &leader{server, nil, make(chan *Held), make(chan struct{}), make(chan error, 10), make(chan error, 1), nil}
	var err error
	if l.locks, err = Open(l.server.URL, options); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		l.result <- l.locks.Elect("lead", "here").Run(ctx, Callbacks{
			Leading: func(ctx context.Context, term *Held) {
				select {
				case l.terms <- term:
				case <-ctx.Done():
				}
				select {
				case <-l.resign:
				case <-ctx.Done():
				}
			},
			Ended: func(err error) { l.ended <- err },
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-over
		l.locks.Close()
	})
	l.first = l.next(t)
	return l
}

func (l *leader) next(t *testing.T) *Held {
	t.Helper()
	select {
	case term := <-l.terms:
		return term
	case <-time.After(10 * time.Second):
		t.Fatal("it does not lead")
		return nil
	}
}

// Whose resigning itself finds the fence over has lost the term, and stands again (P-ELECT-2).
func TestCandidateThatResignsAfterItsFenceStandsAgain(t *testing.T) {
	l := newLeader(t, tethertest.Start(t), &Options{Fence: 200 * time.Millisecond})
	l.locks.link.mu.Lock() // Nothing is heard or done meanwhile, as in a process that is stopped.
	l.resign <- struct{}{}
	time.Sleep(300 * time.Millisecond)
	l.locks.link.mu.Unlock()
	if err := <-l.ended; !errors.Is(err, ErrLost) {
		t.Fatal(err)
	}
	if term := l.next(t); term.Token() <= l.first.Token() {
		t.Fatal("the tokens do not rise")
	}
}

// Whatever its candidate does when the client is closed, an election ends with that (P-CLOSE-1).
func TestElectionEndsWithItsClient(t *testing.T) {
	for name, come := range map[string]func(*leader, *tethertest.DevServer, <-chan Notice){
		"it leads": func(*leader, *tethertest.DevServer, <-chan Notice) {},
		"its resigning is refused": func(l *leader, server *tethertest.DevServer, _ <-chan Notice) {
			server.Refuse("BUSY")
			l.resign <- struct{}{}
			<-l.ended
		},
		"its term is lost while its resigning is refused": func(l *leader, server *tethertest.DevServer, losses <-chan Notice) {
			server.Refuse("BUSY")
			l.resign <- struct{}{}
			<-l.ended
			server.Lose("lead")
			<-losses
		},
	} {
		t.Run(name, func(t *testing.T) {
			server, losses := tethertest.StartDevServer(t), make(chan Notice, 1)
			l := newLeader(t, server.Server, &Options{Observer: func(notice Notice) {
				if notice.Kind == Lost {
					losses <- notice
				}
			}})
			come(l, server, losses)
			l.locks.Close()
			select {
			case err := <-l.result:
				if !errors.Is(err, ErrClosed) {
					t.Error(err)
				}
			case <-time.After(5 * time.Second):
				t.Error("it stands on")
			}
		})
	}
}

// A call of a term that ended just before it asks says so, and asks nothing about the next term of the same candidate.
func TestCallsOfAFormerTermAskNothingAboutTheNext(t *testing.T) {
	for name, each := range map[string]struct {
		calls func(*Held) *answer
		call  func(*Held) error
	}{
		"Extend": {
			func(h *Held) *answer { return &h.extended },
			func(h *Held) error { return h.Extend(context.Background(), time.Minute) },
		},
		"CheckServer": {
			func(h *Held) *answer { return &h.checked },
			func(h *Held) error { return h.CheckServer(context.Background()) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLeader(t, tethertest.Start(t), nil)
			slot := each.calls(l.first).slot
			slot <- struct{}{} // The call has checked that it leads, and comes no further.
			result := make(chan error, 1)
			go func() { result <- each.call(l.first) }()
			time.Sleep(50 * time.Millisecond)
			l.server.Do("DEL", "lead")
			second := l.next(t)
			<-slot
			select {
			case err := <-result:
				if !errors.Is(err, ErrLost) {
					t.Error(err)
				}
			case <-time.After(5 * time.Second):
				t.Fatal("it is not answered")
			}
			if err := second.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}
