"""The obstore clients of this process, shared by all stores of a bucket.

To create a client takes 5 ms of a processor, for it reads the host's certificates; and each has connections of its own,
which begin with a handshake. Spark's workers open several stores in every task and every call of the driver.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable

from spillable_stream.objects.cloud_clients import CloudClients, RequestTimeouts, make_clients
from spillable_stream.objects.credentials import CredentialsFactory, chosen_provider, factory_of
from spillable_stream.objects.forked import hold_in_children
from spillable_stream.objects.location import Location

__all__ = ["forget_clients", "shared_clients"]

_KEPT_SECONDS = 300.0  # for later stores: the environment may name files that change
_MOST_KEPT = 64


class _Shared:
    """Clients that are created, or being created.

    Attributes:
        until: until when later stores may have them.
        factory: what makes their provider; kept, for its identity is in the key.
        clients: them, once they are created.
        lock: held while they are created.
    """

    def __init__(self, until: float, factory: CredentialsFactory | None) -> None:
        self.until: float = until
        self.factory: CredentialsFactory | None = factory
        self.clients: CloudClients | None = None
        self.lock: threading.RLock = threading.RLock()
        hold_in_children(self)

    def held(self) -> CloudClients | None:
        """Return what no forked child may drop."""
        return self.clients


_shared: dict[object, _Shared] = {}  # oldest first
_mutex = threading.Lock()


def shared_clients(
    location: Location, timeouts: RequestTimeouts, monotonic: Callable[[], float] = time.monotonic
) -> CloudClients:
    """Return clients for a location, which others may have been using for up to five minutes.

    Clients are shared where `make_clients` would make the same ones: for the same bucket and timeouts, with the same
    environment. A provider of credentials is asked for a location, so those of different locations are not shared.

    Args:
        location: the root of a channel in a cloud.
        timeouts: how long requests may take.
        monotonic: tells the time; for tests.

    Raises what `make_clients` raises.
    """
    name = chosen_provider()
    place = location if name else (location.scheme, location.bucket)
    factory = factory_of(name)
    key = place, name, id(factory), timeouts, _environment()
    with _mutex:
        shared, now = _shared.get(key), monotonic()
        if shared is None or now > shared.until:
            _shared.pop(key, None)
            shared = _shared[key] = _Shared(now + _KEPT_SECONDS, factory)
            while len(_shared) > _MOST_KEPT:
                del _shared[next(iter(_shared))]
    with shared.lock:
        if shared.clients is None:
            shared.clients = make_clients(location, timeouts)
        return shared.clients


def forget_clients(clients: CloudClients) -> None:
    """Let later stores have new clients: the credentials of these were refused."""
    with _mutex:
        for key in [key for key, shared in _shared.items() if shared.clients is clients]:
            del _shared[key]


def _environment() -> bytes:
    """Return a digest of the environment: clients read much of it, and its secrets are in no key."""
    told = hashlib.blake2b()
    for name in sorted(os.environb):
        value = os.environb.get(name, b"")  # another thread may take it away
        told.update(b"%d %d %b%b" % (len(name), len(value), name, value))
    return told.digest()


def _forget() -> None:
    """Give a forked child new clients. `forked` has kept its parent's by now: its hook was registered before."""
    global _mutex
    _mutex = threading.Lock()
    _shared.clear()


os.register_at_fork(after_in_child=_forget)
