package tether

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"tether/internal/core"
	"tether/internal/resp"
)

// A receiver is told what becomes of its request or watch. It is called with the link's lock held: it must neither block nor
// call the link.
type receiver interface{ receive(core.Event) }

// A link is a core with what it lacks: a connection, a clock, and goroutines. There is one for reading and one for writing
// while there is a connection, and one while a connection is opened.
type link struct {
	dial    func(context.Context) (*wire, *core.Error)
	notices *notices

	mu      sync.Mutex
	core    *core.Core
	timer   *time.Timer
	number  int // Of the connection; what another one says is heard no more.
	cancel  context.CancelFunc
	wire    *wire
	at      string // Where it leads to.
	out     []byte
	isReady chan struct{} // Something is in out. It is closed with the connection.
	gone    chan struct{} // Closed when the link was closed and needs no connection any more.
	isGone  bool
	closed  context.Context // Ends when the link is closed, once all who asked it for something have heard what becomes of that.
	end     context.CancelFunc
}

func newLink(dialer *dialer, config core.Config, notices *notices) *link {
	l := &link{dial: dialer.dial, notices: notices, core: core.New(now(), config), gone: make(chan struct{})}
	l.closed, l.end = context.WithCancel(context.Background())
	l.timer = time.AfterFunc(time.Hour, func() { l.do(func(*core.Core) {}) })
	l.timer.Stop()
	return l
}

// do has something happen. What is due comes first and is told before, since a hold that it ends must not be released, but told as
// lost.
func (l *link) do(act func(*core.Core)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.core.Tick(now())
	l.settle()
	act(l.core)
	l.settle()
}

func (l *link) settle() {
	c := l.core
	for _, event := range c.Events {
		l.tell(event)
	}
	for _, words := range c.Out {
		l.out = resp.Append(l.out, words)
	}
	if len(l.out) > 0 && l.wire != nil {
		select {
		case l.isReady <- struct{}{}:
		default:
		}
	}
	for _, order := range c.Orders {
		l.leave(order.After)
		if order.Connect {
			l.connect()
		}
	}
	c.Events, c.Out, c.Orders = c.Events[:0], nil, c.Orders[:0]
	if at, is := c.Next(); is {
		l.timer.Reset(at - now())
	} else {
		l.timer.Stop()
	}
	if c.IsGone() && !l.isGone {
		l.isGone = true
		l.timer.Stop()
		close(l.gone)
	}
}

func (l *link) tell(event core.Event) {
	switch {
	case event.Request != nil:
		if to, is := event.Request.User.(receiver); is { // What nothing claimed has none.
			to.receive(event)
		}
	case event.Watch != nil:
		event.Watch.User.(receiver).receive(event)
	case event.Presence != nil:
		event.Presence.User.(receiver).receive(event)
	case event.Kind == core.NoBootClock:
		l.notices.add(Notice{Kind: NoBootClock})
	}
}

// leave closes the connection after that time, and reads and writes no more.
func (l *link) leave(after time.Duration) {
	l.number++
	if l.cancel != nil {
		l.cancel()
		l.cancel = nil
	}
	left := l.wire
	if left == nil {
		return
	}
	close(l.isReady)
	l.wire, l.out = nil, nil
	if after > 0 { // P-FENCE-9
		time.AfterFunc(after, func() { left.Close() })
		return
	}
	left.Close()
}

func (l *link) connect() {
	ctx, cancel := context.WithTimeout(context.Background(), l.core.GreetWithin())
	l.cancel = cancel
	go l.open(ctx, l.number)
}

// open opens a connection, and then reads what comes.
func (l *link) open(ctx context.Context, number int) {
	opened, err := l.dial(ctx)
	if err == nil && !opened.ready() {
		opened.Close()
		err = unreachable(opened.to.at, context.Cause(ctx))
	}
	isCurrent := true
	l.do(func(c *core.Core) {
		if isCurrent = number == l.number; !isCurrent {
			return
		}
		l.cancel()
		l.cancel = nil
		if err != nil {
			l.notices.add(Notice{Kind: NotConnected, Err: errorOf("", err)})
			c.Unreached(err)
			return
		}
		l.notices.add(Notice{Kind: Connected, Address: opened.RemoteAddr().String()})
		l.wire, l.at, l.out, l.isReady = opened, opened.to.at, nil, make(chan struct{}, 1)
		go l.write(opened, l.isReady)
		c.Connected(opened.RemoteAddr().Network() == "unix")
	})
	switch {
	case err != nil:
	case !isCurrent:
		opened.Close()
	default:
		l.read(opened, number)
	}
}

