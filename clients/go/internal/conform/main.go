// Command conform is this client's adapter for clients/protocol/conform: calls come in on standard input, one JSON object a line,
// and what a user sees goes out.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"tether"
	"tether/internal/resp"
)

type object map[string]any

type call struct {
	N          int
	Call       string
	ID         string
	From       string
	URL        string
	Others     []string
	Sentinels  []string
	Master     string
	User       string
	Password   string
	CA         string
	Cluster    bool
	Grace      float64
	StopWithin float64 `json:"stop_within"`
	Fence      any     // A time, or run_on's key.
	Keys       []string
	Temporary  *string
	Seq        bool
	Shared     bool
	Permits    []int
	Owner      string
	Reentrant  bool
	Wait       *float64
	Lease      float64
	Acks       int
	AckTimeout float64
	AtLeast    float64 `json:"at_least"`
	Prefix     string
	Stall      float64
	Command    []any
	Script     string
	Args       []any
}

func ms(number float64) time.Duration { return time.Duration(number * float64(time.Millisecond)) }

var output sync.Mutex

func say(line object) {
	var now unix.Timespec
	output.Lock()
	defer output.Unlock()
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	line["at"] = float64(now.Nano()) / 1e9
	text, _ := json.Marshal(line)
	os.Stdout.Write(append(text, '\n'))
}

var names = map[error]string{
	tether.ErrTaken: "taken", tether.ErrDeadlock: "deadlock", tether.ErrRefused: "refused", tether.ErrUnreachable: "unreachable",
	tether.ErrNoModule: "nomodule", tether.ErrNoPush: "nopush", tether.ErrUnfit: "unfit", tether.ErrCrossSlot: "crossslot",
	tether.ErrClosed: "closed", tether.ErrLost: "lost",
}

func failed(what, id string, err error) object {
	line := object{what: id, "text": err.Error()}
	var known *tether.Error
	if errors.As(err, &known) {
		line["error"], line["code"] = names[known.Kind], known.Code
	}
	return line
}

// one is a request or a watch of the suite's.
type one struct {
	cancel  context.CancelFunc
	held    *tether.Held
	givenUp bool
	lost    sync.Once
	gate    sync.Mutex // Closed while the user of a watch takes no events.
}

type adapter struct {
	url   string
	locks *tether.Locks
	data  *data

	mu  sync.Mutex
	all map[string]*one
}

func (a *adapter) find(id string) *one {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all[id] == nil {
		a.all[id] = &one{cancel: func() {}}
	}
	return a.all[id]
}

