package core

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"tether/internal/resp"
)

// ---- keys ----

// Watch is a watcher of some keys.
type Watch struct {
	User any // For the shell.

	keys []string
	told map[string]bool // Of each key whose state was told: whether it exists.
	over bool
}

type keyPhase int

const (
	asking keyPhase = iota
	known
	leaving
)

// watchedKey is one WATCHEX for all watchers of a key (P-WATCH-1).
type watchedKey struct {
	key     string
	by      []*Watch
	phase   keyPhase
	isOpen  bool // A command of it is not answered; a push is no answer.
	isThere bool
	isAgain bool // It is asked for again, and isThere is so.
}

func without[T comparable](all []T, one T) []T {
	return slices.DeleteFunc(all, func(each T) bool { return each == one })
}

// Watch tells the state of these keys, and then each change (P-WATCH-2).
func (c *Core) Watch(keys []string, user any) *Watch {
	w := &Watch{User: user, keys: keys, told: map[string]bool{}}
	c.GoOnWatching(w)
	return w
}

// GoOnWatching begins with a watch, or goes on with one that has ended at another node, and tells the difference (P-CLUSTER-7).
func (c *Core) GoOnWatching(w *Watch) {
	keys := w.keys
	switch {
	case c.closed:
		c.endWatch(w, WasClosed())
		return
	case len(keys) == 0 || len(set(keys)) < len(keys):
		c.endWatch(w, &Error{Refused, "KEYS", "no key, or one that is given twice"})
		return
	case c.config.Cluster && !areOfOneSlot(keys): // P-CLUSTER-2
		c.endWatch(w, failure(CrossSlot, "the keys are not in one slot"))
		return
	}
	w.over = false
	c.watches++
	c.needLink()
	for _, key := range keys {
		watched := c.watched[key]
		if watched == nil {
			watched = &watchedKey{key: key}
			c.watched[key] = watched
			c.keys = append(c.keys, watched)
			c.sendWatch(watched)
		}
		watched.by = append(watched.by, w)
		if watched.phase == known {
			c.tellState(w, watched)
		}
	}
}

func (c *Core) endWatch(w *Watch, err *Error) {
	w.over = true
	c.tell(Event{Kind: WatchEnded, Watch: w, Err: err})
}

// Unwatch ends a watcher.
func (c *Core) Unwatch(w *Watch) {
	if w.over {
		return
	}
	w.over = true
	c.watches--
	for _, key := range w.keys {
		c.leaveKey(w, key)
	}
}

func (c *Core) leaveKey(w *Watch, key string) {
	watched := c.watched[key]
	watched.by = without(watched.by, w)
	switch {
	case len(watched.by) > 0:
	case c.link != up:
		c.forgetKey(watched)
	case watched.phase == known:
		c.sendUnwatch(watched)
	}
}

func (c *Core) forgetKey(watched *watchedKey) {
	delete(c.watched, watched.key)
	c.keys = without(c.keys, watched)
}

func (c *Core) sendWatch(watched *watchedKey) {
	if c.link == up && !watched.isOpen {
		watched.isOpen = true
		c.send([]string{"WATCHEX", watched.key}, func(reply resp.Value) { c.watchAnswered(watched, reply) })
	}
}

// sendUnwatch says that nobody watches a key, if so; while a command is open, the answer to that leads here again.
func (c *Core) sendUnwatch(watched *watchedKey) {
	if len(watched.by) > 0 || watched.isOpen {
		return
	}
	watched.phase, watched.isOpen = leaving, true
	c.send([]string{"UNWATCHEX", watched.key}, func(resp.Value) {
		watched.isOpen = false
		if len(watched.by) == 0 {
			c.forgetKey(watched)
			return
		}
		watched.phase = asking
		c.sendWatch(watched)
	})
}

