"""What a streaming source opens: its channel, and in it the group that it owns."""

from __future__ import annotations

from pyspark.sql.types import StructType

from spillable_stream.channel.channel import Channel
from spillable_stream.channel.consumer import Consumer
from spillable_stream.errors import CheckpointMismatchError, NotAChannelError, StorageError
from spillable_stream.log_records import fields, log_of
from spillable_stream.spark.metadata import without_metadata
from spillable_stream.spark.schema import check_read_schema, creation_schema, naming
from spillable_stream.spark.source.checkpoint_check import check_end, check_new_group, not_the_default
from spillable_stream.spark.source.first_batch import high_water_of
from spillable_stream.spark.source.load_identity import LoadIdentity
from spillable_stream.spark.source.query_group import GroupOrigin, QueryGroup
from spillable_stream.spark.source.query_start import QueryStart
from spillable_stream.spark.source.read_options import StreamOptions
from spillable_stream.system_errors import may_not_write

__all__ = ["START_FIRST", "SourceChannel", "make_channel", "require_fit", "start_first"]

_log = log_of(__name__)

START_FIRST = "Check the path; start what puts to it first, or let a stream create it, with the option createIfMissing"
_PUT_BACK = "The query has a checkpoint of a channel that was there: put that back, or use a new checkpointLocation"
_SAYS_NO_MORE = ("it is missing", "it has no channel.json")  # how an error ends that does not say what to do


def start_first(error: NotAChannelError) -> NotAChannelError:
    """Return the error for a source without a channel: with what to do, where one can be created."""
    if not (error.is_missing and str(error).endswith(_SAYS_NO_MORE)):
        return error
    return NotAChannelError(f"{error}. {START_FIRST}", is_missing=True)


def make_channel(path: str, schema: StructType, options: StreamOptions) -> Channel:
    """Return a channel that is created for what a stream expects to read.

    Args:
        path: the channel's directory.
        schema: the schema that Spark expects.
        options: the stream's options.
    """
    return Channel(path, schema=creation_schema(without_metadata(schema, options.metadata_types)))


def require_fit(path: str, schema: StructType, options: StreamOptions) -> None:
    """Refuse a channel that has not the columns that Spark expects; it is only looked at.

    The arguments are those of `make_channel`.

    Raises:
        SchemaError: it has not.
    """
    with Channel(path, create=False, readonly=True) as channel, naming(path):
        check_read_schema(schema, channel.schema, options.metadata_types)


