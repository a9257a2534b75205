"""What is asked, granted and lost on one connection at a time: facts in, bytes and outcomes out.

No input or output, no clock, no threads: callers say what arrived and what time it is. The rules:

* A want is one request for a lock. Its owner is the connection together with the want's label, so
  tasks share a connection, and the server sees deadlocks between them.
* Replies come in the order of requests, and a push stands where the server's decision stood. So a
  want that is given up (LOCK.CANCEL, then LOCK.RELEASE for a grant that was first) leaves nothing
  behind, and needs no answer before the owner asks again.
* A connection vouches for its locks until `fence` after the *sending* of the last request that was
  answered. From then on everything is lost, whatever arrives later.
* Without a session the end of the connection ends everything. With one it ends nothing by itself:
  the next connection resumes the session. There what must still be done (releases) is done first.
  Then LOCK.CANCEL tells of each key whether it is held: what was held and is not any longer is
  lost, and what was asked for is granted, or asked for again.
* A server that was restarted, or a replica that was promoted, may not have the last releases. So on
  another server LOCK.LIST and LOCK.INFO tell what the session holds there (`_unclaimed`), and what
  no want claims is released.
* A release that the server refuses for a moment (`MOMENTARY`) is put off: it is sent again, in its
  order, until it is taken. Nothing else is lost by that. A new request of the same owner for the
  same key is sent after it, since the late release would otherwise end what that was granted.
* A server that says READONLY is no master any longer. Without a session what it held is lost.
* Whatever leaves it unclear who holds what ends everything.
"""

from __future__ import annotations

import functools
import math
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple, Union

from ._unclaimed import Claim, Search
from .errors import Deadlock, LockError, Lost, Refused, Taken, Unreachable, refusal
from .resp import Malformed, Parser, Push, ReplyError, encode

Word = Union[bytes, str, int]
Then = Callable[[Any], None]
Place = tuple[bytes, bytes]

# Requests are sent so often within a fence's time that one lost moment ends nothing.
PINGS_PER_FENCE = 4
# So often within a fence's time another connection is tried if the last one does not answer.
RESUMES_PER_FENCE = 2
# The server with the session is another by now, or will answer soon.
NOT_HERE = ("READONLY", "MASTERDOWN", "LOADING")
# A server that was demoted.
NO_MASTER = ("READONLY", "MASTERDOWN")
# What a server refuses for one of these reasons it takes a little later.
MOMENTARY = ("BUSY", "CLUSTERDOWN", "LOADING", "MISCONF", "NOREPLICAS", "OOM", "TRYAGAIN")
# What is put off is sent again so often within a fence's time.
RETRIES_PER_FENCE = 20


class Phase(Enum):
    """How far a want has come."""

    ASKED = "asked"
    WAITING = "waiting"
    HELD = "held"
    RELEASING = "releasing"
    ENDED = "ended"


class State(Enum):
    """What the connection is good for."""

    UP = "up"
    DOWN = "down"
    RESUMING = "resuming"


class _Sent(NamedTuple):
    """A command that is to be answered.

    `place` is what it settles for `want`, if it is to be sent until it is carried out.
    """

    at: float
    words: tuple[Word, ...]
    then: Then
    again: bool
    want: Want | None = None
    place: Place | None = None


class Want:
    """One request for one lock, or for several at once.

    `on_change` is called when it is granted and when it has ended. `error` says how it ended; it is
    None if the want was released or given up.
    """

    def __init__(
        self,
        now: float,
        keys: tuple[bytes, ...],
        label: bytes,
        mode: tuple[Word, ...],
        wait_ms: int | None,
        lease_ms: int | None,
    ) -> None:
        """Describe a request; `Core.ask` sends it."""
        self.keys = keys
        self.label = label
        self.waits = wait_ms is not None
        self._until = now + wait_ms / 1000 if wait_ms else None
        self._mode = mode
        self._wait_ms = wait_ms
        self._lease_ms = lease_ms
        self.phase = Phase.ASKED
        self.token = 0
        self.error: LockError | None = None
        self.given_up = False
        # Its release was refused for a moment, and is sent again.
        self.is_put_off = False
        self.unanswered_releases = 0
        self.on_change: Callable[[Want], None] = lambda _: None

    def is_over(self, now: float) -> bool:
        """Whether it has waited for as long as was said."""
        return self._until is not None and now >= self._until

    def request(self, now: float) -> tuple[Word, ...]:
        """Return the words that ask for it, with the time to wait that is left."""
        words: tuple[Word, ...] = ("LOCK.ACQUIRE", *self.keys)
        if len(self.keys) > 1:
            words = ("LOCK.MACQUIRE", len(self.keys), *self.keys)
        words += (*self._mode, "OWNER", self.label, "NOTIFY")
        if self._lease_ms is not None:
            words += ("LEASE", self._lease_ms)
        if self._until is not None:
            words += ("WAIT", max(1, math.ceil((self._until - now) * 1000)), "PUSH")
        elif self.waits:
            words += ("WAIT", 0, "PUSH")
        return words


