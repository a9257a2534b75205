"""What the watcher of something has not taken yet: bounded, and true in the end (P-WATCH-5)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable
from typing import Any

from ._ask import Event
from .errors import LockError

MOST_EVENTS = 1024


class Feed:
    """Events of one watch, presence or observer, until its reader takes them."""

    def __init__(self, names: object) -> None:
        """Begin with none."""
        self.names = names
        self._events: deque[Event] = deque()
        self._limit = MOST_EVENTS
        # Of each key what the reader knows, once events were left out for it.
        self._known: dict[Hashable, Any] = {}
        self._error: LockError | None = None
        self.known: Any = None  # What the core knew when it ended.
        self._reader: asyncio.Future[None] | None = None

    def on_event(self, event: Event) -> None:
        """Keep it for the reader."""
        if event.kind == "ended":
            self._error, self.known = event.error, event.value
        else:
            self._events.append(event)
            if len(self._events) > self._limit:
                self._compact()
                # One for each key is what it takes; then as many again before the next look.
                self._limit = max(MOST_EVENTS, 2 * len(self._events))
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def go_on(self) -> None:
        """Its watch goes on at another node."""
        self._error = None

    async def next(self) -> Event:
        """Wait for the next one; raise what ended the watch once all are taken."""
        while not self._events:
            if self._error is not None:
                raise self._error
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        event = self._events.popleft()
        key, state = _state(event)
        if state is None:
            self._known.pop(key, None)
        else:
            self._known[key] = state
        return event

    def _compact(self) -> None:
        """Keep the last event of each key, as a change of what the reader knows of it."""
        last: dict[Hashable, Event] = {}
        for event in self._events:
            key, _ = _state(event)
            last.pop(key, None)
            last[key] = event
        self._events = deque(
            _changed(event, self._known.get(key))
            for key, event in last.items()
            if _state(event)[1] != self._known.get(key)
        )


def _state(event: Event) -> tuple[Hashable, Any]:
    """Return of which key it tells, and what is there now; None for nothing."""
    if event.kind == "watch":
        key, change = event.value
        return key, change in ("exists", "added")
    if event.kind == "presence":
        key, change, *member = event.value
        return key, None if change == "del" else member
    return None, list(event.value)


def _changed(event: Event, known: Any) -> Event:
    """Say it to a reader who knows this."""
    if event.kind == "watch":
        key, change = event.value
        words = ("missing", "exists") if known is None else ("deleted", "added")
        return event._replace(value=(key, words[change in ("exists", "added")]))
    if event.kind == "presence" and event.value[1] != "del":
        key, _, *member = event.value
        return event._replace(value=(key, "add" if known is None else "set", *member))
    return event