class SourceChannel:
    """Opens a source's channel, and makes the source the owner of its group.

    Args:
        path: the channel's directory.
        options: the source's options.
        schema: the schema that Spark expects.
        group: the query's group.
        start: where the query begins if it is new.
        load: for which ``load()`` the source reads.

    Attributes:
        query_is_new: whether the query has no checkpoint, as far as Spark tells: one of whose first batch it has no
            commit looks new. None if it has not told yet. A channel is created only for a new one.
    """

    def __init__(
        self,
        path: str,
        options: StreamOptions,
        schema: StructType,
        group: QueryGroup,
        start: QueryStart,
        load: LoadIdentity,
    ) -> None:
        self._path = path
        self._options = options
        self._schema = schema
        self._group = group
        self._start = start
        self._load = load
        self.query_is_new: bool | None = None
        self._is_lacking = False  # the checkpoint's group, which the query has yet to continue without

    def open(self) -> Channel:
        """Open the channel; create it if that is missing, the query is new, and the options say so.

        Raises:
            NotAChannelError: there is none.
            SchemaError: the channel has not the columns that Spark expects.
        """
        channel = self._open_or_create()
        try:
            with naming(self._path):
                check_read_schema(self._schema, channel.schema, self._options.metadata_types)
        except BaseException:
            channel.close(checkpoint=False, flush=False)
            raise
        return channel

    def _open_or_create(self) -> Channel:
        try:
            return Channel(self._path, create=False)
        except NotAChannelError as e:
            if e.is_missing and self.query_is_new is False:
                raise NotAChannelError(f"{e}. {_PUT_BACK}", is_missing=True) from None
            if not (e.is_missing and self.query_is_new and self._options.create_if_missing):
                raise start_first(e) from None
            return make_channel(self._path, self._schema, self._options)
        except StorageError as e:
            if not may_not_write(e):
                raise
            raise StorageError(
                f"{self._path} can't be written by this process ({e}), and a stream keeps its position in the channel: "
                "let it write there, or use a batch read (spark.read), which writes nothing"
            ) from e.__cause__

    def check_new_group(self, channel: Channel, begin: int) -> None:
        """Refuse a checkpoint that would not fit the group that the options name, before that is created.

        Args:
            channel: the channel.
            begin: the query has everything up to this event.

        Raises:
            CheckpointMismatchError: the group is missing, and would begin elsewhere.
        """
        group, options, port = self._group, self._options, channel.port()
        if group.origin is not GroupOrigin.OPTION or not group.resumes:
            return
        with port.snapshot() as state:
            if group.name in state.groups:
                return
        starting = self._start.starting(channel)
        with port.snapshot() as state:
            position, fail = port.starting_position(starting), options.fail_on_data_loss
            check_new_group(state, group, position, begin, self._path, fail=fail, of_set=options.of_set)

    def own(self, channel: Channel) -> Consumer:
        """Make the source the owner of its group, which is created if it is missing.

        Raises:
            CheckpointMismatchError: the query's checkpoint names no group, and the channel has none that fits.
            GroupOwnedError: the group has another owner.
        """
        group = self._group
        with channel.port().snapshot() as state:
            is_there = group.name in state.groups
        if group.origin is GroupOrigin.EARLIER and not is_there:
            raise CheckpointMismatchError(not_the_default(self._path))
        starting = "earliest" if group.is_automatic else self._start.starting(channel)

        def create() -> None:
            self._create_automatic(channel)

        def own(timeout_seconds: float) -> Consumer:
            return channel.consumer(
                group.name,
                timeout_seconds,
                starting,
                resume=True,
                note=self._load.note,
                create=create if group.is_automatic else None,
            )

        consumer = self._load.own(own, group, self._options.owner_timeout)
        self._is_lacking = self._is_lacking or (group.resumes and not is_there)
        return consumer

    def continues(self) -> None:
        """Say once that the query continues without a position to compare its checkpoint with, if it does."""
        if not self._is_lacking:
            return
        self._is_lacking = False
        another = ", or the query read as another group before" if self._group.origin is GroupOrigin.OPTION else ""
        _log.warning(
            "%s lacked the group %r of a query that has read it up to the event %d: the group was dropped%s, or the "
            "channel is an older copy of the one that was read. In an older copy the query passes over the events up "
            "to that one: start it with a new checkpointLocation there",
            self._path,
            self._group.name,
            self._group.read_id,
            another,
            extra=fields(self._path, group=self._group.name, last_id=self._group.read_id),
        )

    def _create_automatic(self, channel: Channel) -> None:
        """Create the query's own group where the query begins or, after it was dropped, where its checkpoint is.

        What has left the channel since counts as removed. Of a new group nothing has, so that it goes again if the
        query never plans a batch.
        """
        if not self._start.make_group(channel):
            self._make_group_again(channel)
        if self._group.origin is GroupOrigin.NEW:
            with channel.port().snapshot() as state:
                self._group.made_at = high_water_of(state)

    def _make_group_again(self, channel: Channel) -> None:
        port, read_id = channel.port(), self._group.read_id
        if read_id is None:
            read_id = self._start.position(channel)
        with port.snapshot() as state:
            check_end(state, read_id, self._path)
            has_left = state.beginning() > read_id + 1
        since = read_id if has_left or self._group.origin is GroupOrigin.CHECKPOINT else None
        port.create_group(self._group.name, str(read_id + 1), automatic=True, since=since)
