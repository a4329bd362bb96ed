"""What the page may change in a channel, and only if it was started so."""

from __future__ import annotations

from typing import Any

from spillable_stream.channel.channel import Channel
from spillable_stream.channel.place import parse_place
from spillable_stream.errors import OptionError, ReadonlyChannelError
from spillable_stream.options import CHANNEL, OPTIONS, Option
from spillable_stream.shown_value import shown

__all__ = ["ChannelChanges", "changeable_options", "creation_question"]


def changeable_options() -> list[Option]:
    """Return the options that can be changed in a channel that exists."""
    return [option for option in OPTIONS if CHANNEL in option.scopes]


class ChannelChanges:
    """The changes. Each opens the channel for as long as it takes.

    Args:
        allowed: whether any may be made.
    """

    def __init__(self, *, allowed: bool) -> None:
        self.allowed: bool = allowed

    def seek(self, path: str, group: str, to: str) -> str:
        """Move a group, and return what was done.

        Args:
            path: the channel.
            group: the group.
            to: where to, in words: see `parse_place`.
        """
        target = parse_place(to)
        with self._opened(path, "a seek") as channel:
            return f"{group} takes the event {channel.seek(group, target)} next."

    def create_group(self, path: str, group: str, at: str) -> str:
        """Create a group, and return what was done; ``at`` is ``earliest`` or ``latest``."""
        if at not in ("earliest", "latest"):
            raise OptionError(f"a new group begins at earliest or latest, not {shown(at)}")
        with self._opened(path, "a new group") as channel:
            if group in channel.stats().groups:
                raise OptionError(f"{path} has a group {shown(group)} already")
            channel.consumer(group, starting=at)
            return f"{group} was created at {at}."

    def drop_group(self, path: str, group: str) -> str:
        """Drop a group, and return what was done."""
        with self._opened(path, "drop_group") as channel:
            channel.drop_group(group)
            return f"{group} was dropped."

    def alter(self, path: str, option: str, value: str) -> str:
        """Change an option, and return what was done."""
        found = next((o for o in changeable_options() if o.name == option), None)
        if found is None:
            raise OptionError(f"{shown(option)} can't be changed in a channel that exists")
        with self._opened(path, "another option", {found.keyword: value}) as channel:
            stored: dict[str, Any] = {**channel.options}
            return f"{option} is {stored[found.keyword]} now."

    def checkpoint(self, path: str) -> str:
        """Create a checkpoint, and return what was done."""
        with self._opened(path, "a checkpoint") as channel:
            channel.checkpoint()
            return "A checkpoint was created."

    def _opened(self, path: str, what: str, options: dict[str, Any] | None = None) -> Channel:
        """Open a channel for a change.

        Raises:
            ReadonlyChannelError: changes are not allowed.
        """
        if not self.allowed:
            raise ReadonlyChannelError(
                f"this page only looks, and {what} would change {path}: start it with --allow-changes"
            )
        return Channel(path, create=False, **(options or {}))


def creation_question(path: str, group: str, at: str, groups: list[str]) -> str:
    """Return what is asked before a group is created.

    Args:
        path: the channel.
        group: the new group's name.
        at: where it begins: ``earliest`` or ``latest``.
        groups: the names of the channel's groups now.
    """
    question = f"Create the group {group} in {path} at {at}? It holds events back until it takes them."
    if groups or at == "earliest":
        return question
    return f"{question} The events that wait for a first group now leave the channel."
