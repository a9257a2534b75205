package core

import (
	"container/list"
	"slices"
	"strconv"
	"time"

	"tether/internal/resp"
)

// Forever is a Wait without end.
const Forever time.Duration = -1

// Want is what a request asks for.
type Want struct {
	Keys      []string
	Temporary bool   // A temporary key instead of a lock,
	Value     string // with this value,
	Seq       bool   // under a name that the server makes (P-TEMP-3),
	Elect     bool   // again after each term (P-ELECT-2).

	Shared      bool
	Permits, Of int
	Owner       string // Empty: a fresh label (P-OWNER-1).
	Reentrant   bool
	Task        string
	Asking      bool // At a node that imports the slot (P-CLUSTER-4).

	Wait       time.Duration // 0: does not wait.
	Lease      time.Duration
	Acks       int
	AckTimeout time.Duration
	AtLeast    time.Duration
}

type phase int

const (
	queued    phase = iota // Not sent on this connection.
	asked                  // Sent, and not answered.
	waiting                // The server will push the outcome.
	held                   // Granted.
	extending              // Released before at_least was over (P-LEAST-2),
	kept                   // and kept until then.
	releasing              // The server has something left of it.
	over
)

// place is a key with an owner's label.
type place struct {
	temporary  bool
	key, label string
}

// A release of one key that the server has not accepted.
type unsettledKey struct {
	key  string
	sent bool
}

// Request is one call of a user, from the call until the server has nothing left of it.
type Request struct {
	User any // For the shell.

	want    Want
	keys    []string
	label   string
	task    string
	began   time.Duration
	phase   phase
	unnamed string // Of a key that SEQ is to name: instead of a label, since at the server it has no place yet.
	attempt int    // How often it was sent; a reply to a former sending says nothing.
	token   int64
	floor   int64 // All tokens known when it was sent (P-SESS-11).
	granted time.Duration
	wasHeld bool // The server granted it, whoever was told.

	base   *Request   // Whose hold this is (P-OWNER-7); itself, mostly.
	claims []*Request // All requests that share the hold.

	givenUp    bool
	silent     bool // The user has heard all that there is to hear.
	hasWaited  bool
	sentBefore bool   // A break cut off the answer to its release.
	refusal    *Error // The last one, of those after which it goes on.
	said       string // The code of the last Releasing.
	outcome    string // Why it is lost, or `released`.
	early      *loss

	leaseFrom  time.Duration
	lease      time.Duration
	keptFrom   time.Duration
	keptFor    time.Duration
	extensions []*extension    // Not answered, in their order.
	checking   map[string]bool // Keys of which LOCK.CHECK is not answered,
	checkedBy  *Request        // for this caller.
	explained  map[string]bool // Keys of which a push said that they are lost.
	unsettled  []*unsettledKey // To be released, or extended to the rest of at_least.

	element *list.Element
	due     time.Duration
	heapAt  int
}

type loss struct{ reason, key string }

type extension struct {
	by     *Request
	lease  time.Duration
	keys   map[string]bool
	isSent bool
	sent   time.Duration // For the first time.
}

func set(keys []string) map[string]bool {
	all := make(map[string]bool, len(keys))
	for _, key := range keys {
		all[key] = true
	}
	return all
}

// Token is the fencing token, once it was granted.
func (r *Request) Token() int64 { return r.base.token }

// Keys are the names that it has, or asked for.
func (r *Request) Keys() []string { return r.base.keys }

func (r *Request) places() []place {
	places := make([]place, len(r.keys))
	for at, key := range r.keys {
		places[at] = r.place(key)
	}
	return places
}

func (r *Request) place(key string) place {
	return place{r.want.Temporary, key, r.label + r.unnamed}
}

func (r *Request) waits() bool { return r.phase == queued || r.phase == asked || r.phase == waiting }

