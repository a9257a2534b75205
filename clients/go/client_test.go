package tether_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tether"
	"tether/internal/resp"
	"tether/tethertest"
)

// The examples have one server. At the end no goroutine of the client is left.
func TestMain(m *testing.M) {
	all := &program{}
	url = tethertest.Start(all).URL
	code := m.Run()
	for _, each := range all.cleanups {
		each()
	}
	left := goroutines()
	for deadline := time.Now().Add(10 * time.Second); left != "" && time.Now().Before(deadline); left = goroutines() {
		time.Sleep(10 * time.Millisecond)
	}
	if left != "" && code == 0 {
		fmt.Fprintf(os.Stderr, "goroutines are left:\n%s\n", left)
		code = 1
	}
	os.Exit(code)
}

// program stands for a test, for what is there before all of them.
type program struct{ cleanups []func() }

func (p *program) Helper()                            {}
func (p *program) Cleanup(each func())                { p.cleanups = append(p.cleanups, each) }
func (p *program) Fatal(words ...any)                 { panic(fmt.Sprint(words...)) }
func (p *program) Fatalf(format string, words ...any) { panic(fmt.Sprintf(format, words...)) }
func (p *program) TempDir() string {
	folder, err := os.MkdirTemp("", "tether")
	if err != nil {
		panic(err)
	}
	p.Cleanup(func() { os.RemoveAll(folder) })
	return folder
}

// goroutines are those that the client began.
func goroutines() string {
	all := make([]byte, 1<<20)
	all = all[:runtime.Stack(all, true)]
	var left []string
	for _, each := range strings.Split(string(all), "\n\n") {
		if strings.Contains(each, "created by tether.") {
			left = append(left, each)
		}
	}
	return strings.Join(left, "\n\n")
}

func open(t testing.TB, url string, options *tether.Options) *tether.Locks {
	t.Helper()
	locks, err := tether.Open(url, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close() })
	return locks
}

func acquire(t testing.TB, lock *tether.Lock) *tether.Held {
	t.Helper()
	held, err := lock.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return held
}

// isFree tells whether nobody holds the lock or waits for it.
func isFree(server *tethertest.Server, name string) bool {
	return server.Do("LOCK.INFO", name) == "nil"
}

func TestLock(t *testing.T) {
	server := tethertest.Start(t)
	one, other := open(t, server.URL, nil), open(t, server.URL, nil)
	held := acquire(t, one.Lock("report"))
	if err := held.Check(); err != nil || held.Name() != "report" || held.Token() == 0 {
		t.Fatal(err, held.Name(), held.Token())
	}
	if _, err := other.Lock("report").TryAcquire(t.Context()); !errors.Is(err, tether.ErrTaken) {
		t.Fatal(err)
	}
	if _, err := other.Lock("report", tether.Wait(50*time.Millisecond)).Acquire(t.Context()); !errors.Is(err, tether.ErrTaken) {
		t.Fatal(err)
	}
	if err := held.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := held.Check(); err != tether.ErrReleased || context.Cause(held.Context()) != err || err.Error() != "tether: released" {
		t.Fatal(err)
	}
	if err := held.Release(t.Context()); err != nil {
		t.Fatal("a second release does nothing:", err)
	}
	next := acquire(t, other.Lock("report"))
	if next.Token() <= held.Token() {
		t.Fatal("the tokens do not rise")
	}
}

func TestLossEndsTheContextWithItsCause(t *testing.T) {
	server := tethertest.Start(t)
	locks := open(t, server.URL, nil)
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
	held, err := locks.Lock("k").Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if held.Context().Err() != nil || held.Context().Value(key{}) != "value" {
		t.Fatal("the hold does not end with the context of Acquire, and has its values")
	}
	server.Do("DEL", "k")
	<-held.Context().Done()
	var lost *tether.LostError
	if !errors.As(context.Cause(held.Context()), &lost) || lost.Reason != "deleted" || !errors.Is(lost, tether.ErrLost) {
		t.Fatal(context.Cause(held.Context()))
	}
	for _, err := range []error{
		held.Check(), held.Release(t.Context()), held.Extend(t.Context(), time.Second), held.CheckServer(t.Context()),
	} {
		if !errors.Is(err, tether.ErrLost) {
			t.Fatal(err)
		}
	}
}