func (c *Core) watchAnswered(watched *watchedKey, reply resp.Value) {
	watched.isOpen = false
	switch {
	case c.watched[watched.key] != watched:
	case watched.phase == known: // A push said it before.
		c.sendUnwatch(watched)
	case watched.isAgain && reply.Kind == resp.Error && reply.Code() != "MOVED":
		c.stateIsKnown(watched, watched.isThere)
	case isMomentary(reply.Code()), reply.Code() == "ASK": // P-CLUSTER-7
		c.tryAgain(func() { c.sendWatch(watched) })
	case reply.Kind == resp.Error: // P-WATCH-4
		by := watched.by
		watched.by = nil
		c.forgetKey(watched)
		for _, w := range by {
			c.watches--
			c.endWatch(w, refusal(Refused, reply))
			for _, key := range w.keys {
				if key != watched.key {
					c.leaveKey(w, key)
				}
			}
		}
	default:
		c.stateIsKnown(watched, reply.IsString("EXIST"))
	}
}

func (c *Core) stateIsKnown(watched *watchedKey, isThere bool) {
	watched.phase, watched.isThere, watched.isAgain = known, isThere, false
	c.sendUnwatch(watched)
	for _, w := range watched.by {
		c.tellState(w, watched)
	}
}

// tellState tells a watcher the difference to what it was told last (P-WATCH-2, P-WATCH-3).
func (c *Core) tellState(w *Watch, watched *watchedKey) {
	wasThere, isTold := w.told[watched.key]
	if isTold && wasThere == watched.isThere {
		return
	}
	w.told[watched.key] = watched.isThere
	c.tell(Event{Kind: WatchEvent, Watch: w, Key: watched.key, Change: changeOf(isTold, watched.isThere)})
}

func changeOf(isTold, isThere bool) string {
	switch {
	case isTold && isThere:
		return "added"
	case isTold:
		return "deleted"
	case isThere:
		return "exists"
	}
	return "missing"
}

func (c *Core) keyChanged(key, change string) {
	watched := c.watched[key]
	if watched == nil || change != "ADD" && change != "DEL" {
		return
	}
	isThere := change == "ADD"
	if watched.phase == asking { // It says what the reply will say.
		c.stateIsKnown(watched, !isThere)
	}
	if watched.phase == known {
		watched.isThere = isThere
		for _, w := range watched.by {
			c.tellState(w, watched)
		}
	}
}

// watchAnew watches everything again on a new connection (P-WATCH-3, P-PRES-3).
func (c *Core) watchAnew() {
	for _, watched := range slices.Clone(c.keys) {
		if len(watched.by) == 0 {
			c.forgetKey(watched)
			continue
		}
		watched.phase, watched.isOpen, watched.isAgain = asking, false, false
		c.sendWatch(watched)
	}
	for _, p := range slices.Clone(c.ordered) {
		c.sendPrefix(p)
	}
}

// askAgain finds out whether the slots of watched keys are still here (P-CLUSTER-7).
func (c *Core) askAgain() {
	for range min(len(c.keys), mostAskedAgain) {
		c.asked = (c.asked + 1) % len(c.keys)
		if watched := c.keys[c.asked]; watched.phase == known && !watched.isOpen {
			watched.phase, watched.isAgain = asking, true
			c.sendWatch(watched)
		}
	}
}

// ---- prefixes ----

// Presence is a watcher of the temporary keys below a prefix, or of the leader of an election.
type Presence struct {
	User any // For the shell.

	prefix     string
	isElection bool
	isTold     bool // The observer has heard who leads.
	over       bool

	told map[string]member // Until the first snapshot: what it was told at another node.
}

type member struct {
	token int64
	value *string
}

func (m member) equals(other member) bool {
	hasValue := m.value != nil && other.value != nil
	return m.token == other.token && (m.value == nil) == (other.value == nil) && (!hasValue || *m.value == *other.value)
}

