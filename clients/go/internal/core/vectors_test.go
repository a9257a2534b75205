package core

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"
	"unicode/utf8"

	"tether/internal/resp"
)

// Of the vectors of L4, which this client has not, none is run.
const vectors = "../../../protocol/vectors"

type object = map[string]any

func TestVectors(t *testing.T) {
	preludes := object{}
	read(t, "preludes.json", &preludes)
	names, _ := filepath.Glob(filepath.Join(vectors, "*.json"))
	for _, file := range names {
		if base := filepath.Base(file); base != "preludes.json" && base != "schema.json" {
			var all []object
			read(t, base, &all)
			for _, vector := range all {
				if vector["level"] != "L4" {
					t.Run(vector["name"].(string), func(t *testing.T) { play(t, vector, preludes[vector["begin"].(string)].(object)) })
				}
			}
		}
	}
}

func read(t *testing.T, name string, into any) {
	text, err := os.ReadFile(filepath.Join(vectors, name))
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func play(t *testing.T, vector, prelude object) {
	client := object{}
	for _, fields := range []any{prelude["client"], vector["client"]} {
		for name, value := range asObject(fields) {
			client[name] = value
		}
	}
	clock := Clock{HasBoot: client["boot_clock"] != false}
	if client["boot_clock"] == "uptime" {
		clock.Rounding = 20 * time.Millisecond
	}
	random, _ := client["random"].(float64)
	w := &world{clock: clock, isUnix: client["unix"] == true, ids: map[string]any{}, core: New(0, Config{
		Grace: ms(client["grace"]), StopWithin: ms(client["stop_within"]), Fence: ms(client["fence"]),
		Cluster: client["cluster"] == true, NoBootClock: !clock.HasBoot, Random: func() float64 { return random },
	})}
	for _, step := range slices.Concat(prelude["steps"].([]any), vector["steps"].([]any)) {
		w.step(t, step.(object))
	}
}

type world struct {
	core       *Core
	clock      Clock
	mono, boot time.Duration
	isUnix     bool
	ids        map[string]any // Requests, watches and presences.
}

func ms(value any) time.Duration {
	number, _ := value.(float64)
	return time.Duration(number * float64(time.Millisecond))
}

func asObject(value any) object { fields, _ := value.(object); return fields }

func (w *world) step(t *testing.T, step object) {
	c := w.core
	var gives any
	switch {
	case step["call"] != nil:
		gives = w.call(step)
	case step["at"] != nil:
		w.at(step["at"])
	case step["stop"] != nil:
		w.jump(step["stop"])
		c.now = w.clock.Elapsed(w.mono, w.boot)
	case step["connected"] != nil:
		c.Connected(w.isUnix)
	case step["unreached"] != nil:
		err := failure(Unreachable, "")
		if why := asObject(step["unreached"]); why != nil {
			err = &Error{Name: why["error"].(string), Code: why["code"].(string)}
		}
		c.Unreached(err)
	case step["broke"] != nil:
		c.Broke()
	default:
		c.Receive(frame(step["recv"]))
	}
	said := object{"sent": words(c.Out), "events": w.events(), "orders": orders(c.Orders), "gives": gives}
	c.Out, c.Events, c.Orders = nil, nil, nil
	data, _ := json.Marshal(said)
	_ = json.Unmarshal(data, &said)
	for what, is := range said {
		if !reflect.DeepEqual(is, step[what]) {
			t.Fatalf("%v\n%s: %v\n  not %v", step, what, is, step[what])
		}
	}
}

func (w *world) jump(to any) {
	if both, is := to.(object); is {
		w.mono, w.boot = ms(both["mono"]), ms(both["boot"])
	} else {
		w.mono, w.boot = ms(to), ms(to)+w.boot-w.mono
	}
}

// at goes there by all that is due on the way; two clocks that differ are a leap.
func (w *world) at(to any) {
	from := w.mono
	w.jump(to)
	until := w.clock.Elapsed(w.mono, w.boot)
	for _, isLeap := to.(object); !isLeap && w.mono > from; {
		next, is := w.core.Next()
		if !is || next > until {
			break
		}
		w.core.Tick(next)
	}
	w.core.Tick(until)
}

func (w *world) call(step object) any {
	c, id, keys := w.core, step["id"], []string{}
	if id == nil {
		id = ""
	}
	for _, key := range asArray(step["keys"]) {
		keys = append(keys, text(key))
	}
	request, _ := w.ids[id.(string)].(*Request)
	switch step["call"] {
	case "open":
		c.Open()
	case "acquire":
		want := Want{Keys: keys, Temporary: step["temporary"] != nil, Value: text(step["temporary"]), Seq: step["seq"] == true,
			Elect: step["elect"] == true, Shared: step["shared"] == true, Owner: text(step["owner"]), Task: text(step["task"]),
			Reentrant: step["reentrant"] == true, Lease: ms(step["lease"]), AckTimeout: ms(step["acktimeout"]),
			AtLeast: ms(step["at_least"]), Wait: Forever}
		if permits := asArray(step["permits"]); permits != nil {
			want.Permits, want.Of = int(permits[0].(float64)), int(permits[1].(float64))
		}
		if acks, is := step["acks"].(float64); is {
			want.Acks = int(acks)
		}
		if step["wait"] != nil {
			want.Wait = ms(step["wait"])
		}
		w.ids[id.(string)] = c.Acquire(want, id)
	case "release":
		c.Release(request)
	case "give_up":
		c.GiveUp(request)
	case "extend":
		c.Extend(request, ms(step["lease"]))
	case "check":
		if state, lost := c.Check(w.clock.Elapsed(w.mono, w.boot), request); state == Lost {
			return object{"lost": lost}
		} else {
			return state
		}
	case "watch":
		w.ids[id.(string)] = c.Watch(keys, id)
	case "unwatch":
		c.Unwatch(w.ids[id.(string)].(*Watch))
	case "presence":
		w.ids[id.(string)] = c.Presence(text(step["prefix"]), id)
	case "observe":
		w.ids[id.(string)] = c.Observe(text(step["prefix"]), id)
	case "end":
		c.EndPresence(w.ids[id.(string)].(*Presence))
	case "close":
		c.Close()
	}
	return nil
}

var kinds = map[EventKind]string{Granted: "granted", Ended: "refused", LostHold: "lost", Releasing: "releasing", Released: "released",
	Over: "over", Extended: "extended", NotExtended: "not_extended", WatchEvent: "watch", WatchEnded: "ended",
	PresenceEvent: "presence", LeaderEvent: "leader", PresenceEnded: "ended"}

func (w *world) events() []any {
	var all []any
	for _, e := range w.core.Events {
		event := object{}
		switch {
		case e.Request != nil:
			event[kinds[e.Kind]] = e.Request.User
		case e.Watch != nil:
			event[kinds[e.Kind]] = e.Watch.User
		case e.Presence != nil:
			event[kinds[e.Kind]] = e.Presence.User
		default:
			event["warning"] = "no-boot-clock"
		}
		if e.Err != nil {
			event["code"] = e.Err.Code
			if e.Kind != Releasing {
				event["error"] = e.Err.Name
			}
		}
		for name, value := range map[string]string{"reason": e.Reason, "key": e.Key, "is": e.Change} {
			if value != "" {
				event[name] = word(value)
			}
		}
		if e.Kind == LeaderEvent || e.Token > 0 {
			event["token"] = e.Token
			if e.Token == 0 {
				event["token"] = nil
			}
		}
		if e.Kind == LeaderEvent && e.Token > 0 || e.Kind == PresenceEvent && e.Change != "del" {
			event["value"] = (*word)(e.Value)
		}
		all = append(all, event)
	}
	return all
}

func orders(all []Order) []any {
	var said []any
	for _, order := range all {
		switch {
		case order.Connect:
			said = append(said, "connect")
		case order.After > 0:
			said = append(said, object{"leave_after": order.After.Milliseconds()})
		default:
			said = append(said, "leave")
		}
	}
	return said
}

func asArray(value any) []any { items, _ := value.([]any); return items }

// text is a string of a vector, or the bytes of its hex.
func text(value any) string {
	if data, is := asObject(value)["hex"].(string); is {
		decoded, _ := hex.DecodeString(data)
		return string(decoded)
	}
	if value == nil {
		return ""
	}
	return fmt.Sprint(value)
}

func frame(value any) resp.Value {
	switch value := value.(type) {
	case float64:
		return resp.Value{Kind: resp.Integer, Int: int64(value)}
	case string:
		return resp.Value{Kind: resp.String, Str: value}
	case []any:
		items := make([]resp.Value, len(value))
		for at := range value {
			items[at] = frame(value[at])
		}
		return resp.Value{Kind: resp.Array, Items: items}
	case object:
		if pairs := asObject(value["map"]); pairs != nil {
			items := []resp.Value{}
			for name, each := range pairs {
				items = append(items, frame(name), frame(each))
			}
			return resp.Value{Kind: resp.Map, Items: items}
		}
		if push := value["push"]; push != nil {
			return resp.Value{Kind: resp.Push, Items: frame(push).Items}
		}
		if err := value["error"]; err != nil {
			return resp.Value{Kind: resp.Error, Str: err.(string)}
		}
		if simple := value["simple"]; simple != nil {
			return frame(simple)
		}
		return resp.Value{Kind: resp.String, Str: text(value)}
	}
	return resp.Value{}
}

// word is a string that goes out: as a vector has it, where one that is no text is hex.
type word string

func (w word) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(w)) {
		return json.Marshal(string(w))
	}
	return json.Marshal(object{"hex": hex.EncodeToString([]byte(w))})
}

func words(sent [][]string) (all [][]word) {
	for _, command := range sent {
		var one []word
		for _, each := range command {
			one = append(one, word(each))
		}
		all = append(all, one)
	}
	return all
}
