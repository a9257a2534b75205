// Package core is the client protocol (clients/protocol/protocol.md) without sockets, clocks and goroutines: calls, frames and
// the time go in; commands, events and orders come out. One Core is one connection, and the session on it. It is not safe
// for use by several goroutines at once.
package core

import (
	"container/heap"
	"container/list"
	"slices"
	"strings"
	"time"

	"tether/internal/resp"
)

const (
	margin         = time.Second            // P-FENCE-1
	shortestFence  = 100 * time.Millisecond // P-FENCE-1
	unixFence      = 5 * time.Second        // P-FENCE-1
	serversWord    = 100 * time.Millisecond // P-ACQ-5
	firstDelay     = 20 * time.Millisecond  // P-RETRY-1
	longestDelay   = time.Second            // P-RETRY-1
	sound          = time.Second            // P-RETRY-2
	connectTimeout = 5 * time.Second        // P-CONN-9
	closeTimeout   = 2 * time.Second        // P-CLOSE-1
	closeInBreak   = time.Second            // P-CLOSE-2
	mostAskedAgain = 64                     // P-CLUSTER-7
)

// Config is what a user sets.
type Config struct {
	Grace       time.Duration // Of the session; 0: there is none.
	StopWithin  time.Duration // How long the work goes on after a loss.
	Fence       time.Duration // 0: as long as may be.
	Cluster     bool          // Keys and prefixes of two slots are refused.
	NoBootClock bool          // No clock here runs on in suspend.
	Random      func() float64
}

// Error is how a request ends without a grant: a name of the table in protocol.md, a code, and the server's text.
type Error struct {
	Name, Code, Text string
}

// The names of errors.
const (
	Taken       = "taken"
	Deadlock    = "deadlock"
	Refused     = "refused"
	Unreachable = "unreachable"
	NoModule    = "nomodule"
	NoPush      = "nopush"
	Unfit       = "unfit"
	CrossSlot   = "crossslot"
	Closed      = "closed"
	Lost        = "lost"
)

func failure(name, text string) *Error {
	return &Error{Name: name, Code: strings.ToUpper(name), Text: text}
}

// WasClosed is what becomes of requests when the client is closed, and of later ones.
func WasClosed() *Error { return failure(Closed, "the client was closed") }

// refusal is what a reply that is an error says.
func refusal(name string, reply resp.Value) *Error {
	return &Error{Name: name, Code: reply.Code(), Text: reply.Str}
}

// The classes of the server's codes (P-ERR-2).
func isMomentary(code string) bool {
	return code == "BUSY" || code == "LOADING" || code == "CLUSTERDOWN" || code == "TRYAGAIN"
}

func isUnwritable(code string) bool {
	return code == "NOREPLICAS" || code == "MISCONF" || code == "OOM"
}

func (c *Core) isNotHere(code string) bool {
	return code == "READONLY" || code == "MASTERDOWN" || code == "LOADING" && c.secret != ""
}

// EventKind is what happened.
type EventKind int

// The events of clients/protocol/vectors/README.md.
const (
	Granted EventKind = iota + 1
	Ended             // The request ended without a grant: Err says why.
	LostHold
	Releasing // The release was refused, and is sent again: Err has the code.
	Released
	Over // It was given up, and the server has nothing left of it.
	Extended
	NotExtended
	Checked
	NotChecked
	WatchEvent
	WatchEnded
	PresenceEvent
	LeaderEvent
	PresenceEnded
	NoBootClock
)

// Event is what the user is to know.
type Event struct {
	Kind     EventKind
	Request  *Request
	Watch    *Watch
	Presence *Presence
	Err      *Error
	Reason   string // Of a loss, and of a member's end.
	Token    int64
	Key      string
	Change   string  // exists, missing, added, deleted; add, set, del
	Value    *string // Nil where it is not told, and where there is no leader.
}

// Order is what the shell is to do about connections.
type Order struct {
	Connect bool          // Open one; Connected, Unreached or Refuse follow.
	After   time.Duration // If not Connect: read and write no more, and close it after that time.
}

