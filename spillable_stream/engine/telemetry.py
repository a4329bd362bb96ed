"""What one handle counts, and the recent past of its channel: a sample a second, for rates and for plots.

A sample holds until the next one. So where a change that came too soon after a sample was the last one for a while, it
gets a sample too, once that is known.
"""

from __future__ import annotations

import time
from array import array
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.group import GroupState

__all__ = ["Counters", "FileCounts", "Rates", "Sample", "Samples"]

_EVERY_SECONDS = 1.0
_KEPT = 3600
_RATES_SECONDS = 60.0
_KEPT_TAKEN = 120  # some groups' worth of memory each: for the rates of the last minute only


class Sample(NamedTuple):
    """A channel at one moment.

    Args:
        time: in seconds since 1970.
        memory_events: what the memory tier held.
        disk_events: what the disk tier held.
        overflow: whether overflow was active.
        last_id: the last write-order ID.
    """

    time: float
    memory_events: int
    disk_events: int
    overflow: bool
    last_id: int


_Beginning = tuple[str, str]
"""A group's name, and the token of its beginning."""


class _Taken(NamedTuple):
    """How many events each group had taken at one moment, without those that it could not; a seek makes it another."""

    time: float
    groups: tuple[_Beginning, ...]
    counts: array[int]


class Rates(NamedTuple):
    """Events per second over the last minute, or since the handle was opened.

    Args:
        put: how many were put, by everybody.
        taken: how many the fastest group took.
        seconds: over how long.
    """

    put: float
    taken: float
    seconds: float


class Samples:
    """The samples of the last hour in which anything happened.

    What groups had taken is kept for a minute, as an array: there may be many groups.
    """

    def __init__(self) -> None:
        self._kept: deque[Sample] = deque(maxlen=_KEPT)
        self._taken: deque[_Taken] = deque(maxlen=_KEPT_TAKEN)
        self._due = float("-inf")
        self._unsampled_at = 0.0  # the last look without a sample

    def record(self, state: ChannelState, *, now: bool = False) -> None:
        """Take a sample if the last one is a second old.

        Args:
            state: the channel, up to date.
            now: take one whatever the last one's age.
        """
        clock = time.monotonic()
        if clock < self._due and not now:
            self._unsampled_at = time.time()
            return
        self._due, self._unsampled_at = clock + _EVERY_SECONDS, 0.0
        at = time.time()
        self._keep(at, state)
        while self._taken and at - self._taken[0].time > _RATES_SECONDS:
            self._taken.popleft()
        groups = tuple(map(_beginning, state.groups.items()))
        if self._taken and self._taken[-1].groups == groups:
            groups = self._taken[-1].groups
        self._taken.append(_Taken(at, groups, array("q", map(_taken, state.groups.values()))))

    def settle(self, state: ChannelState) -> None:
        """Take the sample that is missing if the last change has lasted for a second.

        Args:
            state: the channel as it was since then, before it changes again.
        """
        if self._unsampled_at and time.time() - self._unsampled_at >= _EVERY_SECONDS:
            self._keep(self._unsampled_at, state)
            self._unsampled_at = 0.0

    def _keep(self, at: float, state: ChannelState) -> None:
        memory, disk = state.use(in_memory=True).events, state.use(in_memory=False).events
        self._kept.append(Sample(at, memory, disk, state.overflow, state.last_id))

    def until_now(self, state: ChannelState) -> list[Sample]:
        """Return the samples, oldest first, with one of now.

        Args:
            state: the channel, up to date.
        """
        self.settle(state)
        self.record(state, now=True)
        return self.all()

    def all(self) -> list[Sample]:
        """Return the samples, oldest first."""
        return list(self._kept)

    def rates(self, state: ChannelState) -> Rates:
        """Return how fast events came and went."""
        now = time.time()
        recent = next((s for s in self._kept if _is_recent(s.time, now)), None)
        if recent is None:
            return Rates(0.0, 0.0, 0.0)
        elapsed = max(now - recent.time, 1e-3)
        return Rates((state.last_id - recent.last_id) / elapsed, self._take_rate(state, now), elapsed)

    def _take_rate(self, state: ChannelState, now: float) -> float:
        """Return how many events a second the fastest group took."""
        since: float | None = None
        before: tuple[_Beginning, ...] = ()
        base: dict[_Beginning, int] = {}
        for at, groups, counts in self._taken:
            if _is_recent(at, now):
                since = at if since is None else since
                if groups is not before:  # a group that came later began where it did
                    base = {**dict(zip(groups, counts, strict=True)), **base}
                before = groups
        if since is None:
            return 0.0
        now_by_beginning = {_beginning(group): _taken(group[1]) for group in state.groups.items()}
        taken = (count - base[beginning] for beginning, count in now_by_beginning.items() if beginning in base)
        return max(0, *taken, 0) / max(now - since, 1e-3)


def _beginning(group: tuple[str, GroupState]) -> _Beginning:
    return group[0], group[1].token


def _taken(group: GroupState) -> int:
    return group.taken_count() - group.passed - group.missed


def _is_recent(at: float, now: float) -> bool:
    """Tell whether a sample is of the last minute; one of the future is of a clock that was set back since."""
    return 0 <= now - at <= _RATES_SECONDS


@dataclass(slots=True)
class Counters:
    """Counts of one handle, since it was opened.

    Args:
        event_put_attempt_count: events of put transactions that were to be committed.
        event_put_success_count: events that were committed.
        event_put_error_count: commits of puts that failed.
        event_take_attempt_count: events that were asked for and found, or that one take did not find.
        event_take_success_count: events whose takes were committed.
        event_take_error_count: takes that could not be read or committed.
        checkpoint_write_error_count: checkpoints that could not be created.
        group_commits: how many appends there were; each is one sync on disk, none in memory.
        grouped_commits: how many transactions they were of.
        disk_syncs: how many appends to the disk tier.
        disk_bytes: how many bytes these were.
    """

    event_put_attempt_count: int = 0
    event_put_success_count: int = 0
    event_put_error_count: int = 0
    event_take_attempt_count: int = 0
    event_take_success_count: int = 0
    event_take_error_count: int = 0
    checkpoint_write_error_count: int = 0
    group_commits: int = 0
    grouped_commits: int = 0
    disk_syncs: int = 0
    disk_bytes: int = 0


@dataclass(frozen=True, slots=True)
class FileCounts:
    """What the files of a channel are like at one moment.

    Args:
        data_files: how many files its log has.
        memory_files: how many log files the memory tier has.
        segments: how many segments there are in both tiers, staged ones included.
        torn_bytes: what this handle's open cut from the log's tail.
        memory_payload_bytes: the most bytes of payloads that memory holds: the tier there is, or one created now; 0
            without one.
    """

    data_files: int
    memory_files: int = 0
    segments: int = 0
    torn_bytes: int = 0
    memory_payload_bytes: int = 0
