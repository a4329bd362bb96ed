"""Records: the payloads of all frames except PUT, as msgpack maps.

==============  =========================================================================
FILE_HEADER     ``{format, channel, file, previous: [file, end] or nil, state}``; in a log of objects
                ``{format, channel, file, previous, token, writer, state?}`` (`spillable_stream.format.slot`)
PUT             no map: an Arrow IPC record-batch message (`spillable_stream.format.batch`)
TAKE            ``{group, ranges: [[first, last], …], expired?: [[first, last], …]}``
COMMIT          ``{kind, start, segments?: [[name, end, count, bytes, …], …], sink?: [query, batch],
                producer?: [producer, first, last, fingerprint?, note?], spilled?,
                seen?: {next, groups, sinks?, producers?, notes?, passed?},
                merged?: [name, [[first, count, offset, bytes, time, until, …], …]],
                delayed?: [[file, begin, width, start, end, count, bytes, due], …],
                delivered?: [[file, due, offset, row, count, next], …]}``
ROLLBACK        empty
OPTIONS         ``{name: value, …}``, what changed
SCHEMA          ``{id, schema}``: the Arrow IPC message of a schema, and its number
GROUP           ``{group, position, left?, auto?, since?}`` to create one, ``{group, seek, left?, reset?}`` to move it,
                ``{group, idle, planned?}`` to say how long an automatic one had no owner, ``{group, drop: true}`` to
                drop it; in a log of objects ``{group, owner, epoch, process?}`` to own it or give it up,
                ``{group, claim}`` to ask for it
CHECKPOINT      ``{position: [file, offset], tokens?, state}``
SEGMENT_HEADER  ``{format, channel, segment, boot?, up?}``
RESERVE         ``{through, generation, bytes, open, token}``: IDs, and the memory tier that may use them
LOST            ``{lost, doubtful, next, groups, kept?}``: the loss of a memory tier, or by damage
RETENTION       ``{through?, clock?, jump?}``: what leaves by age or size, and by which clock that is told
DUES            no map: when each event of the PUT after it is due (`spillable_stream.format.dues`)
TRIM            ``{through, births, deleted}``: slots of a log of objects that nobody needs, which segments are too
                old, and which slots are gone
==============  =========================================================================

``?`` marks optional keys; docs/format.md explains them. ``start`` is the offset where the append of the COMMIT began.
All bytes before it had been synced, so replay can tell a torn tail from corruption. Nothing on disk is ever unpickled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, NotRequired, TypedDict

import msgpack

from spillable_stream.errors import CorruptionError
from spillable_stream.format.expiry import Expiry
from spillable_stream.format.frame import CONTROL_TYPES, MAX_COUNT, Frame, FrameType

__all__ = [
    "BY_PRODUCER",
    "EXTENDED_FORMAT_VERSION",
    "FORMAT_VERSION",
    "MALFORMED",
    "MAX_NOTE_BYTES",
    "NONSENSE",
    "CommitFields",
    "CommitRecord",
    "ControlRecord",
    "DelayedRun",
    "DeliveredRun",
    "FileHeader",
    "GroupRecord",
    "GroupTaken",
    "LostRecord",
    "Merged",
    "MergedRun",
    "NumberedBatch",
    "Numbers",
    "OptionsRecord",
    "ProducerImage",
    "ProducerNote",
    "Ranges",
    "Record",
    "ReserveRecord",
    "RetentionRecord",
    "SchemaRecord",
    "Seen",
    "SegmentFields",
    "SegmentRef",
    "StoredBatch",
    "TakeRecord",
    "TrimRecord",
    "pack",
    "parse_record",
    "unpack",
]

FORMAT_VERSION = 1

EXTENDED_FORMAT_VERSION = 3
"""The version in the identity of a channel, of files or of objects, once it has events that expire or are delayed.

Versions of this package that can't read such events refuse it.
"""

NONSENSE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""Exceptions from using a record that has valid checksums, but that no version of this package wrote."""

MALFORMED = (CorruptionError, *NONSENSE)
"""Exceptions from reading and using a record that has valid checksums."""

BY_PRODUCER = 0
"""The fingerprint of a batch whose number the producer chose: it never uses a number for two different batches."""

MAX_NOTE_BYTES = 64 << 10
"""The largest note of a producer's batch."""


Ranges = list[tuple[int, int]]
"""First and last write-order IDs, both inside."""

GroupTaken = tuple[int, Ranges]
"""What a group has taken: every event up to an ID, and ranges after it."""

