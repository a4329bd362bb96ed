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
                delivered?: [[file, due, offset, row, count, next], …], recovery?}``
ROLLBACK        empty
OPTIONS         ``{name: value, …}``, what changed
SCHEMA          ``{id, schema}``: the Arrow IPC message of a schema, and its number
GROUP           ``{group, position, left?, auto?, since?, token?}`` to create one,
                ``{group, seek, left?, reset?, token?}`` to move it, ``{group, idle, planned?}`` to say how long an
                automatic one had no owner, ``{group, drop: true}`` to drop it; in a log of objects
                ``{group, owner, epoch, process?}`` to own it or give it up,
                ``{group, claim}`` to ask for it
CHECKPOINT      ``{position: [file, offset], tokens?, state}``
SEGMENT_HEADER  ``{format, channel, segment, boot?, up?}``
RESERVE         ``{through, generation, bytes, open, token}``: IDs, and the memory tier that may use them
LOST            ``{lost, doubtful, next, groups, kept?, anew?}``: the loss of a memory tier, or by damage
RETENTION       ``{through?, clock?, jump?}``: what leaves by age or size, and by which clock that is told
DUES            no map: when each event of the PUT after it is due (`spillable_stream.format.dues`)
TRIM            ``{through, births, deleted}``: slots of a log of objects that nobody needs, which segments are too
                old, and which slots are gone
==============  =========================================================================

TAKE is in `spillable_stream.format.take_record`, COMMIT in `spillable_stream.format.commit_record`.

``?`` marks optional keys; docs/format.md explains them. ``start`` is the offset where the append of the COMMIT began.
All bytes before it had been synced, so replay can tell a torn tail from corruption. Nothing on disk is ever unpickled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NotRequired, TypedDict

from spillable_stream.format.commit_record import CommitRecord, Seen
from spillable_stream.format.frame import COMMIT, CONTROL_TYPES, TAKE, Frame, FrameType
from spillable_stream.format.packing import NONSENSE, nonsense, pack, unpack
from spillable_stream.format.take_record import Ranges, TakeRecord

__all__ = [
    "EXTENDED_FORMAT_VERSION",
    "FORMAT_VERSION",
    "ControlRecord",
    "FileHeader",
    "GroupRecord",
    "LostRecord",
    "OptionsRecord",
    "Record",
    "ReserveRecord",
    "RetentionRecord",
    "SchemaRecord",
    "TrimRecord",
    "parse_record",
]

FORMAT_VERSION = 1

EXTENDED_FORMAT_VERSION = 3
"""The version in the identity of a channel, of files or of objects, once it has events that expire or are delayed.

Versions of this package that can't read such events refuse it.
"""


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
            raise nonsense(cls, e) from e


class LostRecord(Seen):
    """The loss of a memory tier, or by damage: ranges of lost events, and of IDs that may have been in use.

    ``kept`` says that the memory tier still exists; ``anew`` that a repair of a log of objects wrote it: the state
    after its slot is that of the slot's checkpoint, and nothing is replayed across it.
    """

    lost: Ranges
    doubtful: Ranges
    kept: NotRequired[bool]
    anew: NotRequired[bool]


OptionsRecord = dict[str, object]
"""The options that changed, by keyword name."""


class SchemaRecord(TypedDict):
    """A schema, as an Arrow IPC message, and its number."""

    id: int
    schema: bytes


class GroupRecord(TypedDict):
    """A group that is created at a position, moved to another one, found without an owner, or dropped.

    The keys: its name; where it begins; where it continues; the name of what moved it, if that must not be done twice;
    a random text of where it begins or continues; which events after that had left the channel already, taken from
    memory ahead of others; whether a stream created it for itself; up to where that stream had read before it lost its
    group; how long it has had no owner, in milliseconds; whether that stream has planned a batch, though without
    events; whether it is dropped. In a log of objects: its owner, "" for nobody; the number of that ownership; the
    owner's process, by which others of its host can tell that it is gone; the name of one that asks for it.
    """

    group: str
    position: NotRequired[int]
    seek: NotRequired[int]
    reset: NotRequired[str]
    token: NotRequired[str]
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
    if type is COMMIT:
        return CommitRecord.parse(payload or b"")
    if type is TAKE:
        return TakeRecord.parse(payload or b"")
    if type in CONTROL_TYPES:
        control: ControlRecord = unpack(payload or b"")
        return control
    return None