class Core:
    """The state of a connection, and with a session of those that follow it.

    Invariant: a key and label are held by at most one want, and wanted by at most one that is not
    given up; every want that is neither is in `_wants` until it has ended.
    """

    def __init__(self, now: float) -> None:
        """Begin with a connection that is open at this time."""
        self._parser = Parser()
        self._out: list[bytes] = []
        self._replies: deque[_Sent] = deque()
        self._again: list[_Sent] = []
        self._state = State.UP
        self._now = now
        self._resuming_since = now
        self._wants: dict[Want, None] = {}
        self._wanted: dict[Place, Want] = {}
        self._waiting: dict[Place, Want] = {}
        self._held: dict[Place, Want] = {}
        self._put_off: list[_Sent] = []
        self._deferred: list[Want] = []
        self._retry_at = now
        self._changed: list[Want] = []
        self._pinged_at = now
        self.answered_at = now
        self.fence: float | None = None
        self.secret: bytes | None = None
        # The server on which the session holds nothing that no want claims.
        self.run_id: bytes | None = None
        self._search: Search | None = None
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
        self._now = now
        want = Want(now, keys, label, mode, wait_ms, lease_ms)
        if self.ended is not None:
            raise Unreachable(f"the connection has ended: {self.ended}")
        for key in keys:
            if (key, label) in self._wanted:
                raise Deadlock(f"DEADLOCK this task has or waits for the lock {key!r} itself")
        self._wants[want] = None
        for key in keys:
            self._wanted[key, label] = want
        self._send_request(want)
        return want

    def give_up(self, now: float, want: Want) -> None:
        """Want it no more: leave the queue, and give back what is granted meanwhile."""
        if want.phase is Phase.HELD:
            self.release(now, want)
        elif want.phase in (Phase.ASKED, Phase.WAITING) and not want.given_up:
            want.given_up = True
            self._unwant(want)
            if want in self._deferred:
                self._deferred.remove(want)
                self._end(want, None)
                return
            words = ("LOCK.CANCEL", want.keys[0], "OWNER", want.label)
            then = functools.partial(self._cancelled, want)
            self._settle(now, words, then, want, (want.keys[0], want.label), again=True)
            self._send_releases(now, want)

    def release(self, now: float, want: Want) -> None:
        """Give the lock back; the want ends with the server's answer."""
        if want.phase is Phase.HELD:
            want.phase = Phase.RELEASING
            self._unwant(want)
            self._send_releases(now, want)

    def call(self, now: float, words: tuple[Word, ...], then: Then, *, again: bool = False) -> None:
        """Send a command that is answered at once; `then` gets a reply, a ReplyError or a Lost.

        While there is no connection, and if it breaks before the answer, the command is sent on the
        next one if it may be sent `again`, and else forgotten.
        """
        if self.ended is not None:
            then(Lost(self.ended))
            return
        self._send_or_keep(_Sent(now, words, then, again))

    # ---- what happens ----

    def receive(self, now: float, data: bytes) -> None:
        """Take what arrived. What arrives after the fence has fallen counts for nothing."""
        self._now = now
        if self._has_fallen(now):
            self.end("silence")
        if self.ended is not None:
            return
        try:
            for frame in self._parser.feed(data):
                self._take(now, frame)
                if self.ended is not None or self.is_down:
                    return
        except Malformed:
            self.end("connection")

    def tick(self, now: float) -> None:
        """Look at the time: sends a ping when one is due, and ends everything at the fence."""
        self._now = now
        if self.ended is not None or self.fence is None:
            return
        if self._has_fallen(now):
            self.end("silence")
        elif self._state is not State.UP:
            if self.is_resuming and now >= self._resuming_since + self.fence / RESUMES_PER_FENCE:
                self.broke(now)
            self._end_waits(now)
        elif self.secret is not None and now >= self.answered_at + self.fence / RESUMES_PER_FENCE:
            self.broke(now)  # Silently: the session may go on at another server.
        else:
            self._retry(now, self.fence)
            if now >= self._pinged_at + self.fence / PINGS_PER_FENCE:
                self._pinged_at = now
                self.call(now, ("PING",), lambda _: None)
                if self._search is not None and self._search.is_due:
                    self._search.begin()

    def broke(self, now: float) -> None:
        """The connection broke. Without a session this is the end."""
        self._now = now
        if self.secret is None:
            self.end("connection")
        if self.ended is not None or self.is_down:
            return
        put_off = [sent for sent in self._put_off if sent.again and not self._was_settled(sent)]
        self._put_off.clear()
        self._deferred.clear()  # They are asked for on the next connection, as all others are.
        if self._state is State.UP:
            for want in self._wants:
                if want.phase is Phase.WAITING:
                    want.phase = Phase.ASKED
                elif want.phase is Phase.RELEASING:
                    want.given_up = True  # It may have been released: that it is gone is no loss.
        self._state = State.DOWN
        self._again = put_off + [sent for sent in self._replies if sent.again] + self._again
        self._replies.clear()
        self._waiting.clear()
        self._out.clear()
        self._search = None

    def connected(self, now: float) -> None:
        """There is another connection: go on with the session there."""
        self._now = now
        if self.ended is not None or self.secret is None:
            return
        self._parser = Parser()
        self._state = State.RESUMING
        self._resuming_since = now
        words = ("SESSION.RESUME", self.secret, "NOTIFY")
        self._send(_Sent(now, words, lambda reply: self._resumed(now, reply), False))

    def end(self, reason: str) -> None:
        """Everything ends, for this reason: what is held is lost, what is asked is not granted."""
        if self.ended is not None:
            return
        self.ended = reason
        for want in list(self._wants):
            held = want.phase in (Phase.HELD, Phase.RELEASING)
            self._end(want, Lost(reason) if held else Unreachable(_unanswered(reason)))
        unanswered = [*self._put_off, *self._replies, *self._again]
        for sents in (self._put_off, self._replies, self._again):
            sents.clear()
        self._deferred.clear()
        for sent in unanswered:
            sent.then(Lost(reason))

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
        if want.phase is Phase.ENDED or want.is_put_off:
            return "released"
        return "silence" if self._has_fallen(now) else None

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits or holds, as far as answers have come."""
        return not self._wants

    @property
    def is_up(self) -> bool:
        """Whether commands are sent at once."""
        return self.ended is None and self._state is State.UP

    @property
    def is_down(self) -> bool:
        """Whether another connection is needed."""
        return self._state is State.DOWN

    @property
    def is_resuming(self) -> bool:
        """Whether the session is asked for on a new connection."""
        return self._state is State.RESUMING

    # ---- replies and pushes ----

    def _take(self, now: float, frame: Any) -> None:
        if isinstance(frame, Push):
            self._pushed(now, frame)
        elif not self._replies:
            self.end("connection")
        elif self.secret is not None and (
            _code(frame) in NOT_HERE or (self.is_resuming and _code(frame) in MOMENTARY)
        ):
            self.broke(now)  # With this request unanswered: it is settled where the session is.
        elif _code(frame) in NO_MASTER:
            self.end("demoted")
        else:
            sent = self._replies.popleft()
            if self._state is State.UP:
                self.answered_at = max(self.answered_at, sent.at)
            if sent.place is not None and _code(frame) in MOMENTARY:
                self._put_off_until_later(sent)
            else:
                sent.then(frame)
            self._send_deferred()

    def _acquired(self, want: Want, reply: Any) -> None:
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
            if words[1] == b"demoted":
                self._demoted(now)
                return
            self._lost(now, (key, label), words[1].decode("utf-8", "replace"))
            return
        want = self._waiting.pop((key, label), None)
        if want is None:
            return
        if words[0] == b"TIMEOUT":
            self._end(want, _too_late())
        elif words[:2] == [b"FAILED", b"UNBLOCKED"]:
            self._unblocked(now, want)
        elif words[0] == b"FAILED":
            self._end(want, refusal(b" ".join(words[1:]).decode("utf-8", "replace")))
        else:
            self._grant(want, int(words[0]))

    def _unblocked(self, now: float, want: Want) -> None:
        """Somebody ended the wait (CLIENT UNBLOCK), or the server is no master any longer."""
        want.phase = Phase.ASKED

        def answered(reply: Any) -> None:
            if want.phase is not Phase.ASKED or want.given_up:
                return
            if isinstance(reply, dict) and reply.get(b"role") != b"master":
                self._demoted(self._now)
            else:
                self._end(want, Refused("UNBLOCKED the wait was ended by another client"))

        self.call(now, ("LOCK.SERVER",), answered)

    def _demoted(self, now: float) -> None:
        """This server is no master any longer: a session goes on at the new one."""
        if self.secret is not None:
            self.broke(now)
        else:
            self.end("demoted")

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
            then = functools.partial(self._released, want)
            self._settle(now, words, then, want, (key, want.label), again=True)

    def _released(self, want: Want, reply: Any) -> None:
        want.unanswered_releases -= 1
        if want.phase is Phase.ENDED:
            return
        not_held = isinstance(reply, ReplyError) and str(reply).startswith("NOTHELD")
        if not isinstance(reply, int) and not not_held:
            # The server will not take it back (NOPERM): only the end of the connection does.
            self.end("connection")
        elif not_held and not want.given_up:
            self._end(want, Lost("deleted"))
        elif want.unanswered_releases == 0:
            self._end(want, None)

    # ---- after a break ----

    def _resumed(self, sent_at: float, reply: Any) -> None:
        if not isinstance(reply, int):
            self.end("connection")  # It is over, or was never here.
            return
        self._state = State.UP
        self.answered_at = max(self.answered_at, sent_at)
        again, self._again = self._again, []
        for sent in again:
            self._send(sent._replace(at=self._now))
        for want in list(self._wants):
            if want.phase is Phase.HELD:
                for key in want.keys:
                    self._probe(self._now, want, key, "connection")
            elif want.phase is Phase.ASKED and not want.given_up:
                self._look_for(want)
        if self.run_id is not None:
            self.call(self._now, ("LOCK.SERVER",), self._found_server)

    def _found_server(self, reply: Any) -> None:
        run_id = reply.get(b"run-id") if isinstance(reply, dict) else None
        if run_id is None or run_id == self.run_id:
            return

        def found_all() -> None:
            self.run_id = run_id

        self._search = Search(self._send_step, self._claim, found_all)
        self._search.begin()

    def _send_step(self, words: tuple[Word, ...], then: Then) -> None:
        search = self._search

        def answered(reply: Any) -> None:
            if self._search is search and self.ended is None:
                then(reply)

        self.call(self._now, words, answered)

    def _claim(self, key: bytes, label: bytes, token: int) -> Claim:
        want = self._wanted.get((key, label))
        if want is None:
            return Claim.NOBODY
        if want.phase is Phase.HELD and want.token == token:
            return Claim.WANT
        return Claim.UNCLEAR

    def _look_for(self, want: Want) -> None:
        """See whether it was granted in the moment in which the connection broke."""
        tokens: list[int] = []

        def answered(reply: Any) -> None:
            if want.phase is not Phase.ASKED or want.given_up:
                return
            if not isinstance(reply, int):
                self.end("connection")
                return
            tokens.append(reply)
            if len(tokens) == len(want.keys):
                self._found(want, tokens)

        for key in want.keys:
            words = ("LOCK.CANCEL", key, "OWNER", want.label)
            self._settle(self._now, words, answered, want, (key, want.label))

    def _found(self, want: Want, tokens: list[int]) -> None:
        if tokens[0] > 1 and len(set(tokens)) == 1:
            self._grant(want, tokens[0])
            return
        for key, token in zip(want.keys, tokens):
            if token > 1:  # Of several that were granted, others are lost already.
                self._give_back(self._now, want, key)
        if want.is_over(self._now):
            self._end(want, _too_late())
        else:
            self._send_request(want)

    def _end_waits(self, now: float) -> None:
        """While there is no connection: who has waited long enough waits no longer."""
        for want in list(self._wants):
            if want.phase is Phase.ASKED and not want.given_up and want.is_over(now):
                for key in want.keys:
                    self._give_back(now, want, key)
                self._end(want, _too_late())

    # ---- what is put off ----

    def _settle(
        self,
        now: float,
        words: tuple[Word, ...],
        then: Then,
        want: Want | None,
        place: Place,
        *,
        again: bool = False,
    ) -> None:
        """Send a command about a place, until it is carried out."""
        if self.ended is not None:
            then(Lost(self.ended))
        else:
            self._send_or_keep(_Sent(now, words, then, again, want, place))

    def _put_off_until_later(self, sent: _Sent) -> None:
        self._put_off.append(sent)
        want = sent.want
        if want is not None and want.phase is Phase.RELEASING and not want.is_put_off:
            want.is_put_off = True
            self._changed.append(want)

    def _retry(self, now: float, fence: float) -> None:
        """Send again what was put off, unless it is known by now what became of it."""
        if not self._put_off or now < self._retry_at:
            return
        self._retry_at = now + fence / RETRIES_PER_FENCE
        put_off, self._put_off = self._put_off, []
        for sent in put_off:
            if self._was_settled(sent):
                continue
            later = self._later_want(sent)
            if later is not None and later not in self._deferred:
                self._put_off.append(sent)  # That one is on its way, and says more.
            else:
                self._send(sent._replace(at=now))
        self._send_deferred()

    def _later_want(self, sent: _Sent) -> Want | None:
        """Return the request that the same owner has made for this place since."""
        want = None if sent.place is None else self._wanted.get(sent.place)
        return None if want is sent.want else want

    def _was_settled(self, sent: _Sent) -> bool:
        """Whether there is nothing left to do: the server has taken a later request since.

        It refuses that (DEADLOCK) to an owner who still has a former one.
        """
        later = self._later_want(sent)
        if later is None or later.phase not in (Phase.WAITING, Phase.HELD):
            return False
        sent.then(0)
        return True

    def _is_unsettled(self, want: Want) -> bool:
        """Whether something of former requests for these places is still to be carried out."""
        places = {(key, want.label) for key in want.keys}
        sents = (*self._put_off, *self._replies)
        return any(sent.place in places and sent.want is not want for sent in sents)

    def _send_deferred(self) -> None:
        for want in list(self._deferred):
            if not self._is_unsettled(want):
                self._deferred.remove(want)
                self._send_request(want)

    # ---- what follows ----

    def _send(self, sent: _Sent) -> None:
        self._out.append(encode(sent.words))
        self._replies.append(sent)

    def _send_or_keep(self, sent: _Sent) -> None:
        if self._state is State.UP:
            self._send(sent)
        elif sent.again:
            self._again.append(sent)

    def _send_request(self, want: Want) -> None:
        if self._put_off and self._is_unsettled(want):
            if want.waits:
                self._deferred.append(want)
            else:
                self._end(want, Taken("the server has not taken this owner's last release yet"))
            return
        words = want.request(self._now)
        self.call(self._now, words, lambda reply: self._acquired(want, reply))

    def _give_back(self, now: float, want: Want, key: bytes) -> None:
        words = ("LOCK.RELEASE", key, "OWNER", want.label, "ALL")
        # Not as this want's: it may ask for the same place again.
        self._settle(now, words, self._given_back, None, (key, want.label), again=True)

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

        words = ("LOCK.CANCEL", key, "OWNER", want.label)
        self._settle(now, words, answered, want, (key, want.label))

    def _lose(self, now: float, want: Want, reason: str, lost: bytes) -> None:
        if want.phase is Phase.HELD:
            for key in want.keys:
                if key != lost:  # The others of several are given back.
                    self._give_back(now, want, key)
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


def _code(reply: Any) -> str:
    return str(reply).split(" ", 1)[0] if isinstance(reply, ReplyError) else ""


def _too_late() -> Taken:
    return Taken("another owner has the lock, and the time to wait is over")


def _unanswered(reason: str) -> str:
    if reason == "silence":
        return "the server does not answer"
    return f"the connection has ended: {reason}"
