"""The COMMIT record, which ends a transaction, and its parts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, NotRequired, TypedDict

from spillable_stream.format.expiry import Expiry
from spillable_stream.format.frame import COMMIT, MAX_COUNT, Frame
from spillable_stream.format.numbered_batch import BY_PRODUCER, NumberedBatch, Numbers, ProducerImage, ProducerNote
from spillable_stream.format.packing import NONSENSE, nonsense, pack, unpack
from spillable_stream.format.take_record import GroupTaken

__all__ = [
    "CommitFields",
    "CommitRecord",
    "DelayedRun",
    "DeliveredRun",
    "Merged",
    "MergedRun",
    "Seen",
    "SegmentFields",
    "SegmentRef",
]


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """A staged segment file that a COMMIT adopts.

    Where the event was, and when, is set only in a move, and 0 otherwise.

    Args:
        name: the file's name.
        end: how many bytes of it count.
        count: how many events it holds.
        payload_bytes: the size of its events' payloads.
        first_id: the ID of its first event; in a put, its COMMIT says it.
        transaction_id: the transaction that first adopted it.
        time_us: when that was, in microseconds since 1970.
        least_ttl_us: the shortest ttl of its events, in microseconds; 0 if none has one.
        most_ttl_us: the longest one; 0 if an event has none.
    """

    name: str
    end: int
    count: int
    payload_bytes: int
    first_id: int = 0
    transaction_id: int = 0
    time_us: int = 0
    least_ttl_us: int = 0
    most_ttl_us: int = 0

    @property
    def expiry(self) -> Expiry:
        """After how many microseconds its events expire."""
        return Expiry(self.least_ttl_us, self.most_ttl_us)

    def fields(self) -> SegmentFields:
        """Return it as a COMMIT holds it."""
        plain = self.name, self.end, self.count, self.payload_bytes
        moved = *plain, self.first_id, self.transaction_id, self.time_us
        if self.least_ttl_us:
            return *moved, self.least_ttl_us, self.most_ttl_us
        return plain if self.first_id == 0 else moved


SegmentFields = (
    tuple[str, int, int, int]
    | tuple[str, int, int, int, int, int, int]
    | tuple[str, int, int, int, int, int, int, int, int]
)
"""A `SegmentRef` as a COMMIT holds it: three more fields for a segment that is moved, two more for one with ttls."""


class MergedRun(NamedTuple):
    """Events that were copied into one object, with all that says where they are now.

    Args:
        first_id: the first event's ID; the others follow without gaps.
        count: how many events.
        offset: where their first frame starts in the object.
        payload_bytes: the size of their payloads.
        time_us: when the first was committed, in microseconds since 1970.
        until_us: when the last was committed; 0 where nothing is kept by age.
        first_expiry_us: when the first of them expires (`Expiry`).
        last_expiry_us: when all of them have.
    """

    first_id: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls
    offset: int
    payload_bytes: int
    time_us: int
    until_us: int
    first_expiry_us: int = 0
    last_expiry_us: int = 0

    @property
    def expiry(self) -> Expiry:
        """When the events expire."""
        return Expiry(self.first_expiry_us, self.last_expiry_us)

    def fields(self) -> tuple[int, ...]:
        """Return it as a COMMIT holds it: the last two only where there is a ttl."""
        return tuple(self) if self.first_expiry_us else tuple(self[:6])


class Merged(NamedTuple):
    """Small slots of a log of objects that were copied into one object: its key, and the events in it, in order."""

    name: str
    runs: list[MergedRun]


class DelayedRun(NamedTuple):
    """Delayed events that a transaction put into a side file.

    Args:
        file: the file's number.
        begin_ms: from when on the events of the file are due, in milliseconds since 1970.
        width_ms: for how long after that; 0 if the events are of no one stretch of time.
        start: where the bytes of these events begin in the file; 0 with the file's header.
        end: where they end.
        count: how many events.
        payload_bytes: the size of their payloads.
        first_ms: when the first of them is due.
        name: the key of the side file's object; "" on a disk.
    """

    file: int
    begin_ms: int
    width_ms: int
    start: int
    end: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls
    payload_bytes: int
    first_ms: int
    name: str = ""

    def fields(self) -> tuple[int | str, ...]:
        """Return it as a COMMIT holds it: the name only where there is one."""
        return tuple(self) if self.name else tuple(self[:8])


class DeliveredRun(NamedTuple):
    """Events of a side file that have entered the order: all up to a place, in the order of their due times.

    Args:
        file: the file's number.
        due_ms: when the last of them was due.
        offset: where the frame that has it starts in the file.
        row: which event of the frame it is, from 0.
        count: how many were delivered now.
        next_ms: when the next one is due; 0 if there is none.
    """

    file: int
    due_ms: int
    offset: int
    row: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls
    next_ms: int


class Seen(TypedDict):
    """A summary of the memory tier's log in the disk tier's log, so that losing memory never brings back taken events.

    It holds the next write-order ID; for each group, its position and ranges ahead; for each query, its batch ID; for
    each producer, the image that `spillable_stream.state.producer_history` makes, and its note if it has one; for each
    of the groups that passed over any, how many expired events that were.
    """

    next: int
    groups: dict[str, GroupTaken]
    sinks: NotRequired[dict[str, int]]
    producers: NotRequired[dict[str, ProducerImage]]
    notes: NotRequired[dict[str, ProducerNote]]
    passed: NotRequired[dict[str, int]]


class CommitFields(TypedDict):
    """A COMMIT's map; `CommitRecord` explains it."""

    kind: str
    start: int
    segments: NotRequired[list[SegmentFields]]
    sink: NotRequired[tuple[str, int]]
    producer: NotRequired[tuple[str, int, int] | tuple[str, int, int, int] | tuple[str, int, int, int, bytes]]
    spilled: NotRequired[str]
    seen: NotRequired[Seen]
    merged: NotRequired[tuple[str, list[tuple[int, ...]]]]
    delayed: NotRequired[list[tuple[int | str, ...]]]
    delivered: NotRequired[list[DeliveredRun]]
    recovery: NotRequired[str]


