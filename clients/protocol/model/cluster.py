"""P-CLUSTER: a shell for each master that was asked, and which one has which slot."""

from functools import partial
from urllib.parse import urlsplit

from .core import Core, slot
from .shell import FAILURES, Shell, ask

MOST_REDIRECTIONS = 5
OF_PLACES = {"LOCK.ACQUIRE", "LOCK.MACQUIRE", "LOCK.RELEASE", "LOCK.EXTEND", "SETTP", "DELTP"}


class NodeCore(Core):
    """One that hands a request on to another node, instead of refusing it."""

    def __init__(self, *given):
        super().__init__(*given)
        self.asking = set()  # Keys of requests that came here by ASK (P-CLUSTER-4).

    def send(self, words, then):
        if words[0] in OF_PLACES and self.asking.intersection(words[1:3]):
            super().send(["ASKING"], lambda reply: None)
        super().send(words, then)

    def ask(self, request):
        if request.call.get("by_ask"):
            self.asking.update(request.keys)
        super().ask(request)

    def end(self, request):
        super().end(request)
        self.asking.difference_update(request.keys)

    def refused_request(self, request, error):
        hops = request.call.get("hops", 0) + 1
        if error.code not in ("MOVED", "ASK") or hops > MOST_REDIRECTIONS:
            return super().refused_request(request, error)
        call = {**request.call, "hops": hops, "by_ask": error.code == "ASK"}
        if request.wait is not None:
            call["wait"] = request.left(self)
        request.is_silent = True
        self.end(request)
        return self.redirect(request.id, call, str(error))

    def refused_watch(self, name, watch, error):
        """P-CLUSTER-7: it goes on at the other node, which knows what was told."""
        if error.code != "MOVED":
            return super().refused_watch(name, watch, error)
        if "keys" in watch:
            call = {"call": "watch", "keys": watch["keys"], "told": watch["told"]}
        else:
            kind = "observe" if watch["is_leader"] else "presence"
            told = (watch["members"], watch["leader"])
            call = {"call": kind, "prefix": watch["prefix"], "told": told}
        return self.redirect(name, call, str(error))


class Node(Shell):
    """A connection to the master of some slots, wherever that is."""

    def __init__(self, cluster, place):
        super().__init__(cluster.opened, cluster.tell, NodeCore)
        self.cluster, self.place = cluster, place
        self.core.redirect = partial(cluster.redirect, self)

    def slot(self):
        """That of a hold: its session is where the slot is now (P-CLUSTER-6)."""
        held = (r for r in self.core.requests if r.phase == "held" and not r.call.get("by_ask"))
        return next((slot(request.keys[0]) for request in held), None)

    async def places(self):
        cluster = self.cluster
        for place in [self.place, *cluster.places]:
            try:
                connection = await self.network.open(place)
                cluster.learn(place, await ask(connection, "CLUSTER", "SLOTS"))
                connection[1].close()
            except FAILURES:
                continue
            owner = cluster.owners.get(self.slot(), self.place)
            if owner != self.place:
                cluster.nodes.pop(self.place, None)
                cluster.nodes.setdefault(owner, self)
                self.place = owner
            return [self.place]
        return []


class Cluster:
    """The calls of a shell."""

    def __init__(self, call, tell):
        self.opened, self.tell = call, tell
        address = urlsplit(call["url"])
        self.first = (address.hostname, address.port)
        self.nodes, self.owners, self.places = {}, {}, {}  # By address, of slots, all nodes.
        self.of_request = {}

    def node(self, place):
        if place not in self.nodes:
            self.nodes[place] = Node(self, place)
        return self.nodes[place]

    def learn(self, asked, ranges):
        for first, last, *nodes in ranges:
            places = [(host.decode() or asked[0], port) for host, port, *_ in nodes]
            self.places.update(dict.fromkeys(places))
            self.owners.update(dict.fromkeys(range(first, last + 1), places[0]))

    def redirect(self, node, name, call, error):
        """P-CLUSTER-3, P-CLUSTER-4."""
        word, number, address = error.split()
        host, _, port = address.rpartition(":")
        place = (host or node.place[0], int(port))
        if word == "MOVED":
            self.owners[int(number)] = place
        self.of_request[name] = self.node(place)
        self.of_request[name].call(name, call)

    def check(self, name):
        return self.of_request[name].check(name)

    def call(self, name, call):
        if call["call"] == "close":
            for node in {*self.nodes.values(), *self.of_request.values()}:
                node.call(name, call)
            return
        if name not in self.of_request:
            key = call["keys"][0] if call.get("keys") else call.get("prefix", b"")
            place = self.owners.get(slot(key), self.first)
            self.of_request[name] = self.node(place)
        self.of_request[name].call(name, call)