// prefix is one WATCHTP for all watchers of a prefix.
type prefix struct {
	prefix  string
	by      []*Presence
	members map[string]member // As they were told.
	next    map[string]member // The snapshot that is being taken; nil before its first page, when a push is still of a former watch.
	isLive  bool
	attempt int
}

// Presence tells who is there, and then each change (P-PRES-1).
func (c *Core) Presence(of string, user any) *Presence {
	w := &Presence{User: user, prefix: of}
	c.GoOnPresent(w)
	return w
}

// Observe tells who leads an election, and then each change (P-ELECT-3).
func (c *Core) Observe(election string, user any) *Presence {
	w := &Presence{User: user, prefix: election, isElection: true}
	c.GoOnPresent(w)
	return w
}

// GoOnPresent begins with a presence, or goes on with one that has ended at another node, and tells the difference (P-CLUSTER-7).
func (c *Core) GoOnPresent(w *Presence) {
	if c.closed {
		c.endPresence(w, WasClosed())
		return
	}
	if _, isTagged := hashTag(w.prefix); c.config.Cluster && !isTagged { // P-CLUSTER-2
		c.endPresence(w, failure(CrossSlot, "in a cluster a prefix needs a whole hash tag, as in members:{eu}:"))
		return
	}
	if w.over = false; w.told == nil {
		w.told = map[string]member{}
	}
	c.presences++
	c.needLink()
	p := c.prefixes[w.prefix]
	if p == nil {
		p = &prefix{prefix: w.prefix}
		c.prefixes[w.prefix] = p
		c.ordered = append(c.ordered, p)
		p.by = append(p.by, w)
		c.sendPrefix(p)
		return
	}
	p.by = append(p.by, w)
	if p.isLive {
		c.tellMembers(w, p.members)
	}
}

func (c *Core) endPresence(w *Presence, err *Error) {
	w.over = true
	c.tell(Event{Kind: PresenceEnded, Presence: w, Err: err})
}

// EndPresence ends a watcher of either kind.
func (c *Core) EndPresence(w *Presence) {
	if w.over {
		return
	}
	w.over = true
	c.presences--
	p := c.prefixes[w.prefix]
	if p.by = without(p.by, w); len(p.by) > 0 {
		return
	}
	c.forgetPrefix(p)
	if c.link == up {
		c.send([]string{"UNWATCHTP", p.prefix}, func(resp.Value) {})
	}
}

func (c *Core) forgetPrefix(p *prefix) {
	delete(c.prefixes, p.prefix)
	c.ordered = without(c.ordered, p)
}

// sendPrefix begins a fresh snapshot.
func (c *Core) sendPrefix(p *prefix) {
	if c.link != up || c.prefixes[p.prefix] != p {
		return
	}
	p.next, p.isLive = nil, false
	p.attempt++
	c.sendPage(p)
}

func (c *Core) sendPage(p *prefix, after ...string) {
	attempt := p.attempt
	c.send(append([]string{"WATCHTP", p.prefix}, after...), func(reply resp.Value) {
		if c.prefixes[p.prefix] == p && p.attempt == attempt {
			c.page(p, reply)
		}
	})
}

func (c *Core) page(p *prefix, reply resp.Value) {
	code := reply.Code()
	switch {
	case isMomentary(code), isUnwritable(code), code == "ASK": // P-CLUSTER-7
		c.tryAgain(func() { c.sendPrefix(p) })
		return
	case reply.Kind == resp.Error: // P-PRES-3
		c.forgetPrefix(p)
		for _, w := range p.by {
			if w.told == nil {
				w.told = p.members
			}
			c.presences--
			c.endPresence(w, refusal(Refused, reply))
		}
		return
	case len(reply.Items) < 2:
		return
	}
	if p.next == nil {
		p.next = map[string]member{}
	}
	for _, item := range reply.Items[1].Items {
		if len(item.Items) >= 3 {
			p.next[item.Items[0].Str] = member{item.Items[1].Int, valueOf(item.Items[2])}
		}
	}
	if after := reply.Items[0].Str; after != "" {
		c.sendPage(p, "AFTER", after)
		return
	}
	old := p.members
	p.members, p.next, p.isLive = p.next, nil, true
	for _, w := range p.by {
		if w.told == nil {
			w.told = old
		}
		c.tellMembers(w, p.members)
	}
}

