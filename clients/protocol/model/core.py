"""The rules of protocol.md as a program: calls and frames in, frames and events out.

One connection at a time. It exists to run the vectors, which expect what these rules say. It has no
socket, no clock and no user; do not build a client on it. `broken` names rules that it then breaks,
so that check.py can see whether the vectors notice.
"""

from __future__ import annotations

from functools import partial

MOMENTARY = {"BUSY", "LOADING", "CLUSTERDOWN", "TRYAGAIN"}
UNWRITABLE = {"NOREPLICAS", "MISCONF", "OOM"}
NOT_HERE = {"READONLY", "MASTERDOWN"}
VOUCH_FOR_NOTHING = {"LOADING", "MASTERDOWN", "READONLY"}
MARGIN, SHORTEST, SERVERS_WORD, SOUND, LONGEST = 1000, 100, 100, 1000, 1000
CONNECT_WITHIN = 5000
MOST_ASKED_AGAIN = 64
MOST = (1 << 53) - 1


class Error(Exception):
    def __init__(self, text):
        super().__init__(text)
        self.code = text.split(" ", 1)[0]


def code(frame):
    return frame.code if isinstance(frame, Error) else ""


class Request:
    """`phase`: queued, asked, waiting, held, extending or kept (P-LEAST-2), releasing, or over."""

    def __init__(self, core, name, call):
        self.id = name
        self.is_temporary = call.get("temporary") is not None
        self.value = call.get("temporary")
        self.is_named = not call.get("seq")  # P-TEMP-3: else it has no place until it is.
        self.keys = list(call["keys"])
        self.label = b"" if self.is_temporary else core.label(call)
        self.call = call
        self.task = call.get("task")
        if self.is_temporary and self.task is None and name is not None:
            self.task = core.label(
                {}
            )  # Its label is everybody's, and would be the task (P-OWNER-6).
        self.wait = 0 if call.get("seq") else call.get("wait")  # None: for ever; 0: not at all.
        self.began = core.now
        self.phase = "queued"
        self.token = 0
        self.is_given_up = self.was_sent_before = self.has_waited = self.is_silent = False
        self.is_elected = call.get("elect", False)
        self.refusal = self.early = self.lease_from = self.granted = None
        self.floor = 0
        self.was_granted = False
        self.explained = set()  # Keys of which a push said that they are lost.
        self.unsettled = {}  # A key to release, and whether that is on the wire.
        self.depth = [name]  # All requests that share the hold.
        self.extensions = []

    @property
    def leases(self):
        """P-LEASE-2: (since when, how long), of which the one that ends first counts."""
        sent = [(each["sent"], each["lease"]) for each in self.extensions if each["sent"]]
        return [*([self.lease_from] if self.lease_from else []), *sent]

    @property
    def places(self):
        keys = self.keys if self.is_named else []
        return [(self.is_temporary, key, self.label) for key in keys]

    def with_owner(self, words):
        return words if self.is_temporary else [*words, "OWNER", self.label]

    def release(self, key):
        if self.is_temporary:
            return ["DELTP", key]
        return ["LOCK.RELEASE", key, "OWNER", self.label, "ALL"]

    def left(self, core):
        return None if self.wait is None else max(0, self.wait - core.elapsed(self.began))

    def words(self, core):
        call = self.call
        if self.is_temporary:
            words = ["SETTP", *self.keys, self.value, "SEQ" if call.get("seq") else "TOKEN"]
        elif len(self.keys) > 1:
            words = ["LOCK.MACQUIRE", len(self.keys), *self.keys]
        else:
            words = ["LOCK.ACQUIRE", *self.keys]
        if call.get("shared"):
            words.append("SHARED")
        if call.get("permits"):
            permits, total = call["permits"]
            words += ["PERMITS", permits, "OF", total]
        words = self.with_owner(words)
        if self.task:
            words += ["TASK", self.task]
        words.append("NOTIFY")
        if call.get("lease"):
            words += ["LEASE", round_up(call["lease"])]
        if self.wait != 0 or call.get("acks"):
            left = self.left(core)
            words += ["WAIT", 0 if left is None else max(1, round_up(left)), "PUSH"]
        if call.get("acks"):
            words += ["ACKS", call["acks"]]
            if call.get("acktimeout"):
                words += ["ACKTIMEOUT", call["acktimeout"]]
        return words


