package tethertest_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"tether"
	"tether/tethertest"
)

func open(t *testing.T, server *tethertest.DevServer) *tether.Locks {
	locks, err := tether.Open(server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close() })
	return locks
}

// lossBy is why a hold is lost when the lever is pulled.
func lossBy(t *testing.T, locks *tether.Locks, lever func()) string {
	t.Helper()
	held, err := locks.Lock("k", tether.Lease(time.Hour)).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lever()
	<-held.Context().Done()
	var lost *tether.LostError
	if !errors.As(context.Cause(held.Context()), &lost) {
		t.Fatal(context.Cause(held.Context()))
	}
	return lost.Reason
}

func TestLevers(t *testing.T) {
	server := tethertest.StartDevServer(t, "--peer-timeout", "600s")
	locks := open(t, server)
	for _, each := range []struct {
		reason string
		lever  func()
	}{
		{"deleted", func() { server.Lose("k") }},
		{"connection", server.Drop},
		{"lease", func() { server.Advance(time.Hour) }},
		{"demoted", server.Demote},
	} {
		if reason := lossBy(t, locks, each.lever); reason != each.reason {
			t.Errorf("lost: %s, not %s", reason, each.reason)
		}
	}
	var refused *tether.Error
	if _, err := locks.Lock("k").TryAcquire(t.Context()); !errors.As(err, &refused) || refused.Code != "REPLICA" {
		t.Error(err)
	}
	server.Promote()
	server.Refuse("NOREPLICAS")
	if _, err := locks.Lock("k").TryAcquire(t.Context()); !errors.As(err, &refused) || refused.Code != "NOREPLICAS" {
		t.Error(err)
	}
	server.Accept()
	if reason := lossBy(t, locks, server.Kill); reason != "connection" {
		t.Errorf("lost: %s", reason)
	}
	server.Restart()
	if keys := server.Do("KEYS", "*"); keys != "[]" {
		t.Error(keys)
	}
	if reason := lossBy(t, locks, func() { server.Lose("k") }); reason != "deleted" {
		t.Errorf("lost: %s", reason)
	}
}

func TestSilenceIsALossToo(t *testing.T) {
	server := tethertest.StartDevServer(t, "--peer-timeout", "2s")
	if reason := lossBy(t, open(t, server), func() { server.Silent(time.Minute) }); reason != "silence" {
		t.Errorf("lost: %s", reason)
	}
}

// failing is a test that has said why it fails.
type failing struct {
	*testing.T
	said string
}

func (f *failing) Fatal(words ...any) {
	f.said = fmt.Sprint(words...)
	runtime.Goexit()
}

func (f *failing) Fatalf(format string, words ...any) { f.Fatal(fmt.Sprintf(format, words...)) }

// As a program, this test listens and says nothing to its clients, and has a child that keeps its output open.
func init() {
	if len(os.Args) == 4 && os.Args[1] == "devserver" {
		child := exec.Command("sleep", "20")
		child.Stdout = os.Stdout
		fmt.Println("no licence", child.Start())
		listener, _ := net.Listen("tcp", "127.0.0.1:"+os.Args[3])
		time.Sleep(time.Minute)
		listener.Close()
	}
}

func TestNoDevServer(t *testing.T) {
	for program, said := range map[string]string{
		"/there/is/none": "TETHER_PROGRAM", "true": "true does not start", os.Args[0]: "does not answer within 10s: no licence",
	} {
		t.Setenv("TETHER_PROGRAM", program)
		user, over := &failing{T: t}, make(chan struct{})
		go func() {
			defer close(over)
			tethertest.StartDevServer(user)
		}()
		if <-over; !strings.Contains(user.said, said) {
			t.Errorf("%s: it said %q", program, user.said)
		}
	}
}