type linkState int

const (
	none linkState = iota
	opening
	greeting
	resuming
	up
)

// A reply that is to come: P-FRAME-1.
type reply struct {
	sent time.Duration
	then func(resp.Value)
}

// A delay that runs from a moment on.
type timer struct {
	on bool
	at time.Duration
}

func (t *timer) set(at time.Duration) { *t = timer{true, at} }
func (t *timer) stop()                { t.on = false }

// Core is the state of one connection and its session. Take Out, Events and Orders after each call.
type Core struct {
	Out    [][]string
	Events []Event
	Orders []Order

	config Config
	now    time.Duration

	link         linkState
	linkSince    time.Duration
	isUnix       bool // This connection is by a Unix socket.
	replies      []reply
	answeredSent time.Duration // When the command was sent whose reply is being handled.
	secret       string        // Of the session.
	fence        time.Duration // D; 0 while nothing vouches for anything.
	nextFence    time.Duration
	vouched      time.Duration
	pinged       time.Duration

	requests  *list.List // Of *Request, in the order of their beginning.
	places    map[place][]*Request
	lingering []*Request // Released by their owners, and refused by the server, or kept (P-OWNER-4).
	due       dueHeap
	holding   int // Requests that the server may have a hold of.
	labels    int
	sequences int   // Requests with SEQ.
	greatest  int64 // Of all tokens.

	mine      *mine
	lookAgain *mine
	sendFirst bool // The moment after a resume in which releases are sent (P-SESS-5).

	isLosing  bool
	failed    int    // Attempts to connect, in a row.
	why       *Error // Of the last one that failed, if none has succeeded since.
	connectAt timer
	notBefore time.Duration // The last connection ended soon, and nobody wanted another one (P-RETRY-2).
	refused   int           // Commands that were refused and are sent again, in a row.
	retryAt   timer
	retries   []func()

	watched   map[string]*watchedKey
	keys      []*watchedKey // In the order in which the watches began.
	watches   int
	prefixes  map[string]*prefix
	ordered   []*prefix
	presences int
	asked     int // The last of the keys that was asked for again.

	closed      bool
	closingAt   timer
	parting     [][]string
	saidNoClock bool
}

// New makes a Core that has no connection yet (P-CONN-4).
func New(now time.Duration, config Config) *Core {
	if config.Random == nil {
		config.Random = func() float64 { return 0 }
	}
	return &Core{
		config: config, now: now, requests: list.New(), places: map[place][]*Request{},
		watched: map[string]*watchedKey{}, prefixes: map[string]*prefix{},
	}
}

func (c *Core) tell(event Event) { c.Events = append(c.Events, event) }

// ---- time ----

// Next is when Tick has something to do.
func (c *Core) Next() (time.Duration, bool) {
	var at time.Duration
	var found bool
	earliest := func(when time.Duration) {
		if !found || when < at {
			at, found = when, true
		}
	}
	for _, each := range []timer{c.closingAt, c.connectAt, c.greetingTimer(), c.fenceTimer(), c.stuckTimer(), c.pingTimer()} {
		if each.on {
			earliest(each.at)
		}
	}
	if c.link == up && c.retryAt.on {
		earliest(c.retryAt.at)
	}
	if len(c.due) > 0 {
		earliest(c.due[0].due)
	}
	return at, found
}

func (c *Core) greetingTimer() timer {
	return timer{c.link == greeting, c.linkSince + connectTimeout}
}

func (c *Core) fenceTimer() timer { return timer{c.fence > 0, c.vouched + c.fence} }

// P-FENCE-10, and for an answer to SESSION.RESUME P-CONN-9.
func (c *Core) stuckTimer() timer {
	if c.link == resuming {
		return timer{c.fence > 0, c.linkSince + c.GreetWithin()}
	}
	return timer{c.fence > 0 && c.secret != "" && c.holding > 0 && c.link == up, c.vouched + c.fence/2}
}

func (c *Core) pingTimer() timer { // P-FENCE-7
	return timer{c.fence > 0 && c.link == up, c.pinged + c.fence/4}
}

