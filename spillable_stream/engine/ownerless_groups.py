"""Automatic groups without an owner: they hold events back though nobody reads as them."""

from __future__ import annotations

from heapq import nlargest
from typing import NamedTuple

from spillable_stream.engine.group_owners import GroupOwners
from spillable_stream.errors import SpillableError
from spillable_stream.state.channel_state import ChannelState

__all__ = ["OwnerlessGroup", "ownerless_groups"]

_MOST_LOOKS = 100  # on this host each opens a file


class OwnerlessGroup(NamedTuple):
    """An automatic group that nobody owns.

    Args:
        name: its name.
        lag: how many events it has yet to take.
    """

    name: str
    lag: int


def ownerless_groups(owners: GroupOwners, state: ChannelState) -> list[OwnerlessGroup]:
    """Return the automatic groups that nobody owns, those with most to take first.

    Of more than a hundred automatic groups it looks at those with most to take. A group that can't be looked at is
    left out.

    Args:
        owners: the owners of the channel's groups.
        state: the channel's state.
    """
    automatic = ((state.lag(name), name) for name, g in state.groups.items() if g.is_automatic)
    return [OwnerlessGroup(name, lag) for lag, name in nlargest(_MOST_LOOKS, automatic) if _is_ownerless(owners, name)]


def _is_ownerless(owners: GroupOwners, group: str) -> bool:
    try:
        return not owners.look(group).is_alive
    except SpillableError:
        return False