func TestDo(t *testing.T) {
	server := tethertest.Start(t)
	locks := open(t, server.URL, nil)
	wrong := errors.New("wrong")
	err := locks.Lock("k").Do(t.Context(), func(ctx context.Context, held *tether.Held) error {
		server.Do("DEL", "k")
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), tether.ErrLost) {
			t.Error(context.Cause(ctx))
		}
		return wrong
	})
	if !errors.Is(err, wrong) || !errors.Is(err, tether.ErrLost) {
		t.Fatal(err)
	}
	func() {
		defer func() { recover() }()
		locks.Lock("k").Do(t.Context(), func(context.Context, *tether.Held) error { panic("a fault of the body's") })
	}()
	if err := locks.Lock("k").Do(t.Context(), func(context.Context, *tether.Held) error { return nil }); err != nil {
		t.Fatal("after a panic the lock is free:", err)
	}
}

func TestModes(t *testing.T) {
	server := tethertest.Start(t)
	locks := open(t, server.URL, nil)
	try := func(name string, options ...tether.Option) error {
		_, err := locks.Lock(name, options...).TryAcquire(t.Context())
		return err
	}
	if err := errors.Join(try("s", tether.Shared()), try("s", tether.Shared()), try("p", tether.Permits(2, 3)), try("p", tether.Permits(1, 3))); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{try("s"), try("p", tether.Permits(1, 3)), try("o", tether.Owner("x"))} {
		if err != nil && !errors.Is(err, tether.ErrTaken) {
			t.Fatal(err)
		}
	}
	if err := try("o", tether.Owner("x")); !errors.Is(err, tether.ErrTaken) {
		t.Fatal(err)
	}
	all := acquire(t, locks.All([]string{"a", "b"}))
	if err := try("b"); !errors.Is(err, tether.ErrTaken) || all.Name() != "a b" {
		t.Fatal(err)
	}
	again := locks.Lock("r", tether.Owner("me"), tether.Reentrant())
	first, second := acquire(t, again), acquire(t, again)
	if first.Token() != second.Token() || first.Release(t.Context()) != nil || second.Check() != nil {
		t.Fatal("a named owner may take it again")
	}
	if err := second.CheckServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	leased := acquire(t, locks.Lock("l", tether.Lease(time.Minute)))
	if err := leased.Extend(t.Context(), 10*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	<-leased.Context().Done()
	named := acquire(t, locks.Sequence("job:", "here"))
	if server.Do("GET", named.Name()) != "here" {
		t.Fatal(named.Name())
	}
}

func TestErrors(t *testing.T) {
	server := tethertest.Start(t)
	locks := open(t, server.URL, nil)
	for _, each := range []struct {
		lock *tether.Lock
		kind error
		code string
	}{
		{locks.All(nil), tether.ErrRefused, "KEYS"},
		{locks.Lock("k", tether.Owner(".x")), tether.ErrRefused, "OWNER"},
		{locks.Lock("k", tether.Acks(1, 0)), tether.ErrUnfit, "UNFIT"},
		{open(t, server.URL, &tether.Options{Fence: time.Hour}).Lock("k"), tether.ErrUnfit, "UNFIT"},
		{open(t, tethertest.Run(t).URL, nil).Lock("k"), tether.ErrNoModule, "NOMODULE"},
		{open(t, server.URL, &tether.Options{Cluster: true}).All([]string{"a", "b"}), tether.ErrCrossSlot, "CROSSSLOT"},
	} {
		_, err := each.lock.Acquire(t.Context())
		var known *tether.Error
		if !errors.Is(err, each.kind) || !errors.As(err, &known) || known.Code != each.code {
			t.Errorf("%v, not %v %s", err, each.kind, each.code)
		}
	}
	server.Do("SET", "k", "1")
	if _, err := locks.Lock("k").TryAcquire(t.Context()); !errors.Is(err, tether.ErrTaken) && !errors.Is(err, tether.ErrRefused) {
		t.Error(err)
	}
}

func TestAddresses(t *testing.T) {
	for _, url := range []string{"", "localhost:6379", "http://localhost", "redis://h/x", "redis://:seCRET@h/1?x=1", "redis://:seCRET@h:port", "unix://", "unix:///x?db=y", "unix:///x?x=1"} {
		_, err := tether.Open(url, nil)
		if err == nil || strings.Contains(err.Error(), "seCRET") {
			t.Errorf("%s: %v", url, err)
		}
	}
	server := tethertest.Start(t, "--requirepass", "right")
	locks := open(t, strings.Replace(server.URL, "//", "//:seCRET@", 1), nil)
	var refused *tether.Error
	if _, err := locks.Lock("k").Acquire(t.Context()); !errors.As(err, &refused) || refused.Code != "WRONGPASS" || strings.Contains(fmt.Sprintf("%v %+v", err, refused), "seCRET") {
		t.Error(err)
	}
	acquire(t, open(t, strings.Replace(server.URL, "//", "//:right@", 1)+"/3", nil).Lock("k"))
	acquire(t, open(t, strings.Replace(server.URL, "redis://", "valkey://:right@", 1), nil).Lock("k"))
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	tethertest.Start(t, "--unixsocket", path)
	acquire(t, open(t, "unix://"+path, nil).Lock("k"))
	acquire(t, open(t, "unix://"+path+"?db=3", nil).Lock("k", tether.Wait(0))) // Another database.
}

func TestCloseTellsEverybody(t *testing.T) {
	server := tethertest.Start(t)
	for _, grace := range []time.Duration{0, 10 * time.Second} {
		locks := open(t, server.URL, &tether.Options{Grace: grace})
		held := acquire(t, locks.Lock("k"))
		waits := make(chan error)
		go func() {
			_, err := locks.Lock("k").Acquire(context.Background())
			waits <- err
		}()
		tethertest.Eventually(t, "it waits", func() bool { return strings.Contains(server.Do("LOCK.INFO", "k"), "waiting-ms") })
		watched := make(chan error)
		go func() {
			for _, err := range locks.Watch(context.Background(), "w") {
				if err != nil {
					watched <- err
				}
			}
		}()
		locks.Close()
		if err := held.Check(); !errors.Is(err, tether.ErrLost) || err.(*tether.LostError).Reason != "closed" {
			t.Error(err)
		}
		if err := <-waits; !errors.Is(err, tether.ErrClosed) {
			t.Error(err)
		}
		if err := <-watched; !errors.Is(err, tether.ErrClosed) {
			t.Error(err)
		}
		if _, err := locks.Lock("k").Acquire(t.Context()); !errors.Is(err, tether.ErrClosed) {
			t.Error(err)
		}
		locks.Close()
		tethertest.Eventually(t, "it is free", func() bool { return isFree(server, "k") })
	}
}

func TestObserverAndLogger(t *testing.T) {
	server := tethertest.Start(t)
	var mu sync.Mutex
	var text strings.Builder
	kinds := map[tether.NoticeKind]int{}
	locks := open(t, server.URL, &tether.Options{
		Logger: slog.New(slog.NewTextHandler(writer(func(data []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return text.Write(data)
		}), nil)),
		Observer: func(notice tether.Notice) {
			mu.Lock()
			defer mu.Unlock()
			kinds[notice.Kind]++
		},
	})
	acquire(t, locks.Lock("k")).Release(t.Context())
	held := acquire(t, locks.Lock("k"))
	server.Do("CLIENT", "KILL", "TYPE", "normal")
	<-held.Context().Done()
	tethertest.Eventually(t, "the observer hears of all", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return kinds[tether.Connected] == 1 && kinds[tether.Granted] == 2 && kinds[tether.Released] == 1 &&
			kinds[tether.Lost] == 1 && kinds[tether.Disconnected] == 1 && strings.Contains(text.String(), "reason=connection")
	})
}

