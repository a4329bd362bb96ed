"""What a channel says about itself, under Flume's names where Flume has them (``ChannelCounter``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from spillable_stream.engine.engine import Engine
from spillable_stream.engine.ownerless_groups import ownerless_groups
from spillable_stream.engine.telemetry import Counters
from spillable_stream.event_age import age_seconds
from spillable_stream.state.block import Block
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.ranges import Range, count_of
from spillable_stream.state.spill_rules import TierUsage

if TYPE_CHECKING:
    from spillable_stream.objects.metered_store import StoreUsage

__all__ = [
    "ChannelStats",
    "DelayedStats",
    "GroupStats",
    "KeptStats",
    "SpoolStats",
    "TierStats",
    "WorkerStats",
    "channel_stats",
]


@dataclass(frozen=True, slots=True)
class GroupStats:
    """One group.

    Args:
        position: every event up to this write-order ID was taken.
        lag: how many events it has yet to take.
        in_flight: how many of them are in prepared take transactions.
        lost: the IDs of events that it had yet to take and that went with a memory tier or with damage, until it takes
            a later one.
        removed: the IDs of events that it had yet to take and that left by age or size, until it takes a later one.
        expired_events: how many events its takes have passed over, ever, because their ttl had ended.
        is_automatic: whether a stream created the group for itself.
        oldest_age_seconds: the age of the oldest event that it has yet to take, or None.
        token: a random text of its beginning, which a seek makes another one; "" where an earlier version created it.
    """

    position: int
    lag: int
    in_flight: int
    lost: tuple[Range, ...] = ()
    removed: tuple[Range, ...] = ()
    is_automatic: bool = False
    oldest_age_seconds: float | None = field(default=None, compare=False)
    expired_events: int = 0
    token: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class TierStats:
    """One tier.

    Args:
        events: how many events it holds that some group has yet to take; on disk also those that wait until they are
            due.
        payload_bytes: the size of their payloads.
        event_capacity: the most events that it holds: ``memoryCapacity`` or ``overflowCapacity``.
        byte_capacity: the most bytes of payloads that it holds; None on disk, where free space decides. For
            memory: ``byteCapacity``, or what a memory tier created now would get, less the buffer percentage.
    """

    events: int
    payload_bytes: int
    event_capacity: int
    byte_capacity: int | None


@dataclass(frozen=True, slots=True)
class KeptStats:
    """Events that both tiers keep though every group has taken them, for retention or for a group that went back.

    Args:
        events: how many events; they don't count against a capacity.
        payload_bytes: the size of their payloads; estimated where a part of a block of the log is kept.
        first_id: the first event that the channel keeps: where "earliest" begins. `ChannelStats.first_id` if none is.
        oldest_age_seconds: the age of the first one, or None.
    """

    events: int
    payload_bytes: int
    first_id: int
    oldest_age_seconds: float | None


@dataclass(frozen=True, slots=True)
class DelayedStats:
    """Events that wait until they are due; no take sees them, and they have no IDs yet.

    Args:
        events: how many events; they count against the capacity of the disk tier, which holds them.
        payload_bytes: the size of their payloads; estimated where some of a side file were delivered.
        next_due: when the next one is due, in seconds since 1970; None if none waits.
    """

    events: int = 0
    payload_bytes: int = 0
    next_due: float | None = None


@dataclass(frozen=True, slots=True)
class SpoolStats:
    """The events that were acknowledged and are not in the store yet: they are lost if this host's disk, or memory, is.

    Args:
        events: how many events are in the spool, delayed ones too, whoever put them there.
        size_bytes: the size of their payloads.
        oldest_seconds: the age of the oldest one, or None.
        trouble: why this handle's last attempt to ship failed; "" if it did not.
    """

    events: int
    size_bytes: int
    oldest_seconds: float | None
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class WorkerStats:
    """A worker: what it does, and did.

    Args:
        group: the group that it works for.
        state: "new", "running", "stopping", "ended" or "failed"; of another process's also "died", or "silent" where it
            is not known whether it lives.
        is_healthy: whether it is not ended, nothing is wrong, and every call returned in time.
        done_events: events for which the function returned, committed.
        dropped_events: events that it dropped.
        dead_letter_events: events in the dead-letter channel.
        failed_calls: calls that took too long, or raised an error other than `Retry`, `Drop` and `DeadLetter`.
        waiting_events: events that wait to be tried again.
        busy_threads: threads that work on something now.
        left_calls: calls that took too long, that nobody waits for, and that are still under way.
        trouble: why it failed, or what keeps it from committing now; "" if nothing does.
        last_error: the last error of its function, in one line; "" if there was none.
        process: the process that runs it, as ``pid 12 on host``; "" for a worker of this handle.
    """

    group: str
    state: str
    is_healthy: bool
    done_events: int
    dropped_events: int
    dead_letter_events: int
    failed_calls: int
    waiting_events: int
    busy_threads: int
    left_calls: int
    trouble: str = ""
    last_error: str = ""
    process: str = ""

    @property
    def is_troubled(self) -> bool:
        """Whether somebody should look: it is not healthy, and did not just end."""
        return not self.is_healthy and self.state != "ended"


@dataclass(frozen=True, slots=True)
class ChannelStats:
    """A channel at one moment.

    Args:
        channel: its UUID.
        channel_size: events that some group has yet to take.
        channel_capacity: the most events that both tiers hold.
        channel_fill_percentage: the size, and what waits until it is due, in percent of the capacity.
        memory: the memory tier.
        disk: the disk tier.
        delayed: what waits until it is due; `channel_size` does not count it.
        kept: what is kept though every group has taken it; no other number counts it.
        drain_order: in which tiers the events are, in the order of takes: runs of events, those on disk negative.
        overflow_active: whether puts for which memory has no room go to disk without waiting.
        spilled_transactions: how many put transactions ever went to disk for lack of memory.
        first_id: the oldest event that some group has yet to take for the first time; ``last_id + 1`` if there are
            none. Kept events are before it: `KeptStats.first_id`.
        last_id: the last write-order ID in use.
        oldest_age_seconds: the age of the event ``first_id``, or None.
        put_rate: events per second put in the last minute, by everybody, as this handle saw it.
        take_rate: events per second that the fastest group took in it.
        transactions: how many transactions there ever were, of puts, takes and changes.
        disk_appends: appends to the disk tier, by everybody, that this handle saw since it was opened; each is a sync.
        lost: the IDs of events that went with a memory tier or with damage, as ranges of first and last.
        doubtful: IDs that a lost memory tier may have used: nobody knows.
        data_files: how many data files there are.
        memory_files: how many log files the memory tier has.
        segments: how many segments there are in both tiers, staged ones included.
        torn_bytes: what this handle's open cut from the log's tail.
        unhealthy: whether a failure closed this handle's log.
        groups: the groups by name.
        without_owner: the groups that streams created for themselves and nobody reads as now; of more than a hundred
            such groups, some of those with most to take.
        sinks: the last committed batch of every Spark query.
        producers: the highest committed batch of every producer.
        counters: what this handle counted since it was opened.
        store: for a channel in an object store, the requests of this handle, and what they cost a day; else None.
        spool: with a spool in front of the store, what is yet to be shipped; else None. Nothing else here counts it.
        workers: the workers of this handle that have not been forgotten, in the order in which they were created. For a
            read-only handle: the last worker of each group that has one, in any process.
    """

    channel: str
    channel_size: int
    channel_capacity: int
    channel_fill_percentage: float
    memory: TierStats
    disk: TierStats
    kept: KeptStats
    drain_order: list[int]
    overflow_active: bool
    spilled_transactions: int
    first_id: int
    last_id: int
    oldest_age_seconds: float | None
    put_rate: float
    take_rate: float
    lost: tuple[Range, ...]
    doubtful: tuple[Range, ...]
    data_files: int
    memory_files: int
    segments: int
    torn_bytes: int
    unhealthy: bool
    groups: Mapping[str, GroupStats]
    without_owner: tuple[str, ...]
    sinks: Mapping[str, int]
    producers: Mapping[str, int]
    counters: Counters
    store: StoreUsage | None = None
    spool: SpoolStats | None = None
    transactions: int = 0
    disk_appends: int = 0
    workers: tuple[WorkerStats, ...] = ()
    delayed: DelayedStats = DelayedStats()

    def flume_counters(self) -> dict[str, float]:
        """Return the numbers under the names of Flume's counters, such as ``ChannelFillPercentage``."""
        values: dict[str, float] = {
            "channel_size": self.channel_size,
            "channel_capacity": self.channel_capacity,
            "channel_fill_percentage": self.channel_fill_percentage,
            "unhealthy": int(self.unhealthy),
            "memory_events": self.memory.events,
            "memory_payload_bytes": self.memory.payload_bytes,
            "disk_events": self.disk.events,
            "disk_payload_bytes": self.disk.payload_bytes,
            "kept_events": self.kept.events,
            "kept_payload_bytes": self.kept.payload_bytes,
            "delayed_events": self.delayed.events,
            "delayed_payload_bytes": self.delayed.payload_bytes,
            "overflow_active": int(self.overflow_active),
            "spilled_transactions": self.spilled_transactions,
            "oldest_age_seconds": self.oldest_age_seconds or 0.0,
            **asdict(self.counters),
        }
        return {"".join(word.capitalize() for word in name.split("_")): value for name, value in values.items()}


