"""The images of a state: what the headers of log files and checkpoints hold, as plain values.

The keys are as they are on disk (``docs/format.md``). Values read from a file are proven key by key
(`ChannelState.from_image`): an earlier release wrote fewer of them.
"""

from __future__ import annotations

from typing import Any, TypedDict

__all__ = ["MemoryImage", "ProducersImage", "SmallImage", "StateImage", "TierImage"]


class ProducersImage(TypedDict, total=False):
    """What a channel knows of its producers; empty if it never had any.

    The keys: ``states`` by producer, and ``unsaid``, those whose state only the memory tier's log has in full.
    """

    producers: dict[str, Any]


class TierImage(TypedDict, total=False):
    """What a channel knows of its memory tier and of losses; empty if it never had any.

    The keys: the tier as `MemoryTierInfo` with the overflow, the spilled puts, the transactions that were prepared in
    memory and the sinks that only memory's log speaks about; the lost and the doubtful IDs; the groups whose
    positions only memory's log has in full.
    """

    memory: list[Any]
    lost: list[list[tuple[int, int]]]
    unsaidGroups: list[str]


class SmallImage(ProducersImage, TierImage):
    """A state without its blocks, with which every data file begins."""

    options: dict[str, Any]
    schemas: list[bytes]
    nextId: int
    nextTransaction: int
    floor: int
    time: int
    groups: dict[str, list[Any]]
    sinks: dict[str, int]
    taking: dict[int, list[list[Any]]]


class StateImage(SmallImage):
    """A whole state; a checkpoint's."""

    blocks: list[tuple[object, ...]]


class MemoryImage(StateImage):
    """A whole state with which every file of the memory tier begins.

    The keys: where in the disk tier's log it is, a file's number and an offset, and the boot in which it was written.
    """

    disk: tuple[int, int]
    boot: bytes
