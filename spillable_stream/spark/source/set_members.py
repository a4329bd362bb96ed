"""The channels of a set that a query reads: which ones there are, and a reader for each.

Channels join while the query runs, are gone, and come back. A call of all readers at once finds out which channels are
gone, and continues without them; `require_all` reports them, or passes them over.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from pyspark.sql.types import StructType

from spillable_stream.channel.channel_set import ChannelSet
from spillable_stream.errors import ChannelClosedError, DataLossError, NotAChannelError, SchemaError
from spillable_stream.log_records import fields, log_of
from spillable_stream.spark.schema import of_set_member
from spillable_stream.spark.side_by_side import MOST_SIDE_BY_SIDE, side_by_side
from spillable_stream.spark.source.offset import OffsetJson
from spillable_stream.spark.source.read_options import StreamOptions
from spillable_stream.spark.source.set_offset import SetOffset
from spillable_stream.spark.source.source_channel import make_channel, require_fit
from spillable_stream.spark.source.stream_reader import SpillableStreamReader

__all__ = ["Member", "SetMembers"]

_log = log_of(__name__)

T = TypeVar("T")

_LOCAL_LOOK_SECONDS = 1.0  # for new channels
_REMOTE_LOOK_SECONDS = 10.0  # a look is a listing, which costs money
_MOST_GIVEN_UP = 256  # groups at the same time: each is two small appends at most


@dataclass(slots=True)
class Member:
    """A channel of the set, and what reads it.

    Args:
        path: where the channel is.
        reader: its source.
        joins: whether it joined a query that had begun.
        planned: the end of the last batch that was planned here; None if none was.
        committed: the end up to which this worker has committed; None if it has not.
    """

    path: str
    reader: SpillableStreamReader
    joins: bool
    planned: OffsetJson | None = None
    committed: OffsetJson | None = None

    def call(self, what: Callable[[SpillableStreamReader], T]) -> T:
        """Call the reader; an error of its columns says what a set needs."""
        try:
            return what(self.reader)
        except SchemaError as e:
            raise of_set_member(e) from None


class SetMembers(Mapping[str, Member]):
    """The channels that a query reads now, by UUID. None is opened before `look`.

    Args:
        channels: where they are.
        options: the options with which each is read.
        schema: the schema that Spark expects.
        load: the name of the ``load()`` that the query reads for (`load_identity`).
    """

    def __init__(self, channels: ChannelSet, options: StreamOptions, schema: StructType, load: str) -> None:
        self._channels = channels
        self._options = options
        self._schema = schema
        self._load = load
        self._members: dict[str, Member] = {}
        self._missed: set[str] = set()  # channels that are gone, which was said
        self._looked_at = float("-inf")

    def __getitem__(self, uuid: str) -> Member:
        return self._members[uuid]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def look(self, known: SetOffset | None, *, is_complete: bool) -> None:
        """Look for channels, now and then, and at once where one that is known is not there yet.

        Args:
            known: where the query is; None if it is new, so that the options say where it begins in each.
            is_complete: whether no channel may join any more.

        Raises:
            NotAChannelError: a channel that is named is missing.
            OptionError: one of the channels is a copy of another.
            SchemaError: a channel has not the columns that a new one beside it would get.
        """
        if not self._is_due(known, is_complete):
            return
        create = self._create if self._options.create_if_missing and known is None else None
        if create is not None:  # none is created beside one that is refused
            side_by_side([partial(self._require_fit, path) for path, _ in self._channels.find(is_new=False)])
        read_at = {uuid: at.path for uuid, at in (known.offsets.items() if known else ())}
        read_at |= {uuid: member.path for uuid, member in self._members.items()}
        for path, uuid in self._channels.find(create, is_new=known is None, read_at=read_at):
            joins = known is not None and uuid not in known.offsets
            if uuid in self._members or (joins and is_complete):
                continue
            reader = SpillableStreamReader(path, self._options_of(joins), self._schema, self._load)
            self._members[uuid] = Member(path, reader, joins)
            self._missed.discard(uuid)
            if joins:
                _log.info(
                    "the channel %s joins the query on %s, from its beginning", path, self._channels, extra=fields(path)
                )
        self._looked_at = time.monotonic()

    def _is_due(self, known: SetOffset | None, is_complete: bool) -> bool:
        if not (self._members or self._missed) or (known is not None and self._not_there(known)):
            return True
        look_seconds = _REMOTE_LOOK_SECONDS if self._channels.is_remote else _LOCAL_LOOK_SECONDS
        may_join = (self._channels.grows or self._missed) and not is_complete
        return bool(may_join) and time.monotonic() - self._looked_at >= look_seconds

    def _not_there(self, known: SetOffset) -> Collection[str]:
        """Return which channels of an offset are not there, but for those that were reported."""
        return known.offsets.keys() - self._members.keys() - self._missed

    def _options_of(self, joins: bool) -> StreamOptions:
        """Return the options with which a channel is read: one that joins begins with its first event."""
        if not joins:
            return self._options
        return replace(self._options, starting_offsets="earliest", starting_timestamp=None, reset_group=False)

    def _require_fit(self, path: str) -> None:
        try:
            require_fit(path, self._schema, self._options)
        except SchemaError as e:
            raise of_set_member(e) from None

    def _create(self, path: str) -> None:
        make_channel(path, self._schema, self._options).close()

    def require_all(self, offset: SetOffset) -> None:
        """Report channels that are gone.

        Args:
            offset: where the query is in each that it has read.

        Raises:
            DataLossError: there are some, and ``failOnDataLoss`` is set.
        """
        for uuid in self._not_there(offset):
            at = offset.offsets[uuid]
            message = (
                f"the channel {uuid} at {at.path} is gone from {self._channels}; the query has read it up to the "
                f"event {at.offset['writeOrderId']}"
            )
            if self._options.fail_on_data_loss:
                raise DataLossError(f"{message}. Put it back, or set failOnDataLoss to false to continue without it")
            _log.warning("%s; it continues without it", message, extra=fields(at.path))
            self._missed.add(uuid)

    def drop(self, uuids: Collection[str]) -> None:
        """Do without channels, until they are found again. They close at the same time: a close may take long.

        Where they are so many that some close after others, all groups are given up before: Spark may kill this process
        meanwhile, and a group in a store that it still owned keeps the query's next source waiting.
        """
        members = [self._members.pop(uuid) for uuid in uuids]
        for member in members:
            self._channels.forget(member.path)
        try:
            if len(members) > MOST_SIDE_BY_SIDE:
                side_by_side([partial(_give_group_up, member.reader) for member in members], _MOST_GIVEN_UP)
        finally:
            side_by_side([partial(_stop, member.reader) for member in members])

    def each(self, uuids: Collection[str], what: Callable[[str, SpillableStreamReader], T]) -> dict[str, T]:
        """Return what a call of each channel's reader returns, all at the same time, but for channels that are gone.

        These are done without from now on; `require_all` reports them.

        Args:
            uuids: the channels.
            what: the call; it gets a channel's UUID and its reader.
        """

        def call(uuid: str) -> list[T]:
            member = self._members[uuid]
            try:
                return [member.call(lambda reader: what(uuid, reader))]
            except (ChannelClosedError, NotAChannelError, DataLossError):
                if self._channels.has(member.path, uuid):
                    raise
                return []

        found = dict(zip(uuids, side_by_side([partial(call, uuid) for uuid in uuids]), strict=True))
        self.drop([uuid for uuid, answers in found.items() if not answers])
        return {uuid: answer for uuid, answers in found.items() for answer in answers}


def _give_group_up(reader: SpillableStreamReader) -> None:
    with contextlib.suppress(ChannelClosedError):
        reader.give_group_up()


def _stop(reader: SpillableStreamReader) -> None:
    with contextlib.suppress(ChannelClosedError):
        reader.stop()
