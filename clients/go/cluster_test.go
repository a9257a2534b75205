package tether_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"tether"
	"tether/internal/core"
	"tether/tethertest"
)

// nodes are a cluster of masters that share the slots, each with a part of the same size.
func nodes(t *testing.T, number int, settings ...string) []*tethertest.Server {
	all := make([]*tethertest.Server, number)
	for at := range all {
		all[at] = node(t, settings...)
		all[at].Do("CLUSTER", "ADDSLOTSRANGE", at*16384/number, (at+1)*16384/number-1)
		all[at].Do("CLUSTER", "SET-CONFIG-EPOCH", at+1)
		meet(all[at], all[0])
	}
	for _, each := range all {
		isUp(t, each)
		know(t, each, number)
	}
	return all
}

func node(t *testing.T, settings ...string) *tethertest.Server {
	return tethertest.Start(t, append(settings, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000",
		"--cluster-require-full-coverage", "no", "--cluster-port", tethertest.FreePort(t))...)
}

// isUp waits until a node serves its slots.
func isUp(t *testing.T, node *tethertest.Server) {
	t.Helper()
	tethertest.Eventually(t, "the cluster is up", func() bool { return strings.Contains(node.Do("CLUSTER", "INFO"), "cluster_state:ok") })
}

// know waits until a node knows so many, itself among them.
func know(t *testing.T, node *tethertest.Server, number int) {
	t.Helper()
	tethertest.Eventually(t, "it knows all nodes", func() bool { return strings.Count(node.Do("CLUSTER", "NODES"), "\n") == number })
}

// replicaOf adds a replica of the first of these masters, which is in step with it.
func replicaOf(t *testing.T, all []*tethertest.Server) *tethertest.Server {
	t.Helper()
	replica := node(t)
	meet(replica, all[0])
	for _, each := range append([]*tethertest.Server{replica}, all...) {
		know(t, each, len(all)+1)
	}
	replica.Do("CLUSTER", "REPLICATE", all[0].Do("CLUSTER", "MYID"))
	inStep(t, replica)
	return replica
}

func inStep(t *testing.T, replica *tethertest.Server) {
	t.Helper()
	tethertest.Eventually(t, "the replica is in step", func() bool {
		return strings.Contains(replica.Do("INFO", "replication"), "master_link_status:up")
	})
}

// hasKeys waits until a server has so many keys.
func hasKeys(t *testing.T, server *tethertest.Server, number int) {
	t.Helper()
	tethertest.Eventually(t, "it has the keys", func() bool {
		return strings.Contains(server.Do("INFO", "keyspace"), fmt.Sprintf("keys=%d,", number))
	})
}

func meet(one, other *tethertest.Server) {
	if one != other {
		host, port, _ := strings.Cut(other.Address, ":")
		bus := strings.TrimSuffix(strings.TrimPrefix(other.Do("CONFIG", "GET", "cluster-port"), "[cluster-port "), "]")
		one.Do("CLUSTER", "MEET", host, port, bus)
	}
}

// keyOf is a key of which this node has the slot, of so many.
func keyOf(at, number int) string {
	for try := 0; ; try++ {
		key := fmt.Sprintf("{%d}", try)
		if slot := core.Slot(key); slot >= at*16384/number && slot < (at+1)*16384/number {
			return key
		}
	}
}

