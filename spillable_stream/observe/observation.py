"""What one look at a channel shows, and the rates between two looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spillable_stream.channel.stats import ChannelStats

__all__ = ["Observation", "Rates", "rates_between"]


@dataclass(frozen=True, slots=True)
class Rates:
    """How fast things happened between two looks, each by everybody together.

    Args:
        seconds: how much time was between the two.
        puts: events put a second.
        takes: events a second that the fastest group took.
        group_takes: events a second that each group took, by name; a seek counts as nothing.
        transactions: transactions a second.
        spills: put transactions a second that went to disk for lack of memory.
        syncs: appends to the disk tier a second; each is one sync.
    """

    seconds: float
    puts: float
    takes: float
    group_takes: Mapping[str, float]
    transactions: float
    spills: float
    syncs: float


@dataclass(frozen=True, slots=True)
class Observation:
    """One look at a channel.

    Args:
        path: the channel, as it was given.
        at: when it was looked at, in seconds since 1970.
        stats: what it holds; None if it could not be looked at, or was not yet: others were before it.
        problem: why it could not be looked at; "" if it could, or was not yet.
        typed: whether it is a typed channel.
        own: whether the handle is a program's own: its counters count what the program does.
        taken: how many events each group took since the first look, by name.
        rates: the rates since the look before; None if there is none.
        damaged: whether the problem is damage, and not that it is missing, or can't be reached.
        missing: whether there is no channel there, or none that fits a pattern.
        advised: whether the problem says what to do about it.
    """

    path: str
    at: float
    stats: ChannelStats | None = None
    problem: str = ""
    typed: bool = False
    own: bool = False
    taken: Mapping[str, int] = field(default_factory=dict)
    rates: Rates | None = None
    damaged: bool = False
    missing: bool = False
    advised: bool = False

    @property
    def is_to_come(self) -> bool:
        """Whether the first look at the channel is to come."""
        return self.stats is None and not self.problem

    @property
    def oldest_age_seconds(self) -> float | None:
        """How long the oldest event has waited for a group, or for the first one to come; None if none waits."""
        if self.stats is None:
            return None
        ages = [self.stats.oldest_age_seconds, *(group.oldest_age_seconds for group in self.stats.groups.values())]
        return max((age for age in ages if age is not None), default=None)

    @property
    def largest_lag(self) -> int | None:
        """How many events the slowest group has yet to take; None without a group."""
        return max((group.lag for group in self.stats.groups.values()), default=None) if self.stats else None


def rates_between(before: Observation, stats: ChannelStats, at: float, taken: Mapping[str, int]) -> Rates | None:
    """Return the rates between two looks; None if the earlier one saw nothing, or another channel.

    Args:
        before: the earlier look.
        stats: what the later one saw.
        at: when that was, in seconds since 1970.
        taken: what each group had taken by then since the first look.
    """
    seconds = at - before.at
    if before.stats is None or before.stats.channel != stats.channel or seconds <= 0:
        return None
    groups = {name: max(0, count - before.taken.get(name, 0)) / seconds for name, count in taken.items()}
    return Rates(
        seconds=seconds,
        puts=max(0, stats.last_id - before.stats.last_id) / seconds,
        takes=max(groups.values(), default=0.0),
        group_takes=groups,
        transactions=max(0, stats.transactions - before.stats.transactions) / seconds,
        spills=max(0, stats.spilled_transactions - before.stats.spilled_transactions) / seconds,
        syncs=max(0, stats.disk_appends - before.stats.disk_appends) / seconds,
    )
