"""What is watched: keys, and who is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ._ask import Handle
from ._codes import MOMENTARY, UNWRITABLE, code_of
from ._state import Request, slot_of
from .errors import LockError, Refused

if TYPE_CHECKING:
    from .core import Core

MOST_ASKED_AGAIN = 64  # P-CLUSTER-7


class _Watched:
    """A key; `phase` is `asked`, `known` or `leaving`."""

    def __init__(self) -> None:
        self.by: list[Handle] = []
        self.phase = "asked"
        self.is_open = False  # A command of it is not answered; a push is no answer (P-WATCH-1).
        self.is_there = False
        self.is_again = False  # It is asked for again, and `is_there` is so.


class Watches:
    """WATCHEX: whether keys exist (P-WATCH-1 to 4)."""

    def __init__(self, core: Core) -> None:
        """Begin with none."""
        self._core = core
        self._keys: dict[bytes, _Watched] = {}
        self._asked = 0  # The last of them that was asked for again.
        # Of each watcher its keys, and what it was told of them last.
        self._told: dict[Handle, dict[bytes, bool | None]] = {}

    @property
    def is_wanted(self) -> bool:
        """Whether anybody watches."""
        return bool(self._told)

    @property
    def slot(self) -> int | None:
        """Of a key that is watched."""
        return next((slot_of(key) for key in self._keys), None)

    def watch(
        self, handle: Handle, keys: tuple[bytes, ...], known: dict[bytes, bool | None] | None = None
    ) -> None:
        """Tell this one of these keys, or of what is not as another node said (`known`)."""
        self._told[handle] = {**dict.fromkeys(keys), **(known or {})}
        self._core.need_link()
        for key in self._told[handle]:
            watched = self._keys.get(key)
            if watched is None:
                watched = self._keys[key] = _Watched()
                watched.by.append(handle)
                self._send(key)
            else:
                watched.by.append(handle)
                if watched.phase == "known":
                    self._say(handle, key, watched.is_there)

    def end(self, handle: Handle) -> None:
        """It wants to know no more."""
        for key in self._told.pop(handle, ()):
            self._leave(handle, key)

    def end_all(self, error: LockError) -> None:
        """Nobody watches any longer."""
        for handle in self._told:
            self._core.tell("ended", handle, error=error)
        self._told.clear()
        self._keys.clear()

    def watch_anew(self) -> None:
        """On another connection (P-WATCH-3)."""
        for key, watched in list(self._keys.items()):
            if watched.by:
                watched.phase, watched.is_open, watched.is_again = "asked", False, False
                self._send(key)
            else:
                del self._keys[key]

    def ask_again(self) -> None:
        """Find out whether the slots of watched keys are still here (P-CLUSTER-7)."""
        keys = list(self._keys.items())
        for _ in keys[:MOST_ASKED_AGAIN]:
            self._asked = (self._asked + 1) % len(keys)
            key, watched = keys[self._asked]
            if watched.phase == "known" and not watched.is_open:
                watched.phase, watched.is_again = "asked", True
                self._send(key)

    def changed(self, key: bytes, change: bytes) -> None:
        """A push says `ADD` or `DEL`."""
        watched = self._keys.get(key)
        if watched is None or change not in (b"ADD", b"DEL"):
            return
        is_there = change == b"ADD"
        if watched.phase == "asked":  # It says what the reply will say (P-WATCH-2).
            self._know(key, watched, not is_there)
        if watched.phase == "known" and watched.is_there != is_there:
            watched.is_there = is_there
            for handle in watched.by:
                self._say(handle, key, is_there)

    def _send(self, key: bytes) -> None:
        watched = self._keys.get(key)
        if self._core.is_up and watched is not None and not watched.is_open:
            watched.is_open = True
            self._core.send(("WATCHEX", key), lambda reply: self._answered(key, reply))

    def _answered(self, key: bytes, reply: Any) -> None:
        watched = self._keys.get(key)
        if watched is None:
            return
        watched.is_open = False
        if watched.phase == "known":  # A push said it before.
            self._unwatch(key, watched)
            return
        code = code_of(reply)
        if watched.is_again and code not in ("", "MOVED"):
            self._know(key, watched, watched.is_there)
        elif code in MOMENTARY or code == "ASK":
            self._core.try_again(lambda: self._send(key))
        elif code:
            del self._keys[key]
            for handle in watched.by:
                told = self._told.pop(handle)
                self._core.tell("ended", handle, told, Refused(str(reply)))
                for other in told:
                    if other != key:
                        self._leave(handle, other)
        else:
            self._know(key, watched, reply == b"EXIST")

    def _know(self, key: bytes, watched: _Watched, is_there: bool) -> None:
        watched.phase, watched.is_there, watched.is_again = "known", is_there, False
        self._unwatch(key, watched)
        for handle in watched.by:
            self._say(handle, key, is_there)

    def _say(self, handle: Handle, key: bytes, is_there: bool) -> None:
        was_there = self._told[handle][key]
        if was_there is None:
            self._core.tell("watch", handle, (key, "exists" if is_there else "missing"))
        elif was_there != is_there:
            self._core.tell("watch", handle, (key, "added" if is_there else "deleted"))
        self._told[handle][key] = is_there

    def _leave(self, handle: Handle, key: bytes) -> None:
        watched = self._keys[key]
        watched.by.remove(handle)
        if watched.by:
            return
        if not self._core.is_up:
            del self._keys[key]
        elif watched.phase == "known":
            self._unwatch(key, watched)

    def _unwatch(self, key: bytes, watched: _Watched) -> None:
        """If nobody watches it; while a command is open, the answer to that leads here again."""
        if not watched.by and not watched.is_open:
            watched.phase, watched.is_open = "leaving", True
            self._core.send(("UNWATCHEX", key), lambda _: self._unwatched(key, watched))

    def _unwatched(self, key: bytes, watched: _Watched) -> None:
        watched.is_open = False
        if watched.by:
            watched.phase = "asked"
            self._send(key)
        elif self._keys.get(key) is watched:
            del self._keys[key]


class Member(NamedTuple):
    """A temporary key: its token, and its value unless the server keeps that to itself."""

    token: int
    value: bytes | None


Members = dict[bytes, Member]


class _Prefix:
    def __init__(self) -> None:
        self.by: list[Handle] = []
        self.members: Members = {}
        # The snapshot that is being taken; changes of its names go into it, from its first page on.
        self.next: Members = {}
        self.number = 0  # Of this snapshot: replies to an earlier one say nothing of this one.
        self.is_live = False


class _Watcher:
    def __init__(self, prefix: bytes, is_observer: bool, known: Members | None) -> None:
        self.prefix = prefix
        self.is_observer = is_observer
        self.was_told = known is not None
        self.known = known  # By another node; until the first snapshot here.


class Presences:
    """WATCHTP: who is there (P-PRES-1 to 4), and who leads (P-ELECT-3)."""

    def __init__(self, core: Core) -> None:
        """Begin with none."""
        self._core = core
        self._prefixes: dict[bytes, _Prefix] = {}
        self._watchers: dict[Handle, _Watcher] = {}

    @property
    def is_wanted(self) -> bool:
        """Whether anybody watches."""
        return bool(self._watchers)

    @property
    def slot(self) -> int | None:
        """Of a prefix that is watched."""
        return next((slot_of(prefix) for prefix in self._prefixes), None)

    def watch(
        self,
        handle: Handle,
        prefix: bytes,
        is_observer: bool = False,
        known: Members | None = None,
    ) -> None:
        """Tell this one of each member, or as an observer of the one that has just this name.

        `known` is what another node said, of which only the difference is told.
        """
        self._watchers[handle] = _Watcher(prefix, is_observer, known)
        self._core.need_link()
        state = self._prefixes.get(prefix)
        if state is None:
            state = self._prefixes[prefix] = _Prefix()
            state.by.append(handle)
            self._send(prefix, state)
        else:
            state.by.append(handle)
            if state.is_live:
                self._say_difference(handle, {}, state.members)
            elif known is None:  # The snapshot is the first that it hears of.
                self._watchers[handle].known = {}

    def end(self, handle: Handle) -> None:
        """It wants to know no more."""
        prefix = self._forget(handle)
        if prefix is not None and self._core.is_up:
            self._core.send(("UNWATCHTP", prefix), lambda _: None)

    def end_all(self, error: LockError) -> None:
        """Nobody watches any longer, but the locks that watch their own keys."""
        for handle in list(self._watchers):
            if not isinstance(handle, Request):
                self._core.tell("ended", handle, error=error)
                self._forget(handle)

    def _forget(self, handle: Handle) -> bytes | None:
        """Return the prefix if nobody else watches that."""
        watcher = self._watchers.pop(handle, None)
        if watcher is None:
            return None
        state = self._prefixes[watcher.prefix]
        state.by.remove(handle)
        if state.by:
            return None
        del self._prefixes[watcher.prefix]
        return watcher.prefix

    def member(self, key: bytes) -> Member | None:
        """Return what is known of a key that is watched by its whole name."""
        state = self._prefixes.get(key)
        return None if state is None else state.members.get(key)

    def watch_anew(self) -> None:
        """On another connection (P-PRES-3)."""
        for prefix, state in list(self._prefixes.items()):
            self._send(prefix, state)

    def pushed(self, key: bytes, text: bytes) -> None:
        """A push of one key, or of one prefix."""
        word, _, rest = text.partition(b" ")
        if word == b"END":
            state = self._prefixes.get(key)
            if state is not None:
                self._send(key, state)
        elif word == b"FLUSHED":
            self._flushed(key)
        elif word in (b"ADD", b"SET", b"DEL"):
            token, space, value = rest.partition(b" ")
            member = None if word == b"DEL" else Member(int(token), value if space else None)
            for prefix, state in self._prefixes.items():
                if key.startswith(prefix):  # One push for all of them (P-PRES-2).
                    self._change(state, key, word.decode().lower(), member, value)

    def _change(
        self, state: _Prefix, key: bytes, how: str, member: Member | None, reason: bytes
    ) -> None:
        members = state.members if state.is_live else state.next
        if member is None:
            members.pop(key, None)
        else:
            members[key] = member
        for handle in state.by if state.is_live else ():
            self._say(handle, key, how, member, reason.decode())

    def _flushed(self, prefix: bytes) -> None:
        state = self._prefixes.get(prefix)
        if state is None:
            return
        state.next = {}
        if not state.is_live:  # The snapshot tells the difference.
            return
        old, state.members = state.members, {}
        for key in sorted(old):
            for handle in state.by:
                self._say(handle, key, "del", None, "flushed")

    def _send(self, prefix: bytes, state: _Prefix, after: bytes = b"") -> None:
        if not self._core.is_up:
            return
        if not after:
            state.is_live = False
            state.number += 1
        number = state.number
        words = ("WATCHTP", prefix, "AFTER", after) if after else ("WATCHTP", prefix)
        self._core.send(words, lambda reply: self._page(prefix, state, number, not after, reply))

    def _page(self, prefix: bytes, state: _Prefix, number: int, is_first: bool, reply: Any) -> None:
        if self._prefixes.get(prefix) is not state or state.number != number:
            return
        code = code_of(reply)
        if code in MOMENTARY or code in UNWRITABLE or code == "ASK":
            self._core.try_again(lambda: self._send_if_wanted(prefix, state))
        elif code:
            del self._prefixes[prefix]
            for handle in state.by:
                del self._watchers[handle]
                self._tell("ended", handle, state.members, Refused(str(reply)))
        else:
            after, entries = reply
            if is_first:  # What was pushed before it is of a former watch.
                state.next = {}
            state.next.update((key, Member(token, value)) for key, token, value in entries)
            if after:
                self._send(prefix, state, after)
                return
            old, state.members, state.is_live = state.members, state.next, True
            for handle in state.by:
                self._say_difference(handle, old, state.members)

    def _tell(
        self, kind: str, handle: Handle, value: Any = None, error: LockError | None = None
    ) -> None:
        if isinstance(handle, Request):
            self._core.requests.value_told(handle, error)
        else:
            self._core.tell(kind, handle, value, error)

    def _send_if_wanted(self, prefix: bytes, state: _Prefix) -> None:
        if self._prefixes.get(prefix) is state:
            self._send(prefix, state)

    def _say_difference(self, handle: Handle, old: Members, new: Members) -> None:
        watcher = self._watchers[handle]
        if watcher.known is not None:
            old, watcher.known = watcher.known, None
        for key in sorted({*old, *new}):
            if old.get(key) != new.get(key):
                how = "add" if key not in old else "set" if key in new else "del"
                self._say(handle, key, how, new.get(key), "unknown")
        if watcher.is_observer and not watcher.was_told:
            watcher.was_told = True
            self._core.tell("leader", handle, (None, None))

    def _say(
        self, handle: Handle, key: bytes, how: str, member: Member | None, reason: str
    ) -> None:
        watcher = self._watchers[handle]
        token, value = member or (None, None)
        if not watcher.is_observer:
            self._tell("presence", handle, (key, how, token, value if member else reason))
        elif key == watcher.prefix:
            watcher.was_told = True
            self._core.tell("leader", handle, (token, value))
