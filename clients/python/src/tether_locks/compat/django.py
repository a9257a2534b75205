"""Django's cache on Redis, with the `lock` that django-redis has.

CACHES = {"default": {"BACKEND": "tether_locks.compat.django.LockingCache", "LOCATION": "redis://.."}}
"""

from __future__ import annotations

import functools
from typing import Any

from django.core.cache.backends.redis import RedisCache

from .._threads import Locks
from .redis_lock import Lock


@functools.cache
def _locks(server: str) -> Locks:
    """Return one for each server: Django makes a cache object for each thread."""
    return Locks(server)


class LockingCache(RedisCache):  # type: ignore[misc]
    """`cache.lock(key)` is a lock of the first server (the one that is written to)."""

    def lock(self, key: str, version: int | None = None, **options: Any) -> Lock:
        """Return a lock with the interface of redis-py's; `options` are those of that."""
        name = self.make_and_validate_key(key, version=version)
        return Lock(_locks(self._servers[0]), name, **options)
