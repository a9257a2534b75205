// Package tethertest starts servers for tests: `tether devserver`, which needs no Redis, or a server with the module tether.
package tethertest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tether/internal/resp"
)

// T is what of testing.TB this package needs.
type T interface {
	Helper()
	Cleanup(func())
	TempDir() string
	Fatal(...any)
	Fatalf(string, ...any)
}

// Server is a server of a test's own.
type Server struct {
	// URL is for tether.Open and for clients of any kind.
	URL string
	// Address is host:port.
	Address string

	t        T
	variable string // Names the program, unless it is empty or unset.
	program  string
	words    []string
	within   time.Duration // When it answers.
	process  *exec.Cmd
	output   *bytes.Buffer
	done     chan struct{}
}

// Start starts a server with these settings besides its own, as in "--tether.peer-timeout", "2000". It ends with the test. The
// program is TETHER_SERVER, or redis-server on PATH; the module is TETHER_MODULE.
func Start(t T, settings ...string) *Server {
	t.Helper()
	module := os.Getenv("TETHER_MODULE")
	if module == "" {
		t.Fatal("set TETHER_MODULE to the path of libtether.so")
	}
	return Run(t, append([]string{"--loadmodule", module}, settings...)...)
}

// Run starts a server without the module, or with any program of the server's family: a Sentinel, for one, of which the first
// setting is the file.
func Run(t T, settings ...string) *Server {
	t.Helper()
	return launch(t, "TETHER_SERVER", "redis-server", time.Minute, func(port string) []string {
		// The settings first, since a file stands before all options.
		return slices.Concat(settings, []string{"--port", port, "--save", "", "--dir", t.TempDir()})
	})
}

// launch starts the program that the variable names, or the usual one, with the words for a port that is free, where it must answer
// within that time.
func launch(t T, variable, usual string, within time.Duration, words func(port string) []string) *Server {
	t.Helper()
	program := os.Getenv(variable)
	if program == "" {
		program = usual
	}
	for range 5 {
		port := FreePort(t)
		s := &Server{t: t, variable: variable, program: program, words: words(port), within: within}
		s.Address, s.URL = net.JoinHostPort("127.0.0.1", port), "redis://127.0.0.1:"+port
		if s.start() {
			t.Cleanup(s.Kill)
			return s
		}
		if !strings.Contains(s.output.String(), "in use") {
			t.Fatalf("%s does not start: %s", program, s.output)
		}
	}
	t.Fatal("no port is free")
	return nil
}

// FreePort is a port that nothing listens at now.
func FreePort(t T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return port
}

func (s *Server) start() bool {
	s.process, s.output, s.done = exec.Command(s.program, s.words...), &bytes.Buffer{}, make(chan struct{})
	s.process.Stdout, s.process.Stderr = s.output, s.output
	s.process.WaitDelay = time.Second // Its children may keep the output open.
	if err := s.process.Start(); err != nil {
		s.t.Fatalf("%v: name the program in %s", err, s.variable)
	}
	go func() {
		s.process.Wait()
		close(s.done)
	}()
	for deadline := time.Now().Add(s.within); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		select {
		case <-s.done:
			return false
		default:
		}
		// While it loads its files it answers, and has nothing yet.
		if reply, err := s.ask(deadline, "PING"); err == nil && reply.Kind != resp.Null && reply.Code() != "LOADING" {
			return true
		}
	}
	s.Kill()
	s.t.Fatalf("%s does not answer within %v: %s", s.program, s.within, s.output)
	return false
}

// Kill kills the server, as a crash would.
func (s *Server) Kill() {
	s.process.Process.Kill()
	<-s.done
}

// Restart starts it again, after Kill.
func (s *Server) Restart() {
	s.t.Helper()
	if !s.start() {
		s.t.Fatalf("the server does not start again: %s", s.output)
	}
}

// Do runs a command on a connection of its own, and gives the reply as text: a number, a string, `nil`, or its elements in brackets.
// An error of the server fails the test.
func (s *Server) Do(words ...any) string {
	s.t.Helper()
	texts := make([]string, len(words))
	for at, word := range words {
		texts[at] = fmt.Sprint(word)
	}
	reply, err := s.ask(time.Time{}, texts...)
	if err != nil || reply.Kind == resp.Error {
		s.t.Fatalf("%s: %v %s", filepath.Base(texts[0]), err, reply.Str)
	}
	return text(reply)
}

// ask has no time limit if the deadline is zero.
func (s *Server) ask(deadline time.Time, words ...string) (resp.Value, error) {
	connection, err := net.Dial("tcp", s.Address)
	if err != nil {
		return resp.Value{}, err
	}
	defer connection.Close()
	connection.SetDeadline(deadline)
	if _, err := connection.Write(resp.Append(nil, words)); err != nil {
		return resp.Value{}, err
	}
	return resp.NewReader(connection).Read()
}

func text(reply resp.Value) string {
	switch reply.Kind {
	case resp.Null:
		return "nil"
	case resp.Integer:
		return fmt.Sprint(reply.Int)
	case resp.String, resp.Error:
		return reply.Str
	}
	items := make([]string, len(reply.Items))
	for at, item := range reply.Items {
		items[at] = text(item)
	}
	return "[" + strings.Join(items, " ") + "]"
}

// Eventually waits until it is so, and fails the test after a minute.
func Eventually(t T, what string, isSo func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !isSo(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}