StoredBatch = tuple[int, int, int] | tuple[int, int, int, int]
"""A producer's batch: its number, the first and the last ID of its events, and their fingerprint if there is one."""

ProducerImage = tuple[Ranges, int, list[StoredBatch]]
"""What a producer has committed: ranges of numbers, the last number that was forgotten, and its latest batches."""

ProducerNote = tuple[int, bytes]
"""The number of a producer's last batch, and the note that came with it."""


class Numbers(NamedTuple):
    """The sequence numbers that a producer's batch uses.

    Args:
        first: the first of them. The batch also uses up the numbers from here to its own.
        last: the batch's own number.
        fingerprint: if the application chose the number, a fingerprint of the events, 1 to 2^32-1, which tells a
            resent batch from a different one; `BY_PRODUCER` if the producer chose it; None if an earlier version of
            this package wrote it.
    """

    first: int
    last: int
    fingerprint: int | None = None


class NumberedBatch(NamedTuple):
    """The identity of a producer's batch.

    Args:
        producer: the producer's ID.
        numbers: the batch's numbers. With a note their fingerprint is known.
        note: what the producer wants to find again with its last number, at most `MAX_NOTE_BYTES`.
    """

    producer: str
    numbers: Numbers
    note: bytes = b""


def pack(value: object) -> bytes:
    """Return ``value`` as msgpack."""
    return bytes(msgpack.packb(value, use_bin_type=True))


def unpack(payload: bytes) -> Any:
    """Return the value of a msgpack payload with a valid checksum.

    Raises:
        CorruptionError: the payload is not msgpack.
    """
    try:
        return msgpack.unpackb(payload, raw=False, strict_map_key=False)
    except (*NONSENSE, msgpack.UnpackException) as e:
        raise CorruptionError(f"a record is not valid msgpack: {e}") from e


@dataclass(frozen=True, slots=True)
class FileHeader:
    """The first frame of a data file.

    Args:
        channel: the channel's UUID.
        file_id: the file's number.
        previous: the number and trusted end of the file before it; None for the first.
        state: the channel's small state at the file's start (positions, sinks, schemas, options); proven when restored.
        format: the format version.
        reused: whether the file held other bytes before, some of which may be behind its end.
    """

    channel: str
    file_id: int
    previous: tuple[int, int] | None
    state: dict[str, object]
    format: int = FORMAT_VERSION
    reused: bool = False

    def frame(self) -> Frame:
        """Return the header as a frame."""
        value = {
            "format": self.format,
            "channel": self.channel,
            "file": self.file_id,
            "previous": self.previous,
            "state": self.state,
            **({"reused": True} if self.reused else {}),
        }
        return Frame.of(FrameType.FILE_HEADER, pack(value))

    @classmethod
    def parse(cls, payload: bytes) -> FileHeader:
        """Return the header in a FILE_HEADER payload.

        Raises:
            CorruptionError: the payload is invalid.
        """
        v = unpack(payload)
        try:
            previous = (int(v["previous"][0]), int(v["previous"][1])) if v["previous"] else None
            return cls(v["channel"], v["file"], previous, dict(v["state"]), v["format"], bool(v.get("reused")))
        except NONSENSE as e:
            raise _nonsense(cls, e) from e


@dataclass(slots=True)
class TakeRecord:
    """Events that a group takes.

    Args:
        group: the group.
        ranges: the events, as inclusive ranges of write-order IDs.
        expired: those of them that had expired when that was judged: nobody is given them, now or later.
    """

    group: str
    ranges: Ranges
    expired: Ranges = field(default_factory=list)

    def frame(self, count: int) -> Frame:
        """Return the record as a frame about ``count`` events, capped at `MAX_COUNT`: the ranges are exact."""
        value: dict[str, object] = {"group": self.group, "ranges": self.ranges}
        if self.expired:
            value["expired"] = self.expired
        return Frame.of(FrameType.TAKE, pack(value), min(count, MAX_COUNT))

    @classmethod
    def parse(cls, payload: bytes) -> TakeRecord:
        """Return the record in a TAKE payload.

        Raises:
            CorruptionError: the payload is invalid.
        """
        v = unpack(payload)
        try:
            expired = [(a, b) for a, b in v["expired"]] if "expired" in v else []
            return cls(v["group"], [(a, b) for a, b in v["ranges"]], expired)
        except NONSENSE as e:
            raise _nonsense(cls, e) from e


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