func (c *Core) isDue(t timer) bool { return t.on && t.at <= c.now }

// Tick goes on to now, and does what is due by then. It is called before all else whenever time has passed.
func (c *Core) Tick(now time.Duration) {
	c.now = now
	if c.isDue(c.fenceTimer()) {
		c.fenceIsOver()
	}
	for len(c.due) > 0 && c.due[0].due <= now {
		c.requestIsDue(c.due[0])
	}
	if c.isDue(c.closingAt) {
		c.closingAt.stop()
		c.drop(Order{})
	}
	if c.isDue(c.stuckTimer()) {
		c.leave()
	}
	if c.isDue(c.greetingTimer()) {
		c.leaveFor(failure(Unreachable, "no answer to the greeting"))
	}
	if c.isDue(c.connectAt) {
		c.connectAt.stop()
		c.connect()
	}
	if c.link == up && c.isDue(c.retryAt) {
		c.retryAt.stop()
		retries := c.retries
		c.retries = nil
		for _, again := range retries {
			again()
		}
	}
	if c.isDue(c.pingTimer()) {
		c.pinged = now
		c.send([]string{"PING"}, func(resp.Value) {})
		if c.config.Cluster {
			c.askAgain()
		}
	}
}

// P-FENCE-8, P-FENCE-9, P-SESS-9
func (c *Core) fenceIsOver() {
	order := Order{After: c.config.StopWithin}
	if c.secret != "" {
		order.After = 0
	}
	wasLinked := c.link != none
	c.fence = 0
	c.cut() // What follows from the losses goes to the next connection.
	c.loseAll("silence", false)
	c.secret = ""
	if wasLinked {
		c.drop(order)
	} else {
		c.reconnect()
	}
}

// tryAgain sends a refused command again later (P-RETRY-3).
func (c *Core) tryAgain(again func()) {
	if !c.retryAt.on {
		c.retryAt.set(c.now + c.delay(c.refused, longestDelay))
		c.refused++
	}
	c.retries = append(c.retries, again)
}

// P-RETRY-1
func (c *Core) delay(failed int, longest time.Duration) time.Duration {
	delay := min(longest, firstDelay<<min(failed, 16))
	return time.Duration(float64(delay) * (1 + c.config.Random()) / 2)
}

// The requests whose time to wait, lease or at_least ends, the earliest first.
type dueHeap []*Request

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].due < h[j].due }
func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heapAt, h[j].heapAt = i, j
}
func (h *dueHeap) Push(x any) {
	r := x.(*Request)
	r.heapAt = len(*h)
	*h = append(*h, r)
}
func (h *dueHeap) Pop() any {
	last := (*h)[len(*h)-1]
	(*h)[len(*h)-1] = nil
	*h = (*h)[:len(*h)-1]
	last.heapAt = -1
	return last
}

// schedule sets the one moment at which something becomes due for a request.
func (c *Core) schedule(r *Request) {
	at, isOn := r.nextDue()
	switch {
	case isOn && r.heapAt >= 0:
		r.due = at
		heap.Fix(&c.due, r.heapAt)
	case isOn:
		r.due = at
		heap.Push(&c.due, r)
	case r.heapAt >= 0:
		heap.Remove(&c.due, r.heapAt)
	}
}

// ---- the connection ----

// Open connects, as the first request would.
func (c *Core) Open() { c.needLink() }

func (c *Core) needLink() {
	switch {
	case c.link != none || c.connectAt.on || c.isLosing:
	case c.now < c.notBefore:
		c.connectAt.set(c.notBefore)
	default:
		c.connect()
	}
}

func (c *Core) connect() {
	c.link = opening
	c.Orders = append(c.Orders, Order{Connect: true})
}

// Connected says that the connection is open and greeted: HELLO, CLIENT SETNAME, SELECT (P-CONN-2). isUnix says that it is by a
// Unix socket.
func (c *Core) Connected(isUnix bool) {
	c.linkSince, c.isUnix = c.now, isUnix
	c.replies = nil
	if c.secret != "" { // P-SESS-3
		c.link = resuming
		c.send([]string{"SESSION.RESUME", c.secret, "NOTIFY"}, c.resumed)
		return
	}
	c.link = greeting
	c.send([]string{"LOCK.SERVER"}, c.greeted)
}

