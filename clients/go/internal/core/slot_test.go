package core

import (
	"testing"

	"tether/internal/resp"
)

// The slot of a core is that of a hold, else of what was sent, of what is to be sent, of a watched key, of a prefix (P-CLUSTER-6).
func TestSlotIsThatOfAHoldFirst(t *testing.T) {
	text := func(text string) resp.Value { return resp.Value{Kind: resp.String, Str: text} }
	c := New(0, Config{Cluster: true, Grace: 10e9})
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
	c.Connected(false)
	c.Receive(resp.Value{Kind: resp.Map, Items: []resp.Value{text("role"), text("master"), text("pushes"), {Kind: resp.Integer, Int: 1}}})
	c.Receive(text("secret"))
	want("waits")
	for range 3 { // The reply to ASKING, and those to the requests.
		c.Receive(resp.Value{Kind: resp.Null})
	}
	if want("waits"); !c.IsBound() {
		t.Error("the server may grant what waits there")
	}
	c.Receive(resp.Value{Kind: resp.Integer, Int: 7})
	want("held")
	c.Release(held)
	want("waits")
}