// leaseEnd is when the lease ends, of the hold or of an extension that is not answered (P-LEASE-2).
func (r *Request) leaseEnd() (at time.Duration, hasOne bool) {
	if r.lease > 0 {
		at, hasOne = r.leaseFrom+r.lease, true
	}
	for _, each := range r.extensions {
		if end := each.sent + each.lease; each.isSent && (!hasOne || end < at) {
			at, hasOne = end, true
		}
	}
	return at, hasOne
}

func (r *Request) nextDue() (time.Duration, bool) {
	switch {
	case r.waits() && r.want.Wait > 0 && !r.givenUp: // P-ACQ-5
		return r.began + r.want.Wait + serversWord, true
	case r.phase == held: // P-LEASE-2
		return r.leaseEnd()
	case r.phase == kept:
		return r.keptFrom + r.keptFor, true
	}
	return 0, false
}

func mayBeHeld(p phase) bool { return p == held || p == releasing || p == extending || p == kept }

func (c *Core) setPhase(r *Request, to phase) {
	if mayBeHeld(r.phase) {
		c.holding--
	}
	if mayBeHeld(to) {
		c.holding++
	}
	r.phase = to
	c.schedule(r)
}

// all is a copy of the list, which what is done to its requests may change.
func (c *Core) all() []*Request {
	all := make([]*Request, 0, c.requests.Len())
	for at := c.requests.Front(); at != nil; at = at.Next() {
		all = append(all, at.Value.(*Request))
	}
	return all
}

func (c *Core) freshLabel() string {
	c.labels++
	return "." + strconv.Itoa(c.labels)
}

// ---- asking ----

// Acquire asks for a lock, several, or a temporary key. What becomes of it is told by events.
func (c *Core) Acquire(want Want, user any) *Request {
	r := &Request{User: user, want: want, heapAt: -1, phase: over}
	r.base = r
	c.begins(r)
	return r
}

func (c *Core) begins(r *Request) {
	want := &r.want
	refuse := func(name, code, text string) {
		c.tell(Event{Kind: Ended, Request: r, Err: &Error{name, code, text}})
	}
	switch {
	case c.closed:
		c.tell(Event{Kind: Ended, Request: r, Err: WasClosed()})
		return
	case len(want.Keys) == 0 || len(set(want.Keys)) < len(want.Keys): // P-ACQ-9
		refuse(Refused, "KEYS", "no key, or one that is given twice")
		return
	case len(want.Owner) > 0 && want.Owner[0] == '.': // P-OWNER-2
		refuse(Refused, "OWNER", "an owner's name must not begin with a dot")
		return
	case want.Acks > 0 && c.config.Grace == 0: // P-ACKS-1
		refuse(Unfit, "UNFIT", "acknowledged grants need a grace")
		return
	case want.AtLeast > c.config.Grace: // P-LEAST-1
		refuse(Unfit, "UNFIT", "what is to be held at least so long needs a grace as long")
		return
	case c.config.Cluster && !areOfOneSlot(want.Keys): // P-CLUSTER-2
		refuse(CrossSlot, "CROSSSLOT", "the keys are not in one slot")
		return
	}
	c.reset(r)
	var isRefused bool
	var first *Request // That stands at one of these places.
	for _, place := range r.places() {
		if queue := c.places[place]; len(queue) > 0 {
			last := queue[len(queue)-1]
			isLeft := last.phase == releasing && last.refusal != nil || last.phase == extending || last.phase == kept
			isRefused = isRefused || isLeft
			if first == nil && last.phase != releasing && last.phase != extending && last.phase != kept && !last.givenUp {
				first = last
			}
		}
	}
	switch {
	case first != nil && first.isReenteredBy(r): // P-OWNER-7
		r.base = first
		first.claims = append(first.claims, r)
		c.tell(Event{Kind: Granted, Request: r, Token: first.token})
		return
	case first != nil && want.Wait == 0: // P-OWNER-3
		refuse(Taken, "TAKEN", "this owner has it, or asks for it, already")
		return
	case first != nil:
		refuse(Deadlock, "DEADLOCK", "this owner has it, or asks for it, already: it would wait for itself")
		return
	case want.Wait == 0 && (isRefused || c.lingers(r)): // P-OWNER-4
		refuse(Taken, "TAKEN", "the server has not taken back this owner's former hold")
		return
	}
	r.element = c.requests.PushBack(r)
	for _, place := range r.places() {
		c.places[place] = append(c.places[place], r)
	}
	c.setPhase(r, queued)
	c.needLink()
	c.sendIfFirst(r)
}