func (l *link) read(from *wire, number int) {
	for {
		frame, err := from.from.Read()
		isOver := false
		l.do(func(c *core.Core) {
			switch isOver = number != l.number; {
			case isOver:
			case err != nil:
				isOver = true
				l.notices.add(Notice{Kind: Disconnected, Address: from.RemoteAddr().String(), Err: err})
				l.leave(0)
				c.Broke()
			default:
				c.Receive(frame)
			}
		})
		if isOver {
			return
		}
	}
}

// write writes what is to be sent. If it cannot, the connection is closed, which the reader sees.
func (l *link) write(to net.Conn, isReady <-chan struct{}) {
	for range isReady {
		l.mu.Lock()
		var out []byte
		if net.Conn(l.wire) == to {
			out, l.out = l.out, nil
		}
		l.mu.Unlock()
		if len(out) == 0 {
			continue
		}
		if _, err := to.Write(out); err != nil {
			to.Close()
			return
		}
	}
}

// address is where the link leads to, or led to last.
func (l *link) address() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at
}

// slot is one that the server of this link is to have, if there is one; and whether its session has what no other server has.
func (l *link) slot() (slot int, isKnown, isBound bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	slot, isKnown = l.core.Slot()
	return slot, isKnown, l.core.IsBound()
}

func (l *link) close() {
	l.do(func(c *core.Core) { c.Close() })
	l.end()
	<-l.gone
}

// ---- notices ----

// NoticeKind is what a [Notice] is about.
type NoticeKind string

// The kinds of notices.
const (
	Connected    NoticeKind = "connected"
	NotConnected NoticeKind = "not connected" // An attempt failed: Err.
	Disconnected NoticeKind = "disconnected"  // The connection ended: Err. It was not closed by the client.
	Granted      NoticeKind = "granted"
	Lost         NoticeKind = "lost" // Err is a LostError.
	Released     NoticeKind = "released"
	// ReleaseRefused says that the server refused to take a lock back: Err. The client sends the release again until it does.
	ReleaseRefused NoticeKind = "release refused"
	// NoBootClock says that the system has no clock that runs on in suspend: a suspended machine may take a lost lock for held
	// until it hears from the server.
	NoBootClock NoticeKind = "no clock runs on in suspend"
)

// Notice is what [Options.Observer] hears.
type Notice struct {
	Kind    NoticeKind
	Name    string // Of the lock.
	Token   uint64
	Address string // Of the server.
	Err     error
}

// notices hands notices to the user, by a goroutine of its own while there are some: a logger may block, and the fence must not.
type notices struct {
	logger   *slog.Logger
	observer func(Notice)

	mu        sync.Mutex
	waiting   []Notice
	isRunning bool
}

func (n *notices) add(notice Notice) {
	if n.logger == nil && n.observer == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waiting = append(n.waiting, notice)
	if !n.isRunning {
		n.isRunning = true
		go n.run()
	}
}

func (n *notices) run() {
	for {
		n.mu.Lock()
		all := n.waiting
		n.waiting = nil
		n.isRunning = len(all) > 0
		n.mu.Unlock()
		if len(all) == 0 {
			return
		}
		for _, notice := range all {
			n.log(notice)
			if n.observer != nil {
				n.observer(notice)
			}
		}
	}
}

var levels = map[NoticeKind]slog.Level{
	Connected: slog.LevelInfo, NotConnected: slog.LevelWarn, Disconnected: slog.LevelWarn, Granted: slog.LevelDebug,
	Lost: slog.LevelWarn, Released: slog.LevelDebug, ReleaseRefused: slog.LevelWarn, NoBootClock: slog.LevelWarn,
}

func (n *notices) log(notice Notice) {
	if n.logger == nil {
		return
	}
	var words []slog.Attr
	if notice.Name != "" {
		words = append(words, slog.String("lock", notice.Name))
	}
	if notice.Token != 0 {
		words = append(words, slog.Uint64("token", notice.Token))
	}
	if notice.Address != "" {
		words = append(words, slog.String("server", notice.Address))
	}
	var lost *LostError
	switch {
	case errors.As(notice.Err, &lost):
		words = append(words, slog.String("reason", lost.Reason))
	case notice.Err != nil:
		words = append(words, slog.String("error", notice.Err.Error()))
	}
	n.logger.LogAttrs(context.Background(), levels[notice.Kind], "tether: "+string(notice.Kind), words...)
}
