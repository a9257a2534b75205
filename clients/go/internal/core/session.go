package core

import (
	"slices"
	"time"

	"tether/internal/resp"
)

// mine is a LOCK.MINE that is under way.
type mine struct {
	isResume bool
	sent     time.Duration // Its first page.
	pages    int
	entries  []resp.Value
	reason   string     // Of the loss of what it does not list,
	holds    []*Request // of these.
}

// entry is one hold that LOCK.MINE lists.
type entry struct {
	key       string
	isNamed   bool // The user may read its name.
	temporary bool
	label     string
	token     int64
	lease     time.Duration // What is left of it; 0 without one.
}

// Slot is one that the server is to have: of a hold, since its session is where the slot is now (P-CLUSTER-6), else of anything that is
// wanted there. What came by ASK says nothing: its slot is still elsewhere.
func (c *Core) Slot() (slot int, isKnown bool) {
	all := slices.DeleteFunc(c.all(), func(r *Request) bool { return r.want.Asking || len(r.keys) == 0 })
	isHold := func(r *Request) bool { return mayBeHeld(r.phase) && r.phase != releasing }
	for _, isIt := range []func(*Request) bool{isHold, (*Request).wasSent, (*Request).waits} {
		if at := slices.IndexFunc(all, isIt); at >= 0 {
			return Slot(all[at].keys[0]), true
		}
	}
	switch {
	case len(c.keys) > 0:
		return Slot(c.keys[0].key), true
	case len(c.ordered) > 0:
		return Slot(c.ordered[0].prefix), true
	}
	return 0, false
}

// IsBound tells whether the session has, or may have, what no other one has.
func (c *Core) IsBound() bool {
	return c.secret != "" && slices.ContainsFunc(c.all(), (*Request).wasSent)
}

// wasSent tells whether a server that keeps the session may have something of the request.
func (r *Request) wasSent() bool { return r.phase != queued }

func (c *Core) isResuming() bool { return c.mine != nil && c.mine.isResume }

// resumed handles the answer to SESSION.RESUME.
func (c *Core) resumed(reply resp.Value) {
	switch {
	case c.closed && reply.Kind == resp.Error:
		c.parted(reply)
		return
	case c.closed:
		c.part()
		return
	case reply.Code() == "NOSESSION": // P-SESS-7
		c.sessionIsOver()
		return
	case reply.Kind == resp.Error: // P-SESS-4
		c.cut()
		c.leaveFor(refusal(Unreachable, reply))
		return
	}
	c.vouch(c.answeredSent)
	c.pinged = c.now
	c.link, c.why = up, nil
	all := c.all()
	c.sendFirst = true // P-SESS-5
	c.mine = &mine{isResume: true, sent: c.now, reason: "connection", holds: all}
	for _, r := range all {
		c.sendUnsettled(r)
	}
	c.sendFirst = false
	c.askMine()
	c.watchAnew()
}

// P-SESS-7
func (c *Core) sessionIsOver() {
	c.secret = ""
	c.nextFence, c.fence = c.fence, 0
	c.link = greeting
	c.loseAll("connection", false)
	c.startSession()
}

// look asks what is there: of these holds, and of what nothing claims (P-LOSS-4, P-REL-7).
func (c *Core) look(reason string, holds []*Request) {
	if c.mine != nil {
		under := c.mine
		if under.pages > 0 { // A page that came already is of before.
			if c.lookAgain == nil {
				c.lookAgain = &mine{reason: reason}
			}
			under = c.lookAgain
		}
		under.add(reason, holds)
		return
	}
	c.mine = &mine{sent: c.now, reason: reason, holds: holds}
	c.askMine()
}

// add has a LOCK.MINE that is under way decide about these holds, too.
func (m *mine) add(reason string, holds []*Request) {
	for _, r := range holds {
		if !slices.Contains(m.holds, r) {
			m.holds = append(m.holds, r)
			m.reason = reason
		}
	}
}

func (c *Core) askMine(words ...string) {
	c.send(append([]string{"LOCK.MINE"}, words...), c.found)
}

func (c *Core) found(reply resp.Value) {
	m := c.mine
	if reply.Kind == resp.Error || len(reply.Items) < 2 {
		c.notFound(m, reply)
		return
	}
	m.entries = append(m.entries, reply.Items[1].Items...)
	m.pages++
	if cursor := reply.Items[0].Str; cursor != "0" {
		c.askMine("CURSOR", cursor)
		return
	}
	c.mine = nil
	c.compare(m)
	if next := c.lookAgain; next != nil {
		c.lookAgain = nil
		c.look(next.reason, next.holds)
	}
}

