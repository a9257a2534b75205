package tether

import (
	"context"
	"sync"

	"tether/internal/core"
)

// Election is a candidate for the leadership of this name. A [Locks] has at most one candidate for a name at a time.
type Election struct {
	locks *Locks
	want  core.Want
}

// Elect makes a candidate. The value says who or where it is: observers hear it.
func (l *Locks) Elect(name, value string) *Election {
	return &Election{l, core.Want{Keys: []string{name}, Temporary: true, Value: value, Elect: true, Wait: core.Forever}}
}

// Callbacks are what [Election.Run] calls. Each may be nil.
type Callbacks struct {
	// Leading is called at the beginning of each term. When it returns, the candidate resigns, and stands again. Its context ends with
	// the term, with a [LostError] as its cause, and with Run's; return then.
	Leading func(ctx context.Context, term *Held)
	// Ended is called when a term is over and Leading has returned: with a [LostError], or nil if the candidate resigned.
	Ended func(err error)
	// Leader is called for each change of the leader, by another goroutine. An error that ends its sequence, as [Locks.Observe] gives,
	// ends Run, too.
	Leader func(Leader)
}

// Run stands for election until ctx ends, again after each term, and whether a server is reached or not. It returns the cause of
// ctx, the [Error] of a server that refuses for good, or [ErrClosed].
func (e *Election) Run(ctx context.Context, callbacks Callbacks) error {
	name := e.want.Keys[0]
	var observers sync.WaitGroup
	defer observers.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if callbacks.Leader != nil {
		observers.Add(1)
		go func() {
			defer observers.Done()
			for leader, err := range e.locks.Observe(ctx, name) {
				if err != nil {
					cancel(err) // Where nobody can say who leads, Run ends, too.
					return
				}
				callbacks.Leader(leader)
			}
		}()
	}
	for route := e.locks.route(name); ; {
		c := &candidate{ctx: ctx, locks: e.locks, link: route.link, terms: make(chan *Held, 1), failed: make(chan error, 1), name: name}
		since := now()
		err := c.run(callbacks, route.want(e.want))
		if now()-since > settled {
			route.referrals = 0
		}
		if !route.follows(err) {
			return err
		}
	}
}

// candidate hears what becomes of the request, which stands again after each term.
type candidate struct {
	ctx     context.Context
	locks   *Locks
	link    *link
	name    string
	request *core.Request
	terms   chan *Held // The term that has begun, if Run has not taken it.
	failed  chan error

	term *Held // With the link's lock.
}

func (c *candidate) receive(event core.Event) {
	switch event.Kind {
	case core.Granted:
		c.term = newHeld(c.ctx, c.locks, c.link, c.name)
		c.term.request = event.Request
		c.term.receive(event)
		c.terms <- c.term
	case core.Ended:
		c.failed <- errorOf(c.name, event.Err)
	case core.LostHold, core.Released:
		select {
		case <-c.terms: // It was over before Run took it.
		default:
		}
		c.term.receive(event)
	default:
		if c.term != nil {
			c.term.receive(event)
		}
	}
}

// run stands for election at one server.
func (c *candidate) run(callbacks Callbacks, want core.Want) error {
	c.link.do(func(core *core.Core) { c.request = core.Acquire(want, c) })
	defer c.link.do(func(core *core.Core) { core.GiveUp(c.request) })
	for c.ctx.Err() == nil {
		select {
		case term := <-c.terms:
			c.lead(term, callbacks)
		case err := <-c.failed:
			return err
		case <-c.link.closed.Done(): // The last term was told of its end, and no other one follows.
			return errorOf(c.name, core.WasClosed())
		case <-c.ctx.Done():
		}
	}
	return stopped(c.ctx, c.name)
}

func (c *candidate) lead(term *Held, callbacks Callbacks) {
	working, cancel := context.WithCancelCause(c.ctx)
	stop := context.AfterFunc(term.Context(), func() { cancel(context.Cause(term.Context())) })
	if callbacks.Leading != nil {
		callbacks.Leading(working, term)
	} else {
		<-working.Done()
	}
	stop()
	cancel(ErrReleased)
	err := term.Release(context.WithoutCancel(c.ctx))
	if callbacks.Ended != nil {
		callbacks.Ended(err)
	}
}