def round_up(ms):
    return min(MOST, max(1, int(-(-ms // 1))))


class Core:
    def __init__(self, now, client, broken=()):
        self.now = now
        self.client = client
        self.broken = set(broken)
        self.out, self.events, self.orders = [], [], []
        self.link = "none"  # none, opening, greeting, resuming, up
        self.link_since = now
        self.replies = []
        self.secret = None
        self.fence = None
        self.vouched = self.pinged = now
        self.is_former_silent = False
        self.requests = []
        self.places = {}
        self.labels = 0
        self.greatest = 0  # Of all tokens so far.
        self.mine = None
        self.failed = 0
        self.connect_at = None  # (stamp, delay)
        self.not_before = None  # P-RETRY-2: of a connection that nobody wanted back.
        self.retries, self.retry_at, self.refused = [], None, 0
        self.watches, self.watched, self.asked_again = {}, {}, 0
        self.presences, self.prefixes = {}, {}
        self.is_closed = False
        self.closing_at = None
        self.has_said_clock = False

    def keeps(self, rule):
        return rule not in self.broken

    # ---- time ----

    def elapsed(self, stamp):
        mono, boot = self.now[0] - stamp[0], self.now[1] - stamp[1]
        clock = self.client.get("boot_clock", True)
        if not clock or not self.keeps("P-FENCE-3"):
            return mono
        return max(mono, boot - 20 if clock == "uptime" else boot)

    def timers(self):
        """(what, how long until then)."""

        def until(stamp, ms):
            return ms - self.elapsed(stamp)

        yield from (
            ("wait", until(r.began, r.wait + SERVERS_WORD), r)
            for r in self.requests
            if r.wait and not r.is_given_up and r.phase in ("queued", "asked", "waiting")
        )
        yield from (
            ("lease", until(*lease), r)
            for r in self.requests
            for lease in r.leases
            if r.phase == "held" and self.keeps("P-LEASE-2")
        )
        yield from (("kept", until(*r.kept), r) for r in self.requests if r.phase == "kept")
        if self.closing_at:
            yield "closed", until(*self.closing_at), None
        if self.link in ("greeting", "resuming"):
            within = CONNECT_WITHIN
            if self.secret and self.fence:
                within = min(within, self.fence / 2)
            yield "greeting", until(self.link_since, within), None
        if self.connect_at:
            yield "connect", until(*self.connect_at), None
        if self.fence is None:
            return
        yield "fence", until(self.vouched, self.fence), None
        if self.link == "up" and self.secret and self.holds() and self.keeps("P-FENCE-10"):
            yield "stuck", until(self.vouched, self.fence / 2), None
        if self.link == "up":
            yield "ping", until(self.pinged, self.fence / 4), None
            if self.retry_at:
                yield "retry", until(*self.retry_at), None

    def next_tick(self):
        """The time on the monotonic clock at which `tick` has something to do, or None."""
        due = [ms for _, ms, _ in self.timers()]
        return self.now[0] + max(0, min(due)) if due else None

    def tick(self, now):
        self.now = now
        order = (
            "fence",
            "wait",
            "lease",
            "kept",
            "closed",
            "stuck",
            "greeting",
            "connect",
            "retry",
            "ping",
        )
        for what in order if any(left <= 0 for _, left, _ in self.timers()) else ():
            for name, left, request in list(self.timers()):
                if name == what and left <= 0:
                    getattr(self, "on_" + what)(request)

    def on_fence(self, _):
        if not self.keeps("P-FENCE-8"):
            return
        was_up = self.link != "none"
        had_session = self.secret is not None
        self.fence = None
        self.cut()  # What follows from the losses goes to the next connection.
        self.lose_all("silence")
        self.secret = None
        if was_up:
            stay = (
                0
                if had_session or not self.keeps("P-FENCE-9")
                else self.client.get("stop_within", 0)
            )
            self.drop({"leave_after": stay} if stay else "leave")

    def on_wait(self, request):
        if request.phase == "waiting" and self.link == "up":
            error = ("taken", "TAKEN")
        elif request.refusal:
            error = ("refused", request.refusal)
        elif request.phase == "queued" and self.link == "up":
            error = ("taken", "TAKEN")
        else:
            error = ("unreachable", "UNREACHABLE")
        self.tell({"refused": request.id, "error": error[0], "code": error[1]})
        request.is_silent = True
        self.give_up(request)

    def on_lease(self, request):
        if request.phase == "held":
            request.explained.update(request.keys)
            self.lose(request, "lease", [])

    def on_kept(self, request):
        self.end(request)

    def on_closed(self, _):
        self.closing_at = None
        self.drop("leave")

    def on_greeting(self, _):
        self.leave()

    def on_stuck(self, _):
        self.leave()

    def on_connect(self, _):
        self.connect_at = self.not_before = None
        self.link = "opening"
        self.orders.append("connect")

    def on_ping(self, _):
        self.pinged = self.now
        if self.keeps("P-FENCE-7"):
            self.send(["PING"], lambda reply: None)
        if self.client.get("cluster") and self.keeps("P-CLUSTER-7"):
            self.ask_again()

    def on_retry(self, _):
        self.retry_at = None
        retries, self.retries = self.retries, []
        for again in retries:
            again()

    def try_again(self, again):
        if self.retry_at is None:
            self.retry_at = (self.now, self.delay(self.refused, LONGEST))
            self.refused += 1
        self.retries.append(again)

    def delay(self, failed, longest):
        return min(longest, 20 * 2 ** min(failed, 16)) * (1 + self.client.get("random", 0)) / 2

    # ---- what the user calls ----

    def label(self, call):
        if call.get("owner") is not None:
            return call["owner"]
        if not self.keeps("P-OWNER-1"):
            return b"task"
        self.labels += 1
        return b".%d" % self.labels

    def tell(self, event):
        self.events.append(event)

    def acquire(self, name, call):
        def refuse(error, code):
            self.tell({"refused": name, "error": error, "code": code})

        keys, owner = call["keys"], call.get("owner")
        if self.is_closed:
            return refuse("closed", "CLOSED")
        if not keys or len(set(keys)) < len(keys):
            return refuse("refused", "KEYS")
        if owner is not None and owner.startswith(b"."):
            return refuse("refused", "OWNER")
        if call.get("acks") and self.client.get("grace") is None:
            return refuse("unfit", "UNFIT")
        if call.get("at_least", 0) > (self.client.get("grace") or 0):
            return refuse("unfit", "UNFIT")
        if self.client.get("cluster") and len({slot(key) for key in keys}) > 1:
            return refuse("crossslot", "CROSSSLOT")
        request = Request(self, name, call)
        others = [self.places[p][-1] for p in request.places if self.places.get(p)]
        is_released = ("releasing", "extending", "kept")
        standing = [r for r in others if r.phase not in is_released and not r.is_given_up]
        if standing:
            if self.reenters(standing, request):
                base = standing[0]
                base.depth.append(name)
                return self.tell({"granted": name, "token": base.token})
            return refuse("taken", "TAKEN") if request.wait == 0 else refuse("deadlock", "DEADLOCK")
        is_there = any(self.is_left(r) for r in others) or self.task_has_it(request)
        if request.wait == 0 and is_there and self.keeps("P-OWNER-4"):
            return refuse("taken", "TAKEN")
        self.requests.append(request)
        for place in request.places:
            self.places.setdefault(place, []).append(request)
        self.need_link()
        self.send_if_first(request)
        return None

    def is_left(self, request):
        """P-OWNER-4: its caller has released it, and the server has it still."""
        is_refused = request.phase == "releasing" and request.refusal
        return bool(is_refused) or request.phase in ("extending", "kept")

    def task_has_it(self, request):
        """P-OWNER-4: to the server, the task of this request still has one of its keys."""
        return bool(request.task) and any(
            r.task == request.task and self.is_left(r) and set(r.keys) & set(request.keys)
            for r in self.requests
        )

    def reenters(self, standing, request):
        base = standing[0]
        same = {
            "keys": base.keys,
            "mode": [base.call.get(n) for n in ("shared", "permits", "reentrant")],
        }
        asked = {
            "keys": request.keys,
            "mode": [request.call.get(n) for n in ("shared", "permits", "reentrant")],
        }
        is_named = request.call.get("reentrant") and request.call.get("owner") is not None
        return bool(is_named and base.phase == "held" and same == asked)

    def find(self, name):
        return next((r for r in self.requests if name in r.depth and not r.is_silent), None)

    def release_call(self, name):
        request = self.find(name)
        if (
            request is None
            or request.phase in ("releasing", "kept", "extending")
            or request.is_given_up
        ):
            return None
        if request.phase != "held":
            return self.give_up(request)
        if len(request.depth) > 1:
            request.depth.remove(name)
            return self.tell({"released": name})
        self.end_extensions(request)
        rest = request.call.get("at_least", 0) - self.elapsed(request.granted)
        if rest > 0 and self.keeps("P-LEAST-2"):
            return self.keep(request)
        request.phase = "releasing"
        self.send_releases(request, request.keys)
        return None

    def give_up_call(self, name):
        for request in self.requests:  # Also one whose caller was told of its end.
            request.is_elected = request.is_elected and name not in request.depth
        request = self.find(name)
        if request is None:
            return None
        return self.release_call(name) if request.phase == "held" else self.give_up(request)

    def give_up(self, request):
        if request.phase in ("releasing", "kept", "extending") or request.is_given_up:
            return None
        request.is_given_up = True
        if request.phase == "queued" and not request.unsettled:
            if not request.is_silent:
                self.tell({"over": request.id})
            return self.end(request)
        request.phase, request.refusal = "releasing", None
        if request.is_named:  # Else the answer says what to release.
            self.send_releases(request, request.keys if self.keeps("P-REL-2") else request.keys[:1])
        return None

    def keep(self, request):
        """P-LEAST-2: the hold is extended to the rest, and kept unseen."""
        request.phase = "extending"
        rest = request.call["at_least"] - self.elapsed(request.granted)
        if rest <= 0:
            request.phase = "releasing"
            return self.send_releases(request, request.keys)
        waiting = set(request.keys)
        sent = self.now

        def answered(key, reply):
            if request.phase != "extending":
                return None
            if code(reply) == "NOTHELD":
                return self.not_held(request, key)
            if isinstance(reply, Error):  # P-REL-5.
                self.tell_releasing(request, reply)
                return self.try_again(
                    lambda: self.keep(request) if request.phase == "extending" else None
                )
            waiting.discard(key)
            if not waiting:
                request.phase = "kept"
                request.kept = (sent, rest)
                self.tell({"released": request.depth[0]})
            return None

        if self.link == "up":
            for key in request.keys:
                words = ["LOCK.EXTEND", key, round_up(rest), "OWNER", request.label]
                self.send(words, lambda reply, key=key: answered(key, reply))
        return None

    def extend(self, name, lease):
        request = self.find(name)
        if request is None or request.phase != "held":
            return self.tell({"not_extended": name, "error": "lost", "code": "LOST"})
        extension = {"lease": lease, "keys": set(request.keys), "name": name, "sent": None}
        request.extensions.append(extension)
        self.send_extension(request, extension)
        return None

    def send_extension(self, request, extension):
        sent = self.now

        def answered(key, reply):
            if extension not in request.extensions:
                return None
            if code(reply) == "NOTHELD":
                return self.not_held(request, key)
            if isinstance(reply, Error):
                request.extensions.remove(extension)
                return self.tell(
                    {"not_extended": extension["name"], "error": "refused", "code": reply.code}
                )
            extension["keys"].discard(key)
            if not extension["keys"]:
                request.extensions.remove(extension)
                request.lease_from = (sent, extension["lease"])
                self.tell({"extended": extension["name"]})
            return None

        if self.link == "up":
            extension["sent"] = extension["sent"] or sent
            for key in request.keys:
                if key in extension["keys"]:
                    words = [
                        "LOCK.EXTEND",
                        key,
                        round_up(extension["lease"]),
                        "OWNER",
                        request.label,
                    ]
                    self.send(words, lambda reply, key=key: answered(key, reply))

    def not_held(self, request, key):
        """P-LEASE-3: of a hold that nobody said is lost."""
        self.lose(request, "deleted", [key])
        if self.keeps("P-LEASE-3"):
            self.look("deleted", [])

    def raise_token(self, name, token):
        request = self.find(name)

        def again():
            if request.phase == "held" and request.call.get("raising") == token:
                self.raise_token(name, token)

        def answered(reply):
            if request.phase != "held":
                return
            if isinstance(reply, int):
                request.token = reply
                self.tell({"raised": name, "token": reply})
            elif code(reply) == "NOTHELD":
                self.not_held(request, request.keys[0])
            elif reply.code == "NOPERM" or "unknown command" in str(reply):
                self.tell({"not_raised": name, "error": "refused", "code": reply.code})
            elif self.retry_at is None:
                self.retry_at = (self.now, 50)
                self.retries.append(again)
            else:
                self.retries.append(again)

        request.call["raising"] = token
        self.send(["LOCK.RAISE", request.keys[0], token, "OWNER", request.label], answered)

    def check(self, name):
        """What `check` says: `held`, or why not. Asks nobody and changes nothing."""
        request = next((r for r in self.requests if name in r.depth and not r.is_silent), None)
        if request is None:
            losses = [event["reason"] for event in self.told if event.get("lost") == name]
            return {"lost": losses[-1]} if losses else "released"
        if request.phase != "held":
            return "released" if request.granted else "waiting"
        if (
            self.keeps("P-FENCE-4")
            and self.fence is not None
            and self.elapsed(self.vouched) >= self.fence
        ):
            return {"lost": "silence"}
        is_over = any(self.elapsed(since) >= lease for since, lease in request.leases)
        if is_over and self.keeps("P-LEASE-2"):
            return {"lost": "lease"}
        return "held"

    told = ()  # All events so far, which the loader keeps.

    def close(self):
        if self.is_closed:
            return
        self.is_closed = True
        kept = [r for r in self.requests if r.phase in ("kept", "extending")]
        rest = ("held", "releasing", "asked", "waiting")
        others = [r for r in self.requests if r.phase in rest and r.is_named]
        for request in list(self.requests):
            self.fail(request, "closed", ("closed", "CLOSED"))
        for name in [*self.watches, *self.presences]:
            self.tell({"ended": name, "error": "closed", "code": "CLOSED"})
        self.watches, self.presences = {}, {}
        self.connect_at = self.retry_at = None
        self.fence = None
        if kept and self.keeps("P-LEAST-3"):
            self.parting = [r.release(key) for r in others for key in r.keys] + [["SESSION.DETACH"]]
        if self.link == "up" and self.secret:
            self.closing_at = (self.now, 2000)
            self.part()
        elif self.secret:
            self.closing_at = (self.now, 1000)
            self.need_link()
        elif self.link != "none":
            self.drop("leave")

    parting = (["SESSION.END"],)

    def part(self):
        for words in self.parting[:-1]:
            self.send(words, lambda reply: None)
        self.send(self.parting[-1], self.parted)

    def parted(self, _):
        self.closing_at = None
        self.drop("leave")

    # ---- the connection ----

    def holds(self):
        return any(r.phase in ("held", "releasing", "extending", "kept") for r in self.requests)

    def need_link(self):
        if self.link == "none" and self.connect_at is None and not self.is_losing:
            if self.not_before and self.elapsed(self.not_before[0]) < self.not_before[1]:
                self.connect_at = self.not_before
            else:
                self.on_connect(None)

    def open(self):
        self.need_link()

    def connected(self):
        self.link_since = self.now
        self.replies = []
        if self.secret:
            self.link = "resuming"
            self.send(["SESSION.RESUME", self.secret, "NOTIFY"], self.resumed)
        else:
            self.link = "greeting"
            self.send(["LOCK.SERVER"], self.greeted)

    def unreached(self, error=("unreachable", "UNREACHABLE")):
        self.failed_attempt(error)

    def failed_attempt(self, error):
        self.link = "none"
        self.end_attempt(error)
        self.reconnect()

    def end_attempt(self, error):
        """P-CONN-10."""
        is_final = error[0] not in ("unreachable",)
        for request in list(self.requests):
            if (
                request.phase in ("queued",)
                and (request.wait == 0 or is_final)
                and not request.is_given_up
            ):
                self.fail(request, None, error)
        if is_final:
            for name in [*self.watches, *self.presences]:
                self.tell({"ended": name, "error": error[0], "code": error[1]})
            self.watches, self.watched, self.presences, self.prefixes = {}, {}, {}, {}

    def is_wanted(self):
        is_asked = self.secret or self.requests or self.watches or self.presences
        return bool(is_asked) and not self.is_closed

    def reconnect(self):
        if self.is_wanted() and self.link == "none" and self.connect_at is None:
            self.connect_at = self.next_attempt()

    def next_attempt(self):
        longest = LONGEST
        if self.secret and self.fence:
            longest = min(longest, self.fence / 8)
        self.failed += 1
        return (self.now, self.delay(self.failed - 1, longest))

    def greeted(self, reply):
        if isinstance(reply, Error):
            if "unknown command" in str(reply):
                return self.give_up_server(("nomodule", "NOMODULE"))
            if reply.code in MOMENTARY | NOT_HERE:
                return self.leave_for(("unreachable", reply.code))
            return self.give_up_server(("refused", reply.code))
        if reply.get(b"role") != b"master":
            return self.leave_for(("unreachable", "REPLICA"))
        if reply.get(b"pushes") != 1:
            return self.give_up_server(("nopush", "NOPUSH"))
        fence = self.fence_of(reply)
        if fence is None:
            return self.give_up_server(("unfit", "UNFIT"))
        if not self.client.get("boot_clock", True) and not self.has_said_clock:
            self.has_said_clock = True
            self.tell({"warning": "no-boot-clock"})
        self.fence_to_be = fence
        if self.client.get("grace") is not None:
            self.send(["SESSION.START", "GRACE", self.client["grace"]], self.started)
        else:
            self.begin(self.answered_sent)
        return None

    def started(self, reply):
        if isinstance(reply, Error):
            if reply.code in MOMENTARY | UNWRITABLE | NOT_HERE:
                return self.leave_for(("unreachable", reply.code))
            return self.give_up_server(("refused", reply.code))
        self.secret = reply
        self.begin(self.answered_sent)
        return None

    def begin(self, sent):
        """A new connection, which has nothing of a former one."""
        self.fence = self.fence_to_be
        self.vouched = sent
        self.pinged = self.now
        self.link = "up"
        for request in list(self.requests):
            self.send_if_first(request)
        self.watch_anew()

    def fence_of(self, server):
        client = self.client
        stop, timeout = client.get("stop_within", 0), server.get(b"peer-timeout-ms", 0)
        if client.get("grace") is not None:
            most = client["grace"] - stop - MARGIN
        elif client.get("unix"):
            most = 5000
        else:
            most = min(timeout / 2, timeout - stop - MARGIN) if timeout else 0
        fence = most if client.get("fence") is None else client["fence"]
        return fence if SHORTEST <= fence <= most else None

    def give_up_server(self, error):
        self.orders.append("leave")
        self.failed_attempt(error)

    def leave_for(self, error):
        self.orders.append("leave")
        self.failed_attempt(error)

    def leave(self):
        self.orders.append("leave")
        self.broke()

    def drop(self, order):
        """The connection is given up, with all that was on it; another one if it is needed."""
        self.orders.append(order)
        self.cut()
        self.go_on()

    def cut(self):
        self.link = "none"
        self.replies = []
        self.mine = self.look_again = None
        self.retries, self.retry_at, self.refused = [], None, 0

    def go_on(self):
        if self.elapsed(self.link_since) >= SOUND:
            self.failed = 0
            if self.is_wanted():
                self.on_connect(None)
        elif self.is_wanted():
            self.reconnect()
        elif self.link == "none":
            self.not_before = self.next_attempt()

    def broke(self):
        if self.link in ("none",):
            return None
        had_session = self.secret is not None
        if self.is_closed:
            self.cut()
            self.closing_at = None
            return None
        was = self.link
        self.cut()
        if was in ("opening", "greeting"):
            return self.unreached()
        if was == "resuming":
            self.end_attempt(("unreachable", "UNREACHABLE"))
        if not had_session or not self.keeps("P-SESS-2"):
            self.secret = None
            self.fence = None
            self.lose_all("connection")
        else:
            for request in self.requests:
                request.was_sent_before |= any(request.unsettled.values())
                request.unsettled = {key: False for key in request.unsettled}
                request.early = None  # LOCK.MINE says what is held.
                if request.phase == "waiting":
                    request.phase = "asked"
        self.go_on()
        return None

    def lose_all(self, why):
        """The session is gone, or the connection without one."""
        self.is_losing = True  # Whether to connect again is decided after it.
        for request in list(self.requests):
            if request.phase == "held":
                self.fail(request, why, None)
            elif request.phase in ("releasing", "kept", "extending") or request.is_given_up:
                self.settle(request)
            elif request.phase == "asked" and request.wait == 0 and not self.is_elsewhere:
                self.fail(request, None, ("unreachable", "UNREACHABLE"))
            else:
                request.has_waited = request.has_waited or request.phase in ("waiting",)
                request.phase = "queued"
                request.early = None
        self.is_losing = False

    is_elsewhere = is_losing = False

    def demoted(self):
        """P-SESS-8."""
        if self.link == "none":
            return
        if not self.secret:
            self.is_elsewhere = True
            self.fence = None
            self.cut()
            self.lose_all("demoted")
            self.is_elsewhere = False
            self.drop("leave")
        else:
            self.leave()

    # ---- what the server says ----

    def send(self, words, then):
        self.out.append(words)
        self.replies.append((self.now, then))

    def recv(self, frame):
        if (
            self.fence is not None
            and self.elapsed(self.vouched) >= self.fence
            and self.keeps("P-FENCE-8")
        ):
            self.tick(self.now)
        if self.link in ("none", "opening"):
            return None
        if isinstance(frame, dict) and "push" in frame:
            return self.pushed(frame["push"])
        if not self.replies:
            return self.leave()
        sent, then = self.replies.pop(0)
        self.answered_sent = sent
        reply = frame["map"] if isinstance(frame, dict) else frame
        is_here = not self.keeps("P-FENCE-6") or code(reply) not in VOUCH_FOR_NOTHING
        if self.link == "up" and is_here:
            self.vouch(sent if self.keeps("P-FENCE-2") else self.now)
        is_not_here = code(reply) in NOT_HERE or (self.secret and code(reply) == "LOADING")
        if self.link == "up" and not self.is_closed and is_not_here:
            self.not_here(then, reply)
            return None
        then(reply)
        return None

    def not_here(self, then, reply):
        self.demoted()

    def vouch(self, sent):
        if self.elapsed(sent) < self.elapsed(self.vouched):
            self.vouched = sent

    def pushed(self, push):
        kind, rest = push[0], push[1:]
        if kind == b"watchex" and len(rest) >= 2:
            return self.key_changed(rest[0], rest[1])
        if kind == b"watchtp" and len(rest) >= 2:
            return self.member_changed(rest[0], rest[1])
        if kind not in (b"lock", b"settp") or len(rest) < 2:
            return None
        key, text = rest[0], rest[1]
        is_temporary = kind == b"settp"
        word, _, tail = text.partition(b" ")
        said, label = tail, b""
        if word in (b"LOST", b"FAILED"):
            parts = tail.split(b" ")
            size = 3 if parts[0] in (b"MOVED", b"ASK") else 4 if parts[0] == b"NOACKS" else 1
            said, label = b" ".join(parts[:size]), b" ".join(parts[size:])
        else:
            label = tail
        said = said.decode()
        request = self.at_place((is_temporary, key, label))
        if word == b"LOST":
            return self.told_lost(request, is_temporary, key, label, said)
        if request is not None and word.isdigit():
            request.was_granted = True
        if request is None or request.is_given_up or request.phase not in ("asked", "waiting"):
            if (
                request is not None
                and request.is_given_up
                and not self.keeps("P-REL-4")
                and word.isdigit()
            ):
                self.tell({"granted": request.id, "token": int(word)})
            return None
        if word == b"TIMEOUT":
            return self.fail(request, None, ("taken", "TAKEN"))
        if word == b"FAILED":
            if said == "UNBLOCKED":
                request.phase = "asked"
                return self.demoted()
            return self.refused_request(request, Error(said))
        if word.isdigit():
            self.grant(request, int(word), self.now)
        return None

    def at_place(self, place):
        queue = self.places.get(place)
        return queue[0] if queue else None

    def told_lost(self, request, is_temporary, key, label, reason):
        if reason == "demoted" and self.keeps("P-LOSS-7" if self.secret else "P-SESS-8"):
            return self.demoted()
        if reason == "ended" and self.secret and self.keeps("P-SESS-10"):
            self.secret = self.fence = None
            self.cut()
            self.lose_all("ended")
            return self.drop("leave")
        if request is not None:
            request.explained.add(key)
            if request.phase in ("asked", "waiting", "queued"):
                if not request.is_given_up and self.keeps("P-LOSS-5"):
                    request.early = (reason, key)
            elif request.phase == "kept":
                self.end(request)
            elif request.phase == "releasing":
                if not request.is_given_up and not request.is_silent and self.keeps("P-LOSS-6"):
                    self.tell({"lost": request.id, "reason": reason})
                    request.is_silent = True
            elif request.phase in ("held", "extending"):
                self.lose(request, reason, [key])
            return None
        if not self.keeps("P-LOSS-4"):
            return None
        candidates = [
            r
            for r in self.requests
            if r.phase == "held" and r.is_temporary == is_temporary and r.label == label
        ]
        if len(candidates) == 1 and not is_temporary and candidates[0].call.get("owner") is None:
            hold = candidates[0]
            return self.lose(hold, reason, hold.keys if len(hold.keys) == 1 else [])
        if candidates:
            self.look(reason, candidates)
        return None

    # ---- requests ----

    def send_if_first(self, request):
        if (
            self.link != "up"
            or self.mine_of_resume()
            or request.phase != "queued"
            or self.is_closed
        ):
            return
        is_first = all(self.places[p][0] is request for p in request.places)
        if self.keeps("P-OWNER-4") and (not is_first or self.task_has_it(request)):
            return
        request.phase = "asked"
        request.floor = self.greatest
        self.ask(request)

    def ask(self, request):
        sent = self.now

        def answered(reply):
            if isinstance(reply, int) and reply > 1:
                request.was_granted = True
            if isinstance(reply, list) and not request.is_named:  # SEQ: name and token.
                request.keys, request.is_named = [reply[0]], True
                self.places.setdefault(request.places[0], []).insert(0, request)
                reply = reply[1]
                if request.phase == "releasing":
                    return self.send_releases(request, request.keys)
            if request.phase == "releasing" and not request.is_named:
                return self.settle(request)
            if request.phase != "asked":
                return None
            if isinstance(reply, Error):
                return self.refused_request(request, reply)
            if reply is None or (request.is_temporary and reply == 0):
                if request.wait != 0 or request.call.get("acks"):
                    request.phase, request.has_waited, request.refusal = "waiting", True, None
                    return None
                return self.fail(request, None, ("taken", "TAKEN"))
            return self.grant(request, reply, sent)

        self.send(request.words(self), answered)

    def refused_request(self, request, error):
        is_momentary = error.code in MOMENTARY
        is_unwritable = error.code in UNWRITABLE and request.has_waited and self.keeps("P-ACQ-7")
        if request.wait != 0 and (is_momentary or is_unwritable) and self.keeps("P-ACQ-6"):
            request.phase, request.refusal = "queued", error.code
            return self.try_again(lambda: self.send_if_first(request))
        if error.code == "DEADLOCK" and request.wait != 0 and self.task_has_it(request):
            request.phase = "queued"  # It overtook a release that was refused.
            return None
        if error.code == "DEADLOCK":
            return self.fail(request, None, ("deadlock", "DEADLOCK"))
        if error.code == "QUARANTINE":
            return self.fail(request, None, ("taken", "QUARANTINE"))
        return self.fail(request, None, ("refused", error.code))

    def grant(self, request, token, since, left=None):
        """Its lease runs since then, when this much was left of it: all unless given."""
        request.phase, request.token, request.granted = "held", token, self.now
        request.was_granted = True
        request.refusal = None
        self.greatest = max(self.greatest, token)
        lease = request.call.get("lease") if left is None else left
        if lease is not None:
            request.lease_from = (since, lease)
        event = {"granted": request.id, "token": token}
        if request.call.get("seq"):
            event["key"] = request.keys[0]
        self.tell(event)
        self.refused = 0
        if request.early:
            reason, key = request.early
            self.lose(request, reason, [key])

    def lose(self, request, reason, keys):
        """Some of its keys are gone, so all of it is lost; the others are given back."""
        self.say_lost(request, reason)
        left = [key for key in request.keys if key not in keys]
        if not self.keeps("P-LOSS-3"):
            left = []
        request.is_silent = True
        for key in [k for k in request.keys if k not in left]:
            self.leave_place(request, key)
        request.keys = left
        if not left:
            return self.stand_again(request)
        again = request.is_elected and not request.is_given_up and not self.is_closed
        request.phase = "releasing"
        request.is_given_up = True
        self.send_releases(request, left)
        if again:  # Behind what it gives back.
            self.acquire(request.id, request.call)
        return None

    def say_lost(self, request, reason):
        if request.is_silent:
            return
        if request.phase in ("held", "extending", "releasing"):
            names = request.depth if self.keeps("P-OWNER-8") else request.depth[:1]
            for name in names:
                self.tell({"lost": name, "reason": reason})
        self.end_extensions(request)

    def end_extensions(self, request):
        for extension in request.extensions:
            self.tell({"not_extended": extension["name"], "error": "lost", "code": "LOST"})
        request.extensions = []

    def fail(self, request, loss, error):
        """It ends: lost for this reason if it was held, else with this error."""
        if request.phase == "held" and loss:
            self.say_lost(request, loss)
        elif (
            not request.is_silent
            and not request.is_given_up
            and error
            and request.phase in ("queued", "asked", "waiting")
        ):
            self.tell({"refused": request.id, "error": error[0], "code": error[1]})
        elif request.phase in ("releasing", "kept", "extending"):
            return self.settle(request)
        self.stand_again(request) if loss and not self.is_closed else self.end(request)
        return None

    def stand_again(self, request):
        is_candidate = request.is_elected and not request.is_given_up
        self.end(request)
        if is_candidate and not self.is_closed:
            self.acquire(request.id, request.call)

    def send_releases(self, request, keys):
        for key in keys:
            request.unsettled[key] = False
        self.send_unsettled(request)

    def send_unsettled(self, request):
        if self.link != "up" or (self.mine_of_resume() and not self.is_first_of_resume):
            return
        for key, is_on_wire in list(request.unsettled.items()):
            if not is_on_wire:
                request.unsettled[key] = True
                then = partial(self.released, request, key, request.was_sent_before)
                self.send(request.release(key), then)

    is_first_of_resume = False

    def released(self, request, key, was_sent_before, reply):
        if request.phase == "over":
            return None
        is_done = isinstance(reply, int) or code(reply) == "NOTHELD"
        if code(reply) == "MOVED":
            is_held = request.was_granted and key not in request.explained
            if self.secret and is_held and not request.is_silent:
                return self.leave()  # The session goes on where the slot is.
            is_done = True
        if not is_done:
            if not self.keeps("P-REL-5"):
                return self.lose_everything()
            request.unsettled[key] = False
            request.refusal = reply.code
            self.tell_releasing(request, reply)
            for other in [r for p in request.places for r in self.places.get(p, [])]:
                if other is not request and other.phase == "queued" and other.wait == 0:
                    self.fail(other, None, ("taken", "TAKEN"))
            return self.try_again(lambda: self.send_unsettled(request))
        self.refused = 0
        del request.unsettled[key]
        was_gone = code(reply) == "NOTHELD" or (request.is_temporary and reply == 0)
        if (
            was_gone
            and request.was_granted
            and key not in request.explained
            and not was_sent_before
        ):
            if not request.is_given_up and not request.is_silent:
                self.tell({"lost": request.depth[0], "reason": "deleted"})
                request.is_silent = True
            if self.keeps("P-REL-7"):
                self.look("deleted", [])
        if not request.unsettled:
            self.settle(request)
        return None

    def lose_everything(self):
        self.secret = None
        self.lose_all("connection")
        self.drop("leave")

    def tell_releasing(self, request, reply):
        if not request.is_silent:
            event = {"releasing": request.depth[0], "code": reply.code}
            if event != request.call.get("said"):
                request.call["said"] = event
                self.tell(event)

    def settle(self, request):
        """Nothing of it is left at the server."""
        if not request.is_silent and request.phase != "kept":
            self.tell({"over" if request.is_given_up else "released": request.depth[0]})
        self.stand_again(request)

    def leave_place(self, request, key):
        place = (request.is_temporary, key, request.label)
        queue = self.places.get(place, [])
        if request in queue:
            queue.remove(request)
        if not queue:
            self.places.pop(place, None)
        elif self.link == "up":
            self.send_if_first(queue[0])

    def end(self, request):
        was_left = self.is_left(request)
        request.phase = "over"
        if request in self.requests:
            self.requests.remove(request)
        for key in request.keys:
            self.leave_place(request, key)
        for other in list(self.requests) if was_left else []:
            self.send_if_first(other)

    # ---- sessions ----

    def resumed(self, reply):
        if self.is_closed:
            return self.parted(reply) if isinstance(reply, Error) else self.part()
        if code(reply) == "NOSESSION":
            return self.session_over()
        if isinstance(reply, Error):
            self.orders.append("leave")
            self.cut()
            return self.failed_attempt(("unreachable", reply.code))
        self.vouch(self.answered_sent)
        self.pinged = self.now
        self.link = "up"
        self.is_first_of_resume = True
        for request in list(self.requests):
            self.send_unsettled(request)
        self.is_first_of_resume = False
        self.mine = {
            "is_resume": True,
            "pages": 0,
            "entries": [],
            "reason": "connection",
            "held": list(self.requests),
        }
        self.ask_mine([])
        self.watch_anew()
        return None

    def session_over(self):
        self.secret = None
        self.fence, fence = None, self.fence
        self.lose_all("connection")
        self.fence_to_be = fence
        self.link = "greeting"
        self.send(["SESSION.START", "GRACE", self.client["grace"]], self.started)

    def mine_of_resume(self):
        return bool(self.mine and self.mine["is_resume"])

    def look(self, reason, held):
        """P-LOSS-4, P-REL-7: what of this is still there, and what is there that nothing claims."""
        if self.mine and self.mine["pages"]:  # A page that came already is of before.
            again = self.look_again = self.look_again or {"reason": reason, "held": []}
            self.decide(again, reason, held)
        elif self.mine:
            self.decide(self.mine, reason, held)
        else:
            self.mine = {"is_resume": False, "pages": 0, "entries": []}
            self.mine.update(reason=reason, held=list(held))
            self.ask_mine([])

    def decide(self, mine, reason, held):
        for request in held:
            if request not in mine["held"]:
                mine["held"].append(request)
                mine["reason"] = reason

    def ask_mine(self, cursor):
        self.mine.setdefault("sent", self.now)
        self.send(["LOCK.MINE", *cursor], self.found)

    def found(self, reply):
        mine = self.mine
        if isinstance(reply, Error):
            return self.found_error(mine, reply)
        cursor, entries = reply
        mine["entries"] += entries
        mine["pages"] += 1
        if cursor != b"0":
            return self.ask_mine(["CURSOR", cursor])
        self.mine = None
        self.compare(mine)
        if self.look_again:
            again, self.look_again = self.look_again, None
            self.look(again["reason"], again["held"])
        return None

    look_again = None  # What is to be looked for in the next LOCK.MINE.

    def found_error(self, mine, error):
        if mine["is_resume"]:
            if error.code in MOMENTARY | UNWRITABLE:
                return self.leave()
            self.mine = None
            self.send(["SESSION.END"], lambda reply: None)
            return self.session_over()
        self.mine = None
        if error.code in MOMENTARY:
            self.try_again(lambda: self.look(mine["reason"], mine["held"]))
        else:
            for request in mine["held"]:
                self.lose(request, mine["reason"], [])
        return None

    def compare(self, mine):
        unclaimed = []
        found = {}
        for entry in mine["entries"]:
            if entry[b"state"] != b"held":
                continue
            request = self.claimant(entry)
            if request is None:
                unclaimed.append(entry)
            else:
                found.setdefault(request, []).append(entry)
        for request in mine["held"]:
            if request.phase in ("held", "kept", "extending"):
                self.compare_hold(request, found.get(request, []), mine["reason"])
            elif request.phase == "asked" and mine["is_resume"]:
                self.compare_request(request, found.get(request, []), mine["sent"])
            elif request.phase == "releasing" and not request.is_named and mine["is_resume"]:
                self.settle(request)
        if self.keeps("P-SESS-6"):
            for entry in unclaimed:
                if mine["is_resume"] or not self.at_place(place_of(entry)):
                    self.release_unclaimed(entry)
        if mine["is_resume"]:
            for request in list(self.requests):
                if request.phase == "extending":
                    self.keep(request)
                for extension in request.extensions:
                    self.send_extension(request, extension)
                self.send_if_first(request)
                self.send_unsettled(request)

    def claimant(self, entry):
        is_temporary = entry[b"kind"] == b"temporary"
        for request in self.requests:
            if request.is_temporary != is_temporary or request.label != (entry[b"label"] or b""):
                continue
            is_named = request.is_named and entry[b"key"] in request.keys
            if request.phase in ("held", "kept", "extending") and request.token == entry[b"token"]:
                return request
            is_new = entry[b"token"] > request.floor or not self.keeps("P-SESS-11")
            if is_named and (
                request.phase == "releasing" or (request.phase in ("asked", "waiting") and is_new)
            ):
                return request
        return None

    def compare_hold(self, request, entries, reason):
        if len(entries) >= len(request.keys):
            return None
        there = [entry[b"key"] for entry in entries]
        gone = [key for key in request.keys if key not in there]
        if request.phase == "kept":
            return self.end(request)
        self.lose(request, reason, gone)
        return None

    def compare_request(self, request, entries, sent):
        if request.is_given_up:
            return None
        if len(entries) == len(request.keys):
            lefts = [entry[b"lease-ms"] for entry in entries if entry[b"lease-ms"] is not None]
            return self.grant(request, entries[0][b"token"], sent, min(lefts, default=None))
        request.phase, request.has_waited = "queued", True
        for entry in entries:
            self.release_unclaimed(entry)
        return None

    def release_unclaimed(self, entry):
        if entry[b"key"] is None:
            return  # Its user may not read the name. It ends with the session.
        call = {"keys": [entry[b"key"]], "owner": entry[b"label"], "wait": 0}
        if entry[b"kind"] == b"temporary":
            call["temporary"] = b""
        request = Request(self, None, call)
        request.is_silent = request.is_given_up = True
        request.phase = "releasing"
        self.requests.append(request)
        for place in request.places:
            self.places.setdefault(place, []).insert(0, request)
        self.send_releases(request, request.keys)

    # ---- watches ----

    def watch(self, name, keys, told=None):
        """`told` is what another connection has told of it."""
        self.watches[name] = {"keys": list(keys), "told": dict(told or {})}
        self.need_link()
        for key in keys:
            watched = self.watched.get(key)
            if watched is None:
                self.watched[key] = {
                    "by": [name],
                    "phase": "asked",
                    "is_open": False,  # One of its commands is not answered; a push is no answer.
                    "is_there": None,
                    "is_again": False,
                }
                self.send_watch(key)
            else:
                watched["by"].append(name)
                if watched["phase"] == "known":
                    self.say_state(name, key, watched["is_there"])

    def send_watch(self, key):
        watched = self.watched.get(key)
        if self.link == "up" and watched is not None and not watched["is_open"]:
            watched["is_open"] = True
            self.send(["WATCHEX", key], lambda reply: self.watch_answered(key, reply))

    def send_unwatch(self, key):
        """If nobody watches it any longer; while a command is open, its answer leads here again."""
        watched = self.watched[key]
        if not watched["by"] and not watched["is_open"]:
            watched["phase"], watched["is_open"] = "leaving", True
            self.send(["UNWATCHEX", key], lambda reply: self.unwatched(key))

    def unwatch(self, name):
        watch = self.watches.pop(name, None)
        for key in watch["keys"] if watch else []:
            self.leave_watch(name, key)

    def leave_watch(self, name, key):
        watched = self.watched[key]
        watched["by"].remove(name)
        if watched["by"]:
            return
        if self.link != "up":
            del self.watched[key]
        elif watched["phase"] == "known":
            self.send_unwatch(key)

    def unwatched(self, key):
        self.watched[key]["is_open"] = False
        if self.watched[key]["by"]:
            self.watched[key]["phase"] = "asked"
            self.send_watch(key)
        else:
            del self.watched[key]

    def watch_answered(self, key, reply):
        watched = self.watched.get(key)
        if watched is None:
            return None
        watched["is_open"] = False
        if watched["phase"] == "known":  # A push said it before.
            return self.send_unwatch(key)
        if watched["is_again"] and isinstance(reply, Error) and reply.code != "MOVED":
            return self.state_known(key, watched["is_there"])
        if code(reply) in MOMENTARY | {"ASK"}:
            return self.try_again(lambda: self.send_watch(key))
        if isinstance(reply, Error):
            for name in list(watched["by"]):
                watched["by"].remove(name)
                watch = self.watches.pop(name)
                for other in [k for k in watch["keys"] if k != key]:
                    self.leave_watch(name, other)
                self.refused_watch(name, watch, reply)
            del self.watched[key]
            return None
        return self.state_known(key, reply == b"EXIST")

    def refused_watch(self, name, watch, error):
        """Of keys, or of a prefix."""
        self.tell({"ended": name, "error": "refused", "code": error.code})

    def state_known(self, key, is_there):
        watched = self.watched[key]
        watched["phase"], watched["is_there"], watched["is_again"] = "known", is_there, False
        self.send_unwatch(key)
        for name in watched["by"]:
            self.say_state(name, key, is_there)

    def say_state(self, name, key, is_there):
        told = self.watches[name]["told"]
        if key not in told:
            self.tell({"watch": name, "key": key, "is": "exists" if is_there else "missing"})
        elif told[key] != is_there or not self.keeps("P-WATCH-3"):
            self.tell({"watch": name, "key": key, "is": "added" if is_there else "deleted"})
        told[key] = is_there

    def key_changed(self, key, change):
        watched = self.watched.get(key)
        if watched is None or change not in (b"ADD", b"DEL"):
            return
        is_there = change == b"ADD"
        if watched["phase"] == "asked":
            self.state_known(key, not is_there)
        if watched["phase"] == "known" and watched["is_there"] != is_there:
            watched["is_there"] = is_there
            for name in watched["by"]:
                self.say_state(name, key, is_there)

    def watch_anew(self):
        for key, watched in list(self.watched.items()):
            if not watched["by"]:
                del self.watched[key]
                continue
            watched["phase"], watched["is_open"], watched["is_again"] = "asked", False, False
            self.send_watch(key)
        for prefix in list(self.prefixes):
            self.send_prefix(prefix)

    def ask_again(self):
        keys = list(self.watched)
        for _ in range(min(len(keys), MOST_ASKED_AGAIN)):
            self.asked_again = (self.asked_again + 1) % len(keys)
            key = keys[self.asked_again]
            watched = self.watched[key]
            if watched["phase"] == "known" and not watched["is_open"]:
                watched["phase"], watched["is_again"] = "asked", True
                self.send_watch(key)

    # ---- presence ----

    def presence(self, name, prefix, is_leader=False, told=None):
        """`told` is who was there and who led when another connection told of it."""
        members, leader = told or ({}, "unknown")
        self.presences[name] = {"prefix": prefix, "is_leader": is_leader, "leader": leader}
        self.need_link()
        if prefix in self.prefixes:
            state = self.prefixes[prefix]
            state["by"].append(name)
            if state["is_live"]:
                self.say_members(name, {}, state["members"])
            else:
                state["late"].add(name)
            return
        state = {"by": [name], "late": set(), "members": members, "next": {}, "is_live": False}
        state["number"] = 0  # Of the snapshot: replies to an earlier one say nothing of this one.
        self.prefixes[prefix] = state
        self.send_prefix(prefix)

    def end_presence(self, name):
        prefix = self.presences.pop(name)["prefix"]
        state = self.prefixes[prefix]
        state["by"].remove(name)
        state["late"].discard(name)
        if not state["by"]:
            del self.prefixes[prefix]
            if self.link == "up":
                self.send(["UNWATCHTP", prefix], lambda reply: None)

    def send_prefix(self, prefix, after=None):
        state = self.prefixes[prefix]
        if self.link != "up":
            return
        if after is None:
            state["is_live"] = False
            state["number"] += 1
        number = state["number"]
        words = ["WATCHTP", prefix] if after is None else ["WATCHTP", prefix, "AFTER", after]
        self.send(words, lambda reply: self.page(prefix, state, number, after, reply))

    def page(self, prefix, state, number, asked_after, reply):
        if self.prefixes.get(prefix) is not state or state["number"] != number:
            return None
        if code(reply) in MOMENTARY | UNWRITABLE | {"ASK"}:
            return self.try_again(lambda: self.send_prefix(prefix))
        if isinstance(reply, Error):
            del self.prefixes[prefix]
            for name in state["by"]:
                watch = self.presences.pop(name)
                members = {} if name in state["late"] else state["members"]
                self.refused_watch(name, {**watch, "members": members}, reply)
            return None
        if asked_after is None:  # What came before it is of a former watch.
            state["next"] = {}
        after, entries = reply
        for key, token, value in entries:
            state["next"][key] = (token, value)
        if after:
            return self.send_prefix(prefix, after)
        old, state["members"], state["is_live"] = state["members"], state["next"], True
        late, state["late"] = state["late"], set()
        for name in state["by"]:
            self.say_members(name, {} if name in late else old, state["members"])
        return None

    def say_members(self, name, old, new):
        for key in sorted(set(old) | set(new)):
            if old.get(key) != new.get(key) or (not old and not new):
                how = "add" if key not in old else "set" if key in new else "del"
                self.say_member(name, key, how, new.get(key), "unknown")
        watch = self.presences[name]
        if watch["is_leader"] and watch["leader"] == "unknown":
            watch["leader"] = None
            self.tell({"leader": name, "token": None})

    def say_member(self, name, key, how, member, reason):
        watch = self.presences[name]
        if watch["is_leader"]:
            if key == watch["prefix"]:
                watch["leader"] = member
                event = {"leader": name, "token": member[0] if member else None}
                self.tell({**event, "value": member[1]} if member else event)
            return
        event = {"presence": name, "key": key, "is": how}
        if how == "del":
            event["reason"] = reason
        else:
            event["token"], event["value"] = member
        self.tell(event)

    def member_changed(self, key, text):
        word, _, rest = text.partition(b" ")
        if word in (b"FLUSHED", b"END"):
            return self.prefix_changed(key, word)
        if word not in (b"ADD", b"SET", b"DEL"):
            return None
        token, space, value = rest.partition(b" ")
        for prefix, state in self.prefixes.items():
            if not key.startswith(prefix):
                continue
            members = state["members"] if state["is_live"] else state["next"]
            member = None if word == b"DEL" else (int(token), value if space else None)
            if member is None:
                members.pop(key, None)
            else:
                members[key] = member
            if state["is_live"]:
                how = {b"ADD": "add", b"SET": "set", b"DEL": "del"}[word]
                for name in state["by"]:
                    self.say_member(name, key, how, member, value.decode())
            if not self.keeps("P-PRES-2"):
                break
        return None

    def prefix_changed(self, prefix, word):
        state = self.prefixes.get(prefix)
        if state is None:
            return
        if word == b"FLUSHED":
            state["next"] = {}
            if not state["is_live"]:  # The snapshot tells the difference.
                return
            old, state["members"] = state["members"], {}
            for key in sorted(old):
                for name in state["by"]:
                    self.say_member(name, key, "del", None, "flushed")
        else:
            self.send_prefix(prefix)


def place_of(entry):
    """The place of what LOCK.MINE lists."""
    return (entry[b"kind"] == b"temporary", entry[b"key"], entry[b"label"] or b"")


def slot(key):
    """The slot of a key: CRC16 (XMODEM) of its hash tag, or of all of it."""
    begin = key.find(b"{")
    if begin >= 0:
        end = key.find(b"}", begin + 1)
        if end > begin + 1:
            key = key[begin + 1 : end]
    crc = 0
    for byte in key:
        crc ^= byte << 8
        for _ in range(8):
            crc = ((crc << 1) ^ 0x1021) & 0xFFFF if crc & 0x8000 else (crc << 1) & 0xFFFF
    return crc % 16384