func (a *adapter) open(c call) error {
	a.url, a.data = c.URL, nil
	where, err := url.Parse(c.URL)
	if err != nil {
		return err
	}
	if c.URL == "" { // There are Sentinels, given as URLs.
		where.Scheme = "redis"
	}
	if c.Password != "" {
		where.User = url.UserPassword(c.User, c.Password)
	}
	fence, _ := c.Fence.(float64)
	options := &tether.Options{
		Grace: ms(c.Grace), StopWithin: ms(c.StopWithin), Fence: ms(fence), Addresses: c.Others, Master: c.Master, Cluster: c.Cluster,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	for _, each := range c.Sentinels {
		options.Sentinels = append(options.Sentinels, strings.TrimPrefix(each, "redis://"))
	}
	if c.CA != "" {
		text, err := os.ReadFile(c.CA)
		if err != nil {
			return err
		}
		options.TLS = &tls.Config{RootCAs: x509.NewCertPool()}
		options.TLS.RootCAs.AppendCertsFromPEM(text)
	}
	a.locks, err = tether.Open(where.String(), options)
	return err
}

func (a *adapter) lock(c call) *tether.Lock {
	var options []tether.Option
	add := func(is bool, option tether.Option) {
		if is {
			options = append(options, option)
		}
	}
	if c.Wait != nil {
		add(true, tether.Wait(ms(*c.Wait)))
	}
	if len(c.Permits) == 2 {
		add(true, tether.Permits(c.Permits[0], c.Permits[1]))
	}
	add(c.Shared, tether.Shared())
	add(c.Owner != "", tether.Owner(c.Owner))
	add(c.Reentrant, tether.Reentrant())
	add(c.Lease > 0, tether.Lease(ms(c.Lease)))
	add(c.Acks > 0, tether.Acks(c.Acks, ms(c.AckTimeout)))
	add(c.AtLeast > 0, tether.AtLeast(ms(c.AtLeast)))
	switch {
	case c.Temporary != nil && c.Seq:
		return a.locks.Sequence(c.Keys[0], *c.Temporary, options...)
	case c.Temporary != nil:
		return a.locks.Temporary(c.Keys[0], *c.Temporary, options...)
	case len(c.Keys) == 1:
		return a.locks.Lock(c.Keys[0], options...)
	}
	return a.locks.All(c.Keys, options...)
}

// announced is a context that says when it is first waited for: then the request was made. The suite's calls are made in order.
type announced struct {
	context.Context
	made func()
}

func (a announced) Done() <-chan struct{} {
	a.made()
	return a.Context.Done()
}

func (a *adapter) acquire(c call) {
	ctx := context.Background()
	if c.From != "" {
		ctx = tether.WithTask(ctx, c.From)
	}
	ctx, cancel := context.WithCancel(ctx)
	lock, request := a.lock(c), a.find(c.ID)
	a.mu.Lock()
	request.cancel = cancel
	a.mu.Unlock()
	made := make(chan struct{})
	announce := sync.OnceFunc(func() { close(made) })
	go func() {
		defer cancel()
		held, err := lock.Acquire(announced{ctx, announce})
		announce()
		if err != nil {
			if errors.Is(err, context.Canceled) {
				say(object{"over": c.ID})
			} else {
				say(failed("refused", c.ID, err))
			}
			return
		}
		a.mu.Lock()
		request.held = held
		givenUp := request.givenUp
		a.mu.Unlock()
		if givenUp {
			a.release(c.ID, request)
			return
		}
		granted := object{"granted": c.ID, "token": held.Token()}
		if c.Seq {
			granted["key"] = held.Name()
		}
		say(granted)
		<-held.Context().Done()
		sayLost(c.ID, request, context.Cause(held.Context()))
	}()
	<-made
}

func sayLost(id string, request *one, err error) {
	var lost *tether.LostError
	if errors.As(err, &lost) {
		request.lost.Do(func() { say(object{"lost": id, "reason": lost.Reason}) })
	}
}

func (a *adapter) release(id string, request *one) {
	err := request.held.Release(context.Background())
	switch {
	case err == nil:
		say(object{"released": id})
	case errors.Is(err, tether.ErrLost):
		sayLost(id, request, err)
	default:
		say(failed("not_released", id, err))
	}
}

func (a *adapter) giveUp(id string) {
	request := a.find(id)
	a.mu.Lock()
	request.givenUp = true
	isHeld := request.held != nil
	a.mu.Unlock()
	if isHeld {
		go a.release(id, request)
	} else {
		request.cancel()
	}
}

// stall stops all threads, as a collection of garbage would: a goroutine that sleeps holds up no other.
func stall(milliseconds float64) error {
	script := fmt.Sprintf("kill -STOP $PPID; sleep %f; kill -CONT $PPID", milliseconds/1000)
	return exec.Command("sh", "-c", script).Run()
}

func (a *adapter) check(c call) object {
	if c.Stall > 0 {
		if err := stall(c.Stall); err != nil {
			return object{"error": err.Error()}
		}
	}
	request := a.find(c.ID)
	a.mu.Lock()
	held := request.held
	a.mu.Unlock()
	if held == nil {
		return object{"gives": "waiting"}
	}
	err := held.Check()
	var lost *tether.LostError
	switch {
	case err == nil:
		return object{"gives": "held"}
	case errors.As(err, &lost):
		return object{"gives": object{"lost": lost.Reason}}
	}
	return object{"gives": "released"}
}

func (a *adapter) guard(c call) {
	request := a.find(c.ID)
	if a.data == nil {
		a.data = &data{url: a.url}
	}
	reply, err := request.held.Guard(context.Background(), a.data.do, c.Command...)
	sayRan(c.ID, request, "unreachable", reply, err)
}

func (a *adapter) runOn(c call) {
	request, at := a.find(c.ID), &data{url: c.URL}
	fence, _ := c.Fence.(string)
	reply, err := request.held.RunOn(context.Background(), at.do, tether.Script{Text: c.Script, Fence: fence, Keys: c.Keys, Args: c.Args})
	sayRan(c.ID, request, "refused", reply, err)
	if at.connection != nil {
		at.connection.Close()
	}
}

func sayRan(id string, request *one, kind string, reply any, err error) {
	switch {
	case err == nil:
		say(object{"ran": id, "reply": reply})
	case errors.Is(err, tether.ErrLost):
		sayLost(id, request, err)
	default:
		say(object{"not_run": id, "error": kind, "code": err.Error()})
	}
}

func (a *adapter) checkServer(c call) {
	request := a.find(c.ID)
	err := request.held.CheckServer(context.Background())
	switch {
	case err == nil:
		say(object{"checked": c.ID})
	case errors.Is(err, tether.ErrLost):
		sayLost(c.ID, request, err)
	default:
		say(failed("not_checked", c.ID, err))
	}
}

func (a *adapter) extend(c call) {
	if err := a.find(c.ID).held.Extend(context.Background(), ms(c.Lease)); err != nil {
		say(failed("not_extended", c.ID, err))
		return
	}
	say(object{"extended": c.ID})
}

// follow tells what a sequence gives, until it ends or the suite ends it.
func (a *adapter) follow(c call) {
	ctx, cancel := context.WithCancel(context.Background())
	request := a.find(c.ID)
	a.mu.Lock()
	request.cancel = cancel
	a.mu.Unlock()
	ended := func(err error) {
		if ctx.Err() == nil {
			say(failed("ended", c.ID, err))
		}
	}
	go func() {
		switch c.Call {
		case "watch":
			for event, err := range a.locks.Watch(ctx, c.Keys...) {
				if err != nil {
					ended(err)
					return
				}
				request.pass()
				say(object{"watch": c.ID, "key": event.Key, "is": event.Change})
			}
		case "presence":
			for member, err := range a.locks.Presence(ctx, c.Prefix) {
				if err != nil {
					ended(err)
					return
				}
				request.pass()
				line := object{"presence": c.ID, "key": member.Key, "is": member.Change}
				if member.Change == tether.Left {
					line["reason"] = member.Reason
				} else {
					line["token"], line["value"] = member.Token, member.Value
				}
				say(line)
			}
		case "observe":
			for leader, err := range a.locks.Observe(ctx, c.Prefix) {
				if err != nil {
					ended(err)
					return
				}
				request.pass()
				line := object{"leader": c.ID, "token": nil}
				if leader.Token > 0 {
					line["token"], line["value"] = leader.Token, leader.Value
				}
				say(line)
			}
		}
	}()
}

// pass waits while the watch is paused.
func (o *one) pass() {
	o.gate.Lock()
	defer o.gate.Unlock()
}

// sockets are those that an executed child has.
func sockets() object {
	listing, err := exec.Command("ls", "-l", "/proc/self/fd").Output()
	if err != nil {
		return object{"error": err.Error()}
	}
	found := []string{}
	for line := range strings.Lines(string(listing)) {
		if strings.Contains(line, "socket:") {
			found = append(found, line)
		}
	}
	return object{"sockets": found}
}

func (a *adapter) answer(c call) object {
	switch c.Call {
	case "open":
		if err := a.open(c); err != nil {
			return object{"error": err.Error()}
		}
	case "acquire":
		a.acquire(c)
	case "release":
		go a.release(c.ID, a.find(c.ID))
	case "give_up":
		a.giveUp(c.ID)
	case "check":
		return a.check(c)
	case "close":
		go func() {
			a.locks.Close()
			say(object{"closed": true})
		}()
	case "extend":
		go a.extend(c)
	case "guard":
		go a.guard(c)
	case "run_on":
		go a.runOn(c)
	case "check_server":
		go a.checkServer(c)
	case "watch", "presence", "observe":
		a.follow(c)
	case "unwatch", "end":
		a.find(c.ID).cancel()
	case "pause":
		a.find(c.ID).gate.Lock()
	case "go_on":
		a.find(c.ID).gate.Unlock()
	case "execute":
		return sockets()
	default:
		return object{"unknown": true}
	}
	return object{}
}

func main() {
	a := &adapter{all: map[string]*one{}}
	say(object{"hello": "tether for Go", "levels": []string{"L1", "L2", "L3", "CLUSTER"}, "calls": []string{
		"extend", "guard", "run_on", "check_server", "execute", "watch", "unwatch", "presence", "observe", "end", "pause", "go_on",
	}})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var c call
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		answer := a.answer(c)
		answer["done"] = c.N
		say(answer)
	}
}

// data is a connection for data, of which the client knows nothing.
type data struct {
	url        string
	connection net.Conn
	from       *resp.Reader
}

func (d *data) do(_ context.Context, words ...any) (any, error) {
	if d.connection == nil {
		parts, err := url.Parse(d.url)
		if err != nil {
			return nil, err
		}
		if d.connection, err = net.Dial("tcp", parts.Host); err != nil {
			return nil, err
		}
		d.from = resp.NewReader(d.connection)
	}
	texts := make([]string, len(words))
	for at, word := range words {
		texts[at] = fmt.Sprint(word)
	}
	if _, err := d.connection.Write(resp.Append(nil, texts)); err != nil {
		return nil, err
	}
	reply, err := d.from.Read()
	switch {
	case err != nil:
		return nil, err
	case reply.Kind == resp.Error:
		return nil, errors.New(reply.Str)
	case reply.Kind == resp.Integer:
		return reply.Int, nil
	}
	return reply.Str, nil
}