def channel_stats(engine: Engine, *, as_known: bool = False) -> ChannelStats:
    """Return the channel's statistics, up to date with every process's commits.

    A loss of events is left to the next call that stores or takes some: nobody may see what this one raises.

    Args:
        engine: the channel.
        as_known: whether to say what this handle knows, without a look at the log.
    """
    with engine.log.unasked():
        return _stats(engine, as_known=as_known)
    return _stats(engine, as_known=as_known)  # it met one, and this is what is there


def _stats(engine: Engine, *, as_known: bool) -> ChannelStats:
    with engine.follower.as_known if as_known else engine.snapshot() as state:
        engine.samples.record(state)
        options, rates = state.options, engine.samples.rates(state)
        files = engine.file_counts(state)
        size, capacity = state.stored(), options.memory_capacity + options.overflow_capacity
        return ChannelStats(
            channel=engine.channel,
            channel_size=size,
            channel_capacity=capacity,
            channel_fill_percentage=100.0 * (size + state.delays.events) / capacity,
            memory=TierStats(*state.use(in_memory=True), options.memory_capacity, files.memory_payload_bytes),
            disk=TierStats(*state.use(in_memory=False), options.overflow_capacity, None),
            kept=_kept(state),
            drain_order=state.drain_order(),
            overflow_active=state.overflow,
            spilled_transactions=state.spilled,
            first_id=state.floor,
            last_id=state.last_id,
            oldest_age_seconds=age_seconds(state.put_at_us(state.floor)) if size else None,
            put_rate=rates.put,
            take_rate=rates.taken,
            lost=tuple(state.lost),
            doubtful=tuple(state.doubtful),
            data_files=files.data_files,
            memory_files=files.memory_files,
            segments=files.segments,
            torn_bytes=files.torn_bytes,
            unhealthy=engine.log.failed is not None,
            groups={name: _group(state, name) for name in state.groups},
            without_owner=tuple(g.name for g in ownerless_groups(engine.owners, state)),
            sinks=dict(state.sinks),
            producers={name: state.producers.last(name) for name in state.producers},
            counters=replace(engine.counters),
            store=engine.store_usage(),
            transactions=state.next_transaction - 1,
            disk_appends=engine.follower.disk_appends,
            delayed=_delayed(state),
        )


