"""The protocol without a server: what is sent for what, and what follows from what arrives."""

from __future__ import annotations

import itertools
import sys
from types import FrameType
from typing import Any

import pytest

from tether_locks import resp
from tether_locks.core import Core, Phase, Want
from tether_locks.errors import Deadlock, LockError, Lost, Refused, Taken, Unreachable
from tether_locks.resp import LONGEST, Malformed, Parser, Push, ReplyError, encode

NULL = b"_\r\n"


def push(*words: str) -> bytes:
    return b">" + encode(words)[1:]


def sent(core: Core) -> list[list[str]]:
    return [[word.decode() for word in words] for words in Parser().feed(core.output())]


def asked(core: Core, *keys: str, label: str = "t", wait_ms: int | None = 0) -> Want:
    want = core.ask(0, tuple(key.encode() for key in keys), label.encode(), (), wait_ms)
    core.output()
    return want


def waiting(core: Core, *keys: str, label: str = "t") -> Want:
    want = asked(core, *keys, label=label)
    core.receive(0, NULL)
    assert want.phase is Phase.WAITING
    return want


def held(core: Core, *keys: str, label: str = "t", token: int = 7) -> Want:
    want = asked(core, *keys, label=label)
    core.receive(0, b":%d\r\n" % token)
    assert want.phase is Phase.HELD
    assert core.changed() == [want]
    return want


def ended(want: Want, kind: type[LockError]) -> str:
    assert want.phase is Phase.ENDED
    assert type(want.error) is kind
    return str(want.error)


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
def test_what_is_no_frame_ends_the_connection(data: bytes) -> None:
    with pytest.raises(Malformed):
        list(Parser().feed(data))
    core = Core(0)
    want = held(core, "a")
    core.receive(0, data)
    assert ended(want, Lost) == "the lock was lost: connection"


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


def test_a_reply_to_nothing_ends_the_connection() -> None:
    core = Core(0)
    core.receive(0, b":1\r\n")
    assert core.ended == "connection"


# ---- asking ----


def test_requests_say_what_is_asked_for() -> None:
    core = Core(0)
    core.ask(0, (b"a",), b"t", ("SHARED",), None, None)
    core.ask(0, (b"b", b"c"), b"t", (), 1500, 60_000)
    assert sent(core) == [
        "LOCK.ACQUIRE a SHARED OWNER t NOTIFY".split(" "),
        [
            "LOCK.MACQUIRE",
            "2",
            "b",
            "c",
            "OWNER",
            "t",
            "NOTIFY",
            "LEASE",
            "60000",
            "WAIT",
            "1500",
            "PUSH",
        ],
    ]


def test_a_want_is_granted_at_once_or_by_push() -> None:
    core = Core(0)
    assert held(core, "a").token == 7
    want = waiting(core, "b", label="u")
    assert core.changed() == []
    core.receive(0, push("lock", "b", "9 t") + push("lock", "b", "8 u"))
    assert (want.phase, want.token, core.changed()) == (Phase.HELD, 8, [want])


@pytest.mark.parametrize(
    ("said", "kind", "text"),
    [
        ("TIMEOUT t", Taken, "the time to wait is over"),
        ("FAILED NOPERM t", Refused, "NOPERM"),
        ("FAILED MOVED 12 host:1 t", Refused, "MOVED 12 host:1"),
    ],
)
def test_a_wait_may_end_without_a_grant(said: str, kind: type[LockError], text: str) -> None:
    core = Core(0)
    want = waiting(core, "a", "b")
    core.receive(0, push("lock", "a", said))
    assert text in ended(want, kind)
    assert core.is_idle


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (NULL, Taken),
        (b"-DEADLOCK a cycle\r\n", Deadlock),
        (b"-QUARANTINE 500 ms\r\n", Taken),
        (b"-NOPERM no\r\n", Refused),
    ],
)
def test_a_request_may_be_refused(reply: bytes, kind: type[LockError]) -> None:
    core = Core(0)
    want = asked(core, "a", wait_ms=None)
    core.receive(0, reply)
    ended(want, kind)
    assert core.is_idle
    assert core.changed() == [want]
    held(core, "a")


