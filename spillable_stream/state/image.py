"""The images of a state: what the headers of log files and checkpoints hold, as plain values.

The keys are as they are on disk (``docs/format.md``). Values read from a file are proven key by key
(`ChannelState.from_image`): an earlier release wrote fewer of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NotRequired, TypedDict, cast

from spillable_stream.format.numbered_batch import ProducerImage, ProducerNote
from spillable_stream.format.take_record import GroupTaken, Ranges

__all__ = [
    "BlockImage",
    "DelayedFileImage",
    "DelaysImage",
    "GroupDetails",
    "GroupImage",
    "HistoryImage",
    "MemoryImage",
    "MemoryTierImage",
    "ObjectsImage",
    "ProducersImage",
    "RecoveriesImage",
    "RestoresImage",
    "RetentionImage",
    "SmallImage",
    "StateImage",
    "TierImage",
    "image_of",
]

BlockImage = (
    tuple[int, int, int | str, int, int, int, int, int, int]
    | tuple[int, int, int | str, int, int, int, int, int, int, int]
    | tuple[int, int, int | str, int, int, int, int, int, int, int, int, int]
)
"""The fields of a `Block`, in order; the last one, or three, only where they are not 0."""


class GroupDetails(TypedDict, total=False):
    """The part of a group that only some have; `spillable_stream.state.group.GroupState` explains it."""

    expired: Ranges
    auto: bool
    planned: bool
    idle: int
    sought: bool
    reset: str
    token: str
    passed: int


GroupImage = GroupTaken | tuple[int, Ranges, Ranges] | tuple[int, Ranges, Ranges, GroupDetails]
"""What a group has taken, what of that it lost if it lost any, and what only some groups have."""

MemoryTierImage = tuple[int, int, bool, int, str, bool, int, list[int], dict[str, int]]
"""The fields of `MemoryTierInfo`, the overflow, how many puts spilled, the transactions that were prepared in memory,
and the sinks that only memory's log speaks about."""


class HistoryImage(TypedDict):
    """A `ProducerHistory`: what each producer committed, those of whom only memory's log says all, and their notes."""

    states: dict[str, ProducerImage]
    unsaid: NotRequired[list[str]]
    notes: NotRequired[dict[str, ProducerNote]]


class ProducersImage(TypedDict, total=False):
    """What a channel knows of its producers; empty if it never had any."""

    producers: HistoryImage


class TierImage(TypedDict, total=False):
    """What a channel knows of its memory tier and of losses; empty if it never had any.

    The keys: the tier; the lost and the doubtful IDs; the groups whose positions only memory's log has in full.
    """

    memory: MemoryTierImage
    lost: tuple[Ranges, Ranges]
    unsaidGroups: list[str]


class RetentionImage(TypedDict, total=False):
    """What a channel knows of taken events that it keeps; empty if it keeps none and never looked at a clock.

    The keys: the first event that it keeps; the last reading of its clocks; the jumps of its wall clock.
    """

    firstKept: int
    clock: tuple[str, int, int, int]
    jumps: Sequence[tuple[int, int, int]]


class ObjectsImage(TypedDict, total=False):
    """The part that only a log of objects has.

    The keys: the last slot that nobody needs, from which birth on segments count, and the last slot that was deleted;
    of each group that somebody owns the number of the ownership, what the owner says of itself, who asks for it, and
    the owner's process.
    """

    trimmed: tuple[int, int, int]
    owners: dict[str, tuple[int, str, str, str]]


_DelayedPlace = tuple[int, int, int]
_Holes = Sequence[tuple[int, int]]
DelayedFileImage = (
    tuple[int, int, int, int, int, int, int, _DelayedPlace, _Holes]
    | tuple[int, int, int, int, int, int, int, _DelayedPlace, _Holes, str]
)
"""The fields of a `spillable_stream.state.delays.DelayedFile`, in order; the name only where there is one."""


class DelaysImage(TypedDict, total=False):
    """What a channel knows of events that wait; empty if none ever did.

    The key: the number of the next side file, and the side files.
    """

    delays: tuple[int, Sequence[DelayedFileImage]]


class RestoresImage(TypedDict, total=False):
    """What a channel knows of the backups that it was restored from; empty if it never was.

    The key: of each restore the last event of the backup, and its token.
    """

    restores: Sequence[tuple[int, str]]


class RecoveriesImage(TypedDict, total=False):
    """What a channel knows of its last recoveries; empty if none was recorded.

    The key: of each the last event before it, and its token.
    """

    recoveries: Sequence[tuple[int, str]]


class SmallImage(ProducersImage, TierImage, RetentionImage, ObjectsImage, DelaysImage, RestoresImage, RecoveriesImage):
    """A state without its blocks, with which every data file begins."""

    options: dict[str, object]
    schemas: list[bytes]
    nextId: int
    nextTransaction: int
    floor: int
    time: int
    groups: dict[str, GroupImage]
    sinks: dict[str, int]
    taking: dict[int, list[tuple[str, Ranges] | tuple[str, Ranges, Ranges]]]


class StateImage(SmallImage):
    """A whole state; a checkpoint's."""

    blocks: list[BlockImage]


class MemoryImage(StateImage):
    """A whole state with which every file of the memory tier begins.

    The keys: where in the disk tier's log it is, a file's number and an offset, and the boot in which it was written.
    """

    disk: tuple[int, int]
    boot: bytes


def image_of(values: Mapping[str, object]) -> MemoryImage:
    """Return the image that the header of a file, or a checkpoint, holds; any key may be missing.

    Nothing is proven by it: what is not as an image has it raises one of `NONSENSE` when it is used.
    """
    return cast("MemoryImage", values)