type writer func([]byte) (int, error)

func (w writer) Write(data []byte) (int, error) { return w(data) }

// A cancelled context leaves no place and no hold, whatever the request was doing (P-ACQ-10).
func TestCancelledAcquiresLeaveNobody(t *testing.T) {
	steps := 10_000
	if text := os.Getenv("TETHER_STEPS"); text != "" {
		steps, _ = strconv.Atoi(text)
	}
	server := tethertest.Start(t)
	locks := open(t, server.URL, nil)
	kept := acquire(t, locks.Lock("kept"))
	asks := []*tether.Lock{locks.Lock("a"), locks.All([]string{"a", "b"}), locks.Lock("b", tether.Shared()), locks.Lock("b", tether.Wait(time.Minute)), locks.Sequence("c:", "v")}
	var workers sync.WaitGroup
	var left, granted atomic.Int64
	left.Store(int64(steps))
	for range 8 {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for left.Add(-1) >= 0 {
				ctx, cancel := context.WithCancel(context.Background())
				pause := time.Duration(rand.IntN(1000)) * time.Microsecond
				timer := time.AfterFunc(pause, cancel)
				held, err := asks[rand.IntN(len(asks))].Acquire(ctx)
				switch {
				case err == nil:
					granted.Add(1)
					if err := held.Release(context.Background()); err != nil {
						t.Error(err)
					}
				case !errors.Is(err, context.Canceled):
					t.Error(err)
				}
				timer.Stop()
				cancel()
			}
		}()
	}
	workers.Wait()
	t.Logf("%d acquires, of which %d were granted", steps, granted.Load())
	tethertest.Eventually(t, "nobody holds or waits", func() bool {
		return isFree(server, "a") && isFree(server, "b") && server.Do("KEYS", "c:*") == "[]"
	})
	if err := kept.Check(); err != nil {
		t.Fatal(err)
	}
}

