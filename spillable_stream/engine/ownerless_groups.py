"""Automatic groups without an owner: they hold events back though nobody reads as them."""

from __future__ import annotations

from heapq import nlargest
from typing import NamedTuple

from spillable_stream.engine.group_owner import has_owner
from spillable_stream.errors import SpillableError
from spillable_stream.log.layout import Layout
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["OwnerlessGroup", "ownerless_groups"]

_MOST_LOOKS = 100  # each opens a file


class OwnerlessGroup(NamedTuple):
    """An automatic group that nobody owns.

    Args:
        name: its name.
        lag: how many events it has yet to take.
    """

    name: str
    lag: int


def ownerless_groups(fs: FileSystem, layout: Layout, state: ChannelState) -> list[OwnerlessGroup]:
    """Return the automatic groups that nobody owns, those with most to take first.

    Of more than a hundred automatic groups it looks at those with most to take. A group that can't be looked at is
    left out.

    Args:
        fs: the file system.
        layout: the channel's files.
        state: the channel's state.
    """
    automatic = ((state.lag(name), name) for name, g in state.groups.items() if g.is_automatic)
    return [
        OwnerlessGroup(name, lag) for lag, name in nlargest(_MOST_LOOKS, automatic) if _is_ownerless(fs, layout, name)
    ]


def _is_ownerless(fs: FileSystem, layout: Layout, group: str) -> bool:
    try:
        return not has_owner(fs, layout, group)
    except SpillableError:
        return False
