"""RESP3 without input or output: bytes in, replies and pushes out."""

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


class _Incomplete(Exception):
    """The rest of the frame is still to come."""


def encode(words: tuple[bytes | str | int, ...]) -> bytes:
    """Return a command as the server reads it."""
    out = [b"*%d\r\n" % len(words)]
    for word in words:
        data = word if isinstance(word, bytes) else str(word).encode()
        out.append(b"$%d\r\n%s\r\n" % (len(data), data))
    return b"".join(out)


class Parser:
    """Takes bytes as they arrive and returns whole frames."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._data = b""
        self._at = 0

    def feed(self, data: bytes) -> Iterator[Any]:
        """Yield each frame that is complete; raise `Malformed` where the bytes are none."""
        self._data += data
        while self._data:
            self._at = 0
            try:
                frame = self._frame(0)
            except _Incomplete:
                if len(self._data) > LONGEST:
                    raise Malformed("a frame is too long") from None
                return
            except ValueError:
                raise Malformed("a number is malformed") from None
            self._data = self._data[self._at :]
            yield frame

    def _line(self) -> bytes:
        end = self._data.find(b"\r\n", self._at)
        if end < 0:
            raise _Incomplete
        line = self._data[self._at : end]
        self._at = end + 2
        return line

    def _bytes(self, length: int) -> bytes:
        if not 0 <= length <= LONGEST:
            raise Malformed("a length is out of range")
        end = self._at + length
        if len(self._data) < end + 2:
            raise _Incomplete
        data = self._data[self._at : end]
        self._at = end + 2
        return data

    def _items(self, count: int, depth: int) -> list[Any]:
        if not 0 <= count <= LONGEST:
            raise Malformed("a count is out of range")
        return [self._frame(depth + 1) for _ in range(count)]

    def _frame(self, depth: int) -> Any:
        if depth > DEEPEST:
            raise Malformed("a frame is too deep")
        line = self._line()
        kind, rest = line[:1], line[1:]
        if kind == b"+":
            return rest
        if kind == b"-":
            return ReplyError(rest.decode("utf-8", "replace"))
        if kind in b":(" and kind:
            return int(rest)
        if kind == b"_" or (kind in (b"$", b"*") and rest == b"-1"):
            return None
        if kind == b"#":
            return rest == b"t"
        if kind == b",":
            return float(rest)
        if kind == b"$":
            return self._bytes(int(rest))
        if kind == b"=":
            return self._bytes(int(rest))[4:]
        if kind == b"!":
            return ReplyError(self._bytes(int(rest)).decode("utf-8", "replace"))
        if kind in (b"*", b"~"):
            return self._items(int(rest), depth)
        if kind == b">":
            return Push(self._items(int(rest), depth))
        if kind == b"%":
            items = self._items(2 * int(rest), depth)
            keys = [key if isinstance(key, bytes) else repr(key).encode() for key in items[::2]]
            return dict(zip(keys, items[1::2]))
        raise Malformed(f"no frame begins with {kind!r}")