func valueOf(value resp.Value) *string {
	if value.Kind != resp.String {
		return nil
	}
	return &value.Str
}

// tellMembers tells a watcher the difference to what it was told before.
func (c *Core) tellMembers(w *Presence, now map[string]member) {
	old := w.told
	w.told = nil
	keys := map[string]bool{}
	for key := range old {
		keys[key] = true
	}
	for key := range now {
		keys[key] = true
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		before, wasThere := old[key]
		after, isThere := now[key]
		switch {
		case !isThere:
			c.tellMember(w, key, "del", member{}, "unknown")
		case !wasThere:
			c.tellMember(w, key, "add", after, "")
		case !before.equals(after):
			c.tellMember(w, key, "set", after, "")
		}
	}
	if w.isElection && !w.isTold { // Nobody leads.
		w.isTold = true
		c.tell(Event{Kind: LeaderEvent, Presence: w})
	}
}

func (c *Core) tellMember(w *Presence, key, change string, m member, reason string) {
	switch {
	case !w.isElection:
		c.tell(Event{
			Kind: PresenceEvent, Presence: w, Key: key, Change: change, Token: m.token, Value: m.value, Reason: reason,
		})
	case key == w.prefix:
		w.isTold = true
		c.tell(Event{Kind: LeaderEvent, Presence: w, Token: m.token, Value: m.value})
	}
}

func (c *Core) memberChanged(key, text string) {
	word, rest, _ := strings.Cut(text, " ")
	switch word {
	case "FLUSHED":
		c.flushed(key)
		return
	case "END": // P-PRES-3
		if p := c.prefixes[key]; p != nil {
			c.sendPrefix(p)
		}
		return
	case "ADD", "SET", "DEL":
	default:
		return
	}
	number, value, hasValue := strings.Cut(rest, " ")
	var m member
	m.token, _ = strconv.ParseInt(number, 10, 64)
	if hasValue {
		m.value = &value
	}
	for _, p := range c.ordered { // P-PRES-2
		if !strings.HasPrefix(key, p.prefix) {
			continue
		}
		members := p.members
		if !p.isLive {
			members = p.next
		}
		change, reason := strings.ToLower(word), ""
		if word == "DEL" {
			delete(members, key)
			reason = value
		} else if members != nil {
			members[key] = m
		}
		if p.isLive {
			told := m
			if word == "DEL" {
				told = member{}
			}
			for _, w := range p.by {
				c.tellMember(w, key, change, told, reason)
			}
		}
	}
}

// P-PRES-4
func (c *Core) flushed(key string) {
	p := c.prefixes[key]
	switch {
	case p == nil:
		return
	case !p.isLive:
		clear(p.next)
		return
	}
	old := p.members
	p.members = map[string]member{}
	for _, key := range slices.Sorted(maps.Keys(old)) {
		for _, w := range p.by {
			c.tellMember(w, key, "del", member{}, "flushed")
		}
	}
}

// endWatches ends all watchers.
func (c *Core) endWatches(err *Error) {
	ended := map[*Watch]bool{}
	for _, watched := range c.keys {
		for _, w := range watched.by {
			if !ended[w] {
				ended[w] = true
				c.endWatch(w, err)
			}
		}
	}
	for _, p := range c.ordered {
		for _, w := range p.by {
			c.endPresence(w, err)
		}
	}
	c.keys, c.watched, c.watches = nil, map[string]*watchedKey{}, 0
	c.ordered, c.prefixes, c.presences = nil, map[string]*prefix{}, 0
}