def test_an_owner_that_asks_twice_is_refused_here() -> None:
    for make in (asked, waiting, held):
        core = Core(0)
        make(core, "a")
        with pytest.raises(Deadlock):
            core.ask(0, (b"b", b"a"), b"t")
        assert sent(core) == []


# ---- giving up ----

GIVE_UP = [["LOCK.CANCEL", "a", "OWNER", "t"], ["LOCK.RELEASE", "a", "OWNER", "t", "ALL"]]
NOT_HELD = b"-NOTHELD this owner does not hold the lock\r\n"


@pytest.mark.parametrize("is_answered", [False, True])
@pytest.mark.parametrize("grant_is_first", [False, True])
def test_who_gives_up_leaves_nothing_behind(is_answered: bool, grant_is_first: bool) -> None:
    core = Core(0)
    want = (waiting if is_answered else asked)(core, "a")
    core.give_up(0, want)
    core.give_up(0, want)
    assert sent(core) == GIVE_UP
    # The same owner may ask again before all this is answered.
    again = asked(core, "a")
    if not is_answered:
        core.receive(0, NULL)
    if grant_is_first:
        core.receive(0, push("lock", "a", "7 t") + b":7\r\n:0\r\n")
    else:
        core.receive(0, b":1\r\n" + NOT_HELD)
    assert (want.phase, want.error) == (Phase.ENDED, None)
    assert (core.cancels_first, core.grants_first) == (not grant_is_first, grant_is_first)
    core.receive(0, NULL + push("lock", "a", "9 t"))
    assert (again.phase, again.token) == (Phase.HELD, 9)


def test_a_grant_in_the_reply_is_given_back_too() -> None:
    core = Core(0)
    want = asked(core, "a")
    core.give_up(0, want)
    core.receive(0, b":7\r\n:7\r\n:0\r\n")
    assert core.is_idle
    assert core.grants_first == 1


def test_who_gives_up_after_the_wait_has_ended_is_counted_as_neither() -> None:
    core = Core(0)
    want = waiting(core, "a")
    core.give_up(0, want)
    core.receive(0, push("lock", "a", "TIMEOUT t") + b":0\r\n" + NOT_HELD)
    assert core.is_idle
    assert (core.cancels_first, core.grants_first) == (0, 0)


def test_of_several_all_are_given_back() -> None:
    core = Core(0)
    want = waiting(core, "a", "b")
    core.give_up(0, want)
    assert [words[:2] for words in sent(core)] == [
        ["LOCK.CANCEL", "a"],
        ["LOCK.RELEASE", "a"],
        ["LOCK.RELEASE", "b"],
    ]
    core.receive(0, push("lock", "a", "7 t") + b":7\r\n:0\r\n")
    assert not core.is_idle
    core.receive(0, b":0\r\n")
    assert core.is_idle


@pytest.mark.parametrize("replies", [b"-NOPERM no\r\n", b":7\r\n-NOPERM no\r\n"])
def test_what_the_server_does_not_take_back_ends_with_the_connection(replies: bytes) -> None:
    core = Core(0)
    other = held(core, "b")
    want = waiting(core, "a")
    core.give_up(0, want)
    core.receive(0, replies)
    assert core.ended == "connection"
    ended(other, Lost)


# ---- releasing and losing ----


def test_a_release_ends_with_its_answer() -> None:
    core = Core(0)
    want = held(core, "a", "b")
    core.release(0, want)
    core.release(0, want)
    assert len(sent(core)) == 2
    core.receive(0, b":0\r\n")
    assert want.phase is Phase.RELEASING
    core.receive(0, b":0\r\n")
    assert (want.phase, want.error, core.lost(0, want)) == (Phase.ENDED, None, "released")


def test_what_was_lost_cannot_be_released() -> None:
    core = Core(0)
    want = held(core, "a")
    core.release(0, want)
    core.receive(0, NOT_HELD)
    ended(want, Lost)


def test_a_loss_has_the_servers_reason_and_is_its_owners_alone() -> None:
    core = Core(0)
    want, other = held(core, "a"), held(core, "b", label="u")
    core.receive(0, push("lock", "a", "LOST evicted t"))
    assert core.lost(0, want) == "evicted"
    assert core.lost(0, other) is None
    assert core.changed() == [want]


