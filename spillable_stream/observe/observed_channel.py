"""One channel that is looked at again and again, and opened again where that fails."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from os import PathLike, fspath

from spillable_stream.channel.channel import Channel
from spillable_stream.channel.stats import ChannelStats, GroupStats
from spillable_stream.errors import ChannelError, CorruptionError, NotAChannelError, SpillableError
from spillable_stream.observe.observation import Observation, rates_between
from spillable_stream.state.ranges import RangeSet, count_of

__all__ = ["FAILURES", "ObservedChannel"]

FAILURES = (SpillableError, OSError, ImportError)
"""What a look at a channel may meet: its own errors, the system's, and an extra that is not installed."""

_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 30.0


class ObservedChannel:
    """A channel that is looked at.

    Args:
        channel: a handle of the caller's, which stays open, or a path, which is opened read-only.
        clock: returns the time in seconds since 1970.

    Attributes:
        path: the channel, as it was given.
    """

    def __init__(self, channel: Channel | str | PathLike[str], clock: Callable[[], float]) -> None:
        self._own = channel if isinstance(channel, Channel) else None
        self.path: str = str(channel.path) if isinstance(channel, Channel) else fspath(channel)
        self._handle = self._own
        self._clock = clock
        self._last: Observation | None = None
        self._taken: dict[str, int] = {}
        self._groups: dict[str, GroupStats] = {}  # as they were at the last look
        self._last_id = 0
        self._pause_seconds = 0.0
        self._failed_at = 0.0

    @property
    def latest(self) -> Observation | None:
        """The last look; None before the first."""
        return self._last

    def look(self) -> Observation:
        """Return what the channel holds now, or why that can't be told: nothing that it meets is raised."""
        at = self._clock()
        if self._last is not None and self._handle is None and 0 <= at - self._failed_at < self._pause_seconds:
            return self._last
        try:
            if self._handle is None:
                self._handle = Channel(self.path, create=False, readonly=True)
            found = self._handle.stats()
            typed = self._handle.typed
        except FAILURES as e:
            self._last = self._failed(at, e)
            return self._last
        self._pause_seconds = 0.0
        self._count(found)
        taken = dict(self._taken)
        rates = rates_between(self._last, found, at, taken) if self._last is not None else None
        own = self._own is not None and not self._own.readonly
        self._last = Observation(self.path, at, found, "", typed, own, taken, rates)
        return self._last

    def _failed(self, at: float, error: Exception) -> Observation:
        """Return a look that failed; the channel is opened again after a pause, which doubles each time."""
        self._groups = {}
        self._pause_seconds = min(max(_FIRST_PAUSE_SECONDS, 2 * self._pause_seconds), _LONGEST_PAUSE_SECONDS)
        self._failed_at = at
        if self._own is None:
            self.close()
        return Observation(
            self.path,
            at,
            problem=f"{type(error).__name__}: {error}",
            damaged=isinstance(error, CorruptionError),
            missing=isinstance(error, NotAChannelError),
            advised=isinstance(error, ChannelError) and not getattr(error, "is_missing", False),
        )

    def _count(self, stats: ChannelStats) -> None:
        """Add what each group took since the last look, and forget the groups that are gone."""
        taken = {}
        for name, group in stats.groups.items():
            before = self._groups.get(name)
            took = 0 if before is None else _taken_between(before, self._last_id, group, stats.last_id)
            taken[name] = self._taken.get(name, 0) + took
        self._taken, self._groups, self._last_id = taken, dict(stats.groups), stats.last_id

    def close(self) -> None:
        """Close the handle that was opened here."""
        handle, self._handle = self._handle, self._own
        if handle is not None and handle is not self._own:
            with contextlib.suppress(SpillableError, OSError):
                handle.close()


def _taken_between(before: GroupStats, before_last_id: int, now: GroupStats, now_last_id: int) -> int:
    """Return how many events a group took between two looks, without what a seek passed, went untaken or had expired.

    Args:
        before: the group at the earlier look.
        before_last_id: the last event of the channel then.
        now: the group at the later look.
        now_last_id: the last event of the channel then.
    """
    if now.token != before.token:
        return 0  # a seek moved it, or it was created anew
    passed = (now_last_id - now.lag) - (before_last_id - before.lag)
    known = RangeSet((*before.lost, *before.removed))
    untaken = sum(count_of(known.gaps(first, last)) for first, last in (*now.lost, *now.removed))
    return max(0, passed - untaken - max(0, now.expired_events - before.expired_events))
