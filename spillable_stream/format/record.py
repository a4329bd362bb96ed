"""Records: what the payloads of the small frames say, as msgpack maps.

==============  =========================================================================
FILE_HEADER     ``{format, channel, file, previous: [file, end] or nil, state}``
PUT             no map: an Arrow IPC record-batch message (`spillable_stream.format.batch`)
TAKE            ``{group, ranges: [[first, last], …]}``
COMMIT          ``{kind, start, segments?: [[name, end, count, bytes], …], sink?: [query, batch],
                producer?: [producer, first, last, fingerprint?], spilled?, seen?: {next, groups,
                sinks?, producers?}}``
ROLLBACK        empty
OPTIONS         ``{name: value, …}``, what changed
SCHEMA          ``{id, schema}``: the Arrow IPC message of a schema, and its number
GROUP           ``{group, position}`` to create one, ``{group, drop: true}`` to drop it
CHECKPOINT      ``{position: [file, offset], state}``
SEGMENT_HEADER  ``{format, channel, segment, boot?, up?}``
RESERVE         ``{through, generation, bytes, open, token}``: IDs, and the memory tier that may use them
LOST            ``{lost, doubtful, next, groups, kept?}``: what went with a memory tier, or with damage
==============  =========================================================================

``?`` marks keys that may be missing; docs/format.md says what they mean. ``start`` is the offset at which the
append began that wrote the COMMIT: all bytes before it were synced before, which is how replay tells a torn tail
from corruption. Nothing on disk is ever unpickled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, NotRequired, TypedDict

import msgpack

from spillable_stream.errors import CorruptionError
from spillable_stream.format.frame import MAX_COUNT, Frame, FrameType

__all__ = [
    "BY_PRODUCER",
    "FORMAT_VERSION",
    "MALFORMED",
    "NONSENSE",
    "CommitFields",
    "CommitRecord",
    "ControlRecord",
    "FileHeader",
    "GroupRecord",
    "GroupTaken",
    "LostRecord",
    "NumberedBatch",
    "Numbers",
    "OptionsRecord",
    "ProducerImage",
    "Ranges",
    "Record",
    "ReserveRecord",
    "SchemaRecord",
    "Seen",
    "SegmentFields",
    "SegmentRef",
    "StoredBatch",
    "TakeRecord",
    "pack",
    "parse_record",
    "unpack",
]

FORMAT_VERSION = 1

NONSENSE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""What the use of a record can raise whose checksums are right and that no version of this package wrote."""

MALFORMED = (CorruptionError, *NONSENSE)
"""What reading a record and using it can raise together, of one whose checksums are right."""

BY_PRODUCER = 0
"""The fingerprint of a batch whose number the producer chose: it sends what it numbered, and nothing else."""


Ranges = list[tuple[int, int]]
"""First and last write-order IDs, both inside."""

GroupTaken = tuple[int, Ranges]
"""What a group has taken: every event up to an ID, and ranges after it."""

StoredBatch = tuple[int, int, int] | tuple[int, int, int, int]
"""A producer's batch: its number, the first and the last ID of its events, and their fingerprint if there is one."""

ProducerImage = tuple[Ranges, int, list[StoredBatch]]
"""What a producer has committed: ranges of numbers, the last number that was forgotten, and its latest batches."""


class Numbers(NamedTuple):
    """The sequence numbers that a producer's batch takes.

    Args:
        first: the first of them; those before the last are numbers that no other batch will have.
        last: the batch's own number.
        fingerprint: of its events, 1 to 2^32-1, where the application chose the number, by which a batch that is sent
            again is told from another one; `BY_PRODUCER` where the producer chose it; None where an earlier version of
            this package wrote it, which did not say.
    """

    first: int
    last: int
    fingerprint: int | None = None


class NumberedBatch(NamedTuple):
    """What a producer's batch is remembered by: whose it is, and its numbers."""

    producer: str
    numbers: Numbers


def pack(value: object) -> bytes:
    """Return ``value`` as msgpack."""
    return bytes(msgpack.packb(value, use_bin_type=True))