// reset makes the request one that was never sent, which it is at first and when a candidate stands again.
func (c *Core) reset(r *Request) {
	*r = Request{
		User: r.User, want: r.want, keys: slices.Clone(r.want.Keys), task: r.want.Task, began: c.now, phase: over,
		attempt: r.attempt, heapAt: -1, explained: map[string]bool{},
	}
	r.base, r.claims = r, []*Request{r}
	switch {
	case !r.want.Temporary && r.want.Owner != "":
		r.label = r.want.Owner
	case !r.want.Temporary:
		r.label = c.freshLabel()
	case r.task == "": // The empty label would be everybody's task (P-OWNER-6).
		r.task = c.freshLabel()
	}
	if r.want.Seq {
		c.sequences++
		r.want.Wait, r.unnamed = 0, "#"+strconv.Itoa(c.sequences)
	}
}

func (r *Request) isReenteredBy(other *Request) bool {
	return other.want.Reentrant && r.want.Reentrant && other.want.Owner != "" && r.phase == held &&
		slices.Equal(r.keys, other.keys) && r.want.Shared == other.want.Shared &&
		r.want.Permits == other.want.Permits && r.want.Of == other.want.Of
}

// lingers tells whether the server still has a hold of the request's task at one of its keys, though that was released: it would take
// the request for a deadlock (P-OWNER-4).
func (c *Core) lingers(r *Request) bool {
	return r.want.Task != "" && slices.ContainsFunc(c.lingering, func(former *Request) bool {
		return former.want.Task == r.want.Task && former.want.Temporary == r.want.Temporary &&
			slices.ContainsFunc(former.keys, func(key string) bool { return slices.Contains(r.keys, key) })
	})
}

// linger says that the server did not take a released hold back, or is to keep it.
func (c *Core) linger(r *Request) {
	if r.want.Task != "" && !slices.Contains(c.lingering, r) {
		c.lingering = append(c.lingering, r)
	}
}

// sendIfFirst sends a request, unless a former one at its places is not settled (P-OWNER-4), or LOCK.MINE not answered
// (P-SESS-5).
func (c *Core) sendIfFirst(r *Request) {
	if c.link != up || c.isResuming() || r.phase != queued || c.closed {
		return
	}
	for _, place := range r.places() {
		if c.places[place][0] != r {
			return
		}
	}
	if c.lingers(r) {
		return
	}
	r.floor = c.greatest
	c.setPhase(r, asked)
	r.attempt++
	attempt, sent := r.attempt, c.now
	c.sendAsking(r, r.words(c.now), func(reply resp.Value) {
		if r.attempt == attempt {
			c.answered(r, reply, sent)
		}
	})
}

// sendAsking sends a command about a request, with ASKING where that needs it (P-CLUSTER-4).
func (c *Core) sendAsking(r *Request, words []string, then func(resp.Value)) {
	if r.want.Asking {
		c.send([]string{"ASKING"}, func(resp.Value) {})
	}
	c.send(words, then)
}

