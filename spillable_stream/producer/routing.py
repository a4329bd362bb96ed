"""Routes keys to destinations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import Protocol

from spillable_stream.arguments import text
from spillable_stream.errors import OptionError
from spillable_stream.producer.destination import Destination
from spillable_stream.sharding import HASH_BITS, shard_hash, shard_of_hash
from spillable_stream.shown_value import shown

__all__ = ["ByName", "Forked", "Only", "Route", "Sharded"]


class Route(Protocol):
    """Chooses the destination for a key."""

    def to(self, key: str | None) -> Destination:
        """Return the destination for a key.

        Raises:
            OptionError: the key does not match any destination.
        """

    def fixed(self, key: str | None) -> Destination:
        """Return the same destination for a key each time, for sends with a sequence.

        Raises:
            OptionError: the key does not match any destination, or not always the same one.
        """


class Only:
    """A single destination, without keys."""

    def __init__(self, destination: Destination) -> None:
        self._destination = destination

    def to(self, key: str | None) -> Destination:
        """Return the destination.

        Raises:
            OptionError: there is a key.
        """
        if key is not None:
            raise OptionError(f"a key chooses one of several channels; this producer has only {self._destination.name}")
        return self._destination

    fixed = to


class ByName:
    """Destinations by name."""

    def __init__(self, destinations: Mapping[str, Destination]) -> None:
        self._destinations = destinations

    def to(self, key: str | None) -> Destination:
        """Return the destination that the key names.

        Raises:
            OptionError: the key is not the name of a destination.
        """
        found = self._destinations.get(key) if isinstance(key, str) else None
        if found is None:
            raise OptionError(
                f"the key must name a channel: {', '.join(map(repr, self._destinations))}; not {shown(key)}"
            )
        return found

    fixed = to


class Sharded:
    """Destinations that share the keys by hash. Events without a key go to each destination in turn.

    Args:
        destinations: at most one for each bucket.
        buckets: the number of equal ranges of hashes; a power of two.
        adjust: whether keys are texts to hash; otherwise they are hashes.
    """

    def __init__(self, destinations: Sequence[Destination], buckets: int, adjust: bool) -> None:
        self._destinations = destinations
        self._buckets = buckets
        self._adjust = adjust
        self._turn = cycle(destinations)

    def to(self, key: str | None) -> Destination:
        """Return the destination whose buckets include the key's hash; the next in turn without a key.

        Raises:
            OptionError: the key is not text, or must be a hash and is not one.
        """
        if key is None:
            return next(self._turn)
        found = shard_of_hash(int(self._hash(text("key", key)), 16), self._buckets, len(self._destinations))
        return self._destinations[found]

    def fixed(self, key: str | None) -> Destination:
        """Return the destination for a key, like `to`, but refuse to choose one in turn.

        Raises:
            OptionError: there is no key, or it must be a hash and is not one.
        """
        if key is None:
            raise OptionError(
                "several channels share the keys, and each has numbers of its own: give a send with a sequence, and "
                "last_sequence(), a key"
            )
        return self.to(key)

    def _hash(self, key: str) -> str:
        if self._adjust:
            return shard_hash(key, self._buckets)
        if len(key) != HASH_BITS // 4 or not all(c in "0123456789abcdefABCDEF" for c in key):
            raise OptionError(
                f"without adjust_shard_hash a key must be a hash of {HASH_BITS // 4} hexadecimal digits, not "
                f"{shown(key)}"
            )
        return key


class Forked:
    """The route of a producer in a forked child, until its first send.

    Args:
        begin: starts the producer's threads, and returns its route from then on.
    """

    def __init__(self, begin: Callable[[], Route]) -> None:
        self._begin = begin

    def to(self, key: str | None) -> Destination:
        """Start the producer's threads and return the destination; raises what its route raises."""
        return self._begin().to(key)

    def fixed(self, key: str | None) -> Destination:
        """Start the producer's threads and return the destination; raises what its route raises."""
        return self._begin().fixed(key)
