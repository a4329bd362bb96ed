"""Which destination a key leads to."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Protocol

from spillable_stream.errors import OptionError
from spillable_stream.producer.destination import Destination

__all__ = ["ByName", "Only", "Route", "Sharded", "shard_hash"]

_BITS = 128


class Route(Protocol):
    """How a key leads to a destination."""

    def to(self, key: str | None) -> Destination:
        """Return the destination of a key.

        Raises:
            OptionError: the key leads nowhere.
        """

    def fixed(self, key: str | None) -> Destination:
        """Return the destination that a key has each time, as numbers of one destination need it.

        Raises:
            OptionError: the key leads nowhere, or not always to the same place.
        """


class Only:
    """One destination, and no keys."""

    def __init__(self, destination: Destination) -> None:
        self._destination = destination

    def to(self, key: str | None) -> Destination:
        """Return it."""
        if key is not None:
            raise OptionError(f"a key chooses one of several channels; this producer has only {self._destination.name}")
        return self._destination

    fixed = to


class ByName:
    """Destinations by their names."""

    def __init__(self, destinations: Mapping[str, Destination]) -> None:
        self._destinations = destinations

    def to(self, key: str | None) -> Destination:
        """Return the one that the key names."""
        found = self._destinations.get(key) if key is not None else None
        if found is None:
            raise OptionError(f"the key must name a channel: {', '.join(map(repr, self._destinations))}; not {key!r}")
        return found

    fixed = to


class Sharded:
    """Destinations that share the keys: those with one key go to one of them. What has no key goes to each in turn.

    Args:
        destinations: at most as many as buckets.
        buckets: in how many ranges of equal size the hashes are; a power of two.
        adjust: whether keys are texts whose hash counts, rather than the hashes.
    """

    def __init__(self, destinations: Sequence[Destination], buckets: int, adjust: bool) -> None:
        self._destinations = destinations
        self._buckets = buckets
        self._adjust = adjust
        self._turn = cycle(destinations)

    def to(self, key: str | None) -> Destination:
        """Return the one whose share of the buckets the key's hash is in."""
        if key is None:
            return next(self._turn)
        bucket = int(self._hash(key), 16) * self._buckets >> _BITS
        return self._destinations[bucket * len(self._destinations) // self._buckets]

    def fixed(self, key: str | None) -> Destination:
        """Return what `to` returns, but nothing in turn."""
        if key is None:
            raise OptionError(
                "several channels share the keys, and each has numbers of its own: give a send with a sequence, and "
                "last_sequence(), a key"
            )
        return self.to(key)

    def _hash(self, key: str) -> str:
        if self._adjust:
            return shard_hash(key, self._buckets)
        if len(key) != _BITS // 4 or not all(c in "0123456789abcdefABCDEF" for c in key):
            raise OptionError(
                f"without adjust_shard_hash a key must be a hash of {_BITS // 4} hexadecimal digits, not {key!r}"
            )
        return key


def shard_hash(key: str, buckets: int) -> str:
    """Return the first hash of a key's bucket, as 32 hexadecimal digits (the Aliyun LOG Java Producer's rule).

    Args:
        key: any text.
        buckets: how many buckets there are; a power of two.
    """
    digest = int.from_bytes(hashlib.md5(key.encode(), usedforsecurity=False).digest())
    kept_bits = buckets.bit_length() - 1
    return f"{digest >> _BITS - kept_bits << _BITS - kept_bits:032x}"