// P-ACQ-3
func (c *Core) answered(r *Request, reply resp.Value, sent time.Duration) {
	if reply.Kind == resp.Integer && reply.Int > 1 {
		r.wasHeld = true
	}
	isNamed := r.unnamed != "" && reply.Kind == resp.Array && len(reply.Items) >= 2
	if isNamed {
		c.rename(r, reply.Items[0].Str)
		reply = reply.Items[1]
	}
	switch {
	case r.phase == releasing && isNamed: // It was given up, and can be released now.
		c.sendReleases(r, r.keys)
	case r.phase == releasing && r.unnamed != "":
		c.settle(r)
	}
	if r.phase != asked {
		return
	}
	switch {
	case reply.Kind == resp.Error:
		c.refusedRequest(r, refusal(Refused, reply))
	case reply.Kind == resp.Integer && reply.Int > 0:
		c.grant(r, reply.Int, r.want.Lease, sent)
	case r.want.Wait != 0 || r.want.Acks > 0:
		r.hasWaited, r.refusal = true, nil
		c.setPhase(r, waiting)
	default:
		c.fail(r, "", &Error{Taken, "TAKEN", "another owner has it"})
	}
}

// rename gives a request the name that SEQ made (P-TEMP-3).
func (c *Core) rename(r *Request, name string) {
	c.leavePlace(r, r.keys[0])
	r.keys, r.unnamed = []string{name}, ""
	c.places[r.place(name)] = append(c.places[r.place(name)], r)
}

func (c *Core) refusedRequest(r *Request, err *Error) {
	goesOn := isMomentary(err.Code) || isUnwritable(err.Code) && r.hasWaited // P-ACQ-6, P-ACQ-7
	switch {
	case r.want.Wait != 0 && goesOn:
		r.refusal = err
		c.setPhase(r, queued)
		c.tryAgain(func() { c.sendIfFirst(r) })
	case err.Code == "DEADLOCK" && r.want.Wait != 0 && c.lingers(r): // It overtook a release that was refused.
		c.setPhase(r, queued)
	case err.Code == "DEADLOCK":
		c.fail(r, "", &Error{Deadlock, err.Code, err.Text})
	case err.Code == "QUARANTINE":
		c.fail(r, "", &Error{Taken, err.Code, err.Text})
	default:
		c.fail(r, "", err)
	}
}

func (c *Core) grant(r *Request, token int64, lease, leaseFrom time.Duration) {
	r.token, r.granted, r.wasHeld, r.refusal = token, c.now, true, nil
	c.greatest = max(c.greatest, token)
	r.lease, r.leaseFrom = lease, leaseFrom
	c.setPhase(r, held)
	c.refused = 0 // P-RETRY-3
	event := Event{Kind: Granted, Request: r, Token: token}
	if r.want.Seq {
		event.Key = r.keys[0]
	}
	c.tell(event)
	if r.early != nil { // P-LOSS-5
		c.lose(r, r.early.reason, r.early.key)
	}
}

// requestIsDue handles the end of a time to wait, of a lease, or of at_least.
func (c *Core) requestIsDue(r *Request) {
	switch r.phase {
	case held:
		for _, key := range r.keys {
			r.explained[key] = true
		}
		c.lose(r, "lease")
	case kept:
		c.end(r)
	default: // P-ACQ-5
		err := failure(Unreachable, "no answer within the time to wait")
		switch {
		case r.phase == waiting && c.link == up:
			err = &Error{Taken, "TAKEN", "another owner still had it when the time to wait was over"}
		case r.refusal != nil:
			err = r.refusal
		case r.phase == queued && c.link == up:
			err = &Error{Taken, "TAKEN", "the owner's former hold was not settled within the time to wait"}
		case c.why != nil:
			err.Text += ": " + c.why.Text
		}
		c.tell(Event{Kind: Ended, Request: r, Err: err})
		r.silent = true
		c.giveUp(r)
	}
}

// ---- what becomes of it ----

