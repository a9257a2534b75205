"""The client protocol without input or output: calls, frames and the time in, events out.

The rules that the comments name are those of clients/protocol/protocol.md. One core is one client:
it lives through all its connections, one at a time. Its shell says what happens, and then takes
`output` (commands to send), `events` (for the handles that calls were made with) and `orders`
(connect, leave). All times are milliseconds on one clock (`clock.Elapsed`).

What is asked for and held is in `_requests`; what is watched in `_watches`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from ._ask import Ask, Event, Handle, Order, Settings, Words
from ._codes import MOMENTARY, NOT_HERE, UNWRITABLE, code_of
from ._requests import Requests
from ._watches import Presences, Watches
from .errors import Closed, LockError, NoModule, NoPush, Refused, Unfit, Unreachable
from .resp import Push

# A server that says so guards nothing (P-FENCE-6).
VOUCH_FOR_NOTHING = NOT_HERE | {"LOADING"}

# What is kept between the end of the old work and the earliest next grant, for clocks that do not
# go alike (P-FENCE-1).
MARGIN = 1000.0
SHORTEST_FENCE = 100.0
# On a Unix socket, whose peer cannot vanish, there is no peer-timeout to keep to.
UNIX_FENCE = 5000.0
PINGS_PER_FENCE = 4
# P-RETRY-1, P-RETRY-2.
SHORTEST_DELAY = 20.0
LONGEST_DELAY = 1000.0
SOUND_AFTER = 1000.0
# P-CLOSE-1, P-CLOSE-2.
END_WITHIN = 2000.0
END_IN_A_BREAK_WITHIN = 1000.0

Then = Callable[[Any], None]


class Core:
    """The state of one client.

    `link` is `none`, `opening`, `greeting`, `resuming` or `up`.
    """

    def __init__(self, now: float, settings: Settings) -> None:
        """Begin without a connection."""
        self.now = now
        self.settings = settings
        self.output: list[Words] = []
        self.events: list[Event] = []
        self.orders: list[Order] = []
        self.link = "none"
        self._link_since = now
        self.where = settings.where  # In messages; of the connection that there is.
        self.failure: LockError | None = None  # Of the last attempt, until one succeeds.
        self._is_unix = False
        self._replies: deque[tuple[float, Then]] = deque()
        self.answered_sent = now  # When the command was sent that is answered now.
        self.secret: bytes | None = None
        self.fence: float | None = None
        self._next_fence = 0.0
        self.is_losing = False  # Nothing is asked for on what is about to end.
        self._vouched = now
        self._pinged = now
        self._failures = 0
        # Until when the last connection, which did not stand for long, is not followed.
        self._not_before: float | None = None
        self._connect_at: float | None = None
        self._again: list[Callable[[], None]] = []
        self._again_at: float | None = None
        self._refusals = 0
        self.is_closed = False
        self._close_at: float | None = None
        self._has_warned = False
        self.requests = Requests(self)
        self.watches = Watches(self)
        self.presences = Presences(self)

    # ---- calls ----

    def acquire(self, handle: Handle, ask: Ask) -> None:
        """Ask for a lock, several, or a temporary key."""
        self.requests.acquire(handle, ask)

    def release(self, handle: Handle) -> None:
        """Give back what was granted, or give up what was not: nothing is left of it (P-REL-1)."""
        self.requests.release(handle)

    def extend(self, handle: Handle, lease: float) -> None:
        """Let the hold end so long from now."""
        self.requests.extend(handle, lease)

    def verify(self, handle: Handle, token: int) -> None:
        """Ask the server whether this is the token of a current hold (P-GUARD-2)."""
        self.requests.verify(handle, token)

    def unwatch(self, handle: Handle) -> None:
        """End a watch, a presence or an observer."""
        self.watches.end(handle)
        self.presences.end(handle)

    def check(self, now: float, handle: Handle) -> str | None:
        """Return `held`, `waiting`, `released` or the reason of the loss (P-FENCE-4).

        None if nothing is left of it: then the last event has said what became of it. Changes
        nothing, so that any thread may ask.
        """
        return self.requests.check(now, handle)

    def need_link(self) -> None:
        """See that there is a connection, now or soon (P-CONN-4)."""
        if self.link != "none" or self._connect_at is not None or self.is_closed:
            return
        if self._not_before is not None and self._not_before > self.now:
            self._connect_at = self._not_before
        else:
            self._open()

    def close(self) -> None:
        """End everything, and the session with it (P-CLOSE-1)."""
        if self.is_closed:
            return
        self.is_closed = True
        self._parting = self.requests.close()
        for each in (self.watches, self.presences):
            each.end_all(Closed())
        self._connect_at = self._again_at = None
        self.fence = None
        if self.link == "up" and self.secret is not None:
            self._close_at = self.now + END_WITHIN
            self._part()
        elif self.secret is not None:  # P-CLOSE-2.
            if self.link == "none":
                self._open()
            self._close_at = self.now + END_IN_A_BREAK_WITHIN
        elif self.link != "none":
            self._drop(Order("leave"))

    # ---- the connection ----

    def connected(self, is_unix: bool = False, where: str | None = None) -> None:
        """The connection that was ordered is open; HELLO, its name and database are done."""
        self._link_since = self.now
        self.where = where or self.settings.where
        self._is_unix = is_unix
        self._replies.clear()
        if self.secret is not None:
            self.link = "resuming"
            self.send(("SESSION.RESUME", self.secret, "NOTIFY"), self._resumed)
        else:
            self.link = "greeting"
            self.send(("LOCK.SERVER",), self._greeted)

    def unreached(self, error: LockError) -> None:
        """The connection that was ordered could not be opened (P-CONN-10)."""
        self.link = "none"
        self._end_attempt(error)
        self._connect_later()

    def _end_attempt(self, error: LockError) -> None:
        self.failure = error
        is_final = not isinstance(error, Unreachable)
        self.requests.unreached(error, is_final)
        if is_final:
            self.watches.end_all(error)
            self.presences.end_all(error)

    def broke(self) -> None:
        """The connection ended, whatever the cause."""
        if self.link == "none":
            return
        was = self.link
        self._cut()
        if self.is_closed:
            self._close_at = None
            return
        early = Unreachable(f"the connection to {self.where} ended before it was greeted")
        if was == "greeting":
            self.unreached(early)
            return
        if self.secret is None:
            self._lose_all("connection")
        else:
            self.requests.broke()
        if was == "resuming":
            self._end_attempt(early)
        self._go_on()

    def leave(self) -> None:
        """Close the connection on purpose, and go on as after a break."""
        self.orders.append(Order("leave"))
        self.broke()

    def demoted(self) -> None:
        """This server is no master any longer (P-SESS-8)."""
        if self.link == "none":
            return
        if self.secret is not None:
            self.leave()
        else:
            self._lose_all("demoted")
            self._drop(Order("leave"))

    def session_ended(self) -> None:
        """An operator ended the session; D is too long for what is granted without (P-SESS-10)."""
        self.secret = None
        self._lose_all("ended")
        self._drop(Order("leave"))

    @property
    def open_within(self) -> float:
        """How long to try to open and greet (P-CONN-9)."""
        if self.secret is not None and self.fence is not None:
            return min(self.settings.connect_timeout, self.fence / 2)
        return self.settings.connect_timeout

    @property
    def slot(self) -> int | None:
        """Whose master this client belongs to, in a cluster: that of what is held or wanted."""
        slots = (self.requests.slot, self.watches.slot, self.presences.slot)
        return next((slot for slot in slots if slot is not None), None)

    @property
    def is_up(self) -> bool:
        """Whether commands may be sent."""
        return self.link == "up"

    def _open(self) -> None:
        self._connect_at = self._not_before = None
        self.link = "opening"
        self.orders.append(Order("connect"))

    def no_answer_in_time(self) -> Unreachable:
        """Why a wait ends without an answer."""
        why = f" from {self.where}" if self.failure is None else f": {self.failure}"
        return Unreachable(f"no answer in the time to wait{why}")

    @property
    def is_wanted(self) -> bool:
        """Whether anything needs a connection."""
        wants = (self.secret, self.requests.all, self.watches.is_wanted, self.presences.is_wanted)
        return not self.is_closed and any(wants)

    def _connect_later(self) -> None:
        if self.is_wanted and self.link == "none" and self._connect_at is None:
            self._connect_at = self._next_attempt()

    def _next_attempt(self) -> float:
        """When to try after an attempt that failed (P-RETRY-1)."""
        longest = LONGEST_DELAY
        if self.secret is not None and self.fence is not None:
            longest = min(longest, self.fence / 8)
        at = self.now + self._delay(self._failures, longest)
        self._failures += 1
        return at

    def _go_on(self) -> None:
        """Connect anew where that is wanted: at once, if the last connection stood long enough."""
        if self.now - self._link_since < SOUND_AFTER:  # P-RETRY-2.
            self._connect_later()
            if self._connect_at is None:
                self._not_before = self._next_attempt()
            return
        self._failures = 0
        if self.is_wanted:
            self._open()

    def _cut(self) -> None:
        self.link = "none"
        self._replies.clear()
        self.output.clear()
        self.requests.forget_mine()
        self._again.clear()
        self._again_at = None
        self._refusals = 0

    def _drop(self, order: Order) -> None:
        self.orders.append(order)
        self._cut()
        self._go_on()

    def _refuse_server(self, error: LockError) -> None:
        self.orders.append(Order("leave"))
        self._cut()
        self.unreached(error)

    def _unreachable(self, reply: Any, code: str) -> Unreachable:
        return Unreachable(f"{self.where}: {reply}", code)

    def _greeted(self, reply: Any) -> None:
        code = code_of(reply)
        if code in MOMENTARY or code in NOT_HERE:
            return self._refuse_server(self._unreachable(reply, code))
        if code:
            is_missing = "unknown command" in str(reply)
            return self._refuse_server(
                NoModule(f"this server has not loaded tether: {reply}", "NOMODULE")
                if is_missing
                else Refused(str(reply))
            )
        if reply.get(b"role") != b"master":
            return self._refuse_server(self._unreachable("this server is a replica", "REPLICA"))
        if reply.get(b"pushes") != 1:
            text = "this server sends no pushes to this connection: see `tether qualify`"
            return self._refuse_server(NoPush(text, "NOPUSH"))
        try:
            self._next_fence = self._fence_of(reply.get(b"peer-timeout-ms", 0))
        except Unfit as error:
            return self._refuse_server(error)
        if not self.settings.knows_suspend and not self._has_warned:
            self._has_warned = True
            text = "this system has no clock that goes on while it is suspended"
            self.tell("warning", None, error=LockError(text, "no-boot-clock"))
        if self.settings.grace is not None:
            self._start_session()
        else:
            self._begin()
        return None

    def _start_session(self) -> None:
        assert self.settings.grace is not None
        self.link = "greeting"
        self.send(("SESSION.START", "GRACE", int(-(-self.settings.grace // 1))), self._started)

    def _started(self, reply: Any) -> None:
        code = code_of(reply)
        if code in MOMENTARY or code in UNWRITABLE or code in NOT_HERE:
            return self._refuse_server(self._unreachable(reply, code))
        if code:
            return self._refuse_server(Refused(str(reply)))
        self.secret = reply
        return self._begin()

    def _begin(self) -> None:
        """A connection that has nothing of a former one."""
        self.fence = self._next_fence
        self._vouched = self.answered_sent
        self._pinged = self.now
        self.link, self.failure = "up", None
        self.requests.send_queued()
        self.watches.watch_anew()
        self.presences.watch_anew()

    def _fence_of(self, peer_timeout: float) -> float:
        """Return D (P-FENCE-1), or refuse a server that cannot keep it."""
        grace, stop = self.settings.grace, self.settings.stop_within
        if grace is not None:
            what, most = f"the grace of {grace / 1000} s", grace - stop - MARGIN
        elif self._is_unix:
            what, most = "a Unix socket", UNIX_FENCE
        elif peer_timeout:
            what = f"the server's tether.peer-timeout of {peer_timeout / 1000} s"
            most = min(peer_timeout / 2, peer_timeout - stop - MARGIN)
        else:
            text = "this server detects no peers that vanish: tether.peer-timeout is 0"
            raise Unfit(text, "UNFIT")
        if most < SHORTEST_FENCE:
            raise Unfit(
                f"{what} is too short for work that takes {stop / 1000} s to stop: it must be"
                f" {(stop + MARGIN + SHORTEST_FENCE) / 1000} s or more",
                "UNFIT",
            )
        fence = most if self.settings.fence is None else self.settings.fence
        if not SHORTEST_FENCE <= fence <= most:
            raise Unfit(
                f"a fence of {fence / 1000} s cannot be kept with {what}: it goes from"
                f" {SHORTEST_FENCE / 1000} to {most / 1000} s",
                "UNFIT",
            )
        return fence

    # ---- sessions ----

    def _resumed(self, reply: Any) -> None:
        code = code_of(reply)
        if self.is_closed:
            return self._parted(reply) if code else self._part()
        if code == "NOSESSION":
            return self.session_over()
        if code:  # P-SESS-4: what it says vouches for nothing.
            return self._refuse_server(self._unreachable(reply, code))
        self.vouch(self.answered_sent)
        self._pinged = self.now
        self.link, self.failure = "up", None
        self.requests.resumed()
        self.watches.watch_anew()
        self.presences.watch_anew()
        return None

    def session_over(self) -> None:
        """The server has no such session: all is lost, and another one begins (P-SESS-7)."""
        self.secret = None
        if self.fence is not None:
            self._next_fence = self.fence
        self._lose_all("connection")
        self._start_session()

    _parting: tuple[Words, ...] = (("SESSION.END",),)

    def _part(self) -> None:
        *before, last = self._parting
        for words in before:
            self.send(words, lambda _: None)
        self.send(last, self._parted)

    def _parted(self, _: Any) -> None:
        self._close_at = None
        self._drop(Order("leave"))

    # ---- what arrives ----

    def receive(self, frame: Any) -> None:
        """Take one frame. What arrives after the fence has fallen counts for nothing."""
        if self._has_fallen(self.now):
            self.tick(self.now)
        if self.link in ("none", "opening"):
            return
        if isinstance(frame, Push):
            self._pushed(frame)
            return
        if not self._replies:
            self.leave()
            return
        sent, then = self._replies.popleft()
        self.answered_sent = sent
        code = code_of(frame)
        if self.link == "up" and code not in VOUCH_FOR_NOTHING:
            self.vouch(sent)
        is_not_here = code in NOT_HERE or (code == "LOADING" and self.secret is not None)
        if is_not_here and self.link == "up" and not self.is_closed:
            self.demoted()
        else:
            then(frame)

    def _pushed(self, push: Push) -> None:
        if len(push) < 3 or not all(isinstance(each, bytes) for each in push[:3]):
            return
        kind, key, text = push[:3]
        if kind == b"watchex":
            self.watches.changed(key, text)
        elif kind == b"watchtp":
            self.presences.pushed(key, text)
        elif kind in (b"lock", b"settp"):
            self.requests.pushed(kind == b"settp", key, text)

    def send(self, words: Words, then: Then) -> None:
        """Send a command; `then` gets its reply, unless the connection ends before."""
        self.output.append(words)
        self._replies.append((self.now, then))

    def tell(
        self, kind: str, handle: Handle, value: Any = None, error: LockError | None = None
    ) -> None:
        """Add an event."""
        self.events.append(Event(kind, handle, value, error))

    # ---- time ----

    def vouch(self, sent: float) -> None:
        """The server has answered what was sent then (P-FENCE-2)."""
        self._vouched = max(self._vouched, sent)

    def _lose_all(self, reason: str) -> None:
        """Nothing is vouched for after that; until then the fence stands for other threads."""
        self.is_losing = True
        self.requests.lose_all(reason)
        self.is_losing = False
        self.fence = None

    def _has_fallen(self, now: float) -> bool:
        return self.fence is not None and now >= self._vouched + self.fence

    def is_vouched(self, now: float) -> bool:
        """Whether the holds may be relied on."""
        return not self._has_fallen(now)

    def _timers(self) -> list[tuple[float | None, Callable[[], None]]]:
        """When what is due, in the order in which it is done."""
        fence, is_session = self.fence, self.secret is not None
        is_up = self.link == "up"
        return [
            (None if fence is None else self._vouched + fence, self._silence),
            (self.requests.next_at, self.requests.tick),
            (self._close_at, self._parted_late),
            (
                self._vouched + fence / 2
                if is_up and is_session and fence is not None and self.requests.has_holds
                else None,
                self.leave,
            ),
            (self._greet_until, self._greets_late),
            (self._connect_at, self._open),
            (self._again_at if is_up else None, self._try_again),
            (
                self._pinged + fence / PINGS_PER_FENCE if is_up and fence is not None else None,
                self._ping,
            ),
        ]

    @property
    def next_tick(self) -> float | None:
        """When `tick` has something to do, or None."""
        return min((at for at, _ in self._timers() if at is not None), default=None)

    def tick(self, now: float) -> None:
        """The time is this: do what is due."""
        self.now = now
        at = self.next_tick
        if at is None or at > now:
            return
        for number in range(len(self._timers())):
            at, act = self._timers()[number]
            if at is not None and at <= now:
                act()

    def _silence(self) -> None:
        """P-FENCE-8, P-FENCE-9."""
        stay = self.settings.stop_within if self.secret is None else 0.0
        self._lose_all("silence")
        self.secret = None
        if self.link != "none":
            self._drop(Order("leave", stay))

    @property
    def _greet_until(self) -> float | None:
        if self.link in ("greeting", "resuming"):
            return self._link_since + self.open_within
        return None

    def _greets_late(self) -> None:
        if self.link == "resuming":
            self.leave()
        else:
            self._refuse_server(Unreachable(f"no answer from {self.where}"))

    def _parted_late(self) -> None:
        self._parted(None)

    def _ping(self) -> None:
        self._pinged = self.now
        self.send(("PING",), lambda _: None)
        if self.settings.is_cluster:
            self.watches.ask_again()

    def try_again(self, again: Callable[[], None]) -> None:
        """Send later what the server refused for now (P-RETRY-3)."""
        if self._again_at is None:
            self._again_at = self.now + self._delay(self._refusals, LONGEST_DELAY)
            self._refusals += 1
        self._again.append(again)

    def accepted(self) -> None:
        """The server took something: the next refusal is the first."""
        self._refusals = 0

    def _try_again(self) -> None:
        self._again_at = None
        again, self._again = self._again, []
        for each in again:
            each()

    def _delay(self, failures: int, longest: float) -> float:
        exact: float = min(longest, SHORTEST_DELAY * 2 ** min(failures, 16))
        return exact * (1 + self.settings.random()) / 2
