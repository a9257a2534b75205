package tether

import (
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"tether/internal/core"
)

// Locks takes locks on one server, or on one that takes its place. It may be used by any number of goroutines, and lives as
// long as the program.
type Locks struct {
	config  core.Config
	notices *notices
	link    *link
	cluster *cluster // Nil unless Options.Cluster.
}

// Open makes a Locks for the server at this URL: redis://user:password@host:6379/0, rediss:// with TLS, or unix:///path?db=0;
// valkey:// and valkeys:// say the same. It does not connect yet; the first request does. Options may be nil.
func Open(url string, options *Options) (*Locks, error) {
	if options == nil {
		options = &Options{}
	}
	if err := options.validate(); err != nil {
		return nil, err
	}
	d := &dialer{
		sentinels: options.Sentinels, master: options.Master, sentinelUser: options.SentinelUser,
		sentinelPassword: options.SentinelPassword, tls: options.TLS, name: connectionName(options.Name),
	}
	for _, each := range append([]string{url}, options.Addresses...) {
		at, err := parseAddress(each)
		if err != nil {
			return nil, err
		}
		d.addresses = append(d.addresses, at)
	}
	l := &Locks{
		notices: &notices{logger: options.Logger, observer: options.Observer},
		config: core.Config{
			Grace: options.Grace, StopWithin: options.StopWithin, Fence: options.Fence, NoBootClock: !hasClock,
			Cluster: options.Cluster, Random: rand.Float64,
		},
	}
	connect := func() *link { return newLink(d, l.config, l.notices) }
	if options.Cluster {
		l.cluster = newCluster(d, connect)
		l.link = l.cluster.first
		return l, nil
	}
	l.link = connect()
	return l, nil
}

// Close ends everything: holders are told that their locks are lost (closed), requests fail with [ErrClosed], and the server
// frees the locks at once. It takes two seconds at most. A closed Locks is of no use any more.
func (l *Locks) Close() error {
	if l.cluster != nil {
		l.cluster.close()
		return nil
	}
	l.link.close()
	return nil
}

// Lock is a lock of this name, and how to ask for it. It may be made once and used by any number of goroutines: each Acquire
// is a request of its own.
func (l *Locks) Lock(name string, options ...Option) *Lock {
	return l.lock([]string{name}, options)
}

// All is several locks that are granted in one step with one token, or not at all.
func (l *Locks) All(names []string, options ...Option) *Lock {
	return l.lock(append([]string(nil), names...), options)
}

// Temporary is a key with this value that lives as long as the hold; others may read and watch it. There is one request for a
// name at a time in a Locks.
func (l *Locks) Temporary(key, value string, options ...Option) *Lock {
	lock := l.lock([]string{key}, options)
	lock.want.Temporary, lock.want.Value = true, value
	return lock
}

// Sequence is a temporary key whose name the server makes: the prefix and the token. It never waits. [Held.Name] is the name.
func (l *Locks) Sequence(prefix, value string, options ...Option) *Lock {
	lock := l.Temporary(prefix, value, options...)
	lock.want.Seq = true
	return lock
}

func (l *Locks) lock(names []string, options []Option) *Lock {
	lock := &Lock{locks: l, want: core.Want{Keys: names, Wait: core.Forever}}
	for _, option := range options {
		option(&lock.want)
	}
	return lock
}

// Option says how to ask for a lock.
type Option func(*core.Want)

// Wait bounds the time to wait; then the error is [ErrTaken], or [ErrUnreachable] if no server answers. Without it a request waits
// until its context ends. 0 is not to wait at all.
func Wait(limit time.Duration) Option { return func(w *core.Want) { w.Wait = max(0, limit) } }

// Shared goes together with other shared holders.
func Shared() Option { return func(w *core.Want) { w.Shared = true } }

// Permits takes this number of permits, of those that there are: all users of the lock must give the same `of`.
func Permits(permits, of int) Option {
	return func(w *core.Want) { w.Permits, w.Of = permits, of }
}

// Lease lets the lock be lost (lease) after that time, a millisecond at least, unless [Held.Extend] says otherwise.
func Lease(limit time.Duration) Option {
	return func(w *core.Want) { w.Lease = max(time.Millisecond, limit) }
}

// Owner names the owner, which LOCK.INFO shows. An owner has one request for a lock at a time. The name must not begin with a dot.
func Owner(name string) Option { return func(w *core.Want) { w.Owner = name } }

