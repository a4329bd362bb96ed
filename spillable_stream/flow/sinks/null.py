"""The sink ``null``: takes events and forgets them."""

from __future__ import annotations

from spillable_stream.counted import counted
from spillable_stream.flow.checked_arguments import Count, checked
from spillable_stream.flow.sinks.base import BatchSink, Taken
from spillable_stream.log_records import log_of

__all__ = ["Null"]

_log = log_of("spillable_stream.flow")


class Null(BatchSink):
    """Takes events and forgets them.

    Args:
        batch_size: how many events a take has at most.
        log_every_n_events: after how many events it logs their number.
        channel: the name of the channel, for `Agent`.
    """

    @checked
    def __init__(self, *, batch_size: Count = 100, log_every_n_events: Count = 10_000, channel: str = "") -> None:
        super().__init__(batch_size, channel)
        self._every = log_every_n_events
        self._count = 0

    def write(self, taken: Taken) -> None:
        """Forget a batch; see `BatchSink.write`."""
        before, self._count = self._count, self._count + len(taken.ids)
        if before // self._every != self._count // self._every:
            _log.of(self.name, count=self._count).info("took %s", counted(self._count, "event"))
