package core

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tether/internal/resp"
)

// stage is a core with a session, and what it sends.
type stage struct {
	*Core
	t *testing.T
}

func newStage(t *testing.T) stage {
	p := stage{New(0, Config{Grace: 9 * time.Second}), t}
	p.Open()
	p.Connected(false)
	p.Receive(resp.Value{Kind: resp.Map, Items: []resp.Value{word("role"), word("master"), word("pushes"), number(1)}})
	p.Receive(word("secret"))
	p.Out = nil
	return p
}

func word(text string) resp.Value          { return resp.Value{Kind: resp.String, Str: text} }
func number(value int64) resp.Value        { return resp.Value{Kind: resp.Integer, Int: value} }
func failed(text string) resp.Value        { return resp.Value{Kind: resp.Error, Str: text} }
func array(items ...resp.Value) resp.Value { return resp.Value{Kind: resp.Array, Items: items} }

// sends expects these commands, each with its first words.
func (p stage) sends(want ...string) {
	p.t.Helper()
	isRight := len(p.Out) == len(want)
	for at := 0; isRight && at < len(want); at++ {
		isRight = strings.HasPrefix(strings.Join(p.Out[at], " "), want[at])
	}
	if !isRight {
		p.t.Fatalf("%v, not %v", p.Out, want)
	}
	p.Out = nil
}

// Who comes while the members are read anew hears of all of them, also of those that others know.
func TestPresenceThatBeginsDuringASnapshot(t *testing.T) {
	c := newStage(t)
	member := func(key string) resp.Value { return array(word(key), number(7), word("v")) }
	c.Presence("m:", nil)
	c.Receive(array(word(""), array(member("m:1"))))
	c.Receive(resp.Value{Kind: resp.Push, Items: []resp.Value{word("watchtp"), word("m:"), word("END swapped")}})
	c.Events = nil
	late := c.Presence("m:", nil)
	c.Receive(array(word(""), array(member("m:1"))))
	if len(c.Events) != 1 || c.Events[0].Presence != late || c.Events[0].Change != "add" {
		t.Fatal(c.Events)
	}
}

// To the server the task still has what it released, until that is taken back or over (P-OWNER-4).
func TestTaskAsksAgainWhenItsFormerHoldIsSettled(t *testing.T) {
	c := newStage(t)
	ask := func(task string, wait, atLeast time.Duration) *Request {
		return c.Acquire(Want{Keys: []string{"k"}, Task: task, Wait: wait, AtLeast: atLeast}, nil)
	}
	held := ask("t", Forever, 0)
	c.Receive(number(7))
	c.Release(held)
	overtakes := ask("t", Forever, 0)
	c.sends("LOCK.ACQUIRE", "LOCK.RELEASE", "LOCK.ACQUIRE")
	c.Receive(failed("BUSY no"))
	c.Receive(failed("DEADLOCK a task waits for itself"))
	c.Events = nil
	ask("t", 0, 0)
	if len(c.Events) != 1 || c.Events[0].Err.Name != Taken {
		t.Fatal(c.Events)
	}
	ask("other", 0, 0)
	c.sends("LOCK.ACQUIRE")
	c.Receive(resp.Value{})
	c.Tick(20 * time.Millisecond)
	c.sends("LOCK.RELEASE")
	c.Receive(number(0))
	c.sends("LOCK.ACQUIRE")
	c.Receive(number(8))
	c.Release(overtakes)
	c.Receive(number(0))
	c.sends("LOCK.RELEASE")

	kept := ask("t", Forever, time.Second)
	c.Receive(number(9))
	c.Release(kept)
	c.Receive(number(1))
	ask("t", Forever, 0)
	c.sends("LOCK.ACQUIRE", "LOCK.EXTEND")
	c.Tick(1100 * time.Millisecond)
	c.sends("LOCK.ACQUIRE")
}