// Reentrant lets a named owner take what it has once more. Each Acquire needs its Release.
func Reentrant() Option { return func(w *core.Want) { w.Reentrant = true } }

// Acks grants the lock only when so many replicas have acknowledged it, within that time (0: the server's). It needs a Grace.
func Acks(replicas int, within time.Duration) Option {
	return func(w *core.Want) { w.Acks, w.AckTimeout = replicas, within }
}

// AtLeast keeps the lock from others for at least that time, also if it is released before. It needs a Grace as long.
func AtLeast(limit time.Duration) Option { return func(w *core.Want) { w.AtLeast = limit } }

type taskKey struct{}

// WithTask names the task that goes on with this context, for the requests that are made with it. A task is a line of work that
// stands still while it waits for a lock, and may hold others meanwhile. The server refuses what would be a deadlock between tasks
// ([ErrDeadlock]). Without a task, two goroutines that wait for each other's locks do so for ever, or as long as Wait says.
func WithTask(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, taskKey{}, name)
}

// Lock is what [Locks.Lock] and its like give.
type Lock struct {
	locks *Locks
	want  core.Want
}

// Acquire waits for the lock. When ctx ends, it leaves neither a place in the queue nor a hold behind. What is held does not end
// with ctx: see [Held.Context].
func (l *Lock) Acquire(ctx context.Context) (*Held, error) { return l.acquire(ctx, l.want) }

// TryAcquire does not wait: [ErrTaken] says that another owner has it. If there is no connection it makes one, which ctx bounds.
func (l *Lock) TryAcquire(ctx context.Context) (*Held, error) {
	want := l.want
	want.Wait = 0
	return l.acquire(ctx, want)
}

// Do acquires the lock, calls body, and releases the lock. The body's context ends with ctx, and with the lock: its cause is a
// [LostError] then. If the lock was lost, the error of Do is that, joined with the body's.
func (l *Lock) Do(ctx context.Context, body func(context.Context, *Held) error) error {
	held, err := l.Acquire(ctx)
	if err != nil {
		return err
	}
	working, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(held.Context(), func() { cancel(context.Cause(held.Context())) })
	defer func() { // Also if the body panics.
		stop()
		cancel(ErrReleased)
		held.begin()
	}()
	failed := body(working, held)
	return errors.Join(failed, held.Release(context.WithoutCancel(ctx)))
}

func (l *Lock) acquire(ctx context.Context, want core.Want) (*Held, error) {
	name := strings.Join(want.Keys, " ")
	if ctx.Err() != nil {
		return nil, stopped(ctx, name)
	}
	if task, is := ctx.Value(taskKey{}).(string); is {
		want.Task = task
	}
	for route := l.locks.route(want.Keys...); ; {
		held, err := l.ask(ctx, route.link, route.want(want), name)
		if err == nil || !route.follows(err) {
			return held, err
		}
	}
}

// ask makes a request at one server, and waits for what becomes of it.
func (l *Lock) ask(ctx context.Context, link *link, want core.Want, name string) (*Held, error) {
	held := newHeld(ctx, l.locks, link, name)
	link.do(func(c *core.Core) { held.request = c.Acquire(want, held) })
	select {
	case err := <-held.granted:
		if err != nil {
			return nil, err
		}
		return held, nil
	case <-ctx.Done():
		link.do(func(c *core.Core) { c.GiveUp(held.request) })
		return nil, stopped(ctx, name)
	}
}

func stopped(ctx context.Context, name string) error {
	return fmt.Errorf("tether: %q: waiting for it: %w", name, context.Cause(ctx))
}

// ---- holds ----

// Held is a lock that was granted. It may be used by any number of goroutines.
type Held struct {
	locks   *Locks
	link    *link
	request *core.Request
	name    string
	ctx     context.Context
	cancel  context.CancelCauseFunc
	granted chan error

	mu       sync.Mutex // For what follows, which is set with the link's lock held.
	token    uint64
	end      error // Why it is not held any more.
	released chan error
	extended answer
	checked  answer
}

// answer is what becomes of a call of which there is one at a time.
type answer struct {
	slot   chan struct{}
	result chan error
}

func newHeld(ctx context.Context, locks *Locks, link *link, name string) *Held {
	h := &Held{locks: locks, link: link, name: name, granted: make(chan error, 1), released: make(chan error, 1)}
	h.ctx, h.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	h.extended.slot, h.checked.slot = make(chan struct{}, 1), make(chan struct{}, 1)
	return h
}