def test_of_several_the_loss_of_one_gives_back_the_others() -> None:
    core = Core(0)
    want = held(core, "a", "b", "c")
    core.receive(0, push("lock", "b", "LOST deleted t"))
    ended(want, Lost)
    assert [words[1] for words in sent(core)] == ["a", "c"]
    core.receive(0, b":0\r\n" + NOT_HELD)
    assert core.ended is None


def test_a_loss_under_another_name_is_found_by_asking() -> None:
    core = Core(0)
    lost, kept = held(core, "a"), held(core, "b", token=8)
    core.receive(0, push("lock", "", "LOST deleted t"))
    assert [words[:2] for words in sent(core)] == [["LOCK.CANCEL", "a"], ["LOCK.CANCEL", "b"]]
    core.receive(0, b":0\r\n:8\r\n")
    ended(lost, Lost)
    assert kept.phase is Phase.HELD


def test_the_end_of_the_connection_ends_everything_once() -> None:
    core = Core(0)
    want, other = held(core, "a"), waiting(core, "b")
    answers: list[object] = []
    core.call(0, ("PING",), answers.append)
    core.end("connection")
    core.end("silence")
    assert (core.lost(0, want), core.ended) == ("connection", "connection")
    ended(other, Unreachable)
    assert [type(answer) for answer in answers] == [Lost]
    assert core.changed() == [want, other]
    with pytest.raises(Unreachable):
        core.ask(0, (b"c",), b"t")


# ---- what a server refuses for a moment ----

REFUSALS = ["BUSY", "CLUSTERDOWN", "LOADING", "MISCONF", "NOREPLICAS", "OOM", "TRYAGAIN"]


def with_fence() -> Core:
    core = Core(0)
    core.fence = FENCE
    return core


def retried(core: Core, now: float) -> list[str]:
    """Let time go by; return what is sent then, but pings."""
    core.tick(now)
    return [" ".join(words) for words in sent(core) if words != ["PING"]]


@pytest.mark.parametrize("code", REFUSALS)
def test_a_release_that_is_refused_for_a_moment_is_sent_again_and_ends_nothing(code: str) -> None:
    core = with_fence()
    other, want = held(core, "b"), held(core, "a", "c", token=8)
    core.release(0, want)
    sent(core)
    core.receive(0, b":0\r\n-%s no\r\n" % code.encode())
    # It is the client's to release; who waits for the release need not wait on.
    assert core.changed() == [want]
    assert (want.phase, want.error, core.lost(0, want)) == (Phase.RELEASING, None, "released")
    for now in (0.5, 1.0):
        assert retried(core, now) == ["LOCK.RELEASE c OWNER t ALL"]
        assert retried(core, now) == []
        core.receive(now, b"-%s no\r\n" % code.encode())
    assert retried(core, 1.5) == ["LOCK.RELEASE c OWNER t ALL"]
    core.receive(1.5, b":0\r\n")
    assert (want.phase, want.error) == (Phase.ENDED, None)
    assert core.lost(1.5, other) is None
    assert retried(core, 1.9) == []


def test_what_is_given_up_is_so_though_the_server_refuses_it_for_a_moment() -> None:
    core = with_fence()
    want = waiting(core, "a")
    core.give_up(0, want)
    sent(core)
    core.receive(0, b"-BUSY no\r\n-BUSY no\r\n")
    assert retried(core, 1) == [" ".join(words) for words in GIVE_UP]
    core.receive(1, b":1\r\n" + NOT_HELD)
    assert (want.phase, want.error, core.ended) == (Phase.ENDED, None, None)


