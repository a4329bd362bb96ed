"""Where a query that has no batch yet begins.

Spark asks for it twice, and again before the first batch is done, also after a restart. What the group's position says
is the same each time, since that is stored; what the options say (`latest`, a time) is not, so it is found out once,
and the end of the first batch remembers it.
"""

from __future__ import annotations

from spillable_stream.channel.channel import Channel
from spillable_stream.channel.seek_target import is_to_come, shown_time
from spillable_stream.errors import DataLossError, OptionError
from spillable_stream.log_records import fields, log_of
from spillable_stream.spark.source.group_reset import new_reset
from spillable_stream.spark.source.offset import starting_id
from spillable_stream.spark.source.query_group import GroupOrigin, QueryGroup
from spillable_stream.spark.source.read_options import StreamOptions
from spillable_stream.state.ranges import events_in

__all__ = ["QueryStart"]

_log = log_of(__name__)

_PLACES = ("earliest", "latest")


class QueryStart:
    """The beginning of one query, as one worker has told it to Spark.

    Attributes:
        reset: the reset of the group that the first batch begins with; None without one, and once that is planned.
    """

    def __init__(self, options: StreamOptions, group: QueryGroup) -> None:
        self._options = options
        self._group = group
        self._position_id: int | None = None
        self._is_made = False
        self._resets: bool | None = None  # whether the query begins with a reset; None until that is found out
        self.reset: str | None = None

    def position(self, channel: Channel) -> int:
        """Return the event after which the first batch begins.

        A group that the options name is created if it is missing. It has no owner until Spark asks where the first
        batch ends; a group of the query's own is created only then. So is any in a channel of a set that does not begin
        with its first event: Spark may ask again after the first batch has failed, and a channel that has appeared
        since is not in that batch, and begins with its first event.

        Raises:
            DataLossError: the event to start at has left the channel.
            OptionError: the options can't mean any event, or mean a time that is still to come.
            StorageError: the file system refused.
        """
        if self._position_id is None:
            port = channel.port()
            if not self._group.is_automatic and not self._begins_with_a_reset(channel):
                starting = self.starting(channel)
                if starting == "earliest" or not self._options.of_set:
                    position_id = port.create_group(self._group.name, starting)
                    self._group.begin(position_id)
                    return position_id
            self._position_id = port.starting_position(self._starting_id(channel))
        self._group.begin(self._position_id)
        return self._position_id

    def _begins_with_a_reset(self, channel: Channel) -> bool:
        """Find out, once, whether the group must be moved: one that this query makes already is where that begins."""
        if self._resets is None:
            with channel.port().snapshot() as state:
                known = state.groups.get(self._group.name) if self._options.reset_group else None
            self._resets = known is not None
            self.reset = None if known is None else new_reset(known.reset)
        return self._resets

    def starting(self, channel: Channel) -> str:
        """Return where the group starts if it is new; for an existing group, a value that is always valid."""
        with channel.port().snapshot() as state:
            known = self._group.name in state.groups
        if known:
            return "earliest"
        return self._starting_id(channel) if self._position_id is None else f"{self._position_id + 1}+"

    def _starting_id(self, channel: Channel) -> str:
        """Return what the options say, as in `starting_id`; a query can't wait for a time to come."""
        time_us = self._options.starting_timestamp
        if time_us is not None and is_to_come(time_us):
            raise OptionError(
                f"startingTimestamp, {shown_time(time_us)}, is still to come: the query would begin with what is put "
                "before that. Give it a time that has passed, or startingOffsets=latest in its place for the next event"
            )
        return starting_id(channel, self._options)

    def make_group(self, channel: Channel) -> bool:
        """Create the group of a new query where it begins, and tell whether that was still to be done.

        Between that Spark asked where the query begins and that it asks for events, other groups may take some, and
        they leave. The query did not ask for these by ID, so it begins with the first event that is still there.
        """
        if self._is_made or self._group.origin is not GroupOrigin.NEW or self._asks_by_id():
            return False
        begin, port = self.position(channel) + 1, channel.port()
        port.create_group(self._group.name, f"{begin}+", automatic=True)
        self._is_made = True
        return True

    def miss(self, first_id: int, last_id: int, path: str) -> None:
        """Begin a reset behind events that have left since it was decided where it begins, if the options allow that.

        Args:
            first_id: the first event that has left.
            last_id: the last one.
            path: the channel's path, for the message.

        Raises:
            DataLossError: the options ask for the first by its ID, and ``failOnDataLoss`` is set.
        """
        if not self._asks_by_id():
            return
        message = (
            f"the query resets the group {self._group.name!r} of {path} to the event {first_id}, as startingOffsets "
            f"says, but since then {events_in([(first_id, last_id)], 'have')} left"
        )
        if self._options.fail_on_data_loss:
            raise DataLossError(f"{message}. Set failOnDataLoss to false to begin with the event {last_id + 1}")
        _log.warning(
            "%s; it begins with the event %d",
            message,
            last_id + 1,
            extra=fields(path, group=self._group.name, first_id=first_id, last_id=last_id),
        )

    def _asks_by_id(self) -> bool:
        return self._options.starting_timestamp is None and self._options.starting_offsets not in _PLACES