// receive is the link's word about the request.
func (h *Held) receive(event core.Event) {
	switch event.Kind {
	case core.Granted:
		h.mu.Lock()
		h.token = uint64(event.Token)
		if event.Key != "" {
			h.name = event.Key
		}
		h.mu.Unlock()
		h.notice(Granted, nil)
		h.granted <- nil
	case core.Ended:
		h.granted <- errorOf(h.name, event.Err)
	case core.LostHold:
		lost := &LostError{h.name, event.Reason}
		h.finish(lost)
		h.notice(Lost, lost)
		h.answerRelease(lost)
	case core.Releasing:
		err := errorOf(h.name, event.Err)
		h.notice(ReleaseRefused, err)
		if event.Err.IsForAMoment() { // P-REL-6
			err = nil
		}
		h.answerRelease(err)
	case core.Released:
		h.notice(Released, nil)
		h.answerRelease(nil)
	case core.Extended:
		h.extended.give(nil)
	case core.NotExtended:
		h.extended.give(errorOf(h.name, event.Err))
	case core.Checked:
		h.checked.give(nil)
	case core.NotChecked:
		err := errorOf(h.name, event.Err)
		if event.Err.Name == core.Lost {
			err = h.stale()
		}
		h.checked.give(err)
	}
}

func (h *Held) notice(kind NoticeKind, err error) {
	h.link.notices.add(Notice{Kind: kind, Name: h.Name(), Token: h.Token(), Err: err})
}

func (h *Held) finish(why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.end == nil {
		h.end = why
		h.cancel(why)
	}
}

func (h *Held) answerRelease(err error) {
	select {
	case h.released <- err:
	default: // Nobody asked, or the first answer stands already.
	}
}

func (a *answer) give(err error) {
	a.result <- err
	<-a.slot
}

// ask makes a call of which there is one at a time. If ctx ends before the answer comes, the call goes on.
func (a *answer) ask(ctx context.Context, name string, call func()) error {
	select {
	case a.slot <- struct{}{}:
	case <-ctx.Done():
		return stopped(ctx, name)
	}
	result := make(chan error, 1)
	a.result = result
	call()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return stopped(ctx, name)
	}
}

// Name is the lock's name; of several, all with spaces between.
func (h *Held) Name() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.name
}

// Token is the fencing token: greater than that of every earlier holder. Send it with each write, where something can compare it.
func (h *Held) Token() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.token
}

// Context ends when the lock is lost, with a [LostError] as its cause, or released ([ErrReleased]). It has the values of the
// context that Acquire was given, and does not end with that one. After a suspend it may be late by a quarter of the fence, when
// [Held.Check] is right already.
func (h *Held) Context() context.Context { return h.ctx }

// Check says whether the lock is held: nil, a [LostError], or [ErrReleased]. It asks nobody, and reads the clock when it is called:
// call it before each step that needs the lock.
func (h *Held) Check() error {
	h.link.mu.Lock()
	defer h.link.mu.Unlock()
	if end := h.ended(); end != nil {
		return end
	}
	switch state, reason := h.link.core.Check(now(), h.request); state {
	case core.Lost:
		return &LostError{h.Name(), reason}
	case "held":
		return nil
	}
	return ErrReleased
}

// ended is why it is not held any more, as far as that is told. With the link's lock held, the request is this hold's for as long as
// it is nil: after that it may be a candidate's next term.
func (h *Held) ended() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.end
}

// begin sends the release, and says whether there is an answer to wait for.
func (h *Held) begin() (bool, error) {
	var end error
	h.link.do(func(c *core.Core) {
		if end = h.ended(); end == nil {
			h.finish(ErrReleased)
			c.Release(h.request)
		}
	})
	return end == nil, end
}

// Release gives the lock back. It is not held from the call on. If the server refuses for a moment, Release returns nil and
// the client sends it again; so it does if ctx ends. The error is a [LostError] if the lock was lost before the server took it back.
// A second Release does nothing.
func (h *Held) Release(ctx context.Context) error {
	waits, end := h.begin()
	switch {
	case errors.Is(end, ErrReleased):
		return nil
	case !waits:
		return end
	}
	select {
	case err := <-h.released:
		return err
	case <-ctx.Done():
		return fmt.Errorf("tether: %q: waiting for the release: %w", h.Name(), context.Cause(ctx))
	}
}