def unpack(payload: bytes) -> Any:
    """Return the value of a msgpack payload whose checksum was right.

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
        previous: number and trusted end of the file before it, or None for the first.
        state: the channel's state at its start (positions, sinks, schemas, options), proven when it is restored.
        format: the format version.
    """

    channel: str
    file_id: int
    previous: tuple[int, int] | None
    state: dict[str, object]
    format: int = FORMAT_VERSION

    def frame(self) -> Frame:
        """Return the header as a frame."""
        value = {
            "format": self.format,
            "channel": self.channel,
            "file": self.file_id,
            "previous": self.previous,
            "state": self.state,
        }
        return Frame.of(FrameType.FILE_HEADER, pack(value))

    @classmethod
    def parse(cls, payload: bytes) -> FileHeader:
        """Return the header that a FILE_HEADER payload holds.

        Raises:
            CorruptionError: it makes no sense.
        """
        v = unpack(payload)
        try:
            previous = (int(v["previous"][0]), int(v["previous"][1])) if v["previous"] else None
            return cls(v["channel"], v["file"], previous, dict(v["state"]), v["format"])
        except NONSENSE as e:
            raise _nonsense(cls, e) from e


@dataclass(slots=True)
class TakeRecord:
    """Events that a group takes, as inclusive ranges of write-order IDs."""

    group: str
    ranges: Ranges

    def frame(self, count: int) -> Frame:
        """Return the record as a frame about ``count`` events; of too many for that, the ranges tell."""
        value = {"group": self.group, "ranges": self.ranges}
        return Frame.of(FrameType.TAKE, pack(value), min(count, MAX_COUNT))

    @classmethod
    def parse(cls, payload: bytes) -> TakeRecord:
        """Return the record that a TAKE payload holds.

        Raises:
            CorruptionError: it makes no sense.
        """
        v = unpack(payload)
        try:
            return cls(v["group"], [(a, b) for a, b in v["ranges"]])
        except NONSENSE as e:
            raise _nonsense(cls, e) from e


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """A staged segment file that a COMMIT adopts.

    Args:
        name: the file's name in the data directories.
        end: how many bytes of it count.
        count: how many events it holds.
        payload_bytes: the size of its events' payloads.
        first_id: the first event's ID, where a segment is moved; else its COMMIT says it.
        transaction_id: where it is moved, the transaction that adopted it first.
        time_us: where it is moved, when that was.
    """

    name: str
    end: int
    count: int
    payload_bytes: int
    first_id: int = 0
    transaction_id: int = 0
    time_us: int = 0

    def fields(self) -> SegmentFields:
        """Return it as a COMMIT holds it."""
        plain = self.name, self.end, self.count, self.payload_bytes
        return plain if self.first_id == 0 else (*plain, self.first_id, self.transaction_id, self.time_us)


class Seen(TypedDict):
    """What the disk tier's log says of the memory tier's, so that its loss never brings back what was taken.

    The keys: the next write-order ID; of groups, position and ranges ahead; of queries, the batch ID; of producers,
    what `spillable_stream.state.producer_history` makes of them.
    """

    next: int
    groups: dict[str, GroupTaken]
    sinks: NotRequired[dict[str, int]]
    producers: NotRequired[dict[str, ProducerImage]]


class LostRecord(Seen):
    """What went with a memory tier, or with damage: ranges of events, and of IDs that may have been in use.

    ``kept`` says that the memory tier is still there.
    """

    lost: Ranges
    doubtful: Ranges
    kept: NotRequired[bool]


OptionsRecord = dict[str, object]
"""The options that changed, by keyword name."""


class SchemaRecord(TypedDict):
    """A schema and its number; the schema is an Arrow IPC message."""

    id: int
    schema: bytes


class GroupRecord(TypedDict):
    """A group that is made at a position, or dropped."""

    group: str
    position: NotRequired[int]
    drop: NotRequired[bool]


class ReserveRecord(TypedDict):
    """A memory tier, as `spillable_stream.state.channel_state.MemoryTierInfo`, and the last ID that it may use."""

    generation: int
    bytes: int
    open: bool
    through: int
    token: str