func (c *Core) notFound(m *mine, reply resp.Value) {
	code := reply.Code()
	switch {
	case m.isResume && (isMomentary(code) || isUnwritable(code)): // P-SESS-4
		c.leave()
	case m.isResume: // P-SESS-7
		c.mine = nil
		c.send([]string{"SESSION.END"}, func(resp.Value) {})
		c.sessionIsOver()
	case isMomentary(code):
		c.mine = nil
		c.tryAgain(func() { c.look(m.reason, m.holds) })
	default:
		next := c.lookAgain
		c.mine, c.lookAgain = nil, nil
		for _, each := range []*mine{m, next} {
			if each == nil {
				continue
			}
			for _, r := range each.holds {
				if r.phase == held {
					c.lose(r, each.reason)
				}
			}
		}
	}
}

// compare decides by label and token, whatever the key is called now (P-SESS-6).
func (c *Core) compare(m *mine) {
	byLabel := map[place][]*Request{}
	for _, r := range c.all() {
		at := place{temporary: r.want.Temporary, label: r.label}
		byLabel[at] = append(byLabel[at], r)
	}
	var unclaimed []entry
	found := map[*Request][]entry{}
	for _, item := range m.entries {
		if !item.Get("state").IsString("held") {
			continue
		}
		key := item.Get("key")
		each := entry{
			key.Str, key.Kind == resp.String, item.Get("kind").IsString("temporary"), item.Get("label").Str, item.Get("token").Int,
			leaseOf(item),
		}
		if r := claimant(byLabel[place{temporary: each.temporary, label: each.label}], each); r != nil {
			found[r] = append(found[r], each)
		} else {
			unclaimed = append(unclaimed, each)
		}
	}
	for _, r := range m.holds {
		switch {
		case r.phase == held || r.phase == kept || r.phase == extending:
			c.compareHold(r, found[r], m.reason)
		case r.phase == asked && m.isResume:
			c.compareRequest(r, found[r], m.sent)
		case r.phase == releasing && r.unnamed != "" && m.isResume:
			c.settle(r)
		}
	}
	for _, each := range unclaimed {
		// Without a resume the page may be older than what was asked for since.
		if isFree := len(c.places[place{each.temporary, each.key, each.label}]) == 0; m.isResume || isFree {
			c.releaseUnclaimed(each)
		}
	}
	if m.isResume {
		c.goOnAfterResume()
	}
}

func (c *Core) goOnAfterResume() {
	for _, r := range c.all() {
		if r.phase == extending {
			c.keep(r)
		}
		for _, each := range r.extensions {
			c.sendExtension(r, each)
		}
		if r.checking != nil {
			c.sendChecks(r)
		}
		c.sendIfFirst(r)
		c.sendUnsettled(r)
	}
}

// claimant is whose hold this is, of the requests with its label.
func claimant(requests []*Request, each entry) *Request {
	for _, r := range requests {
		isNamed := r.unnamed == "" && slices.Contains(r.keys, each.key) // One that SEQ named while nobody heard is nobody's.
		isNew := each.token > r.floor                                   // P-SESS-11
		switch {
		case (r.phase == held || r.phase == kept || r.phase == extending) && r.token == each.token,
			isNamed && r.phase == releasing,
			isNamed && isNew && (r.phase == asked || r.phase == waiting):
			return r
		}
	}
	return nil
}

func (c *Core) compareHold(r *Request, entries []entry, reason string) {
	switch {
	case len(entries) >= len(r.keys):
	case r.phase == kept:
		c.end(r)
	default:
		gone := slices.DeleteFunc(slices.Clone(r.keys), func(key string) bool {
			return slices.ContainsFunc(entries, func(each entry) bool { return each.key == key })
		})
		c.lose(r, reason, gone...)
	}
}

func (c *Core) compareRequest(r *Request, entries []entry, sent time.Duration) {
	if len(entries) == len(r.keys) {
		var left []time.Duration // P-LEASE-2
		for _, each := range entries {
			if each.lease > 0 {
				left = append(left, each.lease)
			}
		}
		lease := r.want.Lease
		if len(left) > 0 {
			lease = slices.Min(left)
		}
		c.grant(r, entries[0].token, lease, sent)
		return
	}
	r.hasWaited = true
	c.setPhase(r, queued)
	for _, each := range entries {
		c.releaseUnclaimed(each)
	}
}

func leaseOf(item resp.Value) time.Duration {
	left := item.Get("lease-ms")
	if left.Kind != resp.Integer {
		return 0
	}
	return max(1, time.Duration(left.Int)*time.Millisecond) // Also of one that is over within the millisecond.
}

// releaseUnclaimed releases what the server has and nobody here: a request before all others at that place.
func (c *Core) releaseUnclaimed(each entry) {
	if !each.isNamed { // It ends with the session.
		return
	}
	want := Want{Keys: []string{each.key}, Temporary: each.temporary}
	r := &Request{want: want, phase: over, heapAt: -1, explained: map[string]bool{}, keys: want.Keys, label: each.label}
	r.base, r.claims, r.silent, r.givenUp = r, []*Request{r}, true, true
	r.element = c.requests.PushBack(r)
	for _, at := range r.places() {
		c.places[at] = slices.Insert(c.places[at], 0, r)
	}
	c.setPhase(r, releasing)
	c.sendReleases(r, r.keys)
}