// Check tells what a request is: `waiting`, `held`, `released`, or lost and why. The clock is read by the caller, at the
// moment of the call (P-FENCE-4).
func (c *Core) Check(now time.Duration, r *Request) (state, lost string) {
	switch {
	case r.outcome == "released":
		return "released", ""
	case r.outcome != "":
		return Lost, r.outcome
	}
	leaseEnd, hasLease := r.base.leaseEnd()
	switch base := r.base; {
	case base.phase == held && (c.fence == 0 || now >= c.vouched+c.fence):
		return Lost, "silence"
	case base.phase == held && hasLease && now >= leaseEnd:
		return Lost, "lease"
	case base.phase == held:
		return "held", ""
	case base.waits() && !base.givenUp:
		return "waiting", ""
	}
	return "released", ""
}

// told handles a push of the kinds `lock` and `settp`.
func (c *Core) told(at place, text string) {
	word, said, label := splitPush(text)
	at.label = label
	var r *Request
	if queue := c.places[at]; len(queue) > 0 {
		r = queue[0]
	}
	if word == "LOST" {
		c.toldLost(r, at, said)
		return
	}
	token, err := strconv.ParseInt(word, 10, 64)
	isGrant := err == nil
	if r == nil {
		return
	}
	r.wasHeld = r.wasHeld || isGrant
	if r.givenUp || r.phase != asked && r.phase != waiting { // P-REL-4
		return
	}
	switch {
	case isGrant: // P-ACQ-4
		c.grant(r, token, r.want.Lease, c.now)
	case word == "TIMEOUT":
		c.fail(r, "", &Error{Taken, "TAKEN", "another owner still had it when the time to wait was over"})
	case word == "FAILED" && said == "UNBLOCKED":
		c.setPhase(r, asked)
		c.demoted()
	case word == "FAILED":
		c.refusedRequest(r, refusal(Refused, resp.Value{Kind: resp.Error, Str: said}))
	}
}

func (c *Core) toldLost(r *Request, at place, reason string) {
	switch {
	case reason == "demoted": // P-LOSS-7, P-SESS-8
		c.demoted()
		return
	case reason == "ended" && c.secret != "": // P-SESS-10
		c.secret, c.fence = "", 0
		c.cut()
		c.loseAll(reason, false)
		c.drop(Order{})
		return
	case r != nil:
		r.explained[at.key] = true
		switch {
		case r.waits() && !r.givenUp:
			r.early = &loss{reason, at.key}
		case r.phase == kept:
			c.end(r)
		case r.phase == releasing && !r.givenUp: // P-LOSS-6
			c.tellLost(r, reason)
			r.silent = true
		case r.phase == held || r.phase == extending:
			c.lose(r, reason, at.key)
		}
		return
	}
	var holds []*Request // P-LOSS-4: the key was renamed.
	for _, each := range c.all() {
		if each.phase == held && each.want.Temporary == at.temporary && each.label == at.label {
			holds = append(holds, each)
		}
	}
	switch {
	case len(holds) == 1 && !at.temporary && holds[0].want.Owner == "" && len(holds[0].keys) == 1:
		c.lose(holds[0], reason, holds[0].keys...)
	case len(holds) == 1 && !at.temporary && holds[0].want.Owner == "":
		c.lose(holds[0], reason)
	case len(holds) > 0:
		c.look(reason, holds)
	}
}

// lose ends a hold of which these keys are gone. The others are given back (P-LOSS-3).
func (c *Core) lose(r *Request, reason string, gone ...string) {
	c.tellLost(r, reason)
	r.silent = true
	var left []string
	for _, key := range r.keys {
		if slices.Contains(gone, key) {
			c.leavePlace(r, key)
		} else {
			left = append(left, key)
		}
	}
	r.keys = left
	if len(left) == 0 {
		c.standAgain(r)
		return
	}
	c.setPhase(r, releasing)
	c.sendReleases(r, left)
}

// tellLost tells all who share the hold (P-OWNER-8).
func (c *Core) tellLost(r *Request, reason string) {
	if r.silent {
		return
	}
	for _, claim := range r.claims {
		claim.outcome = reason
		c.tell(Event{Kind: LostHold, Request: claim, Reason: reason})
	}
	c.endCalls(r, failure(Lost, "the hold was lost: "+reason))
}

