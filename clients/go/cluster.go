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
	"tether/internal/resp"
)

const (
	// How often a request is referred to another node (P-CLUSTER-3).
	maxReferrals = 5
	// A watch or candidate that has been at a node for so long has arrived there: the next slot that moves counts anew.
	settled = time.Second
)

// A cluster has a link for each master that it was referred to (P-CLUSTER-1), and begins with one that the addresses of Open lead to.
type cluster struct {
	dialer *dialer
	make   func() *link
	first  *link

	mu       sync.Mutex
	nodes    []*node       // Of two that lead to one node, the first gets the requests.
	moved    map[int]*link // What MOVED told since `spans`.
	spans    []span
	isClosed bool
}

// A node is a link, and where it leads to.
type node struct {
	link *link
	name string  // Among the nodes: the one that it leads to, or led to last. Empty until it is known.
	at   address // How it is dialed.
}

// A span of slots, and where those are that have them: the master first.
type span struct {
	first, last int64
	nodes, ids  []string
}

func newCluster(d *dialer, make func() *link) *cluster {
	c := &cluster{dialer: d, make: make, moved: map[int]*link{}}
	c.first = c.add("", address{})
	return c
}

// add makes a link to the node of this name.
func (c *cluster) add(name string, at address) *link {
	n := &node{c.make(), name, at}
	n.link.dial = func(ctx context.Context) (*wire, *core.Error) { return c.dial(ctx, n) }
	c.nodes = append(c.nodes, n)
	return n.link
}

// of is the link for a slot.
func (c *cluster) of(slot int) *link {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found := c.moved[slot]; found != nil {
		return found
	}
	if owner := ownerOf(slot, c.spans); owner != "" {
		return c.to(owner)
	}
	return c.first
}

// at is the link to the node of this name.
func (c *cluster) at(name string) *link {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.to(name)
}

func (c *cluster) to(name string) *link {
	for _, each := range c.nodes {
		if each.name == name {
			return each.link
		}
	}
	if c.isClosed {
		return c.first
	}
	return c.add(name, c.dialer.addresses[0].elsewhere(name))
}

func (c *cluster) remember(slot int, l *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moved[slot] = l
}

func (c *cluster) close() {
	c.mu.Lock()
	c.isClosed = true
	nodes := c.nodes
	c.mu.Unlock()
	var closing sync.WaitGroup
	for _, each := range nodes {
		closing.Add(1)
		go func() {
			defer closing.Done()
			each.link.close()
		}()
	}
	closing.Wait()
}

// dial opens a connection to the node that the link led to last. If that cannot be reached, it is one to the node that has now what the
// link is for.
func (c *cluster) dial(ctx context.Context, n *node) (*wire, *core.Error) {
	whole, _ := ctx.Deadline()
	c.mu.Lock()
	known := *n
	c.mu.Unlock()
	var opened *wire
	var err *core.Error
	if known.name == "" {
		opened, err = c.dialer.try(ctx, whole, c.dialer.addresses)
	} else {
		half := time.Now().Add(time.Until(whole) / 2) // The other half is for looking elsewhere.
		opened, err = c.dialer.try(ctx, half, []address{known.at})
		if err != nil && err.Name == core.Unreachable {
			if elsewhere := c.locate(ctx, known); len(elsewhere) > 0 {
				opened, err = c.dialer.try(ctx, whole, elsewhere)
			}
		}
	}
	if err != nil {
		return nil, err
	}
	return c.meet(opened, n)
}

