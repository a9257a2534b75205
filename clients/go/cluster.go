package tether

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"tether/internal/core"
)

const (
	// How often a request is referred to another node (P-CLUSTER-3).
	maxReferrals = 5
	// A watch or candidate that has been at a node for so long has arrived there: the next slot that moves counts anew.
	settled = time.Second
)

// A cluster has a link for each master that it was referred to (P-CLUSTER-1), and begins with the one of Open's address.
type cluster struct {
	first *link
	make  func(*dialer) *link

	mu       sync.Mutex
	slots    map[int]*link // As far as grants and MOVED told.
	nodes    map[string]*link
	isClosed bool
}

func newCluster(first *link, make func(*dialer) *link) *cluster {
	c := &cluster{first: first, make: make, slots: map[int]*link{}, nodes: map[string]*link{}}
	c.watch(first)
	return c
}

// watch has a link's dialer look for the master elsewhere, and tell where it found it.
func (c *cluster) watch(l *link) {
	l.dialer.connected = func(at string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.nodes[at] == nil {
			c.nodes[at] = l
		}
	}
	l.dialer.locate = func(ctx context.Context) []address { return c.locate(ctx, l) }
}

// of is the link for a slot.
func (c *cluster) of(slot int) *link {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found := c.slots[slot]; found != nil {
		return found
	}
	return c.first
}

// at is the link to a node.
func (c *cluster) at(where string) *link {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.nodes[where]
	if found == nil && c.isClosed {
		return c.first
	}
	if found == nil {
		d := *c.first.dialer
		d.addresses = []address{d.addresses[0].elsewhere(where)}
		found = c.make(&d)
		c.watch(found)
		c.nodes[where] = found
	}
	return found
}

func (c *cluster) remember(slot int, l *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slots[slot] = l
}

// all is every link, once.
func (c *cluster) all() []*link {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := []*link{c.first}
	for _, each := range c.nodes {
		if !slices.Contains(all, each) {
			all = append(all, each)
		}
	}
	return all
}

func (c *cluster) close() {
	c.mu.Lock()
	c.isClosed = true
	c.mu.Unlock()
	var closing sync.WaitGroup
	for _, each := range c.all() {
		closing.Add(1)
		go func() {
			defer closing.Done()
			each.close()
		}()
	}
	closing.Wait()
}

// locate asks the nodes who has the slots of a link now: after a failover, a promoted replica (P-CLUSTER-6).
func (c *cluster) locate(ctx context.Context, of *link) []address {
	c.mu.Lock()
	slot, isKnown := 0, false
	for each, l := range c.slots {
		if l == of {
			slot, isKnown = each, true
			break
		}
	}
	var asked []address
	for at := range c.nodes {
		asked = append(asked, c.first.dialer.addresses[0].elsewhere(at))
	}
	c.mu.Unlock()
	if !isKnown {
		return nil
	}
	for _, each := range append(asked, c.first.dialer.addresses...) {
		within, cancel := context.WithTimeout(ctx, time.Second)
		at := of.dialer.askForSlot(within, each, slot)
		cancel()
		if at != "" {
			return []address{each.elsewhere(at)}
		}
	}
	return nil
}

// askForSlot is where the master of a slot is, as a node says, or empty.
func (d *dialer) askForSlot(ctx context.Context, node address, slot int) string {
	connection, _, err := d.greet(ctx, node)
	if err != nil {
		return ""
	}
	defer connection.Close()
	reply, failed := connection.ask("CLUSTER", "SLOTS")
	if failed != nil {
		return ""
	}
	for _, span := range reply.Items {
		if len(span.Items) < 3 || int64(slot) < span.Items[0].Int || int64(slot) > span.Items[1].Int {
			continue
		}
		if master := span.Items[2].Items; len(master) >= 2 {
			host, port := master[0].Str, strconv.FormatInt(master[1].Int, 10)
			if host == "" || host == "?" {
				host, _, _ = net.SplitHostPort(node.at)
			}
			return net.JoinHostPort(host, port)
		}
	}
	return ""
}

// A route is where a request goes, which may be referred elsewhere.
type route struct {
	locks     *Locks
	link      *link
	isAsking  bool
	referrals int
	began     time.Duration
}

// route is where requests for these keys go (P-CLUSTER-2). Keys of two slots are refused there.
func (l *Locks) route(keys ...string) *route {
	r := &route{locks: l, link: l.link, began: now()}
	if l.cluster != nil && len(keys) > 0 {
		r.link = l.cluster.of(core.Slot(keys[0]))
	}
	return r
}

// follows goes where an error refers to: MOVED is remembered (P-CLUSTER-3), ASK is not (P-CLUSTER-4).
func (r *route) follows(err error) bool {
	var refused *Error
	if r.locks.cluster == nil || !errors.As(err, &refused) || r.referrals == maxReferrals {
		return false
	}
	words := strings.Fields(refused.Text)
	if len(words) < 3 || words[0] != refused.Code || words[0] != "MOVED" && (words[0] != "ASK" || r.isAsking) {
		return false
	}
	slot, wrong := strconv.Atoi(words[1])
	colon := strings.LastIndexByte(words[2], ':')
	if wrong != nil || colon < 0 {
		return false
	}
	host, port := words[2][:colon], words[2][colon+1:]
	if host == "" { // The one that answered.
		host, _, _ = net.SplitHostPort(r.link.address())
	}
	r.referrals++
	r.link = r.locks.cluster.at(net.JoinHostPort(strings.Trim(host, "[]"), port))
	r.isAsking = words[0] == "ASK"
	if !r.isAsking {
		r.locks.cluster.remember(slot, r.link)
	}
	return true
}

// arrived says that this node has the slot of the key.
func (r *route) arrived(key string) {
	if r.locks.cluster != nil && !r.isAsking {
		r.locks.cluster.remember(core.Slot(key), r.link)
	}
}

// want is the request as it is made there, with what is left of its time.
func (r *route) want(want core.Want) core.Want {
	want.Asking = r.isAsking
	if want.Wait > 0 && r.referrals > 0 {
		want.Wait = max(time.Millisecond, want.Wait-(now()-r.began))
	}
	return want
}