// endCalls ends what is asked about a hold, and not answered.
func (c *Core) endCalls(r *Request, err *Error) {
	for _, each := range r.extensions {
		c.tell(Event{Kind: NotExtended, Request: each.by, Err: err})
	}
	r.extensions = nil
	if r.checking != nil {
		c.tell(Event{Kind: NotChecked, Request: r.checkedBy, Err: err})
		r.checking = nil
	}
}

// fail ends a request: lost for this reason if it is held, else with this error.
func (c *Core) fail(r *Request, reason string, err *Error) {
	switch {
	case r.phase == held && reason != "":
		c.tellLost(r, reason)
	case r.waits() && !r.silent && !r.givenUp && err != nil:
		c.tell(Event{Kind: Ended, Request: r, Err: err})
	case (r.phase == releasing || r.phase == kept || r.phase == extending) && !c.closed:
		c.settle(r)
		return
	case (r.phase == releasing || r.phase == extending) && !r.silent: // The close releases it.
		c.settled(r)
	}
	if reason != "" && !c.closed {
		c.standAgain(r)
	} else {
		c.end(r)
	}
}

// settle says that the server has nothing left of it.
func (c *Core) settle(r *Request) {
	if !r.silent && r.phase != kept {
		c.settled(r)
	}
	c.standAgain(r)
}

func (c *Core) settled(r *Request) {
	kind := Released
	if r.givenUp {
		kind = Over
	}
	claim := r.claims[0]
	claim.outcome = "released"
	c.tell(Event{Kind: kind, Request: claim})
}

// P-ELECT-2
func (c *Core) standAgain(r *Request) {
	stands := r.want.Elect && !r.givenUp && !c.closed
	c.end(r)
	if stands {
		c.begins(r)
	}
}

func (c *Core) end(r *Request) {
	c.setPhase(r, over)
	if r.element != nil {
		c.requests.Remove(r.element)
		r.element = nil
	}
	for _, key := range r.keys {
		c.leavePlace(r, key)
	}
	if slices.Contains(c.lingering, r) {
		c.lingering = without(c.lingering, r)
		for _, each := range c.all() {
			c.sendIfFirst(each)
		}
	}
}

func (c *Core) leavePlace(r *Request, key string) {
	at := r.place(key)
	queue := c.places[at]
	if index := slices.Index(queue, r); index >= 0 {
		queue = slices.Delete(queue, index, index+1)
	}
	if len(queue) == 0 {
		delete(c.places, at)
		return
	}
	c.places[at] = queue
	if c.link == up {
		c.sendIfFirst(queue[0])
	}
}

// ---- releases ----

// Release gives a hold back. A second call does nothing (P-REL-3).
func (c *Core) Release(claim *Request) {
	r := claim.base
	if r.phase != held {
		c.giveUp(r)
		return
	}
	if !slices.Contains(r.claims, claim) {
		return
	}
	claim.outcome = "released" // P-REL-9
	if len(r.claims) > 1 {     // P-OWNER-7
		r.claims = slices.DeleteFunc(r.claims, func(each *Request) bool { return each == claim })
		c.tell(Event{Kind: Released, Request: claim})
		return
	}
	c.endCalls(r, failure(Lost, "it is released"))
	if r.want.AtLeast > c.now-r.granted { // P-LEAST-2
		r.unsettle(r.keys)
		c.linger(r)
		c.setPhase(r, extending)
		c.keep(r)
		return
	}
	c.setPhase(r, releasing)
	c.sendReleases(r, r.keys)
}

// GiveUp ends a request in whatever state it is, and leaves nothing behind (P-ACQ-10). A candidate stands no more, also one whose
// term is lost and not yet settled.
func (c *Core) GiveUp(claim *Request) {
	claim.base.want.Elect = false
	c.Release(claim)
}