def _group(state: ChannelState, name: str) -> GroupStats:
    flying = [r for ranges in state.taking(name).values() for r in ranges]
    group, lag = state.groups[name], state.lag(name)
    oldest = next((first for first, _ in group.ahead.gaps(group.position + 1, state.last_id)), None)
    return GroupStats(
        position=group.position,
        lag=lag,
        in_flight=count_of(flying),
        lost=tuple(group.lost),
        removed=tuple(group.removed),
        is_automatic=group.is_automatic,
        expired_events=group.passed,
        oldest_age_seconds=None if oldest is None else age_seconds(state.put_at_us(oldest)),
        token=group.token,
    )


def _delayed(state: ChannelState) -> DelayedStats:
    delays = state.delays
    return DelayedStats(delays.events, delays.payload_bytes, None if delays.next_ms is None else delays.next_ms / 1000)


def _kept(state: ChannelState) -> KeptStats:
    first_id, floor = state.first_kept, state.floor
    if first_id >= floor:
        return KeptStats(0, 0, floor, None)
    # Whole blocks: the first may begin with events that have left, and the next end as kept ones do.
    kept = state.kept()
    for index in (state.blocks.disk, state.blocks.memory):
        held, first = index.first_held(), next(iter(index), None)
        if first is not None and first is not held:
            left = _part(first, first.first_id, first_id - 1)
            kept = TierUsage(kept.events - left.events, kept.payload_bytes - left.payload_bytes)
        if held is not None:
            kept = kept.plus(_part(held, first_id, floor - 1))
    return KeptStats(kept.events, kept.payload_bytes, first_id, age_seconds(state.put_at_us(first_id)))


def _part(block: Block, first_id: int, last_id: int) -> TierUsage:
    count = max(0, min(last_id, block.last_id) - max(first_id, block.first_id) + 1)
    return TierUsage(count, block.payload_bytes * count // block.count)
