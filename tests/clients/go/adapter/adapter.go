// Package adapter is what the programs of this folder have in common: they read lines, have their client send what these
// say, and print the replies (see tests/clients/check.py).
package adapter

import (
	"bufio"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
)

// Call is the client's way to send a command.
type Call func(words ...any) (any, error)

const threads = 8

// Arguments are where the server is, and which RESP version to speak.
func Arguments() (address string, protocol int) {
	protocol, _ = strconv.Atoi(os.Args[3])
	return os.Args[1] + ":" + os.Args[2], protocol
}

// Version is that of a module that the program was built with.
func Version(module string) string {
	built, _ := debug.ReadBuildInfo()
	for _, each := range built.Deps {
		if each.Path == module {
			return strings.TrimPrefix(each.Version, "v")
		}
	}
	return "?"
}

func answer(call Call, words []any) string {
	reply, err := call(words...)
	if err != nil {
		return strings.ReplaceAll("! "+err.Error(), "\n", " ")
	}
	switch reply := reply.(type) {
	case nil:
		return "nil"
	case []byte:
		return string(reply)
	default:
		return fmt.Sprint(reply)
	}
}

func wordsOf(rest string, number int) (words []any) {
	for _, word := range strings.Fields(strings.ReplaceAll(rest, "%", strconv.Itoa(number))) {
		words = append(words, word)
	}
	return
}

// Serve is for a client as it comes, and for a connection that can hold a lock, with the token that it got.
func Serve(version string, call Call, holder func() (Call, any, error)) {
	fmt.Println(version)
	var held Call
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		verb, rest, _ := strings.Cut(lines.Text(), " ")
		switch verb {
		case "width":
			fmt.Println(threads)
		case "call":
			fmt.Println(answer(call, wordsOf(rest, 0)))
		case "pool":
			var said [threads]string
			var all sync.WaitGroup
			for number := range said {
				all.Add(1)
				go func(number int) {
					defer all.Done()
					said[number] = answer(call, wordsOf(rest, number))
				}(number)
			}
			all.Wait()
			fmt.Println(strings.Join(said[:], "\n"))
		case "lines":
			fmt.Println(answer(func(...any) (token any, err error) {
				held, token, err = holder()
				return
			}, nil))
		case "holder":
			fmt.Println(answer(held, wordsOf(rest, 0)))
		}
	}
}