func (c *Core) giveUp(r *Request) {
	if !r.waits() || r.givenUp {
		return
	}
	r.givenUp = true
	if r.phase == queued && len(r.unsettled) == 0 {
		if !r.silent {
			c.settled(r)
		}
		c.end(r)
		return
	}
	r.refusal = nil
	c.setPhase(r, releasing)
	if r.unnamed == "" { // Else the answer says what to release.
		c.sendReleases(r, r.keys)
	}
}

func (c *Core) sendReleases(r *Request, keys []string) {
	r.unsettle(keys)
	c.sendUnsettled(r)
}

func (r *Request) unsettle(keys []string) {
	r.unsettled = nil
	for _, key := range keys {
		r.unsettled = append(r.unsettled, &unsettledKey{key: key})
	}
}

func (r *Request) isSettled(each *unsettledKey) {
	r.unsettled = slices.DeleteFunc(r.unsettled, func(other *unsettledKey) bool { return other == each })
}

func (c *Core) sendUnsettled(r *Request) {
	if c.link != up || c.isResuming() && !c.sendFirst || r.phase != releasing {
		return
	}
	for _, each := range r.unsettled {
		if !each.sent {
			each.sent = true
			sentBefore := r.sentBefore
			c.sendAsking(r, r.releaseOf(each.key), func(reply resp.Value) { c.released(r, each, sentBefore, reply) })
		}
	}
}

func (c *Core) released(r *Request, each *unsettledKey, sentBefore bool, reply resp.Value) {
	if r.phase == over || !slices.Contains(r.unsettled, each) {
		return
	}
	code := reply.Code()
	isDone := reply.Kind == resp.Integer || code == "NOTHELD"
	if code == "MOVED" { // P-REL-8
		if c.secret != "" && r.wasHeld && !r.silent && !r.explained[each.key] {
			c.leave()
			return
		}
		isDone = true
	}
	if !isDone { // P-REL-5
		each.sent = false
		r.refusal = refusal(Refused, reply)
		c.linger(r)
		c.tellReleasing(r, r.refusal)
		c.refuseNext(r)
		c.tryAgain(func() { c.sendUnsettled(r) })
		return
	}
	c.refused = 0
	r.isSettled(each)
	wasGone := code == "NOTHELD" || r.want.Temporary && reply.Kind == resp.Integer && reply.Int == 0
	if wasGone && r.wasHeld && !r.explained[each.key] && !sentBefore { // P-REL-7
		if !r.givenUp && !r.silent {
			c.tellLost(r, "deleted")
			r.silent = true
		}
		c.look("deleted", nil)
	}
	if len(r.unsettled) == 0 {
		c.settle(r)
	}
}

// refuseNext tells those behind a refused release who do not wait (P-OWNER-4).
func (c *Core) refuseNext(r *Request) {
	for _, at := range r.places() {
		for _, other := range slices.Clone(c.places[at]) {
			if other != r && other.phase == queued && other.want.Wait == 0 {
				c.fail(other, "", &Error{Taken, "TAKEN", "the server has not taken back this owner's former hold"})
			}
		}
	}
}

// tellReleasing tells of each code once (P-REL-6).
func (c *Core) tellReleasing(r *Request, err *Error) {
	if !r.silent && r.said != err.Code {
		r.said = err.Code
		c.tell(Event{Kind: Releasing, Request: r.claims[0], Err: err})
	}
}

// ---- leases ----

// Extend sets a new lease (P-LEASE-1).
func (c *Core) Extend(claim *Request, lease time.Duration) {
	r := claim.base
	if r.phase != held {
		c.tell(Event{Kind: NotExtended, Request: claim, Err: failure(Lost, "it is not held")})
		return
	}
	this := &extension{by: claim, lease: lease, keys: set(r.keys)}
	r.extensions = append(r.extensions, this)
	c.sendExtension(r, this)
}