ControlRecord = OptionsRecord | SchemaRecord | GroupRecord | ReserveRecord | LostRecord
"""What a control transaction changes, as the type of its frame tells. One that was read is proven by its use."""

SegmentFields = tuple[str, int, int, int] | tuple[str, int, int, int, int, int, int]
"""A `SegmentRef` as a COMMIT holds it: the last three fields are of a segment that is moved."""


class CommitFields(TypedDict):
    """A COMMIT's map; `CommitRecord` explains it."""

    kind: str
    start: int
    segments: NotRequired[list[SegmentFields]]
    sink: NotRequired[tuple[str, int]]
    producer: NotRequired[tuple[str, int, int] | tuple[str, int, int, int]]
    spilled: NotRequired[str]
    seen: NotRequired[Seen]


@dataclass(slots=True)
class CommitRecord:
    """The end of a transaction.

    Args:
        kind: "put", "take", "control" (options, schema, groups, reservations) or "move" (events of the
            memory tier that are now on disk; the PUT frames of the append keep their own IDs).
        start: the offset at which the append began that this record is part of.
        segments: staged segments whose events come first, in order.
        sink: query ID and batch ID that a sink's batch is remembered by.
        producer: what a producer's batch is remembered by.
        spilled: why a put went to disk though there is a memory tier: "full", "large" or "".
        seen: on disk, while there is a memory tier: what it says of IDs and groups that the COMMITs before
            did not, so that its loss never brings back what was taken.
    """

    kind: str
    start: int
    segments: list[SegmentRef] = field(default_factory=list)
    sink: tuple[str, int] | None = None
    spilled: str = ""
    seen: Seen | None = None
    producer: NumberedBatch | None = None

    def frame(self, count: int) -> Frame:
        """Return the record as a frame about ``count`` events; of a put that is exact (`Put.tier`)."""
        value: CommitFields = {"kind": self.kind, "start": self.start}
        if self.segments:
            value["segments"] = [s.fields() for s in self.segments]
        if self.sink:
            value["sink"] = self.sink
        if self.producer:
            name, (first, last, fingerprint) = self.producer
            value["producer"] = (name, first, last) if fingerprint is None else (name, first, last, fingerprint)
        if self.spilled:
            value["spilled"] = self.spilled
        if self.seen:
            value["seen"] = self.seen
        return Frame.of(FrameType.COMMIT, pack(value), min(count, MAX_COUNT))

    @classmethod
    def parse(cls, payload: bytes) -> CommitRecord:
        """Return the record that a COMMIT payload holds.

        Raises:
            CorruptionError: it makes no sense.
        """
        v = unpack(payload)
        try:
            segments = [SegmentRef(*s) for s in v.get("segments", ())]
            sink, of = v.get("sink"), v.get("producer")
            ids = (sink[0], sink[1]) if sink else None
            producer = NumberedBatch(of[0], Numbers(*of[1:4])) if of else None
            return cls(v["kind"], int(v["start"]), segments, ids, v.get("spilled", ""), v.get("seen"), producer)
        except NONSENSE as e:
            raise _nonsense(cls, e) from e


Record = TakeRecord | CommitRecord | ControlRecord | None
"""What a payload says; None where frames have no record."""


def parse_record(type: FrameType, payload: bytes | None) -> Record:
    """Return what a payload says.

    Args:
        type: the frame's.
        payload: its payload; None is no record.

    Raises:
        CorruptionError: it makes no sense.
    """
    match type:
        case FrameType.COMMIT:
            return CommitRecord.parse(payload or b"")
        case FrameType.TAKE:
            return TakeRecord.parse(payload or b"")
        case FrameType.OPTIONS | FrameType.SCHEMA | FrameType.GROUP | FrameType.RESERVE | FrameType.LOST:
            control: ControlRecord = unpack(payload or b"")
            return control
    return None


def _nonsense(record: type, error: Exception) -> CorruptionError:
    return CorruptionError(f"a {record.__name__} is invalid: {type(error).__name__}: {error}")