@dataclass(slots=True)
class CommitRecord:
    """The end of a transaction.

    Args:
        kind: "put", "take", "control" (a record of one of `CONTROL_TYPES`), "move" (events of the
            memory tier that are now on disk; the PUT frames of the append keep their own IDs) or "merge" (objects of a
            store that were copied into one).
        start: the offset where the record's append began.
        segments: staged segments to adopt, in order; their events come first.
        sink: the query ID and batch ID of a sink's batch.
        producer: the identity of a producer's batch.
        merged: events that are elsewhere from now on.
        spilled: why a put went to disk despite a memory tier: "full", "large" or "".
        seen: on disk, while a memory tier is open: its IDs and groups as far as earlier COMMITs do not say
            them, so that losing it never brings back taken events.
        delayed: events that wait in side files until they are due.
        delivered: events of side files that enter the order: the PUT frames of the transaction.
        recovery: the token of the channel's last recovery, in the first append to the disk tier after it; else "".
    """

    kind: str
    start: int
    segments: list[SegmentRef] = field(default_factory=list)
    sink: tuple[str, int] | None = None
    spilled: str = ""
    seen: Seen | None = None
    producer: NumberedBatch | None = None
    merged: Merged | None = None
    delayed: list[DelayedRun] = field(default_factory=list)
    delivered: list[DeliveredRun] = field(default_factory=list)
    recovery: str = ""

    def frame(self, count: int) -> Frame:
        """Return the record as a frame about ``count`` events, capped at `MAX_COUNT`; no put has more (`Put.tier`)."""
        value: CommitFields = {"kind": self.kind, "start": self.start}
        if self.segments:
            value["segments"] = [s.fields() for s in self.segments]
        if self.sink:
            value["sink"] = self.sink
        if self.producer:
            name, (first, last, fingerprint), note = self.producer
            if note:
                value["producer"] = name, first, last, fingerprint or BY_PRODUCER, note
            else:
                value["producer"] = (name, first, last) if fingerprint is None else (name, first, last, fingerprint)
        if self.spilled:
            value["spilled"] = self.spilled
        if self.seen:
            value["seen"] = self.seen
        if self.merged:
            value["merged"] = (self.merged.name, [run.fields() for run in self.merged.runs])
        if self.delayed:
            value["delayed"] = [run.fields() for run in self.delayed]
        if self.delivered:
            value["delivered"] = self.delivered
        if self.recovery:
            value["recovery"] = self.recovery
        return Frame.of(COMMIT, pack(value), min(count, MAX_COUNT))

    @classmethod
    def parse(cls, payload: bytes) -> CommitRecord:
        """Return the record in a COMMIT payload.

        Raises:
            CorruptionError: the payload is invalid.
        """
        v = unpack(payload)
        try:
            segments = [SegmentRef(*s) for s in v.get("segments", ())]
            sink, of = v.get("sink"), v.get("producer")
            ids = (sink[0], sink[1]) if sink else None
            producer = NumberedBatch(of[0], Numbers(*of[1:4]), *of[4:5]) if of else None
            merged = v.get("merged")
            found = Merged(merged[0], [MergedRun(*run) for run in merged[1]]) if merged else None
            seen, spilled = v.get("seen"), v.get("spilled", "")
            record = cls(v["kind"], int(v["start"]), segments, ids, spilled, seen, producer, found)
            if "delayed" in v:
                record.delayed = [DelayedRun(*run) for run in v["delayed"]]
            if "delivered" in v:
                record.delivered = [DeliveredRun(*run) for run in v["delivered"]]
            record.recovery = str(v.get("recovery", ""))
            return record
        except NONSENSE as e:
            raise nonsense(cls, e) from e
