package tether_test

import (
	"context"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tether"
	"tether/tethertest"
)

// wire is a proxy that loses what goes one way or the other, and breaks.
type wire struct {
	up, down atomic.Bool // Lost.

	mu  sync.Mutex
	all map[net.Conn]bool
}

func newWire(t *testing.T, server *tethertest.Server) (*wire, string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{all: map[net.Conn]bool{}}
	t.Cleanup(func() {
		listener.Close()
		w.reset()
	})
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", server.Address)
			if err != nil {
				near.Close()
				continue
			}
			w.mu.Lock()
			w.all[near], w.all[far] = true, true
			w.mu.Unlock()
			go w.carry(far, near, &w.up)
			go w.carry(near, far, &w.down)
		}
	}()
	return w, "redis://" + listener.Addr().String()
}

func (w *wire) carry(to, from net.Conn, isLost *atomic.Bool) {
	data := make([]byte, 1<<16)
	for {
		size, err := from.Read(data)
		if err == nil && !isLost.Load() {
			_, err = to.Write(data[:size])
		}
		if err != nil {
			to.Close()
			from.Close()
			w.mu.Lock()
			delete(w.all, to)
			delete(w.all, from)
			w.mu.Unlock()
			return
		}
	}
}

func (w *wire) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for each := range w.all {
		each.Close()
	}
}

// Whatever the wire does, nobody takes a lock for held that another was granted before (P-FENCE-8, P-SESS-2).
func TestFaultsNeverMakeTwoHolders(t *testing.T) {
	faults := 20
	if text := os.Getenv("TETHER_FAULTS"); text != "" {
		faults, _ = strconv.Atoi(text)
	}
	server := tethertest.Start(t)
	var wires []*wire
	var workers sync.WaitGroup
	var greatest, grants, losses, checks atomic.Uint64
	ctx, stop := context.WithCancel(t.Context())
	var holder atomic.Int64 // Whose wire it is.
	for number := range 4 {
		w, url := newWire(t, server)
		wires = append(wires, w)
		locks := open(t, url, &tether.Options{Grace: 1500 * time.Millisecond}) // The fence is 0.5 s.
		workers.Add(1)
		go func() {
			defer workers.Done()
			for ctx.Err() == nil {
				held, err := locks.Lock("k").Acquire(ctx)
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				grants.Add(1)
				holder.Store(int64(number))
				for last := greatest.Load(); held.Token() > last && !greatest.CompareAndSwap(last, held.Token()); last = greatest.Load() {
				}
				for until := time.Now().Add(time.Duration(rand.IntN(3000)) * time.Millisecond); time.Now().Before(until); {
					seen := greatest.Load() // Granted before the check begins.
					if held.Check() != nil {
						losses.Add(1)
						break
					}
					if checks.Add(1); seen > held.Token() {
						t.Errorf("%d is held, and %d was granted", held.Token(), seen)
						return
					}
					time.Sleep(time.Millisecond)
				}
				held.Release(ctx)
			}
		}()
	}
	for range faults {
		w := wires[holder.Load()]
		pause := time.Duration(rand.IntN(100)) * time.Millisecond
		switch kind := rand.IntN(5); kind {
		case 0:
			w.reset()
		case 1:
			server.Do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		default: // Now and then until the server gives the lock to another.
			w.up.Store(kind != 2)
			w.down.Store(kind != 3)
			if rand.IntN(3) == 0 {
				pause = 2500 * time.Millisecond
			}
		}
		time.Sleep(pause)
		w.up.Store(false)
		w.down.Store(false)
		if rand.IntN(2) == 0 {
			w.reset() // What was lost on the way breaks the frames.
		}
	}
	for _, w := range wires {
		w.up.Store(false)
		w.down.Store(false)
		w.reset()
	}
	before := grants.Load()
	tethertest.Eventually(t, "all goes on", func() bool { return grants.Load() > before+8 })
	stop()
	workers.Wait()
	tethertest.Eventually(t, "nobody holds or waits", func() bool { return isFree(server, "k") })
	t.Logf("%d faults: %d grants, %d losses, %d checks", faults, grants.Load(), losses.Load(), checks.Load())
}