func TestClusterFollowsMoved(t *testing.T) {
	all := nodes(t, 3)
	locks := open(t, all[0].URL, &tether.Options{Cluster: true})
	for at, each := range all {
		for range 2 {
			held := acquire(t, locks.Lock(keyOf(at, 3)))
			if isFree(each, keyOf(at, 3)) {
				t.Fatal("it is held elsewhere")
			}
			if err := held.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		key := keyOf(at, 3) + "watched"
		next := began(t, locks.Watch(t.Context(), key))
		if event := next(); event.Change != tether.Missing {
			t.Fatal(event)
		}
		each.Do("SET", key, "1")
		if event := next(); event.Change != tether.Added {
			t.Fatal(event)
		}
		led := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		err := locks.Elect(keyOf(at, 3)+"lead", "me").Run(ctx, tether.Callbacks{Leading: func(context.Context, *tether.Held) {
			close(led)
			cancel()
		}})
		if <-led; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	for _, err := range locks.Presence(t.Context(), "members:") {
		if !errors.Is(err, tether.ErrCrossSlot) {
			t.Fatal(err)
		}
	}
}

func TestClusterSlotMoves(t *testing.T) {
	all := nodes(t, 2)
	key := keyOf(0, 2)
	slot := core.Slot(key)
	from, to := all[0], all[1]
	locks := open(t, from.URL, &tether.Options{Cluster: true})
	held := acquire(t, locks.Lock(key))
	waits := make(chan *tether.Held)
	go func() {
		next, err := locks.Lock(key).Acquire(context.Background())
		if err != nil {
			t.Error(err)
		}
		waits <- next
	}()
	tethertest.Eventually(t, "it waits", func() bool { return strings.Contains(from.Do("LOCK.INFO", key), "waiting-ms") })
	// While it is on its way, a key that is not there is asked for at the new node.
	to.Do("CLUSTER", "SETSLOT", slot, "IMPORTING", from.Do("CLUSTER", "MYID"))
	from.Do("CLUSTER", "SETSLOT", slot, "MIGRATING", to.Do("CLUSTER", "MYID"))
	asked := acquire(t, locks.Lock(key+"other"))
	if err := asked.CheckServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := asked.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	host, port, _ := strings.Cut(to.Address, ":")
	from.Do("MIGRATE", host, port, key, 0, 5000)
	id := to.Do("CLUSTER", "MYID")
	to.Do("CLUSTER", "SETSLOT", slot, "NODE", id)
	from.Do("CLUSTER", "SETSLOT", slot, "NODE", id)
	<-held.Context().Done()
	var lost *tether.LostError
	if !errors.As(held.Check(), &lost) || lost.Reason != "moved" {
		t.Fatal(held.Check())
	}
	next := <-waits
	if next == nil || next.CheckServer(t.Context()) != nil || isFree(to, key) {
		t.Fatal("the waiter goes on at the new node")
	}
}

// move gives the slot of a key to another node; the former one hears of it from that.
func move(key string, from, to *tethertest.Server) {
	slot := core.Slot(key)
	to.Do("CLUSTER", "SETSLOT", slot, "IMPORTING", from.Do("CLUSTER", "MYID"))
	to.Do("CLUSTER", "SETSLOT", slot, "NODE", to.Do("CLUSTER", "MYID"))
}

// slotsOf are those of the node with this id, as another node says.
func slotsOf(id string, says *tethertest.Server) string {
	_, line, _ := strings.Cut("\n"+says.Do("CLUSTER", "NODES"), "\n"+id)
	line, _, _ = strings.Cut(line, "\n")
	_, slots, _ := strings.Cut(line, " connected ")
	return slots
}

// What watches a slot goes with it, there and back, and tells nothing twice (P-CLUSTER-7).
func TestClusterWatchesGoWithTheirSlot(t *testing.T) {
	all := nodes(t, 2)
	key := keyOf(0, 2)
	locks := open(t, all[0].URL, &tether.Options{Cluster: true})
	watched := began(t, locks.Watch(t.Context(), key+"watched"))
	members := began(t, locks.Presence(t.Context(), key+"members:"))
	leaders := make(chan tether.Leader, 100)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Add(1)
	defer running.Wait()
	defer cancel()
	go func() {
		defer running.Done()
		locks.Elect(key+"leader", "me").Run(ctx, tether.Callbacks{Leader: func(leader tether.Leader) { leaders <- leader }})
	}()
	leads := func() {
		for leader := range leaders {
			if leader.Value != nil {
				return
			}
		}
	}
	if event := watched(); event.Change != tether.Missing {
		t.Fatal(event)
	}
	leads()
	for at, from := range all {
		to := all[1-at]
		move(key, from, to)
		leads()
		to.Do("SET", key+"watched", "1")
		if event := watched(); event.Change != tether.Added {
			t.Fatal(event)
		}
		to.Do("DEL", key+"watched")
		if event := watched(); event.Change != tether.Deleted {
			t.Fatal(event)
		}
		held := acquire(t, locks.Temporary(key+"members:1", "here"))
		if event := members(); event.Change != tether.Joined {
			t.Fatal(event)
		}
		if err := held.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if event := members(); event.Change != tether.Left {
			t.Fatal(event)
		}
	}
}

// isHeld asks the server, within half a minute.
func isHeld(t *testing.T, held *tether.Held) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := held.CheckServer(ctx); err != nil {
		t.Fatal(err)
	}
}

// The session goes on at the replica that was promoted, whichever nodes Open was given (P-CLUSTER-6).
func TestClusterFailover(t *testing.T) {
	for name, seeds := range map[string][]int{"another node": {1}, "its master": {0}, "its master and another": {0, 1}} {
		t.Run(name, func(t *testing.T) {
			all := nodes(t, 3)
			replica := replicaOf(t, all)
			options := &tether.Options{Cluster: true, Grace: 60 * time.Second}
			for _, further := range seeds[1:] {
				options.Addresses = append(options.Addresses, all[further].URL)
			}
			locks := open(t, all[seeds[0]].URL, options)
			key := keyOf(0, 3)
			held := acquire(t, locks.Lock(key))
			hasKeys(t, replica, 1)
			all[0].Kill()
			replica.Do("CLUSTER", "FAILOVER", "TAKEOVER")
			isHeld(t, held)
			if isFree(replica, key) {
				t.Fatal("it is not held at the promoted replica")
			}
			if err := held.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !isFree(replica, key) {
				t.Fatal("it was not released there")
			}
		})
	}
}

// What only watches goes on there, too.
func TestClusterFailoverOfWatches(t *testing.T) {
	all := nodes(t, 3)
	replica := replicaOf(t, all)
	key := keyOf(0, 3)
	watched := began(t, open(t, all[0].URL, &tether.Options{Cluster: true}).Watch(t.Context(), key+"watched"))
	led := began(t, open(t, all[0].URL, &tether.Options{Cluster: true}).Observe(t.Context(), key+"leader"))
	watched()
	led()
	all[0].Kill()
	replica.Do("CLUSTER", "FAILOVER", "TAKEOVER")
	replica.Do("SET", key+"watched", "1")
	if event := watched(); event.Change != tether.Added {
		t.Fatal(event)
	}
	acquire(t, open(t, replica.URL, &tether.Options{Cluster: true}).Temporary(key+"leader", "me"))
	if leader := led(); leader.Value == nil {
		t.Fatal(leader)
	}
}

// Slots that were asked for once, and are elsewhere now, do not lead the session away from those that it holds (P-CLUSTER-6).
func TestClusterFailoverAfterSlotsHaveMoved(t *testing.T) {
	all := nodes(t, 3)
	replica := replicaOf(t, all)
	locks := open(t, all[1].URL, &tether.Options{Cluster: true, Grace: 60 * time.Second})
	moved := map[int]string{}
	for try := 0; len(moved) < 20; try++ {
		key := fmt.Sprintf("{%d}", try)
		if slot := core.Slot(key); slot < 16384/3 && key != keyOf(0, 3) {
			moved[slot] = key
		}
	}
	for _, key := range moved {
		if err := acquire(t, locks.Lock(key)).Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	held := acquire(t, locks.Lock(keyOf(0, 3)))
	for _, key := range moved {
		move(key, all[0], all[2])
	}
	id := all[2].Do("CLUSTER", "MYID")
	for _, each := range append([]*tethertest.Server{replica}, all...) {
		tethertest.Eventually(t, "all know where the slots are", func() bool { return slotsOf(id, each) == slotsOf(id, all[2]) })
	}
	hasKeys(t, replica, 1)
	all[0].Kill()
	replica.Do("CLUSTER", "FAILOVER", "TAKEOVER")
	isHeld(t, held)
}

// A node that is away for a moment keeps its session: no other one has it.
func TestClusterNodeRestarts(t *testing.T) {
	all := nodes(t, 3, "--appendonly", "yes", "--appendfsync", "always")
	tried := make(chan struct{}, 100)
	locks := open(t, all[0].URL, &tether.Options{
		Cluster: true, Grace: 60 * time.Second, Addresses: []string{all[1].URL}, Observer: func(notice tether.Notice) {
			if notice.Kind == tether.Connected || notice.Kind == tether.NotConnected {
				tried <- struct{}{}
			}
		},
	})
	held := acquire(t, locks.Lock(keyOf(0, 3)))
	received(t, tried)
	all[0].Kill()
	received(t, tried)
	all[0].Restart()
	isUp(t, all[0])
	isHeld(t, held)
}

// Nor does a node that was away lose those that it had, where another one was asked meanwhile.
func TestClusterNodeThatComesBack(t *testing.T) {
	all := nodes(t, 3)
	key := keyOf(0, 3)
	locks := open(t, all[0].URL, &tether.Options{Cluster: true, Addresses: []string{all[1].URL}})
	if err := acquire(t, locks.Lock(key)).Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	watched := began(t, locks.Watch(t.Context(), key+"watched"))
	if event := watched(); event.Change != tether.Missing {
		t.Fatal(event)
	}
	all[0].Kill()
	locks.Lock(key).TryAcquire(t.Context())
	all[0].Restart()
	isUp(t, all[0])
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	held, err := locks.Lock(key).Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	isHeld(t, held)
	all[0].Do("SET", key+"watched", "1")
	if event := watched(); event.Change != tether.Added {
		t.Fatal(event)
	}
}

// So it is where the session was at its replica meanwhile.
func TestClusterFailsOverAndBack(t *testing.T) {
	all := nodes(t, 3)
	replica := replicaOf(t, all)
	key := keyOf(0, 3)
	locks := open(t, all[0].URL, &tether.Options{Cluster: true, Grace: 60 * time.Second, Addresses: []string{all[1].URL}})
	watched := began(t, locks.Watch(t.Context(), key+"watched"))
	watched()
	all[0].Kill()
	replica.Do("CLUSTER", "FAILOVER", "TAKEOVER")
	all[0].Restart()
	inStep(t, all[0])
	held := acquire(t, locks.Lock(key))
	if isFree(replica, key) {
		t.Fatal("it is held elsewhere")
	}
	if err := held.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	all[0].Do("CLUSTER", "FAILOVER", "TAKEOVER")
	for _, each := range []*tethertest.Server{all[0], replica} {
		tethertest.Eventually(t, "both know who is the master", func() bool {
			return slotsOf(all[0].Do("CLUSTER", "MYID"), each) != ""
		})
	}
	isHeld(t, acquire(t, locks.Lock(key)))
	all[0].Do("SET", key+"watched", "1")
	if event := watched(); event.Change != tether.Added {
		t.Fatal(event)
	}
}

// A user who may not ask who has which slots goes where MOVED says, and waits for a node that is away.
func TestClusterOfAUserWhoLearnsNoSlots(t *testing.T) {
	all := nodes(t, 2, "--user", "worker", "on", "nopass", "~*", "&*", "+@all", "-cluster")
	var seeds []string
	for _, each := range all {
		seeds = append(seeds, strings.Replace(each.URL, "redis://", "redis://worker@", 1))
	}
	locks := open(t, seeds[0], &tether.Options{Cluster: true, Addresses: seeds[1:]})
	here, there := locks.Lock(keyOf(0, 2)), locks.Lock(keyOf(1, 2))
	if err := acquire(t, here).Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	all[0].Kill()
	isHeld(t, acquire(t, there))
	if _, err := here.TryAcquire(t.Context()); !errors.Is(err, tether.ErrUnreachable) {
		t.Fatal(err)
	}
	all[0].Restart()
	isHeld(t, acquire(t, here))
}

// Of two connections to one node, the one that has a hold gets the requests for it.
func TestClusterReentersWhereItHolds(t *testing.T) {
	all := nodes(t, 3)
	locks := open(t, all[0].URL, &tether.Options{Cluster: true, Grace: 60 * time.Second})
	here, there := locks.Lock(keyOf(0, 3)), locks.Lock(keyOf(2, 3), tether.Owner("me"), tether.Reentrant())
	if err := acquire(t, here).Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	acquire(t, there)
	slot, id := core.Slot(keyOf(0, 3)), all[0].Do("CLUSTER", "MYID")
	all[0].Kill()
	all[2].Do("CLUSTER", "SETSLOT", slot, "IMPORTING", id)
	all[2].Do("CLUSTER", "SETSLOT", slot, "NODE", all[2].Do("CLUSTER", "MYID"))
	acquire(t, here)
	if _, err := there.TryAcquire(t.Context()); err != nil {
		t.Fatal(err)
	}
}