// meet asks a node who it is, and who has which slots. A user who may not ask goes by MOVED alone.
func (c *cluster) meet(opened *wire, n *node) (*wire, *core.Error) {
	replies, err := opened.askAll([][]string{{"CLUSTER", "MYID"}, {"CLUSTER", "SLOTS"}})
	if err != nil {
		opened.Close()
		return nil, unreachable(opened.to.at, err)
	}
	spans := spansOf(replies[1], opened.to)
	name := opened.to.at
	for _, each := range spans {
		if at := slices.Index(each.ids, replies[0].Str); at >= 0 {
			name = each.nodes[at]
		}
	}
	_, _, isBound := n.link.slot()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(spans) > 0 {
		c.spans = spans
		clear(c.moved)
	}
	if n.name != name && !isBound { // Another one may have holds there already.
		c.nodes = append(slices.DeleteFunc(slices.Clone(c.nodes), func(each *node) bool { return each == n }), n)
	}
	n.name, n.at = name, opened.to
	return opened, nil
}

// locate is where a slot of the link is, as others say than the node that had it: after a failover at the promoted replica
// (P-CLUSTER-6). If nobody can say, the first link goes to any node, unless it would lose what its session has.
func (c *cluster) locate(ctx context.Context, from node) []address {
	slot, isKnown, isBound := from.link.slot()
	if !isKnown {
		return nil
	}
	all := c.others(from)
	whole, _ := ctx.Deadline()
	until := time.Now().Add(time.Until(whole) / 2) // The other half is for the node that is found.
	isSaid := false
	for number, each := range all {
		asking, cancel := context.WithTimeout(ctx, time.Until(until)/time.Duration(len(all)-number))
		spans := c.ask(asking, each)
		cancel()
		switch owner := ownerOf(slot, spans); owner {
		case "":
		case from.name:
			isSaid = true
		default:
			return []address{each.elsewhere(owner)}
		}
	}
	if isSaid || isBound || from.link != c.first {
		return nil
	}
	return c.dialer.addresses
}

// others are all nodes that are known, without this one.
func (c *cluster) others(than node) []address {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []address
	add := func(each address) {
		isThere := func(other address) bool { return other.at == each.at }
		if each.at != than.name && each.at != than.at.at && !slices.ContainsFunc(all, isThere) {
			all = append(all, each)
		}
	}
	for _, each := range c.spans {
		for _, name := range each.nodes {
			add(c.dialer.addresses[0].elsewhere(name))
		}
	}
	for _, each := range c.dialer.addresses {
		add(each)
	}
	return all
}

// ask is who has which slots, as a node says. Nothing, if it says nothing.
func (c *cluster) ask(ctx context.Context, at address) []span {
	connection, _, err := c.dialer.greet(ctx, at)
	if err != nil {
		return nil
	}
	defer connection.Close()
	reply, failed := connection.ask("CLUSTER", "SLOTS")
	if failed != nil {
		return nil
	}
	return spansOf(reply, at)
}

// spansOf reads CLUSTER SLOTS. A node without a host is at that of the one that answers.
func spansOf(reply resp.Value, from address) []span {
	var spans []span
	for _, each := range reply.Items {
		if len(each.Items) < 3 {
			continue
		}
		read := span{first: each.Items[0].Int, last: each.Items[1].Int}
		for _, node := range each.Items[2:] {
			if len(node.Items) < 3 {
				continue
			}
			host := node.Items[0].Str
			if host == "" || host == "?" {
				host, _, _ = net.SplitHostPort(from.at)
			}
			read.nodes = append(read.nodes, net.JoinHostPort(host, strconv.FormatInt(node.Items[1].Int, 10)))
			read.ids = append(read.ids, node.Items[2].Str)
		}
		spans = append(spans, read)
	}
	return spans
}

// ownerOf is where the master of a slot is, or empty.
func ownerOf(slot int, spans []span) string {
	for _, each := range spans {
		if each.first <= int64(slot) && int64(slot) <= each.last && len(each.nodes) > 0 {
			return each.nodes[0]
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

// want is the request as it is made there, with what is left of its time.
func (r *route) want(want core.Want) core.Want {
	want.Asking = r.isAsking
	if want.Wait > 0 && r.referrals > 0 {
		want.Wait = max(time.Millisecond, want.Wait-(now()-r.began))
	}
	return want
}
