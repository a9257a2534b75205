"""RESP3 without input or output: bytes in, replies and pushes out.

What has arrived of a frame is not read again when more of it arrives: the work is linear in the
number of bytes, however they are cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

# No reply that this package asks for is nearly as long: the longest name keys with many holders.
LONGEST = 1 << 24
DEEPEST = 16


class Malformed(Exception):
    """The bytes are no RESP3, or more than this package can have asked for."""


class ReplyError(Exception):
    """An error as the server worded it."""


class Push(list[Any]):
    """A frame that answers no request."""


def encode(words: tuple[bytes | str | int, ...]) -> bytes:
    """Return a command as the server reads it."""
    out = [b"*%d\r\n" % len(words)]
    for word in words:
        data = word if isinstance(word, bytes) else str(word).encode()
        out.append(b"$%d\r\n%s\r\n" % (len(data), data))
    return b"".join(out)


class _Open:
    """An aggregate whose items are still to come."""

    def __init__(self, kind: bytes, missing: int) -> None:
        """Begin with no items."""
        self.kind = kind
        self.missing = missing
        self.items: list[Any] = []

    def closed(self) -> Any:
        """Return what it is, with all its items."""
        if self.kind == b">":
            return Push(self.items)
        if self.kind != b"%":
            return self.items
        keys = [key if isinstance(key, bytes) else repr(key).encode() for key in self.items[::2]]
        return dict(zip(keys, self.items[1::2]))


# There is nothing to return yet.
_PENDING = object()


class Parser:
    """Takes bytes as they arrive and returns whole frames."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._data = bytearray()
        self._at = 0  # What is before that is parsed.
        self._searched = 0  # No line ends before that.
        self._length = 0  # Of the frame, as far as it is parsed.
        self._open: list[_Open] = []

    def feed(self, data: bytes) -> Iterator[Any]:
        """Yield each frame that is complete; raise `Malformed` where the bytes are none."""
        self._data += data
        while True:
            begin = self._at
            try:
                value = self._next()
            except ValueError:
                raise Malformed("a number is malformed") from None
            if self._at == begin:
                break
            self._length += self._at - begin
            if value is not _PENDING:
                frame = self._put(value)
                if frame is not _PENDING:
                    self._length = 0
                    yield frame
        del self._data[: self._at]
        self._searched -= self._at
        self._at = 0
        if self._length + len(self._data) > LONGEST:
            raise Malformed("a frame is too long")

    def _put(self, value: Any) -> Any:
        """Put a value where it belongs; return the frame if it is complete."""
        while self._open:
            innermost = self._open[-1]
            innermost.items.append(value)
            innermost.missing -= 1
            if innermost.missing:
                return _PENDING
            self._open.pop()
            value = innermost.closed()
        return value

    def _next(self) -> Any:
        """Read a value that has no items, or the head of one that has; or nothing if it is cut."""
        end = self._data.find(b"\r\n", max(self._at, self._searched))
        if end < 0:
            self._searched = max(self._at, len(self._data) - 1)
            return _PENDING
        self._searched = end
        line = bytes(self._data[self._at : end])
        kind, rest = line[:1], line[1:]
        if kind in (b"*", b"~", b">", b"%") and rest != b"-1":
            return self._opened(kind, int(rest), end + 2)
        if kind in (b"$", b"=", b"!") and rest != b"-1":
            return self._bulk(kind, int(rest), end + 2)
        self._at = end + 2
        return _simple(kind, rest)

    def _opened(self, kind: bytes, count: int, at: int) -> Any:
        if not 0 <= count <= LONGEST:
            raise Malformed("a count is out of range")
        if len(self._open) >= DEEPEST:
            raise Malformed("a frame is too deep")
        self._at = at
        aggregate = _Open(kind, 2 * count if kind == b"%" else count)
        if not count:
            return aggregate.closed()
        self._open.append(aggregate)
        return _PENDING

    def _bulk(self, kind: bytes, length: int, at: int) -> Any:
        if not 0 <= length <= LONGEST:
            raise Malformed("a length is out of range")
        end = at + length
        if len(self._data) < end + 2:
            return _PENDING
        self._at = end + 2
        self._searched = self._at
        data = bytes(self._data[at:end])
        if kind == b"!":
            return ReplyError(data.decode("utf-8", "replace"))
        return data if kind == b"$" else data[4:]


def _simple(kind: bytes, rest: bytes) -> Any:
    if kind == b"+":
        return rest
    if kind == b"-":
        return ReplyError(rest.decode("utf-8", "replace"))
    if kind in (b":", b"("):
        return int(rest)
    if kind == b"_" or (kind in (b"$", b"*") and rest == b"-1"):
        return None
    if kind == b"#":
        return rest == b"t"
    if kind == b",":
        return float(rest)
    raise Malformed(f"no frame begins with {kind!r}")
