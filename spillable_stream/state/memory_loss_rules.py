"""The rules of a memory tier that was left behind: whether it is the one that the log speaks of, and what went with it.

Open obeys them when it recovers a channel, verify when it tells what the next open will do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from spillable_stream.format.file_names import generation_of
from spillable_stream.format.head_page import CommitPoint
from spillable_stream.format.record import LostRecord
from spillable_stream.format.take_record import GroupTaken, Ranges
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.image import TierImage
from spillable_stream.state.ranges import Range

__all__ = [
    "MemoryLoss",
    "appends_may_be_missing",
    "lose_memory",
    "lose_newest_appends",
    "may_have_been_used",
    "token_of",
]


@dataclass(frozen=True, slots=True)
class MemoryLoss:
    """What went with a memory tier.

    Args:
        last_id: the last write-order ID that was, or may have been, in use.
        lost: the events that some group had yet to take, and those that were kept.
        doubtful: the IDs that the tier had reserved, and that may have been in use.
        groups: what every group had taken, as `GroupState.taken` says it.
        kept: whether the tier is still there, and only its newest appends may be missing.
        taken: those of the lost events that every group had taken.
    """

    last_id: int
    lost: Ranges = field(default_factory=list)
    doubtful: Ranges = field(default_factory=list)
    groups: dict[str, GroupTaken] = field(default_factory=dict)
    kept: bool = False
    taken: Ranges = field(default_factory=list)

    def record(self) -> LostRecord:
        """Return the LOST record of it."""
        lost, doubtful, groups, next_id = self.lost, self.doubtful, self.groups, self.last_id + 1
        if self.kept:
            return {"lost": lost, "doubtful": doubtful, "groups": groups, "kept": True, "next": next_id}
        return {"lost": lost, "doubtful": doubtful, "groups": groups, "next": next_id}


def token_of(image: TierImage) -> str:
    """Return the token of the memory tier that an image of a state speaks of: only that of the log's tier counts.

    Args:
        image: the image with which a file of the memory tier begins.
    """
    return image["memory"][4]


def appends_may_be_missing(image: Mapping[str, object] | None, boot: bytes, in_memory: bool) -> bool:
    """Tell whether the newest appends to a memory tier that is there may be missing.

    Without a medium, what was written is there as long as the file system is. With one, nothing was synced.

    Args:
        image: the image with which the tier's newest file begins; None if that is damaged.
        boot: the boot ID of the machine now.
        in_memory: whether the tier's file system has no medium.
    """
    return image is None or image.get("boot") != boot or not in_memory


def may_have_been_used(state: ChannelState, published: CommitPoint | None) -> bool:
    """Tell whether the memory tier of a state may have held events, whatever is left of its files.

    A missing file proves nothing. A tier that the head never named a file of was killed before its first put.

    Args:
        state: what the disk tier says.
        published: what the head said last; None if it is missing or damaged.
    """
    return published is None or generation_of(published.memory.file_id) == state.memory.generation


def lose_newest_appends(state: ChannelState) -> MemoryLoss | None:
    """Return what may be missing of a memory tier's newest appends; None if it had no ID reserved for them."""
    last_id, reserved = state.last_id, state.memory.reserved_id
    if last_id >= reserved:
        return None
    return MemoryLoss(reserved, doubtful=[(last_id + 1, reserved)], kept=True)


def lose_memory(
    state: ChannelState, positions: Mapping[str, tuple[int, Iterable[Range]]], published_last_id: int, *, unused: bool
) -> MemoryLoss:
    """Take a memory tier that is gone out of a state, and return what went with it.

    Args:
        state: what the disk tier says.
        positions: what the groups' position files say that each group had taken: its position, and ranges ahead of it.
        published_last_id: the last ID in use as the head said it last, which may be long ago; 0 if it said none.
        unused: whether the tier never held anything.
    """
    groups = {}
    for name, group in state.groups.items():
        group.merge(*positions[name])
        groups[name] = group.taken()
    last_id = max(state.last_id, published_last_id)
    reserved = state.memory.reserved_id
    state.do_without_memory(last_id + 1, groups)
    taken = list(state.absent(state.first_kept, state.needed_from() - 1))
    lost = [*taken, *state.missing()]
    if unused or reserved <= last_id:
        return MemoryLoss(last_id, lost, groups=groups, taken=taken)
    return MemoryLoss(reserved, lost, [(last_id + 1, reserved)], groups, taken=taken)
