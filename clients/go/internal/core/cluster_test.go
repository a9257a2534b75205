package core

import (
	"reflect"
	"testing"
	"time"

	"tether/internal/resp"
)

var (
	null = resp.Value{Kind: resp.Null}
	done = integer(1)
)

func integer(number int64) resp.Value { return resp.Value{Kind: resp.Integer, Int: number} }

func str(text string) resp.Value { return resp.Value{Kind: resp.String, Str: text} }

// connected greets a core that is to have a session.
func connected(c *Core) {
	c.Connected(false)
	c.Receive(resp.Value{Kind: resp.Map, Items: []resp.Value{str("role"), str("master"), str("pushes"), done}})
	c.Receive(str("secret"))
}

// The slot of a core is that of a hold, else of what was sent, of what is to be sent, of a watched key, of a prefix (P-CLUSTER-6).
func TestSlotIsThatOfAHoldFirst(t *testing.T) {
	c := New(0, Config{Cluster: true, Grace: 10 * time.Second})
	want := func(key string) {
		t.Helper()
		if slot, isKnown := c.Slot(); isKnown != (key != "") || isKnown && slot != Slot(key) {
			t.Errorf("%d instead of that of %q", slot, key)
		}
	}
	want("")
	c.Presence("{prefix}", nil)
	want("{prefix}")
	c.Watch([]string{"key"}, nil)
	want("key")
	c.Acquire(Want{Keys: []string{"by ASK"}, Wait: Forever, Asking: true}, nil)
	want("key")
	c.Acquire(Want{Keys: []string{"waits"}, Wait: Forever}, nil)
	want("waits")
	held := c.Acquire(Want{Keys: []string{"held"}, Wait: Forever}, nil)
	if want("waits"); c.IsBound() {
		t.Error("there is no session")
	}
	connected(c)
	want("waits")
	for range 3 { // To ASKING, and to what waits.
		c.Receive(null)
	}
	if want("waits"); !c.IsBound() {
		t.Error("the server may grant what waits there")
	}
	c.Receive(integer(7))
	want("held")
	c.Release(held)
	want("waits")
}

// What came by ASK is released with ASKING, also where the session is left behind (P-CLUSTER-4, P-LEAST-3).
func TestCloseReleasesWithAsking(t *testing.T) {
	c := New(0, Config{Cluster: true, Grace: 10 * time.Second})
	kept := c.Acquire(Want{Keys: []string{"kept"}, Wait: Forever, AtLeast: 5 * time.Second}, nil)
	c.Acquire(Want{Keys: []string{"by ASK"}, Wait: Forever, Asking: true}, nil)
	connected(c)
	for _, reply := range []resp.Value{integer(7), null, integer(8)} {
		c.Receive(reply)
	}
	c.Release(kept)
	c.Receive(done)
	c.Out = nil
	c.Close()
	want := [][]string{{"ASKING"}, {"LOCK.RELEASE", "by ASK", "OWNER", ".2", "ALL"}, {"SESSION.DETACH"}}
	if !reflect.DeepEqual(c.Out, want) {
		t.Error(c.Out)
	}
}
