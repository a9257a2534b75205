"""What is asked for, granted, lost and given back, on whatever connection there is."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ._ask import Ask, Handle, Words, whole_ms
from ._codes import MOMENTARY, NOT_HERE, UNWRITABLE, code_of
from ._state import IS_AT_SERVER, Mine, PerKey, Phase, Place, Request, slot_of, tag_of
from .errors import (
    Closed,
    CrossSlot,
    Deadlock,
    LockError,
    Lost,
    Refused,
    Stale,
    Taken,
    Unfit,
    Unreachable,
)
from .resp import ReplyError

if TYPE_CHECKING:
    from .core import Core

MOST_REDIRECTIONS = 5
# What waits for ever counts its moves anew once it has been at a node for so long.
SETTLED_MS = 1000
# The server's word is better than ours, if it comes so soon after the time to wait (P-ACQ-5).
WORD_WITHIN = 100.0


class Requests:
    """All requests of a client.

    Invariant: every request that is not OVER is in `all` and in the queue of each of its places;
    the first of a queue is the one that the server may know of.
    """

    def __init__(self, core: Core) -> None:
        """Begin with none."""
        self._core = core
        self.all: dict[Request, None] = {}
        self._by_handle: dict[Handle, Request] = {}
        self._places: dict[Place, list[Request]] = {}
        self._numbers = itertools.count(1)
        self._greatest = 0
        self._timers: list[tuple[float, int, Request]] = []
        self._timer_numbers = itertools.count()
        self.mine: Mine | None = None
        # The next one, since a page of this one is of before what is looked for.
        self._next_mine: Mine | None = None
        self._is_first_of_resume = False
        # What its owner has given back, and the server has not: refused, or kept (P-LEAST-2).
        self._lingering: dict[Request, None] = {}
        # Those who asked the server, by `verify`.
        self._checks: dict[Handle, PerKey] = {}

    # ---- calls ----

    def acquire(self, handle: Handle, ask: Ask) -> None:
        """Ask, unless it is refused before anything is sent."""
        core = self._core
        error = self._senseless(ask)
        if error is not None:
            core.tell("refused", handle, error=error)
            return
        label = b"" if ask.value is not None else ask.owner or self._fresh_label()
        request = Request(handle, ask, label, core.now)
        if request.is_temporary and request.task is None:
            request.task = self._fresh_label()  # Its empty label is everybody's (P-OWNER-6).
        others = [self._places[place][-1] for place in request.places if place in self._places]
        standing = [other for other in others if other.is_open]
        if ask.is_setnx and ask.waits and not self._waits_for_its_task(request):
            standing = []
        if standing and self._reenters(standing[0], request):
            standing[0].handles.append(handle)
            self._by_handle[handle] = standing[0]
            core.tell("granted", handle, (standing[0].keys[0], standing[0].token))
        elif standing and ask.waits:
            text = "DEADLOCK this owner has or waits for the lock itself"
            core.tell("refused", handle, error=Deadlock(text))
        elif standing or (not ask.waits and self._lingers(request, others)):
            core.tell("refused", handle, error=Taken())
        else:
            self._add(request)
            if ask.waits and ask.wait is not None:
                self._set_timer(request.began + ask.wait + WORD_WITHIN, request)
            if ask.is_setnx:
                core.presences.watch(request, ask.keys[0])
            core.need_link()
            self._send_if_first(request)

    def _senseless(self, ask: Ask) -> LockError | None:
        settings = self._core.settings
        if self._core.is_closed:
            return Closed()
        if not ask.keys or len(set(ask.keys)) < len(ask.keys):
            return Refused("a request needs names, and each once", "KEYS")
        if ask.owner is not None and ask.owner.startswith(b"."):
            return Refused("an owner's name must not begin with a dot", "OWNER")
        if ask.acks and settings.grace is None:
            return Unfit("`acks` needs a grace", "UNFIT")
        if ask.at_least > (settings.grace or 0):
            return Unfit("`at_least` needs a grace that is as long", "UNFIT")
        if settings.is_cluster and len({slot_of(key) for key in ask.keys}) > 1:
            return CrossSlot("the names are of more than one slot", "CROSSSLOT")
        if settings.is_cluster and ask.is_setnx and tag_of(ask.keys[0]) is None:
            return CrossSlot("in a cluster the name needs a hash tag", "CROSSSLOT")
        return None

    def _waits_for_its_task(self, request: Request) -> bool:
        """Whether its own task stands before it in this client's queue (P-SETNX-2)."""
        queue = self._places.get(request.places[0], [])
        return any(other.task == request.task and other.is_open for other in queue)

    def _lingers(self, request: Request, others: list[Request]) -> bool:
        """Whether a former request of its owner, or of its task, was refused its release, or kept.

        The server would take a request of that task for a deadlock (P-OWNER-4).
        """
        return any(other.is_left for other in others) or any(
            former.task == request.task is not None and set(former.keys) & set(request.keys)
            for former in self._lingering
        )

    def _reenters(self, base: Request, request: Request) -> bool:
        """P-OWNER-7."""
        is_asked = request.ask.reentrant and base.ask.reentrant and request.ask.owner is not None
        is_same = (base.keys, base.ask.mode) == (request.keys, request.ask.mode)
        return is_asked and is_same and base.phase is Phase.HELD

    def release(self, handle: Handle) -> None:
        """Give it back, or up; a second time does nothing (P-REL-3)."""
        request = self._by_handle.get(handle)
        if request is None or request.is_given_up:
            return
        if request.phase in (Phase.QUEUED, Phase.ASKED, Phase.WAITING):
            self._give_up(request)
        elif request.phase is Phase.HELD and len(request.handles) > 1:
            self._leave_handle(request, handle)
            self._core.tell("released", handle)
        elif request.phase is Phase.HELD:
            self._end_extensions(request, "released")
            if self._rest(request) > 0:
                self._keep(request)
            else:
                self._begin_release(request)

    def check(self, now: float, handle: Handle) -> str | None:
        """See `Core.check`."""
        request = self._by_handle.get(handle)
        if request is None:
            return None
        if request.phase is not Phase.HELD:
            return "waiting" if request.granted_at is None else "released"
        if not self._core.is_vouched(now):
            return "silence"
        if any(now >= until for until in request.leases):
            return "lease"
        return "held"

    def extend(self, handle: Handle, lease: float) -> None:
        """P-LEASE-1."""
        request = self._by_handle.get(handle)
        if request is None or request.phase is not Phase.HELD:
            self._core.tell("not_extended", handle, error=Lost("released"))
            return
        extension = PerKey(handle, request.keys, lease)
        request.extensions.append(extension)
        self._send_extension(request, extension)

    def verify(self, handle: Handle, token: int) -> None:
        """P-GUARD-2: one LOCK.CHECK for each key, sent again where a break cut off the answer."""
        request = self._by_handle.get(handle)
        if request is None or request.phase is not Phase.HELD:
            self._core.tell("not_checked", handle, error=Lost("released"))
            return
        check = PerKey(handle, request.keys, token)
        self._checks[handle] = check
        self._send_check(request, check)

    # ---- the queue of a place ----

    def _fresh_label(self) -> bytes:
        return b".%d" % next(self._numbers)

    def _add(self, request: Request, *, is_first: bool = False) -> None:
        self.all[request] = None
        for handle in request.handles:
            self._by_handle[handle] = request
        for place in request.places:
            queue = self._places.setdefault(place, [])
            queue.insert(0 if is_first else len(queue), request)

    def _leave_place(self, request: Request, place: Place) -> None:
        queue = self._places.get(place, [])
        if request in queue:
            queue.remove(request)
        if queue:
            self._send_if_first(queue[0])
        else:
            self._places.pop(place, None)

    def _leave_handle(self, request: Request, handle: Handle) -> None:
        request.handles.remove(handle)
        self._by_handle.pop(handle, None)
        if self._checks.pop(handle, None) is not None:
            self._core.tell("not_checked", handle, error=Lost("released"))

    def _forget_handles(self, request: Request) -> None:
        """Its owner was told that it is over."""
        for handle in list(request.handles):
            self._leave_handle(request, handle)

    def _end(self, request: Request) -> None:
        """Nothing is left of it, here and at the server."""
        request.phase = Phase.OVER
        self._forget_handles(request)
        self.all.pop(request, None)
        self._core.presences.end(request)
        for place in request.places:
            self._leave_place(request, place)
        if request in self._lingering:
            del self._lingering[request]
            self.send_queued()

    # ---- time ----

    def _set_timer(self, at: float, request: Request) -> None:
        heapq.heappush(self._timers, (at, next(self._timer_numbers), request))

    @property
    def next_at(self) -> float | None:
        """When `tick` has something to do; timers of what is over are dropped."""
        while self._timers and not self._is_due(*self._timers[0][::2]):
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def _is_due(self, at: float, request: Request) -> bool:
        """Whether a timer still means something to its request."""
        if request.phase in (Phase.QUEUED, Phase.ASKED, Phase.WAITING):
            return not request.is_given_up
        if request.phase is Phase.HELD:
            return at in request.leases
        return request.phase is Phase.KEPT and request.kept_until == at

    def tick(self) -> None:
        """What is due is over: a wait, a lease, or what was kept."""
        while True:
            at = self.next_at
            if at is None or at > self._core.now:
                return
            request = heapq.heappop(self._timers)[2]
            if request.phase is Phase.HELD:  # P-LEASE-2.
                request.explained.update(request.keys)
                self._lose(request, "lease", [])
            elif request.phase is Phase.KEPT:
                self._end(request)
            else:
                self._waited(request)

    def _waited(self, request: Request) -> None:
        """P-ACQ-5."""
        is_up = self._core.is_up
        error: LockError
        if request.phase is Phase.WAITING and is_up:
            error = Taken()
        elif request.refusal is not None:
            error = Refused(str(request.refusal))
        elif request.phase is Phase.QUEUED and is_up:
            error = Taken()
        else:
            error = self._core.no_answer_in_time()
        self._tell(request, "refused", error)
        self._forget_handles(request)
        self._give_up(request)

    # ---- what is told ----

    def _tell(self, request: Request, kind: str, error: LockError | None = None) -> None:
        for handle in request.handles[:1]:
            self._core.tell(kind, handle, error=error)

    def _tell_lost(self, request: Request, reason: str) -> None:
        """Once; each of those who entered it (P-OWNER-8)."""
        for handle in list(request.handles):
            self._core.tell("lost", handle, error=Lost(reason))
            if self._checks.pop(handle, None) is not None:
                self._core.tell("not_checked", handle, error=Lost(reason))
        self._end_extensions(request, reason)
        self._forget_handles(request)

    def _end_extensions(self, request: Request, reason: str) -> None:
        """Answer those that nobody else will, also of who entered again and has left."""
        extensions, request.extensions = request.extensions, []
        for extension in extensions:
            self._core.tell("not_extended", extension.handle, error=Lost(reason))

    def _refuse(self, request: Request, error: LockError) -> None:
        self._tell(request, "refused", error)
        self._end(request)

    # ---- asking ----

    def send_queued(self) -> None:
        """There is a connection."""
        for request in list(self.all):
            self._send_if_first(request)

    def _send_if_first(self, request: Request) -> None:
        """Send it if all former requests of its places are settled (P-OWNER-4)."""
        core = self._core
        is_deciding = self.mine is not None and self.mine.is_resume
        is_ending = core.is_closed or core.is_losing
        if not core.is_up or is_ending or is_deciding or request.phase is not Phase.QUEUED:
            return
        if any(self._places[place][0] is not request for place in request.places):
            return
        if self._lingering and self._lingers(request, []):
            return
        request.phase = Phase.ASKED
        request.greatest_before = self._greatest
        sent = core.now
        left = request.left(sent)
        words = request.ask.words(request.keys, request.label, request.task, left)
        self._send(request, words, lambda reply: self._answered(request, sent, reply))

    def _send(self, request: Request, words: Words, then: Callable[[Any], None]) -> None:
        """Send a command about a request, which a node may have referred here by ASK."""
        for each in request.asking:
            self._core.send(each, lambda _: None)
        self._core.send(words, then)

    def _answered(self, request: Request, sent: float, reply: Any) -> None:
        """P-ACQ-3."""
        if isinstance(reply, int) and reply > 1:
            request.was_granted = True
        is_released = request.phase is Phase.RELEASING
        if isinstance(reply, list) and (is_released or request.phase is Phase.ASKED):
            # The name that SEQ made, and the token (P-TEMP-3).
            request.keys, request.is_named = [reply[0]], True
            self._places.setdefault(request.places[0], []).insert(0, request)
            reply = reply[1]
            if is_released:
                self._begin_release(request)
                return
        if is_released and not request.is_named:
            self._settle(request)
        if request.phase is not Phase.ASKED:
            return
        if isinstance(reply, ReplyError):
            self._refused(request, reply)
        elif reply is not None and not (request.is_temporary and reply == 0):
            self._grant(request, reply, request.ask.lease, sent)
        elif request.ask.waits_at_server:
            request.phase, request.has_waited, request.refusal = Phase.WAITING, True, None
        else:
            self._refuse(request, Taken())

    def _refused(self, request: Request, error: ReplyError) -> None:
        code = code_of(error)
        is_referred = code in ("MOVED", "ASK") and self._core.settings.is_cluster
        if is_referred and self._hops(request) < MOST_REDIRECTIONS:
            self._redirect(request, code, error)
            return
        is_for_now = code in MOMENTARY or (code in UNWRITABLE and request.has_waited)
        if request.ask.waits and is_for_now:  # P-ACQ-6, P-ACQ-7.
            request.phase, request.refusal = Phase.QUEUED, error
            self._core.try_again(lambda: self._send_if_first(request))
        elif code == "DEADLOCK" and request.ask.waits and self._lingers(request, []):
            request.phase = Phase.QUEUED  # It overtook a release that was refused.
        elif code == "DEADLOCK":
            self._refuse(request, Deadlock(str(error)))
        elif code == "QUARANTINE":
            self._refuse(request, Taken(str(error), code))
        else:
            self._refuse(request, Refused(str(error)))

    def _hops(self, request: Request) -> int:
        is_settled = self._core.now - request.began > SETTLED_MS
        is_for_ever = request.is_temporary and request.ask.wait is None
        return 0 if is_for_ever and is_settled else request.ask.hops

    def _redirect(self, request: Request, code: str, error: ReplyError) -> None:
        """Let the shell ask there, for what is left of the time (P-CLUSTER-3, P-CLUSTER-4)."""
        ask = replace(request.ask, hops=self._hops(request) + 1, is_by_ask=code == "ASK")
        if ask.waits and ask.wait is not None:
            ask = replace(ask, wait=max(1.0, request.left(self._core.now)))
        for handle in request.handles[:1]:
            self._core.tell("redirected", handle, (str(error), ask))
        self._end(request)

    def _grant(self, request: Request, token: int, lease: float | None, since: float) -> None:
        """It has a lease of so long since then."""
        request.phase, request.token, request.granted_at = Phase.HELD, token, self._core.now
        request.was_granted = True
        request.refusal = None
        self._greatest = max(self._greatest, token)
        if lease is not None:
            self._set_lease(request, since + lease)
        for handle in request.handles:
            self._core.tell("granted", handle, (request.keys[0], token))
        self._core.accepted()
        if request.early_loss is not None:  # P-LOSS-5.
            reason, key = request.early_loss
            self._lose(request, reason, [key])
        else:
            self.value_told(request)

    def _set_lease(self, request: Request, until: float) -> None:
        request.lease_until = until
        self._set_timer(until, request)

    # ---- giving up and releasing ----

    def _give_up(self, request: Request) -> None:
        request.is_given_up = True
        if request.phase is Phase.QUEUED:
            self._tell(request, "over")
            self._end(request)
            return
        request.refusal = None
        if request.is_named:
            self._begin_release(request)
        else:  # The answer says what to release.
            request.phase = Phase.RELEASING

    def _begin_release(self, request: Request) -> None:
        request.phase = Phase.RELEASING
        request.unsettled = dict.fromkeys(request.keys, False)
        self._send_unsettled(request)

    def _send_unsettled(self, request: Request) -> None:
        """Releases go first after a resume, and after that wait for LOCK.MINE (P-SESS-5)."""
        is_deciding = self.mine is not None and self.mine.is_resume
        if not self._core.is_up or (is_deciding and not self._is_first_of_resume):
            return
        for key, is_sent in request.unsettled.items():
            if not is_sent:
                request.unsettled[key] = True
                then = partial(self._released, request, key, request.was_sent_before)
                self._send(request, request.release_words(key), then)

    def _released(self, request: Request, key: bytes, was_sent: bool, reply: Any) -> None:
        if request.phase is Phase.OVER:
            return
        code = code_of(reply)
        is_held = request.was_granted and key not in request.explained
        if code == "MOVED" and self._core.secret is not None and is_held and request.handles:
            self._core.leave()  # The session, and with it the hold, goes on where the slot is.
            return
        if code not in ("", "NOTHELD", "MOVED"):
            self._release_refused(request, key, reply)
            return
        self._core.accepted()
        del request.unsettled[key]
        was_gone = code == "NOTHELD" or (request.is_temporary and reply == 0)
        is_unexplained = request.was_granted and key not in request.explained and not was_sent
        if was_gone and is_unexplained:  # P-REL-7.
            if not request.is_given_up:
                self._tell_lost(request, "deleted")
            self._look("deleted", [])
        if not request.unsettled:
            self._settle(request)

    def _release_refused(self, request: Request, key: bytes, error: ReplyError) -> None:
        """P-REL-5: it is sent again until the server takes it."""
        request.unsettled[key] = False
        request.refusal = error
        self._lingering[request] = None
        self._tell_refusal(request, error)
        for other in [o for place in request.places for o in self._places.get(place, ())]:
            if other is not request and other.phase is Phase.QUEUED and not other.ask.waits:
                self._refuse(other, Taken())
        self._core.try_again(lambda: self._send_unsettled(request))

    def _tell_refusal(self, request: Request, error: ReplyError) -> None:
        """Once for each code."""
        if request.refusal_told != code_of(error):
            request.refusal_told = code_of(error)
            self._tell(request, "releasing", Refused(str(error)))

    def _settle(self, request: Request) -> None:
        """The server has nothing left of it."""
        if request.phase is not Phase.KEPT:
            self._tell(request, "over" if request.is_given_up else "released")
        self._end(request)

    # ---- extending and keeping ----

    def _send_extension(self, request: Request, extension: PerKey) -> None:
        if extension.sent is None and self._core.is_up:
            extension.sent = self._core.now
            self._set_timer(extension.sent + extension.number, request)

        def done(sent: float) -> None:
            request.extensions.remove(extension)
            self._set_lease(request, sent + extension.number)
            self._core.tell("extended", extension.handle)

        def failed(error: ReplyError) -> None:
            request.extensions.remove(extension)
            self._core.tell("not_extended", extension.handle, error=Refused(str(error)))

        self._extend_keys(request, extension, lambda: extension in request.extensions, done, failed)

    def _rest(self, request: Request) -> float:
        if request.granted_at is None:
            return 0.0
        return request.ask.at_least - (self._core.now - request.granted_at)

    def _keep(self, request: Request) -> None:
        """Extend it to what is left of `at_least`, and keep it unseen (P-LEAST-2)."""
        request.phase = Phase.EXTENDING
        self._lingering[request] = None
        rest = self._rest(request)
        if rest <= 0:
            self._begin_release(request)
            return

        def done(sent: float) -> None:
            request.phase, request.kept_until = Phase.KEPT, sent + rest
            self._set_timer(request.kept_until, request)
            self._tell(request, "released")
            self._forget_handles(request)

        def failed(error: ReplyError) -> None:  # P-REL-5.
            self._tell_refusal(request, error)
            self._core.try_again(again)

        def again() -> None:
            if request.phase is Phase.EXTENDING:
                self._keep(request)

        def is_wanted() -> bool:
            return request.phase is Phase.EXTENDING

        self._extend_keys(request, PerKey(None, request.keys, rest), is_wanted, done, failed)

    def _extend_keys(
        self,
        request: Request,
        again: PerKey,
        is_wanted: Callable[[], bool],
        done: Callable[[float], None],
        failed: Callable[[ReplyError], None],
    ) -> None:
        """Extend each key; `done` when all are, `failed` with any error but the loss."""
        sent = self._core.now

        def answered(key: bytes, reply: Any) -> None:
            if not is_wanted():
                return
            if code_of(reply) == "NOTHELD":  # Its key was renamed (P-LEASE-3).
                self._lose(request, "deleted", [key])
                self._look("deleted", [])
            elif isinstance(reply, ReplyError):
                failed(reply)
            else:
                again.keys.discard(key)
                if not again.keys:
                    done(sent)

        for key in [key for key in request.keys if key in again.keys and self._core.is_up]:
            words = ("LOCK.EXTEND", key, whole_ms(again.number), "OWNER", request.label)
            self._send(request, words, partial(answered, key))

    # ---- asking the server ----

    def _send_check(self, request: Request, check: PerKey) -> None:
        handle = check.handle

        def answered(key: bytes, reply: Any) -> None:
            if self._checks.get(handle) is not check:
                return
            if code_of(reply) == "STALE" and self._core.secret is not None:
                self._core.send(("LOCK.SERVER",), lambda server: stale(reply, server))
            elif isinstance(reply, ReplyError):
                self._check_failed(handle, reply)
            else:
                check.keys.discard(key)
                if not check.keys:
                    del self._checks[handle]
                    self._core.tell("checked", handle)

        def stale(reply: ReplyError, server: Any) -> None:
            if self._checks.get(handle) is not check:
                return
            if isinstance(server, dict) and server.get(b"role") != b"master":
                self._core.leave()  # A replica calls every token stale.
            else:
                self._check_failed(handle, reply)

        for key in [key for key in request.keys if key in check.keys and self._core.is_up]:
            words = ("LOCK.CHECK", key, int(check.number))
            self._send(request, words, partial(answered, key))

    def _check_failed(self, handle: Handle | None, error: ReplyError) -> None:
        self._checks.pop(handle, None)
        is_stale = code_of(error) == "STALE"
        ours = Stale(str(error)) if is_stale else Refused(str(error))
        self._core.tell("not_checked", handle, error=ours)

    # ---- losses ----

    def pushed(self, is_temporary: bool, key: bytes, text: bytes) -> None:
        """A push about a lock, or about a temporary key."""
        word, _, tail = text.partition(b" ")
        said, label = b"", tail
        if word in (b"LOST", b"FAILED"):  # The label may have spaces.
            parts = tail.split(b" ")
            size = {b"MOVED": 3, b"ASK": 3, b"NOACKS": 4}.get(parts[0], 1)
            said, label = b" ".join(parts[:size]), b" ".join(parts[size:])
        request = self._places.get(Place(is_temporary, key, label), [None])[0]
        if word == b"LOST":
            self._pushed_lost(request, Place(is_temporary, key, label), said.decode())
            return
        if request is None:
            return
        request.was_granted |= word.isdigit()
        if request.is_given_up or request.phase not in (Phase.ASKED, Phase.WAITING):
            return
        if word.isdigit():
            self._grant(request, int(word), request.ask.lease, self._core.now)
        elif word == b"TIMEOUT":
            self._refuse(request, Taken())
        elif said == b"UNBLOCKED":  # P-ACQ-4.
            request.phase = Phase.ASKED
            self._core.demoted()
        elif word == b"FAILED":
            self._refused(request, ReplyError(said.decode("utf-8", "replace")))

    def _pushed_lost(self, request: Request | None, place: Place, reason: str) -> None:
        if reason == "demoted":
            self._core.demoted()
        elif reason == "ended" and self._core.secret is not None:
            self._core.session_ended()
        elif request is None:
            self._lose_renamed(place, reason)
        else:
            request.explained.add(place.key)
            if request.phase in (Phase.QUEUED, Phase.ASKED, Phase.WAITING):
                request.early_loss = (reason, place.key)
            elif request.phase is Phase.KEPT:
                self._end(request)
            elif request.phase is Phase.RELEASING and not request.is_given_up:
                self._tell_lost(request, reason)  # P-LOSS-6.
            elif request.phase in (Phase.HELD, Phase.EXTENDING):
                self._lose(request, reason, [place.key])

    def _lose_renamed(self, place: Place, reason: str) -> None:
        """The key was renamed since: a fresh label tells which hold it is (P-LOSS-4)."""
        holds = [
            request
            for request in self.all
            if request.phase is Phase.HELD
            and (request.is_temporary, request.label) == (place.is_temporary, place.label)
        ]
        if not holds:
            return
        hold = holds[0]
        if place.is_temporary or hold.ask.owner is not None:
            self._look(reason, holds)
        else:
            self._lose(hold, reason, hold.keys if len(hold.keys) == 1 else [])

    def _lose(self, request: Request, reason: str, keys: list[bytes]) -> None:
        """Some of its keys are gone, so all of it is lost; the others are given back (P-LOSS-3)."""
        self._tell_lost(request, reason)
        left = [key for key in request.keys if key not in keys]
        for place in request.places:
            if place.key not in left:
                self._leave_place(request, place)
        request.keys = left
        if left:
            request.is_given_up = True
            self._begin_release(request)
        else:
            self._end(request)

    def value_told(self, request: Request, error: LockError | None = None) -> None:
        """See whether a lock in the place of SET NX has its value; or nobody tells (P-SETNX-3)."""
        if not request.ask.is_setnx or request.is_given_up:
            return
        if error is not None and error.code == "MOVED":
            return  # The request hears that, too, and goes there.
        if request.phase is Phase.HELD:
            there = self._core.presences.member(request.keys[0])
            is_ours = there is not None and there.token == request.token
            if error is not None or (is_ours and there != (request.token, request.ask.value)):
                self._lose(request, "overwritten", [])
        elif error is not None and request.phase in (Phase.QUEUED, Phase.ASKED, Phase.WAITING):
            self._tell(request, "refused", error)
            self._forget_handles(request)
            self._give_up(request)

    def lose_all(self, reason: str) -> None:
        """The session is gone, or the connection without one; whatever waits is asked again."""
        for request in list(self.all):
            if request.phase is Phase.HELD:
                self._tell_lost(request, reason)
                self._end(request)
            elif request.phase in IS_AT_SERVER or request.is_given_up:
                self._settle(request)
            elif (
                request.phase is Phase.ASKED
                and not request.ask.waits
                and reason != "demoted"  # P-ACQ-8.
            ):
                self._refuse(request, Unreachable(f"no answer from {self._core.where}: {reason}"))
            else:
                request.has_waited |= request.phase is Phase.WAITING
                request.phase = Phase.QUEUED
                request.early_loss = None

    # ---- connections ----

    @property
    def slot(self) -> int | None:
        """Of what is held, or else of what is asked for; not of what came by ASK."""
        ours = [request for request in self.all if not request.ask.is_by_ask]
        held = [request for request in ours if request.phase in IS_AT_SERVER]
        return next((slot_of(request.keys[0]) for request in held + ours), None)

    @property
    def has_holds(self) -> bool:
        """Whether anything relies on the connection."""
        return any(request.phase in IS_AT_SERVER for request in self.all)

    def unreached(self, error: LockError, is_final: bool) -> None:
        """P-CONN-10."""
        for request in list(self.all):
            ends = is_final or not request.ask.waits
            if request.phase is Phase.QUEUED and ends and not request.is_given_up:
                self._refuse(request, error)

    def broke(self) -> None:
        """The connection ended, and the session goes on (P-SESS-2)."""
        for request in self.all:
            request.was_sent_before |= any(request.unsettled.values())
            request.unsettled = dict.fromkeys(request.unsettled, False)
            request.early_loss = None  # LOCK.MINE says what is held.
            if request.phase is Phase.WAITING:
                request.phase = Phase.ASKED

    def close(self) -> tuple[Words, ...]:
        """Tell everybody (P-CLOSE-1), and return what ends the session; see P-LEAST-3."""
        kept = [r for r in self.all if r.phase in (Phase.KEPT, Phase.EXTENDING)]
        # What was asked for may be granted by now.
        phases = (Phase.HELD, Phase.RELEASING, Phase.ASKED, Phase.WAITING)
        others = [r for r in self.all if r.phase in phases and r.is_named]
        words: list[Words] = []
        for request in others:
            for key in request.keys:
                words += [*request.asking, request.release_words(key)]
        for request in list(self.all):
            if request.phase is Phase.HELD:
                self._tell_lost(request, "closed")
            elif request.phase in (Phase.QUEUED, Phase.ASKED, Phase.WAITING):
                self._tell(request, "refused", Closed())
            elif request.phase is not Phase.KEPT:
                self._tell(request, "over" if request.is_given_up else "released")
            self._end(request)
        return (*words, ("SESSION.DETACH",)) if kept else (("SESSION.END",),)

    # ---- LOCK.MINE ----

    def resumed(self) -> None:
        """The session goes on: releases first, then what LOCK.MINE decides (P-SESS-5)."""
        self._is_first_of_resume = True
        for request in list(self.all):
            self._send_unsettled(request)
        self._is_first_of_resume = False
        self.mine = Mine(True, "connection", list(self.all), self._core.now)
        self._ask_mine(())

    def _look(self, reason: str, subjects: list[Request]) -> None:
        """Which of these are still there, and what is there that nothing claims?"""
        if self.mine is None:
            self.mine = Mine(False, reason, list(subjects))
            self._ask_mine(())
            return
        mine = self.mine
        if mine.pages:
            mine = self._next_mine = self._next_mine or Mine(False, reason, [])
        if subjects:
            mine.reason = reason
        mine.subjects += [each for each in subjects if each not in mine.subjects]

    def forget_mine(self) -> None:
        """Whoever asked for it has no connection any more."""
        self.mine = self._next_mine = None

    def _ask_mine(self, cursor: Words) -> None:
        self._core.send(("LOCK.MINE", *cursor), self._found)

    def _found(self, reply: Any) -> None:
        mine = self.mine
        if mine is None:
            return
        if isinstance(reply, ReplyError):
            self._not_found(mine, code_of(reply))
            return
        cursor, entries = reply
        mine.entries += [entry for entry in entries if entry[b"state"] == b"held"]
        mine.pages += 1
        if cursor != b"0":
            self._ask_mine(("CURSOR", cursor))
            return
        self.mine = None
        self._compare(mine)
        if self._next_mine is not None:
            again, self._next_mine = self._next_mine, None
            self._look(again.reason, again.subjects)

    def _not_found(self, mine: Mine, code: str) -> None:
        if mine.is_resume and (code in MOMENTARY or code in UNWRITABLE or code in NOT_HERE):
            self._core.leave()  # P-SESS-4.
            return
        self.mine = None
        if mine.is_resume:  # P-SESS-7.
            self._core.send(("SESSION.END",), lambda _: None)
            self._core.session_over()
        elif code in MOMENTARY:
            self._core.try_again(lambda: self._look(mine.reason, mine.subjects))
        else:
            again, self._next_mine = self._next_mine, None
            for each in [mine, again] if again else [mine]:
                for request in each.subjects:
                    if request.phase is Phase.HELD:
                        self._lose(request, each.reason, [])

    def _compare(self, mine: Mine) -> None:
        """P-SESS-6."""
        unclaimed: list[dict[bytes, Any]] = []
        found: dict[Request, list[dict[bytes, Any]]] = {}
        for entry in mine.entries:
            request = self._claimant(entry)
            if request is None:
                unclaimed.append(entry)
            else:
                found.setdefault(request, []).append(entry)
        for request in mine.subjects:
            entries = found.get(request, [])
            if request.phase in (Phase.HELD, Phase.KEPT, Phase.EXTENDING):
                self._compare_hold(request, entries, mine.reason)
            elif request.phase is Phase.ASKED and mine.is_resume:
                self._compare_request(request, entries, mine.sent)
            elif request.phase is Phase.RELEASING and not request.is_named and mine.is_resume:
                self._settle(request)
        for entry in unclaimed:
            # It may be older than a request at its place, unless none was sent before this.
            if mine.is_resume or _place_of(entry) not in self._places:
                self._release_unclaimed(entry)
        if mine.is_resume:
            for request in list(self.all):
                if request.phase is Phase.EXTENDING:
                    self._keep(request)
                for extension in request.extensions:
                    self._send_extension(request, extension)
                self._send_if_first(request)
                self._send_unsettled(request)
            for handle, check in list(self._checks.items()):
                self._send_check(self._by_handle[handle], check)

    def _claimant(self, entry: dict[bytes, Any]) -> Request | None:
        """By label and token, whatever the key is called now."""
        is_temporary, key, label = _place_of(entry)
        for request in self.all:
            if (request.is_temporary, request.label) != (is_temporary, label):
                continue
            if request.phase in (Phase.HELD, Phase.KEPT, Phase.EXTENDING):
                if request.token == entry[b"token"]:
                    return request
            elif (
                request.is_named
                and key in request.keys
                and (
                    request.phase is Phase.RELEASING
                    or (
                        request.phase in (Phase.ASKED, Phase.WAITING)
                        and entry[b"token"] > request.greatest_before  # P-SESS-11.
                    )
                )
            ):
                return request
        return None

    def _compare_hold(self, request: Request, entries: list[dict[bytes, Any]], reason: str) -> None:
        there = [entry[b"key"] for entry in entries]
        if len(there) == len(request.keys):
            return
        if request.phase is Phase.KEPT:
            self._end(request)
        else:
            self._lose(request, reason, [key for key in request.keys if key not in there])

    def _compare_request(
        self, request: Request, entries: list[dict[bytes, Any]], sent: float
    ) -> None:
        if request.is_given_up:
            return
        if len(entries) == len(request.keys):
            lefts = [left for entry in entries if (left := entry[b"lease-ms"]) is not None]
            self._grant(request, entries[0][b"token"], min(lefts, default=None), sent)
            return
        request.phase, request.has_waited = Phase.QUEUED, True
        for entry in entries:
            self._release_unclaimed(entry)

    def _release_unclaimed(self, entry: dict[bytes, Any]) -> None:
        is_temporary, key, label = _place_of(entry)
        if key is None:
            return  # Its user may not read the name. It ends with the session.
        ask = Ask((key,), wait=0, value=b"" if is_temporary else None)
        request = Request(None, ask, label, self._core.now)
        request.is_given_up = True
        self._add(request, is_first=True)
        self._begin_release(request)


def _place_of(entry: dict[bytes, Any]) -> Place:
    """Return where what LOCK.MINE lists is."""
    return Place(entry[b"kind"] == b"temporary", entry[b"key"], entry[b"label"] or b"")