// Unreached says that the connection could not be opened or greeted.
func (c *Core) Unreached(err *Error) {
	if c.link == opening {
		c.failedAttempt(err)
	}
}

func (c *Core) failedAttempt(err *Error) {
	c.link = none
	c.attemptEnded(err)
	c.reconnect()
}

// P-CONN-10
func (c *Core) attemptEnded(err *Error) {
	c.why = err
	isFinal := err.Name != Unreachable
	for _, r := range c.all() {
		if r.phase == queued && (r.want.Wait == 0 || isFinal) && !r.givenUp {
			c.fail(r, "", err)
		}
	}
	if isFinal {
		c.endWatches(err)
	}
}

func (c *Core) isWanted() bool {
	return c.secret != "" || c.requests.Len() > 0 || c.watches > 0 || c.presences > 0
}

func (c *Core) reconnect() {
	if c.closed || !c.isWanted() || c.link != none || c.connectAt.on {
		return
	}
	c.connectAt.set(c.nextAttempt())
}

// nextAttempt is when to try after an attempt that failed (P-RETRY-1).
func (c *Core) nextAttempt() time.Duration {
	longest := longestDelay
	if c.secret != "" && c.fence > 0 {
		longest = min(longest, c.fence/8)
	}
	c.failed++
	return c.now + c.delay(c.failed-1, longest)
}

func (c *Core) greeted(reply resp.Value) {
	switch code := reply.Code(); {
	case reply.Kind == resp.Error && strings.Contains(reply.Str, "unknown command"): // P-CONN-6
		c.leaveFor(&Error{NoModule, "NOMODULE", reply.Str})
		return
	case isMomentary(code), c.isNotHere(code):
		c.leaveFor(refusal(Unreachable, reply))
		return
	case reply.Kind == resp.Error:
		c.leaveFor(refusal(Refused, reply))
		return
	case !reply.Get("role").IsString("master"): // P-CONN-5
		c.leaveFor(&Error{Unreachable, "REPLICA", "this server is a replica"})
		return
	case reply.Get("pushes").Int != 1: // P-NOPUSH-1
		c.leaveFor(failure(NoPush, "this server sends no pushes to this connection; on the server, run `tether qualify`"))
		return
	}
	fence, why := c.longestFence(time.Duration(reply.Get("peer-timeout-ms").Int) * time.Millisecond)
	if why != "" {
		c.leaveFor(failure(Unfit, why))
		return
	}
	c.nextFence = fence
	if c.config.NoBootClock && !c.saidNoClock { // P-FENCE-5
		c.saidNoClock = true
		c.tell(Event{Kind: NoBootClock})
	}
	if c.config.Grace > 0 { // P-SESS-1
		c.startSession()
		return
	}
	c.begin()
}

// P-FENCE-1
func (c *Core) longestFence(peerTimeout time.Duration) (time.Duration, string) {
	var most time.Duration
	stop := c.config.StopWithin
	switch {
	case c.config.Grace > 0:
		most = c.config.Grace - stop - margin
	case c.isUnix:
		most = unixFence
	case peerTimeout == 0:
		return 0, "without a session the server needs a tether.peer-timeout, which is 0"
	default:
		most = min(peerTimeout/2, peerTimeout-stop-margin)
	}
	fence := most
	if c.config.Fence > 0 {
		fence = c.config.Fence
	}
	switch {
	case fence > most:
		return 0, "the fence of " + fence.String() + " is longer than the server and the time to stop allow, " + most.String()
	case fence < shortestFence:
		return 0, "the time to stop leaves a fence of " + fence.String() + ", less than " + shortestFence.String()
	}
	return fence, ""
}

