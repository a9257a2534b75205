"""The masters of a cluster: a client for each that is needed, and which one has which slot."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Callable

from ._ask import Settings
from ._client import Client
from ._connect import NO_HOST, Address, Greeted, Place, Places, worst
from ._requests import MOST_REDIRECTIONS, SETTLED_MS
from ._state import slot_of
from .errors import LockError, Unreachable


class Moves:
    """How often a watch was sent from node to node (P-CLUSTER-3)."""

    def __init__(self, now: Callable[[], float]) -> None:
        """Count from now on; in seconds."""
        self._now, self._last, self._count = now, now(), 0

    def follow(self) -> bool:
        """Whether it goes on at the next node; once it has been at one for long it has arrived."""
        now = self._now()
        self._count = 1 if now - self._last > SETTLED_MS / 1000 else self._count + 1
        self._last = now
        return self._count <= MOST_REDIRECTIONS


class Cluster:
    """P-CLUSTER-1: each client has its own connection, session and fence."""

    def __init__(self, places: Places, settings: Settings) -> None:
        """Know the addresses that the caller gave, and connect to nothing."""
        self.places = places
        self.owners: dict[int, Address] = {}
        self._settings = settings
        self._pid = os.getpid()
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._nodes: dict[Address, None] = {}
        # By the master's address; None is for the first one, of which that is not known yet.
        self._clients: dict[Address | None, Client] = {}
        self._homes: dict[Client, _Home] = {}

    @property
    def is_here(self) -> bool:
        """Whether it can be used by who asks; see `Client.is_here`."""
        is_here = self._pid == os.getpid() and self._loop is asyncio.get_running_loop()
        return is_here and not self._is_closed

    def client(self, key: bytes) -> Client:
        """Return the client for the slot of this key (P-CLUSTER-2)."""
        return self._client_at(self.owners.get(slot_of(key)))

    def referred(self, by: Client, error: str) -> Client:
        """Return the client to which `MOVED slot host:port` or `ASK ..` refers; see P-CLUSTER-3."""
        word, slot, address = error.split(" ")[:3]
        host, _, port = address.rpartition(":")
        owner = (self._homes[by].host if host in NO_HOST else host, int(port))
        if word == "MOVED":
            self.owners[int(slot)] = owner
        return self._client_at(owner)

    def learn(self, greeted: Greeted) -> None:
        """Remember what a node says of the slots."""
        for first, last, nodes in greeted.slots:
            here = greeted.address[0]
            found = [(here if host in NO_HOST else host, port) for host, port in nodes]
            self._nodes.update(dict.fromkeys(found))
            self.owners.update(dict.fromkeys(range(first, last + 1), found[0]))

    def addresses(self, home: Address | None) -> Iterator[Place]:
        """Where to ask: at home, at the caller's addresses, and at all nodes there are."""
        if home is not None:
            yield self.places.all[0].at(home)
        yield from self.places.all
        for address in list(self._nodes):
            yield self.places.all[0].at(address)

    def settled(self, client: Client, address: Address) -> None:
        """This client's connection is to this master now."""
        for each in [each for each, other in self._clients.items() if other is client]:
            del self._clients[each]
        self._clients.setdefault(address, client)

    async def close(self) -> None:
        """Close each."""
        self._is_closed = True
        await asyncio.gather(*(client.close() for client in self._homes))

    def _client_at(self, address: Address | None) -> Client:
        client = self._clients.get(address)
        if client is None:
            home = _Home(self, address)
            client = home.client = self._clients[address] = Client(home, self._settings)
            client.cluster = self
            self._homes[client] = home
        return client


class _Home:
    """Where a client of a cluster connects: to the master that has its slots now (P-CLUSTER-6)."""

    client: Client

    def __init__(self, cluster: Cluster, address: Address | None) -> None:
        self._cluster = cluster
        self._address = address

    @property
    def host(self) -> str:
        """Where it was connected last."""
        return self._address[0] if self._address is not None else ""

    async def open(self, within: float) -> Greeted:
        """As of `Places`; each address has half of the time that is left."""
        cluster, errors = self._cluster, list[LockError]()
        loop = asyncio.get_running_loop()
        ends = loop.time() + within
        tried: set[Address] = set()
        while True:
            owner = self._owner()
            there = [p for p in cluster.addresses(owner) if p.address not in tried]
            if not there:
                text = "the nodes of the cluster do not agree who has the slot"
                raise worst(errors or [Unreachable(text)])
            tried.add(there[0].address)
            try:
                greeted = await cluster.places.open_at(there[0], (ends - loop.time()) / 2)
            except LockError as error:
                errors.append(error)
                continue
            cluster.learn(greeted)
            owner = self._owner()
            if owner is None or owner in (greeted.address, greeted.peer):
                self._address = greeted.address if owner is None else owner
                cluster.settled(self.client, self._address)
                return greeted
            greeted.writer.transport.abort()

    def _owner(self) -> Address | None:
        slot = self.client.core.slot
        return self._address if slot is None else self._cluster.owners.get(slot, self._address)
