// Package resp reads and writes RESP3, the wire protocol of Redis and Valkey.
package resp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// Kind is what a Value is.
type Kind byte

// The kinds of values. Simple and bulk strings are one, and so are all forms of null.
const (
	Null Kind = iota
	Integer
	String
	Error
	Array
	Map
	Push
)

// Value is one frame, or a part of one.
type Value struct {
	Kind  Kind
	Int   int64
	Str   string  // Of a String and an Error.
	Items []Value // Of an Array and a Push; of a Map names and values in turn.
}

// Code is the first word of an error, and empty for all else.
func (v Value) Code() string {
	if v.Kind != Error {
		return ""
	}
	for at := range len(v.Str) {
		if v.Str[at] == ' ' {
			return v.Str[:at]
		}
	}
	return v.Str
}

// IsString tells whether the value is this string.
func (v Value) IsString(text string) bool { return v.Kind == String && v.Str == text }

// Get is what a map has under this name: a Null if it has none.
func (v Value) Get(name string) Value {
	if v.Kind == Map {
		for at := 0; at+1 < len(v.Items); at += 2 {
			if v.Items[at].Str == name {
				return v.Items[at+1]
			}
		}
	}
	return Value{}
}

// What a frame may measure (P-FRAME-2).
const (
	maxBytes = 16 << 20
	maxDepth = 16
)

// ErrMalformed says that the bytes are no frame, or one beyond the limits. Nothing that follows can be read.
var ErrMalformed = errors.New("malformed frame")

func malformed(format string, words ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, words...))
}

// Reader reads frames. The cost is linear in the number of bytes, however they arrive (P-FRAME-3).
type Reader struct {
	from *bufio.Reader
	left int // What this frame may still have.
}

// NewReader makes a Reader of this stream.
func NewReader(from io.Reader) *Reader {
	return &Reader{from: bufio.NewReaderSize(from, 16<<10)}
}

// Read reads one frame. After an error the stream is of no use.
func (r *Reader) Read() (Value, error) {
	r.left = maxBytes
	return r.value(0)
}

func (r *Reader) value(depth int) (Value, error) {
	if depth > maxDepth {
		return Value{}, malformed("nested deeper than %d", maxDepth)
	}
	line, err := r.line()
	if err != nil {
		return Value{}, err
	}
	if line == "" {
		return Value{}, malformed("an empty line")
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+', ',', '(', '#':
		return Value{Kind: String, Str: rest}, nil
	case '-':
		return Value{Kind: Error, Str: rest}, nil
	case ':':
		number, err := strconv.ParseInt(rest, 10, 64)
		if err != nil {
			return Value{}, malformed("the integer %q", rest)
		}
		return Value{Kind: Integer, Int: number}, nil
	case '_':
		return Value{}, nil
	case '$', '=', '!':
		return r.bulk(kind, rest)
	case '*', '~', '>', '%', '|':
		return r.aggregate(kind, rest, depth)
	}
	return Value{}, malformed("the type %q", kind)
}

func (r *Reader) bulk(kind byte, rest string) (Value, error) {
	size, err := length(rest)
	if err != nil || size < 0 {
		return Value{}, err
	}
	if r.left -= size + 2; r.left < 0 {
		return Value{}, malformed("longer than %d bytes", maxBytes)
	}
	data := make([]byte, size+2)
	if _, err := io.ReadFull(r.from, data); err != nil {
		return Value{}, err
	}
	if data[size] != '\r' || data[size+1] != '\n' {
		return Value{}, malformed("a string without its end")
	}
	text := string(data[:size])
	switch {
	case kind == '!':
		return Value{Kind: Error, Str: text}, nil
	case kind == '=' && size >= 4: // A verbatim string begins with its format, as in `txt:`.
		text = text[4:]
	}
	return Value{Kind: String, Str: text}, nil
}

func (r *Reader) aggregate(kind byte, rest string, depth int) (Value, error) {
	size, err := length(rest)
	if err != nil || size < 0 {
		return Value{}, err
	}
	if kind == '%' || kind == '|' {
		size *= 2
	}
	var items []Value // It grows with what arrives, not with what is announced.
	for range size {
		item, err := r.value(depth + 1)
		if err != nil {
			return Value{}, err
		}
		if item.Kind == Push { // It stands between replies: the bytes are not what they seem.
			return Value{}, malformed("a push inside a frame")
		}
		items = append(items, item)
	}
	switch kind {
	case '|': // Attributes of the value that follows.
		return r.value(depth + 1)
	case '%':
		return Value{Kind: Map, Items: items}, nil
	case '>':
		return Value{Kind: Push, Items: items}, nil
	}
	return Value{Kind: Array, Items: items}, nil
}

// length reads a size; -1 is a null.
func length(text string) (int, error) {
	size, err := strconv.Atoi(text)
	if err != nil || size < -1 || size > maxBytes {
		return 0, malformed("the size %q", text)
	}
	return size, nil
}

// line reads up to the next CR LF, which it takes away.
func (r *Reader) line() (string, error) {
	var text []byte
	for {
		part, err := r.from.ReadSlice('\n')
		if r.left -= len(part); r.left < 0 {
			return "", malformed("longer than %d bytes", maxBytes)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return "", err
		}
		text = append(text, part...)
		if err == nil {
			break
		}
	}
	if len(text) < 2 || text[len(text)-2] != '\r' {
		return "", malformed("a line without its end")
	}
	return string(text[:len(text)-2]), nil
}

// Append adds a command to what is to be sent.
func Append(to []byte, words []string) []byte {
	to = append(to, '*')
	to = strconv.AppendInt(to, int64(len(words)), 10)
	to = append(to, "\r\n"...)
	for _, word := range words {
		to = append(to, '$')
		to = strconv.AppendInt(to, int64(len(word)), 10)
		to = append(to, "\r\n"...)
		to = append(to, word...)
		to = append(to, "\r\n"...)
	}
	return to
}
