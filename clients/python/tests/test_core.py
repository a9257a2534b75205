"""The protocol without a server: frames, the vectors of all clients, and what only this one has."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from tether_locks import clock, resp
from tether_locks._ask import Ask, Event, Settings, Words
from tether_locks._cluster import Moves
from tether_locks._feed import MOST_EVENTS, Feed
from tether_locks._requests import MOST_REDIRECTIONS
from tether_locks.core import Core
from tether_locks.resp import LONGEST, Malformed, Parser, Push, ReplyError

LOADER = pathlib.Path(__file__).parents[2] / "protocol" / "loaders" / "python.py"


def test_all_vectors_of_the_client_protocol_pass() -> None:
    ran = subprocess.run([sys.executable, LOADER], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    print(ran.stdout)


# ---- frames ----


def test_frames_are_the_same_however_their_bytes_are_cut() -> None:
    data = (
        b"+OK\r\n:7\r\n$3\r\na\r\n\r\n_\r\n*2\r\n:1\r\n$-1\r\n%1\r\n$1\r\na\r\n#t\r\n>1\r\n+x\r\n"
    )
    data += b",1.5\r\n!5\r\nERR a\r\n(12\r\n=5\r\ntxt:a\r\n-ERR b\r\n*-1\r\n"
    whole = list(Parser().feed(data))
    assert whole[:6] == [b"OK", 7, b"a\r\n", None, [1, None], {b"a": True}]
    assert isinstance(whole[6], Push)
    for size in range(1, 12):
        parser = Parser()
        cut = [
            frame for at in range(0, len(data), size) for frame in parser.feed(data[at : at + size])
        ]
        assert [repr(frame) for frame in cut] == [repr(frame) for frame in whole]


@pytest.mark.parametrize(
    "data",
    [
        b"what\r\n",
        b":one\r\n",
        b"\r\n",
        b"$-7\r\n",
        b"*%d\r\n" % (LONGEST + 1),
        b"*1\r\n" * 40,
        b"$%d\r\n" % (LONGEST + 1),
        b"+" + b"x" * (LONGEST + 1),
    ],
)
def test_what_is_no_frame_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        list(Parser().feed(data))


def lines_run(parser: Parser, cuts: list[bytes]) -> int:
    """Return how many lines of the parser's code are run for these bytes."""
    lines = 0

    def count(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        if frame.f_code.co_filename != resp.__file__:
            return None
        lines += event == "line"
        return count

    sys.settrace(count)
    try:
        for cut in cuts:
            list(parser.feed(cut))
    finally:
        sys.settrace(None)
    return lines


@pytest.mark.parametrize(
    "item", [b":1\r\n", b"$2\r\nab\r\n", b"*1\r\n_\r\n", b"%1\r\n+a\r\n+b\r\n"]
)
def test_each_byte_of_a_frame_is_read_once_however_they_are_cut(item: bytes) -> None:
    def work(items: int, size: int) -> int:
        data = b"*%d\r\n" % (items + 1) + item * items
        return lines_run(Parser(), [data[at : at + size] for at in range(0, len(data), size)])

    for size in (1, 7, 100):
        assert work(2000, size) < 2.2 * work(1000, size)
    # Nor is what belongs to no item looked through again.
    parser = Parser()
    for cut in (b"+" + b"x" * 1000, b"x" * 1000, b"x\r"):
        list(parser.feed(cut))
    assert parser._searched == len(parser._data) - 1
    assert list(parser.feed(b"\n")) == [b"x" * 2001]


# ---- what is asked beside the vectors ----


def with_lock(**settings: Any) -> Core:
    """A core that holds `k` with the token 7."""
    core = Core(0, Settings(random=lambda: 0, **settings))
    core.acquire("a", Ask((b"k",)))
    core.connected()
    core.receive({b"role": b"master", b"pushes": 1, b"peer-timeout-ms": 8000})
    if settings:
        core.receive(b"secret")
    core.receive(7)
    assert [event.kind for event in core.events] == ["granted"]
    core.output.clear()
    core.events.clear()
    return core


def test_the_server_is_asked_about_a_token() -> None:
    core = with_lock()
    core.verify("a", 7)
    assert core.output == [("LOCK.CHECK", b"k", 7)]
    core.receive(1)
    assert core.events.pop().kind == "checked"
    core.verify("a", 7)
    core.receive(ReplyError("STALE no"))
    assert (core.events[0].kind, core.events[0].error.__class__.__name__) == (
        "not_checked",
        "Stale",
    )


@pytest.mark.parametrize(("at_this_node", "kind"), [(900, "refused"), (1100, "redirected")])
def test_a_candidate_follows_its_slot_however_often_that_has_moved(
    at_this_node: int, kind: str
) -> None:
    core = Core(0, Settings(random=lambda: 0, is_cluster=True))
    core.acquire("a", Ask((b"k",), value=b"me", hops=MOST_REDIRECTIONS))
    core.connected()
    core.receive({b"role": b"master", b"pushes": 1, b"peer-timeout-ms": 8000})
    core.receive(0)
    core.tick(at_this_node)
    core.receive(Push([b"settp", b"k", b"FAILED MOVED 1 127.0.0.1:7001"]))
    assert [event.kind for event in core.events] == [kind]


def test_so_do_watches_but_not_to_and_fro() -> None:
    now = 0.0
    moves = Moves(lambda: now)
    assert [moves.follow() for _ in range(6)] == [True] * 5 + [False]
    now += 1.1
    assert moves.follow()


def test_a_replica_that_calls_a_token_stale_is_left_and_the_master_asked() -> None:
    core = with_lock(grace=9000)
    core.verify("a", 7)
    core.receive(ReplyError("STALE no"))
    core.receive({b"role": b"replica"})
    assert [order.kind for order in core.orders] == ["connect", "leave"]
    core.tick(1000)
    core.output.clear()
    core.connected()
    core.receive(1)
    entry = {b"key": b"k", b"kind": b"lock", b"label": b".1", b"token": 7, b"state": b"held"}
    core.receive([b"0", [entry]])
    assert core.output[-1] == ("LOCK.CHECK", b"k", 7)
    core.receive(1)
    assert [event.kind for event in core.events] == ["checked"]


def test_who_asks_the_server_is_told_of_a_loss() -> None:
    core = with_lock()
    core.verify("a", 7)
    core.broke()
    assert [event.kind for event in core.events] == ["lost", "not_checked"]


def test_timers_of_requests_that_are_over_are_dropped() -> None:
    core = with_lock()
    for number in range(100):
        core.acquire(number, Ask((b"k%d" % number,), wait=1000.0 + number))
        core.receive(None)
        core.receive(8 + number) if number % 2 else core.release(number)
    ping = core.next_tick
    assert ping is not None
    core.tick(ping)
    assert core.requests.next_at is None


# ---- what is asked beside a release or a loss ----


@pytest.mark.parametrize("has_session", [False, True])
def test_an_extension_beside_a_release_is_answered_before_it_also_over_a_break(
    has_session: bool,
) -> None:
    core = with_lock(**({"grace": 9000} if has_session else {}))
    core.extend("a", 500)
    core.release("a")
    core.broke()
    if has_session:
        core.tick(1000)
        core.connected()
        core.receive(1)
        core.receive(0)
    assert [event.kind for event in core.events] == ["not_extended", "released"]


def test_a_question_beside_a_release_is_answered() -> None:
    core = with_lock(grace=9000)
    core.verify("a", 7)
    core.release("a")
    core.receive(ReplyError("STALE no"))  # Which a replica might say, too.
    core.receive(0)
    core.receive({b"role": b"master"})
    assert [event.kind for event in core.events] == ["released", "not_checked"]


def test_an_extension_of_who_entered_again_and_left_is_answered_by_the_loss() -> None:
    core = with_lock()
    for handle in ("b", "c"):
        core.acquire(handle, Ask((b"l",), owner=b"me", reentrant=True))
        if handle == "b":
            core.receive(8)
    core.extend("c", 500)
    core.release("c")
    core.broke()
    told = [(event.kind, event.handle) for event in core.events if event.handle == "c"]
    assert told == [("granted", "c"), ("released", "c"), ("not_extended", "c")]


def test_nobody_is_told_held_while_all_is_being_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other threads look at it meanwhile, and the process may be stopped there (P-FENCE-4)."""
    ends: list[Callable[[Core], None]] = [
        lambda core: core.tick(1e6),
        lambda core: core.broke(),
        lambda core: core.demoted(),
    ]
    for end in ends:
        core, said = with_lock(), list[Any]()
        lose_all = core.requests.lose_all

        def look(
            reason: str, core: Core = core, said: list[Any] = said, lose: Any = lose_all
        ) -> None:
            said.append(core.check(1e6, "a"))
            lose(reason)

        monkeypatch.setattr(core.requests, "lose_all", look)
        end(core)
        assert said == ["silence"]


MASTER = {b"role": b"master", b"pushes": 1, b"peer-timeout-ms": 8000}


@pytest.mark.parametrize(
    ("end", "grace"),
    [
        (lambda core: core.receive(Push([b"lock", b"k", b"LOST ended .2"])), 9000),
        (lambda core: core.tick(8000), 9000),
        (lambda core: core.broke(), 9000),  # Then LOCK.MINE is refused for good.
        (lambda core: core.tick(8000), None),
        (lambda core: core.receive(Push([b"lock", b"k", b"LOST demoted .2"])), None),
    ],
)
def test_who_waits_is_asked_again_after_all_is_lost(
    end: Callable[[Core], None], grace: float | None
) -> None:
    """Also if a hold that lingers ends with the rest, and the connection is there for a moment."""
    core = Core(0, Settings(random=lambda: 0, grace=grace))
    core.acquire("waits", Ask((b"m",)))
    core.connected()
    core.receive(MASTER)
    if grace is not None:
        core.receive(b"secret")
    core.receive(None)
    core.acquire("lingers", Ask((b"k",), at_least=grace or 0))
    core.receive(7)
    core.release("lingers")
    core.receive(ReplyError("NOPERM no") if grace is None else 1)
    core.output.clear()
    core.orders.clear()
    end(core)
    said = [words[0] for words in served(core) if words[:2] != ("LOCK.RELEASE", b"k")]
    assert said.count("LOCK.ACQUIRE") == 1
    assert said[said.index("LOCK.ACQUIRE") - 1] == ("SESSION.START" if grace else "LOCK.SERVER")


def test_what_came_by_ask_is_released_so_when_the_client_is_closed() -> None:
    core = Core(0, Settings(random=lambda: 0, grace=9000))
    core.acquire("kept", Ask((b"k",), at_least=5000))
    core.acquire("by ASK", Ask((b"l",), is_by_ask=True))
    core.connected()
    for reply in (MASTER, b"secret", 7, b"OK", 8):
        core.receive(reply)
    core.release("kept")
    core.receive(1)
    core.output.clear()
    core.close()
    release = ("LOCK.RELEASE", b"l", "OWNER", b".2", "ALL")
    assert core.output == [("ASKING",), release, ("SESSION.DETACH",)]


def served(core: Core) -> list[Words]:
    """Be its server for some seconds, and return what it says."""
    replies: dict[Any, Any] = {"LOCK.SERVER": MASTER, "SESSION.START": b"secret"}
    replies["LOCK.MINE"] = ReplyError("NOPERM no")
    said: list[Words] = []
    ends = core.now + 5000
    while core.now < ends:
        orders, words = list(core.orders), list(core.output)
        core.orders.clear()
        core.output.clear()
        said += words
        for each in words:
            core.receive(replies.get(each[0]))
        if orders and orders[-1].kind == "connect":
            core.connected()
        elif not words:
            core.tick(min(ends, core.next_tick or ends))
    return said


@pytest.mark.skipif(sys.platform != "linux", reason="there is one clock for both")
def test_a_pause_between_its_two_clocks_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy looks as if it had been suspended otherwise (P-FENCE-3)."""
    moment, pause = 0.0, 0.0

    def read(_: int = 0) -> float:
        nonlocal moment
        moment += pause
        return moment

    monkeypatch.setattr(clock, "_elapsed", clock.Elapsed())
    monkeypatch.setattr(time, "monotonic", read)
    monkeypatch.setattr(time, "clock_gettime", read)
    began = clock.now()
    pause = 3.0
    clock.now()
    pause = 0.0
    assert clock.now() - began == 1000 * moment


# ---- slow readers ----


def taken(feed: Feed) -> list[Any]:
    values = []
    while feed._events:
        try:
            feed.next().send(None)
        except StopIteration as stop:
            values.append(stop.value.value)
    return values


def test_a_slow_watcher_learns_the_last_state_of_each_key() -> None:
    feed = Feed("names")
    feed.on_event(Event("watch", feed, (b"a", "missing")))
    feed.on_event(Event("watch", feed, (b"b", "exists")))
    assert taken(feed) == [(b"a", "missing"), (b"b", "exists")]
    for number in range(10 * MOST_EVENTS + 1):
        feed.on_event(Event("watch", feed, (b"a", "deleted" if number % 2 else "added")))
        assert len(feed._events) <= MOST_EVENTS
    feed.on_event(Event("watch", feed, (b"b", "deleted")))
    seen = taken(feed)
    changes = [change for key, change in seen if key == b"a"]
    assert changes == ["added", "deleted"] * (len(changes) // 2) + ["added"]
    assert seen[-1] == (b"b", "deleted")


@pytest.mark.parametrize(
    ("state", "changes"), [("missing", ["added", "deleted"]), ("exists", ["deleted", "added"])]
)
def test_a_watcher_that_has_read_nothing_learns_the_state_first(
    state: str, changes: list[str]
) -> None:
    """However often that has changed until it reads (P-WATCH-2)."""
    feed = Feed("names")
    feed.on_event(Event("watch", feed, (b"a", state)))
    for number in range(MOST_EVENTS):
        feed.on_event(Event("watch", feed, (b"a", changes[number % 2])))
    assert taken(feed) == [(b"a", state)]


def test_a_slow_reader_of_presence_learns_who_is_there() -> None:
    feed = Feed("names")
    feed.on_event(Event("presence", feed, (b"kept", "add", 1, b"v")))
    assert len(taken(feed)) == 1
    for number in range(MOST_EVENTS):
        feed.on_event(Event("presence", feed, (b"k%d" % number, "add", number, b"v")))
        feed.on_event(Event("presence", feed, (b"k%d" % number, "del", None, "released")))
    feed.on_event(Event("presence", feed, (b"kept", "del", None, "deleted")))
    feed.on_event(Event("presence", feed, (b"kept", "add", 2, b"w")))
    members: dict[bytes, Any] = {b"kept": 1}
    for key, change, token, _ in taken(feed):
        assert (change == "add") == (key not in members)
        members.pop(key) if change == "del" else members.update({key: token})
    assert members == {b"kept": 2}