func (c *Core) startSession() {
	c.send([]string{"SESSION.START", "GRACE", milliseconds(c.config.Grace)}, func(reply resp.Value) {
		switch code := reply.Code(); {
		case isMomentary(code), isUnwritable(code), c.isNotHere(code):
			c.leaveFor(refusal(Unreachable, reply))
		case reply.Kind == resp.Error:
			c.leaveFor(refusal(Refused, reply))
		default:
			c.secret = reply.Str
			c.begin()
		}
	})
}

// begin begins with a connection that has nothing of a former one.
func (c *Core) begin() {
	c.fence = c.nextFence
	c.vouched = c.answeredSent
	c.pinged = c.now
	c.link, c.why = up, nil
	for _, r := range c.all() {
		c.sendIfFirst(r)
	}
	c.watchAnew()
}

func (c *Core) leaveFor(err *Error) {
	c.Orders = append(c.Orders, Order{})
	c.failedAttempt(err)
}

// leave closes the connection on purpose, and goes on as after a break.
func (c *Core) leave() {
	c.Orders = append(c.Orders, Order{})
	c.Broke()
}

// drop gives the connection up, with all that was on it.
func (c *Core) drop(order Order) {
	c.Orders = append(c.Orders, order)
	c.cut()
	c.goOn()
}

func (c *Core) cut() {
	c.link = none
	c.replies, c.mine, c.lookAgain = nil, nil, nil
	c.retries, c.refused = nil, 0
	c.retryAt.stop()
}

func (c *Core) goOn() {
	isWanted := c.isWanted() && !c.closed
	switch isSound := c.now-c.linkSince >= sound; { // P-RETRY-2
	case !isSound && isWanted:
		c.reconnect()
	case !isSound:
		c.notBefore = c.nextAttempt()
	case isWanted:
		c.failed = 0
		c.connect()
	default:
		c.failed = 0
	}
}

// Broke says that the connection ended.
func (c *Core) Broke() {
	if c.link == none {
		return
	}
	was := c.link
	c.cut()
	if c.closed {
		c.closingAt.stop()
		return
	}
	early := failure(Unreachable, "the connection ended before its greeting was answered")
	if was == greeting {
		c.failedAttempt(early)
		return
	}
	if c.secret == "" {
		c.fence = 0
		c.loseAll("connection", false)
	} else { // P-SESS-2
		for _, r := range c.all() {
			for _, each := range r.unsettled {
				r.sentBefore = r.sentBefore || each.sent
				each.sent = false
			}
			r.early = nil // LOCK.MINE says what is held.
			if r.phase == waiting {
				c.setPhase(r, asked)
			}
		}
	}
	if was == resuming {
		c.attemptEnded(early)
	}
	c.goOn()
}

// loseAll says that the session is gone, or the connection without one. Requests that wait go on at the next connection, and
// isElsewhere also those that do not wait (P-ACQ-8).
func (c *Core) loseAll(reason string, isElsewhere bool) {
	c.isLosing = true // Whether to connect again is decided after it.
	defer func() { c.isLosing = false }()
	for _, r := range c.all() {
		switch {
		case r.phase == held:
			c.fail(r, reason, nil)
		case r.phase == releasing || r.phase == kept || r.phase == extending || r.givenUp:
			c.settle(r)
		case r.phase == asked && r.want.Wait == 0 && !isElsewhere:
			c.fail(r, "", failure(Unreachable, "the connection ended before the answer"))
		default:
			r.hasWaited = r.hasWaited || r.phase == waiting
			r.early = nil
			c.setPhase(r, queued)
		}
	}
}

// demoted: the master is elsewhere (P-SESS-8, P-LOSS-7).
func (c *Core) demoted() {
	if c.link == none {
		return
	}
	if c.secret != "" {
		c.leave()
		return
	}
	c.fence = 0
	c.cut()
	c.loseAll("demoted", true)
	c.drop(Order{})
}

// ---- closing ----