def test_a_release_that_is_late_ends_no_later_hold_of_the_same_owner() -> None:
    core = with_fence()
    core.release(0, held(core, "a"))
    sent(core)
    core.receive(0, b"-BUSY no\r\n")
    # A request is sent after the release; one that may not wait is not sent at all.
    impatient, other = asked(core, "a", wait_ms=None), asked(core, "b")
    ended(impatient, Taken)
    deferred = core.ask(0, (b"c", b"a"), b"t", (), 0)
    core.receive(0, b":8\r\n")
    assert (other.phase, deferred.phase, sent(core)) == (Phase.HELD, Phase.ASKED, [])
    assert retried(core, 1) == ["LOCK.RELEASE a OWNER t ALL"]
    core.receive(1, b":0\r\n")
    assert [words[0] for words in sent(core)] == ["LOCK.MACQUIRE"]
    core.receive(1, b":9\r\n")
    assert deferred.token == 9


@pytest.mark.parametrize("is_granted", [False, True])
def test_a_request_that_overtook_the_refused_release_settles_it(is_granted: bool) -> None:
    core = with_fence()
    former = waiting(core, "a")
    core.give_up(0, former)
    again = asked(core, "a")
    core.receive(0, b"-BUSY no\r\n-BUSY no\r\n")
    assert retried(core, 1) == []  # The other one is on its way.
    # An owner that still has a former one would have been refused.
    core.receive(1, b":9\r\n" if is_granted else NULL)
    assert retried(core, 2) == []
    assert (former.phase, former.error) == (Phase.ENDED, None)
    core.receive(2, b"" if is_granted else push("lock", "a", "9 t"))
    assert (again.phase, again.token) == (Phase.HELD, 9)
    assert retried(core, 3) == []


def test_a_request_that_is_put_off_with_the_release_can_be_given_up() -> None:
    core = with_fence()
    core.release(0, held(core, "a"))
    core.receive(0, b"-BUSY no\r\n")
    deferred = core.ask(0, (b"a",), b"t")
    core.give_up(0, deferred)
    assert (deferred.phase, deferred.error) == (Phase.ENDED, None)
    core.output()
    assert retried(core, 1) == ["LOCK.RELEASE a OWNER t ALL"]
    core.receive(1, b":0\r\n")
    assert core.is_idle


@pytest.mark.parametrize("code", REFUSALS)
def test_what_is_put_off_is_sent_on_the_next_connection(code: str) -> None:
    no = b"-%s no\r\n" % code.encode()
    core = with_session()
    want, kept = held(core, "a"), held(core, "b", token=8)
    core.release(0, want)
    sent(core)
    if code in ("LOADING",):
        return  # That is a break by itself.
    core.receive(0, no)
    deferred = core.ask(0, (b"a",), b"t")
    # The server that has the session may say so, too.
    core.broke(1)
    core.connected(1)
    core.receive(1, no)
    assert core.is_down
    core.connected(2)
    sent(core)
    core.receive(2, b":1\r\n")
    expected = ["RELEASE a OWNER t ALL", "CANCEL b OWNER t", "CANCEL a OWNER t"]
    assert [" ".join(words) for words in sent(core)] == ["LOCK." + line for line in expected]
    # Neither does it lose what it is asked about.
    core.receive(2, b":0\r\n" + no + no)
    assert core.lost(2, kept) is None
    assert retried(core, 3) == ["LOCK.CANCEL b OWNER t", "LOCK.CANCEL a OWNER t"]
    core.receive(3, b":8\r\n:0\r\n+PONG\r\n")
    assert [words[0] for words in sent(core)] == ["LOCK.ACQUIRE"]
    core.receive(3, b":9\r\n")
    assert (deferred.token, core.lost(3, kept)) == (9, None)


# ---- the fence ----


def test_an_answer_vouches_from_the_moment_at_which_it_was_asked_for() -> None:
    core = Core(0)
    core.fence = 4
    want = held(core, "a")
    core.tick(1)
    assert sent(core) == [["PING"]]
    # The answer is late. It counts from 1, not from 3.
    core.receive(3, b"+PONG\r\n")
    assert core.lost(4.9, want) is None
    assert core.lost(5, want) == "silence"
    core.tick(5)
    assert core.ended == "silence"
    assert core.changed() == [want]


def test_what_arrives_after_the_fence_has_fallen_counts_for_nothing() -> None:
    core = Core(0)
    core.fence = 4
    want = asked(core, "a")
    core.receive(9, b":7\r\n")
    ended(want, Unreachable)


