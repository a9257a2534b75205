package tether_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"tether"
	"tether/tethertest"
)

// The server of the examples, as README calls it.
var url = "redis://localhost:6379"

func Example() {
	ctx := context.Background()

	locks, err := tether.Open(url, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	held, err := locks.Lock("report", tether.Wait(5*time.Second)).Acquire(ctx)
	if errors.Is(err, tether.ErrTaken) {
		log.Fatal("another has it still, after five seconds")
	} else if err != nil {
		log.Fatal(err)
	}
	for _, part := range []string{"one", "two"} {
		if err := held.Check(); err != nil { // Asks nobody: call it before each step.
			log.Fatal(err) // tether: "report": lost: deleted
		}
		fmt.Println(part)
	}
	if err := held.Release(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// one
	// two
}

func ExampleLock_Do() {
	ctx := context.Background()
	locks, err := tether.Open(url, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	err = locks.Lock("report").Do(ctx, func(ctx context.Context, held *tether.Held) error {
		// ctx ends when the lock is lost. Send the token along with each write, where something can compare it.
		return write(ctx, held.Token())
	})
	fmt.Println(err)
	// Output: <nil>
}

func write(ctx context.Context, token uint64) error { return ctx.Err() }

func ExampleLock_TryAcquire() {
	ctx := context.Background()
	locks, err := tether.Open(url, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	nightly := locks.Lock("nightly")
	held, err := nightly.TryAcquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = nightly.TryAcquire(ctx)
	fmt.Println(errors.Is(err, tether.ErrTaken))
	held.Release(ctx)
	// Output: true
}

func ExampleOptions() {
	ctx := context.Background()

	// The server keeps the locks for ten seconds without us. Our work stops within two seconds after a loss.
	locks, err := tether.Open(url, &tether.Options{Grace: 10 * time.Second, StopWithin: 2 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	held, err := locks.Lock("report").Acquire(ctx)
	fmt.Println(err, held.Check())
	// Output: <nil> <nil>
}

func ExampleElection_Run() {
	ctx, cancel := context.WithCancel(context.Background())
	locks, err := tether.Open(url, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	err = locks.Elect("leader", "host-1").Run(ctx, tether.Callbacks{
		Leading: func(ctx context.Context, term *tether.Held) {
			fmt.Println("I lead")
			cancel()
			<-ctx.Done() // Lost, or the program ends.
		},
		Leader: func(leader tether.Leader) {
			if leader.Value != nil {
				log.Println("the leader is", *leader.Value)
			}
		},
	})
	fmt.Println(errors.Is(err, context.Canceled))
	// Output:
	// I lead
	// true
}

func ExampleLocks_Presence() {
	ctx := context.Background()
	locks, err := tether.Open(url, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	here, err := locks.Temporary("member:1", "10.0.0.7:80").Acquire(ctx) // Others see the key as long as it is held.
	if err != nil {
		log.Fatal(err)
	}
	for member, err := range locks.Presence(ctx, "member:") {
		if err != nil {
			log.Fatal(err)
		}
		if member.Change == tether.Left {
			break
		}
		fmt.Println(member.Key, *member.Value)
		go here.Release(ctx)
	}
	// Output: member:1 10.0.0.7:80
}

func ExampleLocks_Watch() {
	ctx := context.Background()
	locks, err := tether.Open(url, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	for event, err := range locks.Watch(ctx, "report") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(event.Key, event.Change)
		break
	}
	// Output: report missing
}

func TestWorkStopsWhenItsLockIsDeleted(t *testing.T) {
	server := tethertest.StartDevServer(t)
	locks, err := tether.Open(server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()

	held, err := locks.Lock("report").Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	server.Lose("report") // Also: Drop, Silent, Refuse and Accept, Demote and Promote, Advance.
	<-held.Context().Done()
	if err := held.Check(); !errors.Is(err, tether.ErrLost) {
		t.Fatal(err)
	}
}

// Each block of Go in README.md is part of an example above.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	plain := func(text string) string {
		text = strings.ReplaceAll(text, `"redis://localhost:6379"`, "url")
		var lines []string
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line != "" {
				lines = append(lines, line)
			}
		}
		return strings.Join(lines, "\n")
	}
	blocks := strings.Split(string(readme), "```go\n")[1:]
	for _, block := range blocks {
		block, _, _ = strings.Cut(block, "```")
		if !strings.Contains(plain(string(source)), plain(block)) {
			t.Errorf("no example has\n%s", block)
		}
	}
	if len(blocks) < 6 {
		t.Error("README.md has", len(blocks), "blocks of Go")
	}
}

// A program beside a clone gets the modules by the commands of README.md, and with its vendor folder needs no clone any more.
func TestReadmeCommands(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(readme), "```sh\n")[1:]
	if len(blocks) != 2 {
		t.Fatal("README.md has", len(blocks), "blocks of commands")
	}
	folder := t.TempDir()
	if err := os.CopyFS(folder+"/tether/clients/go", os.DirFS(".")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(folder+"/user", 0o700); err != nil {
		t.Fatal(err)
	}
	run := func(commands string) {
		t.Helper()
		shell := exec.Command("sh", "-ec", commands)
		shell.Dir = folder + "/user"
		if said, err := shell.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s\n%s", err, commands, said)
		}
	}
	run("go mod init user")
	for at, imported := range []string{"tether", "tether/gocron"} {
		program := fmt.Sprintf("package main\n\nimport _ %q\n\nfunc main() {}\n", imported)
		if err := os.WriteFile(folder+"/user/main.go", []byte(program), 0o600); err != nil {
			t.Fatal(err)
		}
		commands, _, _ := strings.Cut(blocks[at], "```")
		run(commands)
		run("go mod vendor && mv ../tether ../away && go build -o program . && mv ../away ../tether")
	}
}
