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
func nodes(t *testing.T, number int) []*tethertest.Server {
	all := make([]*tethertest.Server, number)
	for at := range all {
		all[at] = node(t)
		all[at].Do("CLUSTER", "ADDSLOTSRANGE", at*16384/number, (at+1)*16384/number-1)
		all[at].Do("CLUSTER", "SET-CONFIG-EPOCH", at+1)
		meet(all[at], all[0])
	}
	for _, each := range all {
		tethertest.Eventually(t, "the cluster is up", func() bool {
			return strings.Contains(each.Do("CLUSTER", "INFO"), "cluster_state:ok") && strings.Count(each.Do("CLUSTER", "NODES"), "\n") == number
		})
	}
	return all
}

func node(t *testing.T) *tethertest.Server {
	return tethertest.Start(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-require-full-coverage", "no",
		"--cluster-port", tethertest.FreePort(t))
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

// The session goes on at the replica that was promoted.
func TestClusterFailover(t *testing.T) {
	all := nodes(t, 2)
	key := keyOf(0, 2)
	replica := node(t)
	meet(replica, all[0])
	tethertest.Eventually(t, "the replica knows all", func() bool { return strings.Count(replica.Do("CLUSTER", "NODES"), "\n") == 3 })
	replica.Do("CLUSTER", "REPLICATE", all[0].Do("CLUSTER", "MYID"))
	tethertest.Eventually(t, "the replica is in step", func() bool {
		return strings.Contains(replica.Do("INFO", "replication"), "master_link_status:up")
	})
	locks := open(t, all[1].URL, &tether.Options{Cluster: true, Grace: 60 * time.Second})
	held := acquire(t, locks.Lock(key))
	tethertest.Eventually(t, "the replica has the hold", func() bool { return strings.Contains(replica.Do("INFO", "keyspace"), "keys=1") })
	all[0].Kill()
	replica.Do("CLUSTER", "FAILOVER", "TAKEOVER")
	if err := held.CheckServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if isFree(replica, key) {
		t.Fatal("it is not held at the promoted replica")
	}
	if err := held.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !isFree(replica, key) {
		t.Fatal("it was not released there")
	}
}
