package core

import (
	"fmt"
	"testing"
	"time"

	"tether/internal/resp"
)

// To the server the task still has what it released, until that is taken back or over (P-OWNER-4).
func TestTaskAsksAgainWhenItsFormerHoldIsSettled(t *testing.T) {
	c := New(0, Config{Grace: 9 * time.Second})
	recv := func(value resp.Value) { c.Receive(value) }
	fail := func(text string) { recv(resp.Value{Kind: resp.Error, Str: text}) }
	expect := func(want ...string) {
		t.Helper()
		var said []string
		for _, words := range c.Out {
			said = append(said, words[0])
		}
		if fmt.Sprint(said) != fmt.Sprint(want) {
			t.Fatalf("%v, not %v", said, want)
		}
		c.Out = nil
	}
	ask := func(task string, wait, atLeast time.Duration) *Request {
		return c.Acquire(Want{Keys: []string{"k"}, Task: task, Wait: wait, AtLeast: atLeast}, nil)
	}
	c.Open()
	c.Connected()
	recv(resp.Value{Kind: resp.Map, Items: []resp.Value{
		{Kind: resp.String, Str: "role"}, {Kind: resp.String, Str: "master"}, {Kind: resp.String, Str: "pushes"}, {Kind: resp.Integer, Int: 1},
	}})
	recv(resp.Value{Kind: resp.String, Str: "secret"})
	c.Out = nil

	held := ask("t", Forever, 0)
	recv(resp.Value{Kind: resp.Integer, Int: 7})
	c.Release(held)
	overtakes := ask("t", Forever, 0)
	expect("LOCK.ACQUIRE", "LOCK.RELEASE", "LOCK.ACQUIRE")
	fail("BUSY no")
	fail("DEADLOCK a task waits for itself")
	c.Events = nil
	ask("t", 0, 0)
	if len(c.Events) != 1 || c.Events[0].Err.Name != Taken {
		t.Fatal(c.Events)
	}
	ask("other", 0, 0)
	expect("LOCK.ACQUIRE")
	recv(resp.Value{})
	c.Tick(20 * time.Millisecond)
	expect("LOCK.RELEASE")
	recv(resp.Value{Kind: resp.Integer})
	expect("LOCK.ACQUIRE")
	recv(resp.Value{Kind: resp.Integer, Int: 8})
	c.Release(overtakes)
	recv(resp.Value{Kind: resp.Integer})
	c.Out = nil

	kept := ask("t", Forever, time.Second)
	recv(resp.Value{Kind: resp.Integer, Int: 9})
	c.Release(kept)
	recv(resp.Value{Kind: resp.Integer, Int: 1})
	ask("t", Forever, 0)
	expect("LOCK.ACQUIRE", "LOCK.EXTEND")
	c.Tick(1100 * time.Millisecond)
	expect("LOCK.ACQUIRE")
}