def test_pings_are_sent_in_time_and_no_oftener() -> None:
    core = Core(0)
    core.fence = 4
    for quarter in range(1, 41):
        core.tick(quarter / 4)
        for _ in sent(core):
            core.receive(quarter / 4, b"+PONG\r\n")
    assert core.ended is None
    assert core.answered_at == 10


def test_errors_are_replies() -> None:
    core = Core(0)
    answers: list[object] = []
    core.call(0, ("PING",), answers.append)
    core.receive(0, b"-ERR what\r\n")
    assert isinstance(answers[0], ReplyError)


# ---- sessions ----

FENCE = 8
RESUME = ["SESSION.RESUME", "secret", "NOTIFY"]


def with_session() -> Core:
    core = Core(0)
    core.secret = b"secret"
    core.fence = FENCE
    return core


def resume(core: Core, now: float = 1) -> list[str]:
    """Break the connection and resume; return what is sent then, a command a line."""
    core.broke(now)
    assert core.is_down
    assert sent(core) == []
    core.connected(now)
    assert sent(core) == [RESUME]
    core.receive(now, b":1\r\n")
    assert core.is_up
    return [" ".join(words) for words in sent(core)]


def test_after_a_break_what_is_held_is_looked_up() -> None:
    core = with_session()
    lost, kept, both = held(core, "a"), held(core, "b", token=8), held(core, "c", "d", token=9)
    assert resume(core) == [f"LOCK.CANCEL {key} OWNER t" for key in "abcd"]
    core.receive(1, b":0\r\n:8\r\n:9\r\n:0\r\n")
    assert core.lost(1, lost) == core.lost(1, both) == "connection"
    assert core.lost(1, kept) is None
    # The other of the two is given back.
    assert sent(core) == [["LOCK.RELEASE", "c", "OWNER", "t", "ALL"]]


@pytest.mark.parametrize("was_answered", [False, True])
def test_after_a_break_what_is_asked_for_is_granted_or_asked_for_again(was_answered: bool) -> None:
    for tokens, becomes in ((b":0\r\n:0\r\n", None), (b":7\r\n:7\r\n", 7)):
        core = with_session()
        want = (waiting if was_answered else asked)(core, "a", "b")
        assert resume(core) == ["LOCK.CANCEL a OWNER t", "LOCK.CANCEL b OWNER t"]
        core.receive(1, tokens)
        if becomes:
            assert (want.phase, want.token, sent(core)) == (Phase.HELD, 7, [])
        else:
            assert sent(core)[0][:4] == ["LOCK.MACQUIRE", "2", "a", "b"]
            core.receive(1, NULL + push("lock", "a", "9 t"))
            assert (want.phase, want.token) == (Phase.HELD, 9)


def test_of_several_that_were_granted_and_partly_lost_the_rest_is_given_back() -> None:
    core = with_session()
    want = waiting(core, "a", "b")
    resume(core)
    core.receive(1, b":7\r\n:0\r\n")
    release, again = sent(core)
    assert release == ["LOCK.RELEASE", "a", "OWNER", "t", "ALL"]
    assert again[0] == "LOCK.MACQUIRE"
    assert want.phase is Phase.ASKED


def test_the_time_to_wait_goes_on_during_a_break() -> None:
    for back_at, words in ((2, ["WAIT", "1000", "PUSH"]), (3.5, [])):
        core = with_session()
        want = asked(core, "a", wait_ms=3000)
        core.receive(0, NULL)
        resume(core, back_at)
        core.receive(back_at, b":0\r\n")
        again = sent(core)
        if words:
            assert again[0][-3:] == words
        else:
            assert again == []
            ended(want, Taken)


def test_who_has_waited_long_enough_does_not_wait_for_a_connection() -> None:
    core = with_session()
    want = asked(core, "a", wait_ms=1000)
    core.broke(0)
    core.tick(0.9)
    assert want.phase is Phase.ASKED
    core.tick(1)
    ended(want, Taken)
    core.connected(2)
    core.receive(2, b":0\r\n")
    # It may have been granted.
    assert sent(core)[1:] == [["LOCK.RELEASE", "a", "OWNER", "t", "ALL"]]


