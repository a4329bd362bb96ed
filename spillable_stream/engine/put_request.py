"""A put: which tier takes it, whether it fits, and whether it was committed before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from spillable_stream.counted import counted
from spillable_stream.engine.append_plan import AppendPlan, CommitResult
from spillable_stream.engine.delayed_puts import Delayed
from spillable_stream.engine.requests import COMMIT_BYTES, SEGMENT_BYTES, Request
from spillable_stream.errors import (
    ChannelFullError,
    ProducerSequenceError,
    PutTooLargeError,
    StorageError,
    TransactionCapacityError,
)
from spillable_stream.format.commit_record import SegmentRef
from spillable_stream.format.file_names import DISK, MEMORY, Tier, in_memory
from spillable_stream.format.frame import MAX_COUNT, Frame, frame_size
from spillable_stream.format.named_tuple import new_tuple
from spillable_stream.format.numbered_batch import NumberedBatch
from spillable_stream.log.staged_file import StagedFileWriter
from spillable_stream.option_names import named
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.producer_history import Answer
from spillable_stream.state.spill_rules import TierUsage, choose_tier

__all__ = ["MemoryFullError", "NoRoomYetError", "Put"]

_BESIDE_PAYLOAD_BYTES = frame_size(1) - 1  # the header and the padding of a frame, at most


class MemoryFullError(ChannelFullError):
    """The memory tier has no room now; the put may spill to disk after it has waited."""


class NoRoomYetError(ChannelFullError):
    """The channel has no room now, and the caller retries instead of waiting here. Nothing was stored.

    Args:
        message: what is full.
        may_be_over: tells whether a retry makes sense now: something has changed, or the put has waited long enough.
    """

    def __init__(self, message: str, may_be_over: Callable[[], bool]) -> None:
        super().__init__(message)
        self.may_be_over = may_be_over


@dataclass(slots=True)
class Put(Request):
    """A put transaction: all of it goes to one tier.

    Args:
        frames: PUT frames that go into the log.
        segments: staged files to adopt; their events come first.
        sink: query ID and batch ID of a streaming sink; a batch is committed only once.
        producer: a producer's numbered batch; likewise.
        may_spill: whether it has waited long enough for room in memory.
        not_staged: why a staged file could not be copied from memory to disk, if that failed.
        follows: the producer's last number in the channel, on which the batch was cut; None for any.
        delayed: events that wait until they are due; all of the put goes to the disk tier with them.
        is_extended: whether a staged file has what earlier versions can't read, though its row does not say so.
        writer: the writer of the only staged file, which has it locked; None where the files are not locked.
        require: proves that the producer's ID is still its own (`ProducerClaim.require`); None without a claim.

    Attributes:
        use: the number of events and the size of their payloads.
    """

    frames: list[Frame]
    segments: list[SegmentRef] = field(default_factory=list)
    sink: tuple[str, int] | None = None
    producer: NumberedBatch | None = None
    may_spill: bool = False
    not_staged: StorageError | None = None
    follows: int | None = None
    delayed: Delayed | None = None
    is_extended: bool = False
    writer: StagedFileWriter | None = None
    require: Callable[[ChannelState], None] | None = None
    _spilled: str = ""
    _payload_bytes: int = 0  # of the frames
    use: TierUsage = field(init=False)

    def __post_init__(self) -> None:
        events = size_bytes = 0
        for frame in self.frames:
            events += frame.count
            size_bytes += len(frame.payload)
            if frame.ttl_us or frame.has_dues:
                self.is_extended = True
        self._payload_bytes = size_bytes
        for segment in self.segments:
            events += segment.count
            size_bytes += segment.payload_bytes
            if segment.least_ttl_us:
                self.is_extended = True
        self.use = new_tuple(TierUsage, (events, size_bytes))
        if self.delayed:
            self.use = self.use.plus(self.delayed.use())

    def may_repeat(self) -> bool:
        return bool(self.sink or self.producer)  # which the state knows

    def size_bytes(self) -> int:
        note_bytes = len(self.producer.note) if self.producer else 0
        delayed_bytes = self.delayed.commit_bytes() if self.delayed else 0
        beside_bytes = _BESIDE_PAYLOAD_BYTES * len(self.frames) + COMMIT_BYTES + SEGMENT_BYTES * len(self.segments)
        return self._payload_bytes + beside_bytes + note_bytes + delayed_bytes

    def too_large(self, state: ChannelState, path: object) -> PutTooLargeError | None:
        """Return why it would not fit into the channel at ``path`` if that were empty; None if it would."""
        wanted, limits, disk = self.use, state.memory_limits(), state.options.overflow_capacity
        most_bytes = limits.payload_bytes or wanted.payload_bytes  # unknown until the memory tier exists
        fits_memory = wanted.events <= limits.events and wanted.payload_bytes <= most_bytes
        if wanted.events <= disk or (fits_memory and not self.delayed):
            return None
        most, option = f"disk holds at most {counted(disk, 'event')} ({named('overflowCapacity')})", "overflowCapacity"
        if limits.events and not self.delayed:
            memory = (
                f"memory holds at most {counted(limits.events, 'event')} and {most_bytes:,} bytes "
                f"({named('memoryCapacity')}, and {named('byteCapacity')} less its buffer)"
            )
            most = f"{memory}, {most}" if disk else memory
            option = option if disk else "memoryCapacity" if wanted.events > limits.events else "byteCapacity"
        return PutTooLargeError(
            f"{path}: {self._events_do()} not fit ({counted(wanted.payload_bytes, 'byte')}), however empty the channel "
            f"is: {most}. Raise {named(option)}, or put {'smaller events' if wanted.events == 1 else 'fewer at once'}"
        )

    def _events_do(self) -> str:
        """Return "3 events do", the beginning of a sentence about it."""
        return counted(self.use.events, "event", "do")

    def done(self, plan: AppendPlan) -> CommitResult | None:
        """Return the result again if a query's or a producer's batch was committed before; otherwise None.

        Raises:
            ProducerBusyError: another producer has had the ID since this one claimed it.
            ProducerSequenceError: the producer's batch can't have this number.
        """
        if self.sink:
            query, batch = self.sink
            return CommitResult() if batch <= plan.sinks.get(query, plan.state.sinks.get(query, -1)) else None
        if self.producer:
            name, numbers, _ = self.producer
            if self.require is not None:
                self.require(plan.state)
            if self.follows is not None and (last := plan.state.producers.last(name)) != self.follows:
                raise ProducerSequenceError(
                    f"the producer {name!r} has batches up to {last} in the channel, but had them up to "
                    f"{self.follows} when this one was prepared. Nothing was stored: prepare it again"
                )
            planned = plan.batches.get((name, numbers.last))
            answer = planned.to(name, numbers) if planned else plan.state.producers.answer(name, numbers)
            return CommitResult(0, answer.first_id, answer.last_id) if answer else None
        return None

    def tier(self, plan: AppendPlan) -> Tier:
        """Return the tier that the spill rules choose (`spillable_stream.state.spill_rules.choose_tier`).

        Raises:
            MemoryFullError: memory has no room, and the put has not waited for it yet.
            ChannelFullError: neither tier has room.
            TransactionCapacityError: the transaction has more events than a COMMIT can count.
        """
        self._spilled = ""
        if (self.sink or self.producer) and self.done(plan):
            return plan.tier
        wanted = self.use
        if wanted.events > MAX_COUNT:
            raise TransactionCapacityError(
                f"a transaction puts at most {MAX_COUNT:,} events, not {wanted.events:,}; put them in several"
            )
        options = plan.state.options
        if (
            plan.memory_room
            and not self.delayed
            and (not self.segments or all([in_memory(s.name) for s in self.segments]))
        ):
            limits = plan.state.memory_limits()
            waits = options.overflow_capacity > 0 and not (plan.overflow or self.may_spill)
            tier, self._spilled = choose_tier(wanted, limits, waits, partial(self._fits_memory, plan, wanted, limits))
            if tier is MEMORY:
                return tier
            if tier is None:
                raise MemoryFullError("the memory tier is full")
        if not plan.fits_disk(wanted):
            raise ChannelFullError(f"{self._events_do()} not fit ({counted(wanted.payload_bytes, 'byte')})")
        return DISK

    def _fits_memory(self, plan: AppendPlan, wanted: TierUsage, limits: TierUsage) -> bool:
        # Without a disk tier, the events that a close moved to disk count against memory too.
        tiers = (MEMORY,) if plan.state.options.overflow_capacity else (MEMORY, DISK)
        if not plan.fits(wanted, tiers, limits) or plan.memory_room is None:
            return False
        return plan.memory_room(plan.put_bytes + wanted.payload_bytes)

    def plan(self, plan: AppendPlan) -> CommitResult:
        if (self.sink or self.producer) and (done := self.done(plan)):
            return done
        wanted = self.use
        plan.is_extended = plan.is_extended or self.is_extended
        tx = plan.new_transaction()
        first = plan.next_id
        for segment in self.segments:
            plan.next_id += segment.count
        for frame in self.frames:
            plan.add(frame, tx, plan.next_id)
            plan.next_id += frame.count
        delayed = self.delayed.place(plan) if self.delayed else None
        plan.put_events += wanted.events
        plan.put_bytes += wanted.payload_bytes
        plan.overflow = plan.overflow or self._spilled == "full"
        plan.commit(
            "put",
            plan.next_id - first,
            tx,
            first,
            segments=self.segments,
            sink=self.sink,
            producer=self.producer,
            spilled=self._spilled,
            delayed=delayed,
        )
        if self.sink:
            plan.sinks[self.sink[0]] = self.sink[1]
        if self.producer:
            name, numbers, _ = self.producer
            plan.batches[name, numbers.last] = Answer(first, plan.next_id - 1, numbers.fingerprint)
        return new_tuple(CommitResult, (tx, first, plan.next_id - 1))
