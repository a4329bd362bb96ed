"""In which order the sinks of a group are asked, and which are left out for a time: Flume's rules and numbers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["OrderSelector", "RandomOrder", "RoundRobinOrder"]

_UNIT_MS = 1000
_MOST_DOUBLINGS = 16
_SEQUENTIAL_MS = 3_600_000


@dataclass(slots=True)
class _Failures:
    """The failures of one sink: when the last one was, how many in a row, and until when it is left out."""

    last_ms: float | None = None
    in_a_row: int = 0
    out_until_ms: float | None = None


class OrderSelector:
    """Says in which order to ask sinks, which it knows by their numbers. One of your own has an `order`.

    Attributes:
        count: how many sinks there are.
        backoff: whether a sink that failed is left out for a time.
        max_timeout_ms: the longest such time.
    """

    count: int = 0
    backoff: bool = False
    max_timeout_ms: int = 30_000

    def configure(self, count: int, *, backoff: bool, max_timeout_ms: int, seed: int) -> None:
        """Set what there is to choose from; before the first round.

        Args:
            count: how many sinks there are.
            backoff: whether a sink that failed is left out for a time.
            max_timeout_ms: the longest such time.
            seed: for a choice by chance.
        """
        self.count, self.backoff, self.max_timeout_ms = count, backoff, max_timeout_ms
        self._failures = [_Failures() for _ in range(count)]
        self._random = random.Random(seed)

    def order(self, active: Sequence[int]) -> Sequence[int]:
        """Return the order of the next round.

        Args:
            active: the sinks that are not left out, ascending.
        """
        raise NotImplementedError(f"{type(self).__name__} has no order()")

    def next_round(self, now_ms: float) -> Sequence[int]:
        """Return which sinks to ask in the next round, in order; none if all are left out.

        Args:
            now_ms: the time, which never goes back, in milliseconds.
        """
        active = [i for i in range(self.count) if self._is_active(self._failures[i], now_ms)]
        return self.order(active) if active else ()

    def _is_active(self, failures: _Failures, now_ms: float) -> bool:
        return not self.backoff or failures.out_until_ms is None or failures.out_until_ms < now_ms

    def failed(self, sink: int, now_ms: float) -> None:
        """Note that a sink failed. It is left out for 2 s, and twice as long with each failure in a row.

        Failures are in a row if there is less than the time out and an hour between them.
        """
        if not self.backoff:
            return
        failures = self._failures[sink]
        since_ms = None if failures.last_ms is None else now_ms - failures.last_ms
        if since_ms is not None and since_ms >= self._timeout_ms(failures.in_a_row) + _SEQUENTIAL_MS:
            failures.in_a_row = 1
        else:
            failures.in_a_row = min(failures.in_a_row + 1, _MOST_DOUBLINGS)
        failures.last_ms = now_ms
        failures.out_until_ms = now_ms + self._timeout_ms(failures.in_a_row)

    def _timeout_ms(self, in_a_row: int) -> int:
        return min(self.max_timeout_ms, _UNIT_MS << in_a_row)


class RoundRobinOrder(OrderSelector):
    """Begins one further with each round, among those that are not left out."""

    _head = 0

    def order(self, active: Sequence[int]) -> Sequence[int]:
        """Return all of them, from the next one on."""
        begin = self._head if self._head < len(active) else 0
        self._head = (begin + 1) % len(active)
        return [*active[begin:], *active[:begin]]


class RandomOrder(OrderSelector):
    """Asks them in an order by chance."""

    def order(self, active: Sequence[int]) -> Sequence[int]:
        """Return all of them, shuffled."""
        shuffled = list(active)
        self._random.shuffle(shuffled)
        return shuffled