func (c *Core) sendExtension(r *Request, this *extension) {
	if c.link != up || c.isResuming() {
		return
	}
	sent := c.now
	if !this.isSent {
		this.isSent, this.sent = true, sent
		c.schedule(r)
	}
	for _, key := range r.keys {
		if !this.keys[key] {
			continue
		}
		c.sendAsking(r, r.extensionOf(key, this.lease), func(reply resp.Value) {
			switch {
			case !slices.Contains(r.extensions, this):
			case reply.Code() == "NOTHELD":
				c.notHeld(r, key)
			case reply.Kind == resp.Error:
				r.extensions = without(r.extensions, this)
				c.schedule(r)
				c.tell(Event{Kind: NotExtended, Request: this.by, Err: refusal(Refused, reply)})
			default:
				if delete(this.keys, key); len(this.keys) == 0 {
					r.extensions = without(r.extensions, this)
					r.lease, r.leaseFrom = this.lease, sent
					c.schedule(r)
					c.tell(Event{Kind: Extended, Request: this.by})
				}
			}
		})
	}
}

// keep has the server hold a released lock until at_least is over (P-LEAST-2).
func (c *Core) keep(r *Request) {
	rest := r.want.AtLeast - (c.now - r.granted)
	if rest <= 0 {
		c.setPhase(r, releasing)
		c.sendReleases(r, r.keys)
		return
	}
	if c.link != up || c.isResuming() {
		return
	}
	sent := c.now
	for _, each := range r.unsettled {
		if each.sent {
			continue
		}
		each.sent = true
		c.sendAsking(r, r.extensionOf(each.key, rest), func(reply resp.Value) {
			code := reply.Code()
			switch {
			case r.phase != extending:
			case code == "NOTHELD":
				c.notHeld(r, each.key)
			case reply.Kind == resp.Error: // P-REL-5
				each.sent = false
				c.tellReleasing(r, refusal(Refused, reply))
				c.tryAgain(func() {
					if r.phase == extending {
						c.keep(r)
					}
				})
			default:
				if r.isSettled(each); len(r.unsettled) == 0 {
					r.keptFrom, r.keptFor = sent, rest
					c.setPhase(r, kept)
					c.tell(Event{Kind: Released, Request: r.claims[0]})
				}
			}
		})
	}
}

// notHeld handles the loss of a hold that no push has told lost: its key was renamed (P-LEASE-3).
func (c *Core) notHeld(r *Request, key string) {
	c.lose(r, "deleted", key)
	c.look("deleted", nil)
}

// CheckServer asks the server whether the token is that of a current hold (P-GUARD-2).
func (c *Core) CheckServer(claim *Request) {
	r := claim.base
	switch {
	case r.phase != held:
		c.tell(Event{Kind: NotChecked, Request: claim, Err: failure(Lost, "it is not held")})
	case r.checking != nil:
		c.tell(Event{Kind: NotChecked, Request: claim, Err: &Error{Refused, "BUSY", "the last check is not answered yet"}})
	default:
		r.checking, r.checkedBy = set(r.keys), claim
		c.sendChecks(r)
	}
}

func (c *Core) sendChecks(r *Request) {
	if c.link != up || c.isResuming() {
		return
	}
	for _, key := range r.keys {
		if !r.checking[key] {
			continue
		}
		c.sendAsking(r, []string{"LOCK.CHECK", key, strconv.FormatInt(r.token, 10)}, func(reply resp.Value) {
			switch {
			case r.checking == nil:
			case reply.Code() == "STALE" && c.secret != "" && isOfReplica(reply):
				c.demoted()
			case reply.Kind == resp.Error:
				r.checking = nil
				err := refusal(Refused, reply)
				if err.Code == "STALE" {
					err.Name = Lost
				}
				c.tell(Event{Kind: NotChecked, Request: r.checkedBy, Err: err})
			default:
				if delete(r.checking, key); len(r.checking) == 0 {
					r.checking = nil
					c.tell(Event{Kind: Checked, Request: r.checkedBy})
				}
			}
		})
	}
}