// Requests with SEQ have no place until the server has named their keys (P-TEMP-3).
func TestSequences(t *testing.T) {
	c := newStage(t)
	ask := func(value string) *Request {
		return c.Acquire(Want{Keys: []string{"q-"}, Temporary: true, Value: value, Seq: true}, value)
	}
	one, other, givenUp := ask("1"), ask("2"), ask("3")
	c.sends("SETTP q- 1", "SETTP q- 2", "SETTP q- 3")
	c.GiveUp(givenUp)
	c.Receive(array(word("q-7"), number(7)))
	c.Receive(array(word("q-8"), number(8)))
	c.sends()
	c.Receive(array(word("q-9"), number(9)))
	c.sends("DELTP q-9")
	c.Receive(number(1))
	c.Release(one)
	c.sends("DELTP q-7")
	c.Receive(number(1))
	said := fmt.Sprint(c.Events[0].Key, c.Events[1].Key, c.Events[2].Kind == Over, c.Events[3].Kind == Released)
	if said != "q-7q-8true true" {
		t.Fatal(said)
	}
	// Which of two a key was made for nobody knows after a break: it is released, and both are asked for again.
	third, fourth := ask("4"), ask("5")
	c.GiveUp(fourth)
	c.Broke()
	c.Tick(100 * time.Millisecond)
	c.Connected(false)
	c.Receive(number(2))
	c.sends("SETTP q- 4", "SETTP q- 5", "SESSION.RESUME", "LOCK.MINE")
	entry := func(key string, token int64) resp.Value {
		return resp.Value{Kind: resp.Map, Items: []resp.Value{
			word("key"), word(key), word("kind"), word("temporary"), word("label"), word(""),
			word("token"), number(token), word("state"), word("held"),
		}}
	}
	c.Events = nil
	c.Receive(array(word("0"), array(entry("q-8", 8), entry("q-10", 10))))
	c.sends("DELTP q-10", "SETTP q- 4")
	if state, _ := c.Check(c.now, other); state != "held" || len(c.Events) != 1 || c.Events[0].Request != fourth {
		t.Fatal(state, c.Events)
	}
	c.Receive(number(1))
	c.Receive(array(word("q-11"), number(11)))
	if state, _ := c.Check(c.now, third); state != "held" || third.Keys()[0] != "q-11" {
		t.Fatal(state, third.Keys())
	}
}

// LOCK.MINE may be refused for good: who may have lost its term gives back what it has, and stands again (P-LOSS-4, P-ELECT-2).
func TestCandidateStandsAgainWhenItCannotLookForItsTerm(t *testing.T) {
	c := newStage(t)
	c.Acquire(Want{Keys: []string{"lead"}, Temporary: true, Value: "here", Elect: true, Wait: Forever}, nil)
	c.Receive(number(7))
	c.sends("SETTP lead")
	c.Receive(resp.Value{Kind: resp.Push, Items: []resp.Value{word("settp"), word("renamed"), word("LOST deleted")}})
	c.sends("LOCK.MINE")
	c.Events = nil
	c.Receive(failed("NOPERM no"))
	c.sends("DELTP lead")
	if len(c.Events) != 1 || c.Events[0].Kind != LostHold {
		t.Fatal(c.Events)
	}
	c.Receive(number(1))
	c.sends("SETTP lead")
}

// resume breaks the connection and goes on with the session on the next one, where LOCK.MINE lists nothing.
func (p stage) resume() {
	p.Broke()
	p.Tick(p.now + time.Second)
	p.Connected(false)
	p.Receive(number(0))
	p.Receive(array(word("0"), array()))
}

// A loss that came before the grant is of the hold before the break, and not of one that is granted later.
func TestLossBeforeABreakIsNotOfALaterGrant(t *testing.T) {
	c := newStage(t)
	r := c.Acquire(Want{Keys: []string{"k"}, Wait: Forever}, nil)
	c.Receive(resp.Value{Kind: resp.Push, Items: []resp.Value{word("lock"), word("k"), word("LOST deleted .1")}})
	c.resume()
	c.Receive(number(8))
	if state, lost := c.Check(c.now, r); state != "held" {
		t.Fatal(state, lost)
	}
}

// MOVED to a release with a session has it resumed where the slot is, but not for what was never granted (P-REL-8).
func TestMovedSettlesTheReleaseOfWhatWasNeverGranted(t *testing.T) {
	c := newStage(t)
	r := c.Acquire(Want{Keys: []string{"k"}, Wait: Forever}, nil)
	c.GiveUp(r)
	c.Receive(failed("MOVED 1 h:1"))
	c.Orders, c.Events = nil, nil
	c.Receive(failed("MOVED 1 h:1"))
	if len(c.Orders) != 0 || len(c.Events) != 1 || c.Events[0].Kind != Over {
		t.Fatal(c.Orders, c.Events)
	}
}