class LostRecord(Seen):
    """The loss of a memory tier, or by damage: ranges of lost events, and of IDs that may have been in use.

    ``kept`` says that the memory tier still exists.
    """

    lost: Ranges
    doubtful: Ranges
    kept: NotRequired[bool]


OptionsRecord = dict[str, object]
"""The options that changed, by keyword name."""


class SchemaRecord(TypedDict):
    """A schema, as an Arrow IPC message, and its number."""

    id: int
    schema: bytes


class GroupRecord(TypedDict):
    """A group that is created at a position, moved to another one, found without an owner, or dropped.

    The keys: its name; where it begins; where it continues; the name of what moved it, if that must not be done twice;
    which events after that had left the channel already, taken from memory ahead of others; whether a stream made it
    for itself; up to where that stream had read before it lost its group; how long it has had no owner, in
    milliseconds; whether that stream has planned a batch, though without events; whether it is dropped. In a log of
    objects: its owner, "" for nobody; the number of that ownership; the owner's process, by which others of its host
    can tell that it is gone; the name of one that asks for it.
    """

    group: str
    position: NotRequired[int]
    seek: NotRequired[int]
    reset: NotRequired[str]
    left: NotRequired[Ranges]
    auto: NotRequired[bool]
    since: NotRequired[int]
    idle: NotRequired[int]
    planned: NotRequired[bool]
    drop: NotRequired[bool]
    owner: NotRequired[str]
    epoch: NotRequired[int]
    process: NotRequired[str]
    claim: NotRequired[str]


class TrimRecord(TypedDict):
    """What nobody needs any more of a log of objects.

    The keys: the last slot that may be deleted; and the number from which on a staged segment may be adopted. A segment
    has the newest slot that its writer knew in its name. Then the last slot that was deleted, as all before it were.
    """

    through: int
    births: int
    deleted: int


class RetentionRecord(TypedDict):
    """What leaves the channel by age or size, and by which clock that is told.

    The keys: the last event that leaves; the clock, as `spillable_stream.state.wall_clock.ClockReading` has it; a jump
    of the wall clock, as `spillable_stream.state.wall_clock.Jump` has it.
    """

    through: NotRequired[int]
    clock: NotRequired[tuple[str, int, int, int]]
    jump: NotRequired[tuple[int, int, int]]


class ReserveRecord(TypedDict):
    """A memory tier, like `spillable_stream.state.channel_state.MemoryTierInfo`, and the last ID that it may use."""

    generation: int
    bytes: int
    open: bool
    through: int
    token: str


ControlRecord = OptionsRecord | SchemaRecord | GroupRecord | ReserveRecord | LostRecord | RetentionRecord | TrimRecord
"""What a control transaction changes, as the type of its frame tells. One that was read is proven by its use."""

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
        width_ms: for how long after that.
        start: where the bytes of these events begin in the file; 0 with the file's header.
        end: where they end.
        count: how many events.
        payload_bytes: the size of their payloads.
        first_ms: when the first of them is due.
    """

    file: int
    begin_ms: int
    width_ms: int
    start: int
    end: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls
    payload_bytes: int
    first_ms: int


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
    delayed: NotRequired[list[DelayedRun]]
    delivered: NotRequired[list[DeliveredRun]]


@dataclass(slots=True)
class CommitRecord:
    """The end of a transaction.

    Args:
        kind: "put", "take", "control" (options, schema, groups, reservations), "move" (events of the
            memory tier that are now on disk; the PUT frames of the append keep their own IDs) or "merge".
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
            value["delayed"] = self.delayed
        if self.delivered:
            value["delivered"] = self.delivered
        return Frame.of(FrameType.COMMIT, pack(value), min(count, MAX_COUNT))

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
            return record
        except NONSENSE as e:
            raise _nonsense(cls, e) from e


Record = TakeRecord | CommitRecord | ControlRecord | None
"""A parsed payload; None for the types of frames that have no record."""


def parse_record(type: FrameType, payload: bytes | None) -> Record:
    """Return a payload's record.

    Args:
        type: the frame's type.
        payload: the frame's payload; None is like an empty one.

    Raises:
        CorruptionError: the payload is invalid.
    """
    match type:
        case FrameType.COMMIT:
            return CommitRecord.parse(payload or b"")
        case FrameType.TAKE:
            return TakeRecord.parse(payload or b"")
        case _ if type in CONTROL_TYPES:
            control: ControlRecord = unpack(payload or b"")
            return control
    return None


def _nonsense(record: type, error: Exception) -> CorruptionError:
    return CorruptionError(f"a {record.__name__} is invalid: {type(error).__name__}: {error}")
