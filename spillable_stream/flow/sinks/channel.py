"""The sink ``channel``: another channel, on this host or in an object store."""

from __future__ import annotations

import os

from spillable_stream.channel.channel import Channel
from spillable_stream.channel.row_times import RowTimes
from spillable_stream.errors import OptionError
from spillable_stream.flow.checked_arguments import Count, checked
from spillable_stream.flow.sinks.base import BatchSink, Taken
from spillable_stream.flow.sinks.written import WrittenEvents

__all__ = ["ChannelSink"]


class ChannelSink(BatchSink):
    """Moves events into another channel.

    A batch is put, and then its take is committed: after a crash in between the batch comes again. Headers and bodies
    stay as they are, and what is left of a ttl goes with its event.

    Args:
        path: the other channel's directory, or its address in a store. It is created if it is missing.
        batch_size: how many events a take has at most.
        channel: the name of the channel that it takes from, for `Agent`.
    """

    @checked
    def __init__(self, path: str | os.PathLike[str], *, batch_size: Count = 10_000, channel: str = "") -> None:
        super().__init__(batch_size, channel)
        self._path = os.path.expanduser(path)
        self._target: Channel | None = None

    def open(self, channel: Channel, written: WrittenEvents | None = None) -> None:
        """Open the other channel; see `Sink.open`.

        Raises:
            OptionError: it is the channel that the sink takes from, so that its events would go round forever.
            SpillableError: it can't be opened.
        """
        super().open(channel, written)
        schema = channel.schema if channel.typed else None
        target = Channel(self._path, schema=schema)
        if target.port().place() == channel.port().place():  # also behind a spool
            target.close()
            raise OptionError(f"the sink takes from the channel that it puts into, {target.path}: give it another path")
        self._target = target
        self.counters.connection_created_count += 1

    def write(self, taken: Taken) -> None:
        """Put a batch; see `BatchSink.write`."""
        assert self._target is not None
        with self._target.put_transaction() as transaction:
            transaction.is_bounded = False
            ttls_us = taken.transaction.ttls_left_us(taken.ids)
            if ttls_us is None:
                transaction.put_batch(taken.batch)
            else:
                transaction.put_timed(taken.batch, RowTimes(ttls_us))

    def close(self) -> None:
        """Close the other channel; see `Sink.close`."""
        if self._target is not None:
            self._target.close()
            self._target = None
            self.counters.connection_closed_count += 1