func TestTasksThatWaitForEachOtherAreADeadlock(t *testing.T) {
	server := tethertest.Start(t)
	locks := open(t, server.URL, nil)
	one, other := tether.WithTask(t.Context(), "one"), tether.WithTask(t.Context(), "other")
	a, err := locks.Lock("a").Acquire(one)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = locks.Lock("b").Acquire(other); err != nil {
		t.Fatal(err)
	}
	result := make(chan error)
	go func() {
		_, err := locks.Lock("a").Acquire(other)
		result <- err
	}()
	tethertest.Eventually(t, "it waits", func() bool { return strings.Contains(server.Do("LOCK.INFO", "a"), "waiting-ms") })
	if _, err := locks.Lock("b").Acquire(one); !errors.Is(err, tether.ErrDeadlock) {
		t.Fatal(err)
	}
	a.Release(t.Context())
	if err := <-result; err != nil {
		t.Fatal(err)
	}
}

func TestSessionOutlivesABreak(t *testing.T) {
	server := tethertest.Start(t)
	locks := open(t, server.URL, &tether.Options{Grace: 30 * time.Second})
	held := acquire(t, locks.Lock("k"))
	before := server.Do("CLIENT", "LIST")
	server.Do("CLIENT", "KILL", "TYPE", "normal")
	if err := held.CheckServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := held.Check(); err != nil || server.Do("CLIENT", "LIST") == before {
		t.Fatal(err)
	}
}

func TestGuard(t *testing.T) {
	server := tethertest.Start(t)
	locks := open(t, server.URL, nil)
	data := func(_ context.Context, words ...any) (any, error) {
		if words[3] == "fails" {
			return nil, errors.New("STALE token 1 is not current: nobody holds the key")
		}
		return server.Do(words...), nil
	}
	held := acquire(t, locks.Lock("k"))
	if reply, err := held.Guard(t.Context(), data, "SET", "x", "1"); err != nil || reply != "OK" || server.Do("GET", "x") != "1" {
		t.Fatal(reply, err)
	}
	if _, err := held.Guard(t.Context(), data, "fails"); !errors.Is(err, tether.ErrLost) {
		t.Fatal(err)
	}
}

// dataOf is a connection for data, with the errors as they are.
func dataOf(t *testing.T, server *tethertest.Server) tether.Command {
	connection, err := net.Dial("tcp", server.Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	replies := resp.NewReader(connection)
	return func(_ context.Context, words ...any) (any, error) {
		texts := make([]string, len(words))
		for at, word := range words {
			texts[at] = fmt.Sprint(word)
		}
		if _, err := connection.Write(resp.Append(nil, texts)); err != nil {
			return nil, err
		}
		reply, err := replies.Read()
		if err == nil && reply.Kind == resp.Error {
			err = errors.New(reply.Str)
		}
		return reply.Str, err
	}
}

func TestDataOfAnotherServerRefusesTokensThatAreSmaller(t *testing.T) {
	server, other := tethertest.Start(t), tethertest.Run(t) // The other has no module.
	locks, data := open(t, server.URL, nil), dataOf(t, other)
	held := acquire(t, locks.Lock("k"))
	write := func(value string) error {
		reply, err := held.RunOn(t.Context(), data, tether.Script{
			Text: "return redis.call('SET', KEYS[1], ARGV[1])", Fence: "fence", Keys: []string{"body"}, Args: []any{value},
		})
		if err == nil && reply != "OK" {
			t.Error(reply)
		}
		return err
	}
	if err := errors.Join(write("one"), write("two")); err != nil || other.Do("GET", "fence") != fmt.Sprint(held.Token()) {
		t.Fatal(err)
	}
	other.Do("SCRIPT", "FLUSH")
	other.Do("SET", "fence", strings.Repeat("9", len(fmt.Sprint(held.Token()))-1)) // Shorter, so smaller.
	if err := write("three"); err != nil {
		t.Fatal(err)
	}
	other.Do("SET", "fence", held.Token()+1)
	if err := write("four"); !errors.Is(err, tether.ErrLost) {
		t.Fatal(err)
	}
	other.Do("DEL", "fence")
	other.Do("REPLICAOF", "127.0.0.1", "1")
	if err := write("five"); err == nil || errors.Is(err, tether.ErrLost) {
		t.Fatal(err)
	}
	if other.Do("GET", "body") != "three" {
		t.Fatal(other.Do("GET", "body"))
	}
	held.Release(t.Context())
	if err := write("six"); err != tether.ErrReleased {
		t.Fatal(err)
	}
}
