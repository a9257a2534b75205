"""P-NOPUSH-2, P-NOPUSH-3: plain locks on a server that sends no pushes.

Each request has a connection of its own, which a WAIT blocks.
"""

import asyncio

from .core import Core, Error, Request
from .shell import FAILURES, Malformed, ask, clocks

MOST_CONNECTIONS = 64


def is_plain(call):
    """Whether a request needs no pushes."""
    beyond = ("temporary", "acks", "at_least", "reentrant", "elect", "lease")
    return call["call"] == "acquire" and not any(call.get(name) for name in beyond)


class PlainRequest(Request):
    def words(self, core):
        """As elsewhere, without NOTIFY and PUSH."""
        return [word for word in super().words(core) if word not in ("NOTIFY", "PUSH")]


class Plain:
    """All such requests of a client."""

    def __init__(self, shell):
        self.shell, self.requests = shell, {}

    def acquire(self, name, call):
        if len(self.requests) == MOST_CONNECTIONS:
            self.tell({"refused": name, "error": "refused", "code": "CONNECTIONS"})
            return
        self.requests[name] = One(self, name, call)

    def tell(self, event):
        self.shell.told.append(event)
        self.shell.tell(event)


class One:
    """One request. `state` is what `check` says."""

    def __init__(self, plain, name, call):
        self.plain, self.name, self.call = plain, name, call
        self.core = Core(clocks(), plain.shell.core.client)  # The clock, labels and fence.
        self.state, self.wants_end = "waiting", asyncio.Event()
        plain.shell.begin(self.run())

    def end(self):
        self.wants_end.set()

    def check(self):
        self.core.now = clocks()
        if self.state == "held" and self.core.elapsed(self.vouched) >= self.fence:
            return {"lost": "silence"}
        return self.state

    async def run(self):
        connection = None
        try:
            network = self.plain.shell.network
            connection = await network.greet((await network.places())[0])
            await self.hold(connection)
        except (*FAILURES, Malformed):
            if self.state == "held":
                self.lose("connection")
            elif self.state == "waiting":
                self.refuse("unreachable", "UNREACHABLE")
        except Error as error:
            names = {"DEADLOCK": "deadlock", "QUARANTINE": "taken"}
            self.refuse(names.get(error.code, "refused"), error.code)
        finally:
            del self.plain.requests[self.name]
            if connection:
                connection[1].close()

    def refuse(self, error, code):
        self.plain.tell({"refused": self.name, "error": error, "code": code})

    def lose(self, reason):
        self.state = {"lost": reason}
        self.plain.tell({"lost": self.name, "reason": reason})

    async def hold(self, connection):
        self.fence = self.core.fence_of(await ask(connection, "LOCK.SERVER"))
        if self.fence is None:
            return self.refuse("unfit", "UNFIT")
        self.core.now = self.vouched = clocks()
        self.request = PlainRequest(self.core, self.name, self.call)
        asked = asyncio.ensure_future(ask(connection, *self.request.words(self.core)))
        ended = asyncio.ensure_future(self.wants_end.wait())
        await asyncio.wait((asked, ended), return_when=asyncio.FIRST_COMPLETED)
        if ended.done():  # To stop waiting, the connection is closed.
            asked.cancel()
            return self.plain.tell({"over": self.name})
        ended.cancel()
        token = asked.result()
        if token is None:
            return self.refuse("taken", "TAKEN")
        sent = clocks()  # The answer to a WAIT vouches for a moment that may be long past.
        there = await asyncio.wait_for(self.ping(connection), self.fence / 1000)
        self.state, self.vouched = "held", sent
        self.plain.tell({"granted": self.name, "token": token})
        if there != {token}:
            return self.lose("deleted")
        return await self.keep(connection, token)

    async def keep(self, connection, token):
        """A PING each D/4, and whether the lock is still there."""
        while not self.wants_end.is_set():
            try:
                await asyncio.wait_for(self.wants_end.wait(), self.fence / 4000)
            except asyncio.TimeoutError:
                sent = clocks()
                left = self.fence - self.core.elapsed(self.vouched)
                try:
                    there = await asyncio.wait_for(self.ping(connection), left / 1000)
                except asyncio.TimeoutError:
                    return self.lose("silence")
                if there != {token}:
                    return self.lose("deleted")
                self.vouched = sent
        self.state = "released"
        for key in self.request.keys:
            await ask(connection, *self.request.release(key))
        return self.plain.tell({"released": self.name})

    async def ping(self, connection):
        """What the server says of the keys: the token, if all is well."""
        await ask(connection, "PING")
        owner = ("OWNER", self.request.label)
        return {await ask(connection, "LOCK.CANCEL", key, *owner) for key in self.request.keys}
