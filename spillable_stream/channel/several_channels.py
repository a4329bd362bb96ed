"""Several channels opened together: none is created before all others are open, and all of them can be created.

Options that differ from the stored ones come last. The rest can't be undone safely: another process may have opened a
channel as soon as it is there. So where the file system or the store refuses in the middle of creating one, those that
were created before it stay, empty.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from spillable_stream.channel.channel import Channel
from spillable_stream.channel.open_arguments import OpenArguments, PlannedChannel
from spillable_stream.channel.stored_options import stored_together
from spillable_stream.errors import NotAChannelError
from spillable_stream.log.layout import IDENTITY
from spillable_stream.log.nesting import require_each_apart
from spillable_stream.objects.location import channel_path
from spillable_stream.objects.self_test import one_test
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["PlannedChannel", "WantedChannel", "check_channel", "enter_together", "find_or_create", "open_channels"]

T = TypeVar("T")
W = TypeVar("W")


class WantedChannel(NamedTuple):
    """A channel that is opened together with others.

    Args:
        path: its directory, or its address in a store.
        options: its options, by keyword name.
        uuid: which channel must be there; "" for any, or none.
        has_spool: whether the spool in front of it must be there, too.
    """

    path: str | os.PathLike[str]
    options: Mapping[str, Any] = {}
    uuid: str = ""
    has_spool: bool = False

    def open(self, create: bool) -> Channel:
        """Return a handle, of a new channel if it is missing and may be created.

        Raises:
            NotAChannelError: the channel that must be there, or its spool, is not.

        Raises what `Channel` raises, too.
        """
        if self.has_spool:
            self._require_spool()
        try:
            channel = Channel(self.path, create=create and not self.uuid, **self.options)
        except NotAChannelError as e:
            if create and self.uuid and e.is_missing:
                raise self._gone("nothing") from e
            raise
        if self.uuid and channel.uuid != self.uuid:
            found = channel.uuid
            channel.close()
            raise self._gone(f"the channel {found}")
        return channel

    def check(self) -> PlannedChannel:
        """Refuse a channel that is missing, or return what it will be, as `check_channel` does."""
        if self.uuid:
            raise self._gone("nothing")
        return check_channel(self.path, **self.options)

    def _require_spool(self) -> None:
        front = OpenArguments.of(channel_path(self.path), self.options, None, readonly=False).front
        if front is not None and not FileSystem().exists(Path(front.path, IDENTITY)):
            raise NotAChannelError(
                f"the spool of the channel {self.uuid} was at {front.path}, and nothing is there now: mount its disk, "
                "or put it back; nothing is created in its place before a restart"
            )

    def _gone(self, found: str) -> NotAChannelError:
        return NotAChannelError(
            f"the channel {self.uuid} was at {os.fspath(self.path)}, and {found} is there now: mount its disk, or put "
            "it back; nothing is created in its place before a restart"
        )

    def most_events(self, there: Channel | None) -> int:
        """Return the most events of a transaction of the channel, with the options that it will have."""
        given = OpenArguments.of(channel_path(self.path), self.options, None, readonly=False)
        if there is None:
            return given.new_channel().options.transaction_capacity
        most: int = given.options.get("transaction_capacity", there.put_options().transaction_capacity)
        return most


def open_channels(
    wanted: Sequence[WantedChannel],
    agree: Callable[[list[int]], object] | None = None,
    begins: Callable[[WantedChannel], object] = lambda one: None,
) -> list[Channel]:
    """Return handles of channels, in order; those that are missing are created.

    Options that differ are stored when all are open; none is if one can't be opened.

    Args:
        wanted: the channels.
        agree: is told the most events of a transaction of each, in order, before any is created; raises to refuse them.
        begins: is told each of them before it is opened or created, which may take long.

    Raises what `Channel` raises; nothing is left open then, even where one can not be closed cleanly.
    """
    with ExitStack() as stack:

        def settle(found: Sequence[Channel | None]) -> None:
            if agree is not None:
                agree([one.most_events(there) for one, there in zip(wanted, found, strict=True)])

        def open_one(one: WantedChannel, create: bool) -> Channel:
            begins(one)
            return one.open(create)

        opened = enter_together(
            stack, wanted, open_one, WantedChannel.check, lambda calls: [call() for call in calls], settle
        )
        stack.pop_all()
    return opened


def enter_together(
    stack: ExitStack,
    wanted: Sequence[W],
    open_one: Callable[[W, bool], AbstractContextManager[T]],
    check: Callable[[W], PlannedChannel],
    run: Callable[[Sequence[Callable[[], Any]]], list[Any]],
    settle: Callable[[Sequence[T | None]], object] | None = None,
) -> list[T]:
    """Open channels as `find_or_create` does, and leave them at the end of a stack.

    Options that differ are stored when all are open; none is if one can't be opened.

    Args:
        stack: gets what leaves each channel again; those that are open when another one refuses are on it.
        wanted: the channels.
        open_one: as in `find_or_create`; entering what it returns opens the channel.
        check: as in `find_or_create`.
        run: likewise.
        settle: likewise.

    Raises what these raise.
    """

    def enter(one: W, create: bool) -> T:
        return stack.enter_context(open_one(one, create))

    with stored_together():
        return find_or_create(wanted, enter, check, run, settle)


def find_or_create(
    wanted: Sequence[W],
    open_one: Callable[[W, bool], T],
    check: Callable[[W], PlannedChannel],
    run: Callable[[Sequence[Callable[[], Any]]], list[Any]],
    settle: Callable[[Sequence[T | None]], object] | None = None,
) -> list[T]:
    """Open channels, those that are missing when all others are open, and return what was wanted of each, in order.

    Args:
        wanted: the channels.
        open_one: opens one, and creates it if it is missing and the argument says so; raises what `Channel` raises.
        check: refuses one that is missing, or returns what it will be, as `check_channel` does.
        run: makes several calls, in this thread or in a copy of its context, and returns their results in order.
        settle: is told what was found, None for what is missing, before any is created; raises to refuse all of it.

    Raises what these raise.
    """
    if len(wanted) == 1 and settle is None:
        return [open_one(wanted[0], True)]

    def find(one: W) -> T | None:
        try:
            return open_one(one, False)
        except NotAChannelError as e:
            if not e.is_missing:
                raise
            return None

    found: list[T | None] = run([partial(find, one) for one in wanted])
    missing = [one for one, there in zip(wanted, found, strict=True) if there is None]
    with one_test():
        planned: list[PlannedChannel] = run([partial(check, one) for one in missing])
        require_each_apart(FileSystem(), [one.places for one in planned])
        _require_agreement(planned)
        if settle is not None:
            settle(found)
        created = iter(run([partial(open_one, one, True) for one in missing]))
    return [next(created) if there is None else there for there in found]


def _require_agreement(planned: Sequence[PlannedChannel]) -> None:
    """Refuse a channel that is wanted several times if it can't be opened again once it is created.

    Raises what `PlannedChannel.opened_again` raises.
    """
    known: dict[object, PlannedChannel] = {}
    for one in planned:
        first = known.get(one.places.home)
        known[one.places.home] = one if first is None else first.opened_again(one.arguments)


def check_channel(path: str | os.PathLike[str], **options: Any) -> PlannedChannel:
    """Refuse a channel that can be seen to be impossible, or return it; nothing is created.

    Args:
        path: where it will be; there is none.
        options: its options and its schema, as `Channel` takes them.

    Raises what `Channel` raises.
    """
    schema = options.pop("schema", None)
    return OpenArguments.of(channel_path(path), options, schema, readonly=False).check_new(FileSystem())