// Close ends everything (P-CLOSE-1). It is over when no connection is left: IsGone.
func (c *Core) Close() {
	if c.closed {
		return
	}
	c.closed = true
	c.parting = [][]string{{"SESSION.END"}}
	all := c.all()
	isKept := func(r *Request) bool { return r.phase == kept || r.phase == extending }
	if slices.ContainsFunc(all, isKept) { // P-LEAST-3
		c.parting = nil
		for _, r := range all {
			if isKept(r) || r.phase == queued || r.unnamed != "" {
				continue
			}
			for _, key := range r.keys {
				if r.want.Asking {
					c.parting = append(c.parting, []string{"ASKING"})
				}
				c.parting = append(c.parting, r.releaseOf(key))
			}
		}
		c.parting = append(c.parting, []string{"SESSION.DETACH"})
	}
	closed := WasClosed()
	for _, r := range all {
		c.fail(r, Closed, closed)
	}
	c.endWatches(closed)
	c.connectAt.stop()
	c.retryAt.stop()
	c.fence = 0
	switch {
	case c.link == up && c.secret != "":
		c.closingAt.set(c.now + closeTimeout)
		c.part()
	case c.secret != "": // P-CLOSE-2
		c.closingAt.set(c.now + closeInBreak)
		if c.link == none {
			c.connect()
		}
	case c.link != none:
		c.drop(Order{})
	}
}

// IsGone tells whether the client was closed, and needs no connection any more.
func (c *Core) IsGone() bool { return c.closed && c.link == none }

func (c *Core) part() {
	for _, words := range c.parting {
		c.send(words, func(resp.Value) {})
	}
	c.replies[len(c.replies)-1].then = c.parted
}

func (c *Core) parted(resp.Value) {
	c.closingAt.stop()
	c.drop(Order{})
}

// ---- what the server says ----

func (c *Core) send(words []string, then func(resp.Value)) {
	c.Out = append(c.Out, words)
	c.replies = append(c.replies, reply{c.now, then})
}

// Receive takes one frame of the connection.
func (c *Core) Receive(frame resp.Value) {
	if c.isDue(c.fenceTimer()) { // P-FENCE-8: it comes too late.
		c.Tick(c.now)
	}
	if c.link == none || c.link == opening {
		return
	}
	if frame.Kind == resp.Push {
		c.pushed(frame.Items)
		return
	}
	if len(c.replies) == 0 { // P-FRAME-2
		c.leave()
		return
	}
	next := c.replies[0]
	c.replies[0] = reply{} // Not to be kept by the rest.
	c.replies = c.replies[1:]
	c.answeredSent = next.sent
	code := frame.Code()
	if c.link == up && code != "LOADING" && code != "MASTERDOWN" && code != "READONLY" { // P-FENCE-6
		c.vouch(next.sent)
	}
	if c.link == up && !c.closed && c.isNotHere(code) {
		c.demoted()
		return
	}
	next.then(frame)
}

// P-FENCE-2
func (c *Core) vouch(sent time.Duration) { c.vouched = max(c.vouched, sent) }

func (c *Core) pushed(push []resp.Value) {
	if len(push) < 3 { // P-FRAME-4
		return
	}
	kind, key, text := push[0].Str, push[1].Str, push[2].Str
	switch kind {
	case "watchex":
		c.keyChanged(key, text)
	case "watchtp":
		c.memberChanged(key, text)
	case "lock":
		c.told(place{false, key, ""}, text)
	case "settp":
		c.told(place{true, key, ""}, text)
	}
}

// GreetingError is what an error to HELLO or SELECT means (P-ERR-2).
func GreetingError(reply resp.Value) *Error {
	code := reply.Code()
	if isMomentary(code) || code == "MASTERDOWN" || code == "READONLY" {
		return refusal(Unreachable, reply)
	}
	return refusal(Refused, reply)
}

// GreetWithin is how long opening a connection and greeting on it may take (P-CONN-9).
func (c *Core) GreetWithin() time.Duration {
	if c.secret != "" && c.fence > 0 {
		return min(connectTimeout, c.fence/2)
	}
	return connectTimeout
}

// IsForAMoment tells whether the server may accept the same command later (P-ERR-2).
func (e *Error) IsForAMoment() bool { return isMomentary(e.Code) || isUnwritable(e.Code) }