// Extend sets a new lease, counted from now.
func (h *Held) Extend(ctx context.Context, lease time.Duration) error {
	return h.call(ctx, &h.extended, func(c *core.Core) { c.Extend(h.request, lease) })
}

// CheckServer asks the server whether the lock is held. A [LostError] says that it is not.
func (h *Held) CheckServer(ctx context.Context) error {
	return h.call(ctx, &h.checked, func(c *core.Core) { c.CheckServer(h.request) })
}

// call asks about the hold, unless it ended before it was its turn.
func (h *Held) call(ctx context.Context, to *answer, ask func(*core.Core)) error {
	if err := h.Check(); err != nil {
		return err
	}
	return h.lostOr(to.ask(ctx, h.Name(), func() {
		h.link.do(func(c *core.Core) {
			if end := h.ended(); end != nil {
				to.give(end)
				return
			}
			ask(c)
		})
	}))
}

// lostOr is why the hold ended, where an error says that it did.
func (h *Held) lostOr(err error) error {
	if errors.Is(err, ErrLost) {
		return h.stale()
	}
	return err
}

// stale is why the hold ended, of which the server knows, and perhaps not yet we.
func (h *Held) stale() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.end != nil {
		return h.end
	}
	return &LostError{h.name, "stale"}
}

// Command runs one command of the server, as in
//
//	func(ctx context.Context, words ...any) (any, error) { return client.Do(ctx, words...).Result() }
type Command func(ctx context.Context, words ...any) (any, error)

// Guard runs a command on a connection for data, which is the user's, only while the server knows the lock as held. Otherwise
// nothing is written, and the error is a [LostError]. It is never sent again: if that connection breaks, nobody knows whether it
// was run. Switch off the retries of that client for it.
func (h *Held) Guard(ctx context.Context, data Command, command ...any) (any, error) {
	if err := h.Check(); err != nil {
		return nil, err
	}
	words := append([]any{"LOCK.GUARD", h.firstKey(), h.Token()}, command...)
	return h.unlessStale(data(ctx, words...))
}

// fence goes before a script on another server, and keeps the greatest token there (P-GUARD-3). Tokens are compared as decimal text,
// since Lua's numbers are not exact that far.
const fence = `local seen, token = redis.call('GET', KEYS[1]) or '', ARGV[1]
if #seen > #token or (#seen == #token and seen > token) then
  return redis.error_reply('STALE token ' .. token .. ' is not current: ' .. seen .. ' was here')
end
redis.call('SET', KEYS[1], token)
table.remove(KEYS, 1)
table.remove(ARGV, 1)
`

// Script is a Lua script on data that may be on another server than the locks, which need not have the module. It runs with Keys
// and Args as its KEYS and ARGV.
type Script struct {
	Text string
	// Fence is a key at that server, in which the greatest token is kept, without a time to live. In a cluster it is in the slot of Keys.
	Fence string
	Keys  []string
	Args  []any
}

// RunOn runs a script by a connection for data, which is the user's, unless a greater token was there. Then the script does not run,
// and the error is a [LostError]. What that server forgets (by eviction, a flush, a failover) the fence forgets, too. If that connection
// breaks, nobody knows whether the script was run. Switch off the retries of that client for it.
func (h *Held) RunOn(ctx context.Context, data Command, script Script) (any, error) {
	if err := h.Check(); err != nil {
		return nil, err
	}
	text := fence + script.Text
	words := []any{len(script.Keys) + 1, script.Fence}
	for _, key := range script.Keys {
		words = append(words, key)
	}
	words = append(append(words, h.Token()), script.Args...)
	reply, err := data(ctx, append([]any{"EVALSHA", fmt.Sprintf("%x", sha1.Sum([]byte(text)))}, words...)...)
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT ") {
		reply, err = data(ctx, append([]any{"EVAL", text}, words...)...)
	}
	return h.unlessStale(reply, err)
}

// unlessStale is a reply, or a loss where that is what the error says.
func (h *Held) unlessStale(reply any, err error) (any, error) {
	if err != nil && strings.HasPrefix(err.Error(), "STALE ") {
		return nil, h.stale()
	}
	return reply, err
}

func (h *Held) firstKey() string {
	h.link.mu.Lock()
	defer h.link.mu.Unlock()
	if keys := h.request.Keys(); len(keys) > 0 {
		return keys[0]
	}
	return h.Name() // It was lost a moment ago.
}
