"""Advice on a channel: each thing worth a look, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from spillable_stream.channel.figures import age_text, size_text
from spillable_stream.channel.stats import ChannelStats
from spillable_stream.counted import counted
from spillable_stream.objects.location import is_location
from spillable_stream.observe.observation import Observation
from spillable_stream.option_names import named
from spillable_stream.shown_value import command
from spillable_stream.state.ranges import count_of, listed

__all__ = ["Advice", "Urgency", "advice_on"]

_FULL_PERCENT = 90.0
_SPOOL_SECONDS = 300.0
_MOST_NAMES = 3
_WORKER_STATES = {"died": "died", "failed": "failed", "silent": "is silent"}
_WORKER_ACTIONS = {
    "died": "Start it again: what it had claimed is back in the queue.",
    "failed": "Fix what it names, and start it again: what it had claimed is back in the queue.",
    "silent": "Check whether its process hangs, is stopped, or runs on another host.",
}


class Urgency(StrEnum):
    """How soon somebody should look."""

    ERROR = "error"  # events are lost, or the channel can't be used
    WARNING = "warning"  # it will not stay well by itself
    NOTE = "note"  # nothing is wrong


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing worth a look.

    Args:
        urgency: how soon.
        text: what it is, in one sentence.
        action: what to do.
    """

    urgency: Urgency
    text: str
    action: str


def advice_on(seen: Observation) -> list[Advice]:
    """Return what is worth a look in a channel, the most urgent first."""
    if seen.is_to_come:
        return []
    if seen.stats is None:
        return [Advice(Urgency.ERROR, seen.problem, _after_a_failed_look(seen))]
    found = [*_losses(seen.stats, seen.path), *_troubles(seen.stats)]
    return sorted(found, key=lambda advice: list(Urgency).index(advice.urgency))


def _after_a_failed_look(seen: Observation) -> str:
    if seen.damaged:
        return f"Run: {command('verify', seen.path)}"
    if seen.advised:
        return "It is looked at again by itself."
    if is_location(seen.path):
        return "Check the address, and that the store can be reached and accepts this host's credentials."
    return "Check the path, and that its disk is mounted and works."


def _losses(stats: ChannelStats, path: str) -> Iterator[Advice]:
    if stats.lost:
        yield Advice(
            Urgency.ERROR,
            f"{counted(count_of(stats.lost), 'event')} lost with a memory tier or with damage: IDs "
            f"{listed(stats.lost)}.",
            f"Put them again from where they came; if the loss is new, run: {command('verify', path)}",
        )
    if stats.doubtful:
        yield Advice(
            Urgency.WARNING,
            f"A lost memory tier may have had events with the IDs {listed(stats.doubtful)}.",
            "Compare with where the events came from; nothing here can tell.",
        )
    for name, group in stats.groups.items():
        if group.removed:
            yield Advice(
                Urgency.ERROR,
                f"{counted(count_of(group.removed), 'event', 'were')} removed before {name} took them: IDs "
                f"{listed(group.removed)}.",
                f"Raise {named('retentionMs')} or {named('retentionBytes')}, or set "
                f"{named('retentionUntaken')} to keep.",
            )


def _troubles(stats: ChannelStats) -> Iterator[Advice]:
    if stats.unhealthy:
        yield Advice(Urgency.ERROR, "A failure closed the log of this handle.", "Open the channel again.")
    yield from _fullness(stats)
    yield from _workers(stats)
    yield from _spool(stats)
    yield from _notes(stats)


def _fullness(stats: ChannelStats) -> Iterator[Advice]:
    if stats.channel_fill_percentage >= _FULL_PERCENT:
        yield Advice(
            Urgency.WARNING,
            f"The channel is {stats.channel_fill_percentage:.0f}% full: puts will wait, and then fail.",
            "Speed up or start the group with the most lag, drop it if nobody needs it, or raise "
            f"{named('overflowCapacity')}.",
        )
    if stats.without_owner:
        more = len(stats.without_owner) - _MOST_NAMES
        names = ", ".join(stats.without_owner[:_MOST_NAMES]) + (f" and {more:,} more" if more > 0 else "")
        yield Advice(
            Urgency.WARNING,
            f"Streams left groups without an owner, which hold events back: {names}.",
            "Start these streams again, or drop the groups.",
        )


def _workers(stats: ChannelStats) -> Iterator[Advice]:
    for worker in stats.workers:
        if worker.is_troubled:
            trouble = worker.trouble or f"{counted(worker.left_calls, 'call')} did not return in time"
            yield Advice(
                Urgency.WARNING,
                f"The worker of {worker.group} {_WORKER_STATES.get(worker.state, 'is in trouble')}: {trouble}.",
                _WORKER_ACTIONS.get(worker.state, "Fix what it names; the worker tries again by itself."),
            )


def _spool(stats: ChannelStats) -> Iterator[Advice]:
    if (spool := stats.spool) is not None and (spool.trouble or (spool.oldest_seconds or 0.0) > _SPOOL_SECONDS):
        oldest = f", the oldest for {age_text(spool.oldest_seconds)}" if spool.oldest_seconds is not None else ""
        waiting = f"{counted(spool.events, 'event')} ({size_text(spool.size_bytes)})"
        yield Advice(
            Urgency.WARNING,
            f"{waiting} wait in the spool{oldest}, on this host only. {spool.trouble}".rstrip(),
            "Check that the store can be reached and accepts this host's credentials.",
        )


def _notes(stats: ChannelStats) -> Iterator[Advice]:
    if stats.torn_bytes:
        yield Advice(
            Urgency.NOTE,
            f"The last open cut {size_text(stats.torn_bytes)} that no commit counted from the end of the log.",
            "Nothing: a crash leaves such bytes, and no event is lost.",
        )
    if stats.overflow_active:
        yield Advice(
            Urgency.NOTE,
            "Memory has no room: puts go to disk without waiting.",
            "Nothing, unless puts are too slow: then speed up the consumers, or raise "
            f"{named('memoryCapacity')} and {named('byteCapacity')}.",
        )
