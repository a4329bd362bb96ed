"""Several channels that are opened together: none is made before all others are open, and all of them can be made.

The rest can't be undone safely: another process may have opened a channel as soon as it is there. So where the file
system or the store refuses in the middle of making one, those that were made before it stay, empty.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from spillable_stream.channel.channel import Channel
from spillable_stream.channel.open_arguments import OpenArguments
from spillable_stream.errors import NotAChannelError
from spillable_stream.objects.location import channel_path
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["WantedChannel", "check_channel", "open_channels"]


class WantedChannel(NamedTuple):
    """A channel that is opened together with others.

    Args:
        path: its directory, or its address in a store.
        options: its options, by keyword name.
    """

    path: str | os.PathLike[str]
    options: Mapping[str, Any] = {}

    def open(self, *, create: bool) -> Channel:
        """Return a handle; raises what `Channel` raises."""
        return Channel(self.path, create=create, **self.options)

    def find(self) -> Channel | None:
        """Return a handle of the channel; None if it is missing, and can be made. It raises what `Channel` raises."""
        try:
            return self.open(create=False)
        except NotAChannelError as e:
            if not e.is_missing:
                raise
        check_channel(self.path, **self.options)
        return None


def open_channels(wanted: Sequence[WantedChannel]) -> list[Channel]:
    """Return handles of channels, in order; those that are missing are made.

    Args:
        wanted: the channels.

    Raises what `Channel` raises; nothing is left open then, even where one can not be closed cleanly.
    """
    if len(wanted) == 1:
        return [wanted[0].open(create=True)]
    opened: dict[int, Channel] = {}
    with ExitStack() as stack:
        for number, one in enumerate(wanted):
            if (found := one.find()) is not None:
                opened[number] = stack.enter_context(found)
        for number, one in enumerate(wanted):
            if number not in opened:
                opened[number] = stack.enter_context(one.open(create=True))
        stack.pop_all()
    return [opened[number] for number in range(len(wanted))]


def check_channel(path: str | os.PathLike[str], **options: Any) -> None:
    """Refuse a channel that can be seen to be impossible; nothing is made.

    Args:
        path: where it will be; there is none.
        options: its options and its schema, as `Channel` takes them.

    Raises what `Channel` raises.
    """
    schema = options.pop("schema", None)
    OpenArguments.of(channel_path(path), options, schema, readonly=False).check_new(FileSystem())