def test_what_was_given_up_or_released_before_a_break_is_so_after_it() -> None:
    core = with_session()
    given_up, released = waiting(core, "a"), held(core, "b", token=8)
    core.give_up(0, given_up)
    core.release(0, released)
    sent(core)
    # The same owner asks again: what was granted to its former request must be gone by then.
    again = asked(core, "a")
    assert resume(core) == [
        "LOCK.CANCEL a OWNER t",
        "LOCK.RELEASE a OWNER t ALL",
        "LOCK.RELEASE b OWNER t ALL",
        "LOCK.CANCEL a OWNER t",
    ]
    # The release of b was carried out before the break: that is no loss.
    core.receive(1, b":7\r\n:0\r\n" + NOT_HELD + b":0\r\n")
    for want in (given_up, released):
        assert (want.phase, want.error) == (Phase.ENDED, None)
    assert sent(core)[0][:2] == ["LOCK.ACQUIRE", "a"]
    core.receive(1, b":9\r\n")
    assert again.token == 9


def test_what_is_done_during_a_break_is_done_after_it() -> None:
    core = with_session()
    given_up, released, lost = waiting(core, "a"), held(core, "b"), held(core, "c")
    answers: list[object] = []
    core.broke(0)
    core.give_up(0, given_up)
    core.release(0, released)
    core.release(0, lost)
    core.call(0, ("LOCK.EXTEND", "b", 5), answers.append, again=True)
    again = core.ask(0, (b"d",), b"t")
    core.connected(1)
    core.receive(1, b":1\r\n")
    assert [" ".join(words) for words in sent(core)[1:]] == [
        "LOCK.CANCEL a OWNER t",
        "LOCK.RELEASE a OWNER t ALL",
        "LOCK.RELEASE b OWNER t ALL",
        "LOCK.RELEASE c OWNER t ALL",
        "LOCK.EXTEND b 5",
        "LOCK.CANCEL d OWNER t",
    ]
    core.receive(1, b":0\r\n" + NOT_HELD + b":0\r\n" + NOT_HELD + b":1\r\n:0\r\n")
    assert (released.error, answers) == (None, [1])
    assert core.lost(1, lost) == "deleted"
    assert again.phase is Phase.ASKED
    assert sent(core)[0][:2] == ["LOCK.ACQUIRE", "d"]


def test_a_second_break_changes_nothing() -> None:
    core = with_session()
    want, other = held(core, "a"), waiting(core, "b", label="u")
    core.release(0, want)
    sent(core)
    core.broke(1)
    core.connected(1)
    sent(core)
    expected = ["LOCK.RELEASE a OWNER t ALL", "LOCK.CANCEL b OWNER u"]
    assert resume(core, 2) == expected
    assert resume(core, 3) == expected
    core.receive(3, b":0\r\n:8\r\n")
    assert (want.phase, other.token) == (Phase.ENDED, 8)


def test_a_session_that_is_over_is_the_end() -> None:
    core = with_session()
    want, other = held(core, "a"), waiting(core, "b")
    core.broke(1)
    core.connected(1)
    core.receive(1, b"-NOSESSION there is no such session\r\n")
    assert core.lost(1, want) == "connection"
    ended(other, Unreachable)


@pytest.mark.parametrize("code", ["LOADING", "READONLY", "MASTERDOWN"])
def test_a_server_that_cannot_answer_yet_is_asked_again_and_vouches_for_nothing(code: str) -> None:
    core = with_session()
    want = held(core, "a")
    core.broke(1)
    for now in (2, 4, 6):
        core.connected(now)
        core.receive(now, b"-%s wait\r\n" % code.encode())
        assert core.is_down
    core.tick(7.9)
    assert core.lost(7.9, want) is None
    core.tick(8)
    assert core.lost(8, want) == "silence"


def test_a_session_vouches_again_from_the_moment_at_which_it_was_asked_for() -> None:
    core = with_session()
    want = held(core, "a")
    core.broke(1)
    core.connected(5)
    core.receive(6, b":1\r\n")
    assert core.lost(12.9, want) is None
    assert core.lost(13, want) == "silence"
    # Too late is too late.
    core = with_session()
    want = held(core, "a")
    core.broke(1)
    core.connected(7)
    core.receive(8, b":1\r\n")
    assert core.ended == "silence"


