package resp

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

func read(from io.Reader) ([]Value, error) {
	var values []Value
	for reader := NewReader(from); ; {
		value, err := reader.Read()
		if err != nil {
			return values, err
		}
		values = append(values, value)
	}
}

func TestFrames(t *testing.T) {
	for text, want := range map[string]Value{
		"+OK\r\n":                  {Kind: String, Str: "OK"},
		"-ERR no\r\n":              {Kind: Error, Str: "ERR no"},
		"!6\r\nERR no\r\n":         {Kind: Error, Str: "ERR no"},
		":-7\r\n":                  {Kind: Integer, Int: -7},
		"_\r\n":                    {},
		"$-1\r\n":                  {},
		"*-1\r\n":                  {},
		"$3\r\na\r\n\r\n":          {Kind: String, Str: "a\r\n"},
		"=7\r\ntxt:abc\r\n":        {Kind: String, Str: "abc"},
		"*2\r\n:1\r\n:2\r\n":       {Kind: Array, Items: []Value{{Kind: Integer, Int: 1}, {Kind: Integer, Int: 2}}},
		">1\r\n$1\r\nx\r\n":        {Kind: Push, Items: []Value{{Kind: String, Str: "x"}}},
		"%1\r\n+a\r\n:1\r\n":       {Kind: Map, Items: []Value{{Kind: String, Str: "a"}, {Kind: Integer, Int: 1}}},
		"|0\r\n>1\r\n+x\r\n":       {Kind: Push, Items: []Value{{Kind: String, Str: "x"}}},
		"|1\r\n+a\r\n:1\r\n:2\r\n": {Kind: Integer, Int: 2},
	} {
		values, err := read(strings.NewReader(text))
		if err != io.EOF || len(values) != 1 || !reflect.DeepEqual(values[0], want) {
			t.Errorf("%q: %v, %v", text, values, err)
		}
	}
}

func TestMalformedFrames(t *testing.T) {
	deep := strings.Repeat("*1\r\n", maxDepth+1)
	for _, text := range []string{
		"what is this\r\n", "\r\n", "+OK\n", ":x\r\n", "$x\r\n", "$-2\r\n", "$3\r\nabcd\r\n", "$99999999\r\n",
		"*1\r\n>1\r\n+x\r\n", "%1\r\n+a\r\n>1\r\n+x\r\n", ">1\r\n>1\r\n+x\r\n", "|1\r\n+a\r\n>1\r\n+x\r\n:1\r\n",
		"*99999999\r\n", deep + ":1\r\n", "*2\r\n$16000000\r\n" + strings.Repeat("x", 16000000) + "\r\n$16000000\r\n",
	} {
		if values, err := read(strings.NewReader(text)); !errors.Is(err, ErrMalformed) || len(values) > 0 {
			t.Errorf("%.40q: %v, %v", text, values, err)
		}
	}
}

func TestCommandsAreFrames(t *testing.T) {
	values, err := read(bytes.NewReader(Append(Append(nil, []string{"GET", "k\r\n"}), []string{"PING"})))
	if err != io.EOF || len(values) != 2 || values[0].Items[1].Str != "k\r\n" || values[1].Items[0].Str != "PING" {
		t.Error(values, err)
	}
}

// However the bytes are cut, the frames are the same; no bytes make it panic, or read what is not there.
func FuzzRead(f *testing.F) {
	f.Add([]byte("+OK\r\n-ERR no\r\n:7\r\n$1\r\nx\r\n*2\r\n_\r\n%1\r\n+a\r\n,1.5\r\n>1\r\n$1\r\nx\r\n|1\r\n+a\r\n:1\r\n:2\r\n"))
	f.Add([]byte("*1\r\n*1\r\n*-1\r\n$16777216\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		whole, err := read(bytes.NewReader(data))
		parts, other := read(iotest.OneByteReader(bytes.NewReader(data)))
		if !reflect.DeepEqual(whole, parts) || err.Error() != other.Error() {
			t.Fatalf("%v, %v\n%v, %v", whole, err, parts, other)
		}
	})
}
