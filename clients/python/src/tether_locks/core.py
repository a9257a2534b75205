"""What is asked, granted and lost on one connection: facts in, bytes and outcomes out.

No input or output, no clock, no threads: callers say what arrived and what time it is. The rules:

* A want is one request for a lock. Its owner is the connection together with the want's label, so
  tasks share a connection, and the server sees deadlocks between them.
* Replies come in the order of requests, and a push stands where the server's decision stood. So a
  want that is given up (LOCK.CANCEL, then LOCK.RELEASE for a grant that was first) leaves nothing
  behind, and needs no answer before the owner asks again.
* A connection vouches for its locks until `fence` after the *sending* of the last request that was
  answered. From then on everything is lost, whatever arrives later.
* Whatever leaves it unclear who holds what ends the connection, and with it everything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, Union

from .errors import Deadlock, LockError, Lost, Taken, Unreachable, refusal
from .resp import Malformed, Parser, Push, ReplyError, encode

Word = Union[bytes, str, int]
Then = Callable[[Any], None]
Place = tuple[bytes, bytes]

# Requests are sent so often within a fence's time that one lost moment ends nothing.
PINGS_PER_FENCE = 4


class Phase(Enum):
    """How far a want has come."""

    ASKED = "asked"
    WAITING = "waiting"
    HELD = "held"
    RELEASING = "releasing"
    ENDED = "ended"


class Want:
    """One request for one lock, or for several at once.

    `on_change` is called when it is granted and when it has ended. `error` says how it ended; it is
    None if the want was released or given up.
    """

    def __init__(self, keys: tuple[bytes, ...], label: bytes, waits: bool) -> None:
        """Describe a request; `Core.ask` sends it."""
        self.keys = keys
        self.label = label
        self.waits = waits
        self.phase = Phase.ASKED
        self.token = 0
        self.error: LockError | None = None
        self.given_up = False
        self.unanswered_releases = 0
        self.on_change: Callable[[Want], None] = lambda _: None


class Core:
    """The state of one connection.

    Invariant: a key and label are held by at most one want, and wanted by at most one that is not
    given up; every want that is neither is in `_wants` until it has ended.
    """

    def __init__(self, now: float) -> None:
        """Begin with a connection that is open at this time."""
        self._parser = Parser()
        self._out: list[bytes] = []
        self._replies: deque[tuple[float, Then]] = deque()
        self._wants: dict[Want, None] = {}
        self._wanted: dict[Place, Want] = {}
        self._waiting: dict[Place, Want] = {}
        self._held: dict[Place, Want] = {}
        self._changed: list[Want] = []
        self._pinged_at = now
        self.answered_at = now
        self.fence: float | None = None
        self.ended: str | None = None
        self.cancels_first = 0
        self.grants_first = 0

    # ---- what the caller wants ----

    def ask(
        self,
        now: float,
        keys: tuple[bytes, ...],
        label: bytes,
        mode: tuple[Word, ...] = (),
        wait_ms: int | None = 0,
        lease_ms: int | None = None,
    ) -> Want:
        """Ask for a lock, or for several at once; `wait_ms` is 0 for ever and None not at all."""
        want = Want(keys, label, wait_ms is not None)
        if self.ended is not None:
            raise Unreachable(f"the connection has ended: {self.ended}")
        for key in keys:
            if (key, label) in self._wanted:
                raise Deadlock(f"DEADLOCK this task has or waits for the lock {key!r} itself")
        words: tuple[Word, ...] = ("LOCK.ACQUIRE", *keys)
        if len(keys) > 1:
            words = ("LOCK.MACQUIRE", len(keys), *keys)
        words += (*mode, "OWNER", label, "NOTIFY")
        if lease_ms is not None:
            words += ("LEASE", lease_ms)
        if wait_ms is not None:
            words += ("WAIT", wait_ms, "PUSH")
        self._wants[want] = None
        for key in keys:
            self._wanted[key, label] = want
        self.call(now, words, lambda reply: self._acquired(now, want, reply))
        return want

    def give_up(self, now: float, want: Want) -> None:
        """Want it no more: leave the queue, and give back what is granted meanwhile."""
        if want.phase is Phase.HELD:
            self.release(now, want)
        elif want.phase in (Phase.ASKED, Phase.WAITING) and not want.given_up:
            want.given_up = True
            self._unwant(want)
            words = ("LOCK.CANCEL", want.keys[0], "OWNER", want.label)
            self.call(now, words, lambda reply: self._cancelled(want, reply))
            self._send_releases(now, want)

    def release(self, now: float, want: Want) -> None:
        """Give the lock back; the want ends with the server's answer."""
        if want.phase is Phase.HELD:
            want.phase = Phase.RELEASING
            self._unwant(want)
            self._send_releases(now, want)

    def call(self, now: float, words: tuple[Word, ...], then: Then) -> None:
        """Send a command that is answered at once; `then` gets a reply, a ReplyError or a Lost."""
        if self.ended is not None:
            then(Lost(self.ended))
            return
        self._out.append(encode(words))
        self._replies.append((now, then))

    # ---- what happens ----

    def receive(self, now: float, data: bytes) -> None:
        """Take what arrived. What arrives after the fence has fallen counts for nothing."""
        if self._has_fallen(now):
            self.end("silence")
        if self.ended is not None:
            return
        try:
            for frame in self._parser.feed(data):
                self._take(now, frame)
                if self.ended is not None:
                    return
        except Malformed:
            self.end("connection")

    def tick(self, now: float) -> None:
        """Look at the time: sends a ping when one is due, and ends everything at the fence."""
        if self.ended is not None or self.fence is None:
            return
        if self._has_fallen(now):
            self.end("silence")
        elif now >= self._pinged_at + self.fence / PINGS_PER_FENCE:
            self._pinged_at = now
            self.call(now, ("PING",), lambda _: None)

    def end(self, reason: str) -> None:
        """Everything ends, for this reason: what is held is lost, what is asked is not granted."""
        if self.ended is not None:
            return
        self.ended = reason
        for want in list(self._wants):
            held = want.phase in (Phase.HELD, Phase.RELEASING)
            self._end(want, Lost(reason) if held else Unreachable(_unanswered(reason)))
        while self._replies:
            self._replies.popleft()[1](Lost(reason))

    # ---- what callers must do and may know ----

    def output(self) -> bytes:
        """Return what must be sent, once."""
        data = b"".join(self._out)
        self._out.clear()
        return data

    def changed(self) -> list[Want]:
        """Return the wants that were granted or have ended, each once."""
        changed, self._changed = self._changed, []
        return changed

    def lost(self, now: float, want: Want) -> str | None:
        """Return why a lock that was granted is not held at this time, or None while it is."""
        if isinstance(want.error, Lost):
            return want.error.reason
        if want.phase is Phase.ENDED:
            return "released"
        return "silence" if self._has_fallen(now) else None

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits or holds, as far as answers have come."""
        return not self._wants

    # ---- replies and pushes ----

    def _take(self, now: float, frame: Any) -> None:
        if isinstance(frame, Push):
            self._pushed(now, frame)
        elif self._replies:
            sent_at, then = self._replies.popleft()
            self.answered_at = max(self.answered_at, sent_at)
            then(frame)
        else:
            self.end("connection")

    def _acquired(self, now: float, want: Want, reply: Any) -> None:
        if want.phase is Phase.ENDED:
            return
        if isinstance(reply, int):
            self._grant(want, reply)
        elif reply is None and want.waits:
            want.phase = Phase.WAITING
            self._waiting[want.keys[0], want.label] = want
        elif reply is None:
            self._end(want, Taken("another owner has the lock"))
        else:
            self._end(want, refusal(str(reply)))

    def _pushed(self, now: float, push: Push) -> None:
        if len(push) != 3 or push[0] != b"lock":
            return  # Nothing else was asked for.
        _, key, said = push
        *words, label = said.split(b" ")
        if words[0] == b"LOST":
            self._lost(now, (key, label), words[1].decode("utf-8", "replace"))
            return
        want = self._waiting.pop((key, label), None)
        if want is None:
            return
        if words[0] == b"TIMEOUT":
            self._end(want, Taken("another owner has the lock, and the time to wait is over"))
        elif words[0] == b"FAILED":
            self._end(want, refusal(b" ".join(words[1:]).decode("utf-8", "replace")))
        else:
            self._grant(want, int(words[0]))

    def _cancelled(self, want: Want, reply: Any) -> None:
        if want.phase is Phase.ENDED:
            return
        if not isinstance(reply, int):
            self.end("connection")
        elif reply == 1:
            self.cancels_first += 1
            self._end(want, None)
        elif reply == 0:
            self._end(want, None)
        else:
            self.grants_first += 1

    def _send_releases(self, now: float, want: Want) -> None:
        for key in want.keys:
            want.unanswered_releases += 1
            words = ("LOCK.RELEASE", key, "OWNER", want.label, "ALL")
            self.call(now, words, lambda reply: self._released(want, reply))

    def _released(self, want: Want, reply: Any) -> None:
        want.unanswered_releases -= 1
        if want.phase is Phase.ENDED:
            return
        not_held = isinstance(reply, ReplyError) and str(reply).startswith("NOTHELD")
        if not isinstance(reply, int) and not not_held:
            # The server would not take it back (NOREPLICAS, NOPERM): only the end of the
            # connection does.
            self.end("connection")
        elif not_held and not want.given_up:
            self._end(want, Lost("deleted"))
        elif want.unanswered_releases == 0:
            self._end(want, None)

    # ---- what follows ----

    def _grant(self, want: Want, token: int) -> None:
        want.token = token
        want.phase = Phase.RELEASING if want.given_up else Phase.HELD
        for key in want.keys:
            self._held[key, want.label] = want
        self._changed.append(want)

    def _lost(self, now: float, place: Place, reason: str) -> None:
        want = self._held.get(place)
        if want is not None:
            self._lose(now, want, reason, place[0])
            return
        # The key was renamed since, and the push has the new name: ask for each hold that it
        # can be.
        for (key, label), other in list(self._held.items()):
            if label == place[1]:
                self._probe(now, other, key, reason)

    def _probe(self, now: float, want: Want, key: bytes, reason: str) -> None:
        def answered(reply: Any) -> None:
            if reply != want.token and want.phase is Phase.HELD:
                self._lose(now, want, reason, key)

        self.call(now, ("LOCK.CANCEL", key, "OWNER", want.label), answered)

    def _lose(self, now: float, want: Want, reason: str, lost: bytes) -> None:
        if want.phase is Phase.HELD:
            for key in want.keys:
                if key != lost:  # The others of several are given back.
                    words = ("LOCK.RELEASE", key, "OWNER", want.label, "ALL")
                    self.call(now, words, self._given_back)
        self._end(want, Lost(reason))

    def _given_back(self, reply: Any) -> None:
        not_held = isinstance(reply, ReplyError) and str(reply).startswith("NOTHELD")
        if not isinstance(reply, int) and not not_held:
            self.end("connection")

    def _end(self, want: Want, error: LockError | None) -> None:
        want.phase = Phase.ENDED
        want.error = error
        self._wants.pop(want, None)
        self._unwant(want)
        for key in want.keys:
            place = (key, want.label)
            for places in (self._waiting, self._held):
                if places.get(place) is want:
                    del places[place]
        self._changed.append(want)

    def _unwant(self, want: Want) -> None:
        for key in want.keys:
            if self._wanted.get((key, want.label)) is want:
                del self._wanted[key, want.label]

    def _has_fallen(self, now: float) -> bool:
        return self.fence is not None and now >= self.answered_at + self.fence


def _unanswered(reason: str) -> str:
    if reason == "silence":
        return "the server does not answer"
    return f"the connection has ended: {reason}"
