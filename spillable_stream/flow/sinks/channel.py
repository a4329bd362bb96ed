"""The sink ``channel``: another channel, on this host or in an object store."""

from __future__ import annotations

import os

import pyarrow as pa

from spillable_stream.channel.channel import Channel
from spillable_stream.channel.row_times import RowTimes
from spillable_stream.channel.several_channels import WantedChannel
from spillable_stream.errors import OptionError, SpillableError
from spillable_stream.flow.checked_arguments import Count, checked
from spillable_stream.flow.pieces import put_in_pieces
from spillable_stream.flow.sinks.base import BatchSink, Sink, Taken
from spillable_stream.flow.sinks.written import WrittenEvents, ranges_of
from spillable_stream.log_records import log_of

__all__ = ["ChannelSink"]

_log = log_of("spillable_stream.flow")


class ChannelSink(BatchSink):
    """Moves events into another channel.

    A batch is put, and then its take is committed: after a crash in between the batch comes again. Headers and bodies
    stay as they are, and what is left of a ttl goes with its event.

    Args:
        path: the other channel's directory, or its address in a store. It is created if it is missing, but in the place
            of one that the sink had open: its disk may not be mounted.
        batch_size: how many events a take has at most.
        channel: the name of the channel that it takes from, for `Agent`.
    """

    @checked
    def __init__(self, path: str | os.PathLike[str], *, batch_size: Count = 10_000, channel: str = "") -> None:
        super().__init__(batch_size, channel)
        self._path = os.path.expanduser(path)
        self._target: Channel | None = None
        self._uuid = ""  # of the other channel, once it was open

    def succeed(self, before: Sink) -> None:
        """Learn which channel must be at the path, if it was open there; see `Sink.succeed`."""
        if isinstance(before, ChannelSink) and before._path == self._path:
            self._uuid = before._uuid

    def open(self, channel: Channel, written: WrittenEvents | None = None) -> None:
        """Open the other channel; see `Sink.open`.

        Raises:
            OptionError: it is the channel that the sink takes from, so that its events would go round forever.
            SpillableError: it can't be opened.
        """
        super().open(channel, written)
        self._target = self._opened(channel)

    def _opened(self, channel: Channel) -> Channel:
        schema = {"schema": channel.schema} if channel.typed else {}
        target = WantedChannel(self._path, schema, self._uuid).open(create=True)
        if target.port().place() == channel.port().place():  # also behind a spool
            target.close()
            raise OptionError(f"the sink takes from the channel that it puts into, {target.path}: give it another path")
        self.counters.connection_created_count += 1
        self._uuid = target.uuid
        return target

    def _working(self) -> Channel:
        """Return the other channel, opened again where a storage failure has closed it.

        Raises:
            SpillableError: it can't be opened, or another one is in its place.
        """
        assert self._target is not None
        if not self._target.failure():
            return self._target
        failed, self._target = self._target, self._opened(self.channel)
        try:
            failed.close()
        except SpillableError as e:
            _log.of(self.name).warning("%s could not be closed: %s", failed.path, e)
        return self._target

    def write(self, taken: Taken) -> None:
        """Put a batch, in pieces where the other channel can't hold it as a whole; see `BatchSink.write`."""
        target, ttls_us = self._working(), taken.transaction.ttls_left_us(taken.ids)

        def put(some: pa.RecordBatch, first: int) -> None:
            with target.put_transaction() as transaction:
                transaction.is_bounded = False
                if ttls_us is None:
                    transaction.put_batch(some)
                else:
                    transaction.put_timed(some, RowTimes(ttls_us).slice(first, some.num_rows))
            if some.num_rows < len(taken.ids):  # the rest may be refused, and all of the take comes again
                self.written.add(ranges_of(taken.ids.slice(first, some.num_rows)))

        put_in_pieces(taken.batch, put)

    def close(self) -> None:
        """Close the other channel; see `Sink.close`."""
        if self._target is not None:
            self._target.close()
            self._target = None
            self.counters.connection_closed_count += 1
