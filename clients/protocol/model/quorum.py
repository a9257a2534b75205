"""P-QUORUM: a lock on three or five servers, held while a majority of them has it.

Two clients that ask at once may each get less than a majority and wait for the other. The protocol
does not say who steps back then, and this model does not.
"""

from functools import partial

from .core import Core
from .shell import Shell


class OneOfSeveral(Core):
    def fence_of(self, server):
        """P-QUORUM-1."""
        fence = super().fence_of(server)
        is_fit = fence is not None and server.get(b"quarantine-ms", 0) >= fence
        return fence if is_fit else None


class Quorum:
    """The calls of a shell: of `acquire`, `release`, `give_up`, `check`, `close`."""

    def __init__(self, call, tell):
        self.tell = tell
        self.shells = [
            Shell({**call, "url": url}, partial(self.heard, number), OneOfSeveral)
            for number, url in enumerate(call["quorum"])
        ]
        self.majority = len(self.shells) // 2 + 1
        self.requests = {}

    def call(self, name, call):
        if call["call"] == "acquire":
            self.requests[name] = {"tokens": {}, "refused": set(), "ended": set(), "is": "waiting"}
        for shell in self.shells:
            shell.call(name, call)

    def check(self, name):
        request = self.requests[name]
        if request["is"] != "held":
            return request["is"]
        gives = [shell.check(name) for shell in self.shells]
        losses = [each for each in gives if isinstance(each, dict)]
        return (
            "held" if gives.count("held") >= self.majority else (losses or [{"lost": "silence"}])[0]
        )

    def heard(self, number, event):
        """What one of the servers said of a request."""
        kind = next(iter(event))
        name = event[kind]
        request = self.requests.get(name)
        if request is None:
            return
        if kind in ("granted", "raised"):
            request["tokens"][number] = event["token"]
            self.granted(name, request)
        elif kind == "refused":
            request["refused"].add(number)
            if request["is"] == "waiting" and len(request["refused"]) >= self.majority:
                self.finish(name, request, event, "released")
        elif kind in ("lost", "not_raised"):
            request["tokens"].pop(number, None)
            if request["is"] == "held" and len(request["tokens"]) < self.majority:
                reason = event.get("reason", "deleted")
                self.finish(name, request, {"lost": name, "reason": reason}, {"lost": reason})
        elif kind in ("released", "over"):
            request["tokens"].pop(number, None)
            request["ended"].add(number)
            if request["is"] in ("held", "waiting") and len(request["ended"]) >= self.majority:
                request["is"] = "released"
                self.tell(event)

    def granted(self, name, request):
        """P-QUORUM-2: the grant is told once a majority has the greatest token."""
        tokens = request["tokens"]
        if request["is"] != "waiting" or len(tokens) < self.majority:
            return
        greatest = max(tokens.values())
        behind = [number for number, token in tokens.items() if token < greatest]
        if len(tokens) - len(behind) >= self.majority:
            request["is"] = "held"
            self.tell({"granted": name, "token": greatest})
        for number in behind:
            shell = self.shells[number]
            shell.do(partial(shell.core.raise_token, name, greatest))

    def finish(self, name, request, event, state):
        """It is over, and the other servers get it back."""
        request["is"] = state
        self.tell(event)
        for shell in self.shells:
            shell.call(name, {"call": "give_up"})