def test_a_connection_that_does_not_answer_is_left_in_half_of_the_fences_time() -> None:
    core = with_session()
    want = held(core, "a")
    core.tick(3.9)
    assert core.is_up
    core.tick(4)
    assert core.is_down
    core.connected(4)
    core.tick(7.9)
    assert core.is_resuming
    assert core.lost(7.9, want) is None
    core.tick(8)
    ended(want, Lost)
    core = with_session()
    core.broke(0)
    core.connected(0)
    core.tick(4)
    assert core.is_down


def test_a_server_that_is_no_master_any_longer_is_left() -> None:
    for what in (push("lock", "a", "LOST demoted t"), b"-READONLY no\r\n"):
        core = with_session()
        want = held(core, "a")
        asked(core, "b")
        core.receive(0, what)
        assert core.is_down
        assert want.phase is Phase.HELD
        # Without a session this is the end: the next request is made where the master is.
        core = Core(0)
        want, other = held(core, "a"), asked(core, "b")
        core.receive(0, what)
        assert core.ended == "demoted"
        assert ended(want, Lost) == "the lock was lost: demoted"
        ended(other, Unreachable)


def test_a_wait_that_somebody_ended_is_told_from_one_that_ended_with_the_masters_rule() -> None:
    for role, make in itertools.product((b"master", b"replica"), (with_session, with_fence)):
        core = make()
        want = waiting(core, "a")
        core.receive(0, push("lock", "a", "FAILED UNBLOCKED t"))
        assert sent(core) == [["LOCK.SERVER"]]
        core.receive(0, b"%1\r\n+role\r\n+" + role + b"\r\n")
        if role == b"master":
            assert "UNBLOCKED" in ended(want, Refused)
        elif core.secret is not None:
            assert core.is_down
            assert want.phase is Phase.ASKED
        else:
            ended(want, Unreachable)


def test_the_end_during_a_break_ends_everything() -> None:
    core = with_session()
    want, other = held(core, "a"), waiting(core, "b")
    answers: list[object] = []
    core.broke(0)
    core.call(0, ("LOCK.EXTEND", "a", 5), answers.append, again=True)
    core.end("closed")
    assert core.lost(0, want) == "closed"
    ended(other, Unreachable)
    assert [type(answer) for answer in answers] == [Lost]
    core.connected(1)
    assert sent(core) == []


def reply_map(*pairs: tuple[str, bytes]) -> bytes:
    return b"%%%d\r\n" % len(pairs) + b"".join(bulk(name) + value for name, value in pairs)


def bulk(text: str) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(text), text.encode())


def test_what_no_want_claims_on_another_server_is_released_unless_a_request_is_on_its_way() -> None:
    core = with_session()
    core.run_id = b"one"
    page = b"*2\r\n" + bulk("0") + b"*1\r\n"
    page += reply_map(("key", bulk("k")), ("holders", b"*1\r\n:3\r\n"))
    holder = reply_map(("client", b":3\r\n"), ("label", bulk("t")), ("token", b":7\r\n"))
    info = reply_map(("kind", bulk("exclusive")), ("holders", b"*1\r\n" + holder))
    assert resume(core) == ["LOCK.SERVER"]
    core.receive(1, reply_map(("run-id", bulk("two"))) + b":3\r\n" + page)
    assert sent(core)[-1] == ["LOCK.INFO", "k", "COUNT", "1000"]
    want = asked(core, "k")
    core.receive(1, info + b"-DEADLOCK\r\n")
    assert (want.phase, sent(core), core.run_id) == (Phase.ENDED, [], b"one")
    core.tick(3)
    assert [words[0] for words in sent(core)] == ["PING", "CLIENT"]
    core.receive(3, b"+PONG\r\n:3\r\n" + page + info)
    assert sent(core)[-1] == ["LOCK.RELEASE", "k", "OWNER", "t", "ALL"]
    core.receive(3, b":0\r\n")
    assert core.run_id == b"two"
    assert resume(core, 4) == ["LOCK.SERVER"]
