"""How a task reads its events: from where they lie now, and past damage if the options say so.

A partition says where events lay when it was planned. Until its task runs, or runs again, a flush or the
last close may have moved them from memory to disk, behind what was the end of the log then, and batch
reads hold nothing back, so events may have left. The task asks the channel once a file of memory is gone; only then
it imports what opens one.
"""

from __future__ import annotations

from collections.abc import Iterator

from spillable_stream.engine.port import PlanReader, ReadBatch, Unreadable
from spillable_stream.errors import CorruptionError, DataLossError
from spillable_stream.format.extent import Extent
from spillable_stream.log_records import fields, log_of
from spillable_stream.spark.source.read_options import ReadOptions
from spillable_stream.state.ranges import Range, events_in

__all__ = ["TaskReader"]

_log = log_of(__name__)


class TaskReader:
    """Reads extents that were planned a while ago.

    Args:
        events: the opened plan.
        group: the group that takes the events; None for a batch read, which puts nothing into quarantine.
        options: the read's options: ``fail_on_data_loss`` and ``on_corruption`` count.
    """

    def __init__(self, events: PlanReader, group: str | None, options: ReadOptions) -> None:
        self._events = events
        self._group = group
        self._options = options

    def read(self, extent: Extent) -> Iterator[ReadBatch]:
        """Yield the events of an extent, in order.

        Raises:
            DataLossError: some have left the channel since the read was planned, and ``failOnDataLoss`` is set.
            CorruptionError: one is damaged, and ``onCorruption`` is not quarantine.
        """
        expected = extent.first_id
        try:
            for read in self._events.read(extent):
                yield read
                expected = read.last_id + 1
        except DataLossError as e:
            yield from self._elsewhere(extent._replace(first_id=expected), e)
        except CorruptionError as e:
            if not self._options.passes_damage:
                raise
            _log.warning(
                "%s; the read continues without the damaged events",
                e,
                extra=fields(self._events.path, group=self._group, first_id=expected, last_id=extent.last_id),
            )
            yield from self._past_damage(extent._replace(first_id=expected), e)

    def _elsewhere(self, extent: Extent, error: CorruptionError) -> Iterator[ReadBatch]:
        """Yield events whose file is gone from where they are now; those that have left are missed.

        Args:
            extent: where they were.
            error: how that showed.
        """
        now = self._look_up(extent) if self._events.may_move(extent) else ()
        if any(e.file == extent.file for e in now):  # the state has them there, and they are not
            raise error
        expected = extent.first_id
        for moved in now:
            self._miss(expected, moved.first_id - 1, error)
            yield from self.read(moved)
            expected = moved.last_id + 1
        self._miss(expected, extent.last_id, error)

    def _look_up(self, extent: Extent) -> tuple[Extent, ...]:
        """Return where the events of an extent are now, and remember where the log ends now."""
        from spillable_stream.spark.channel_pool import visit_to_read

        with visit_to_read(self._events.path) as channel:
            [now] = channel.port().plan_read([[(extent.first_id, extent.last_id)]])
        self._events.catch_up(now)
        return now.extents

    def _miss(self, first_id: int, last_id: int, error: CorruptionError) -> None:
        """Report events that have left since the read was planned; none if ``last_id`` is before ``first_id``."""
        missed: list[Range] = [(first_id, last_id)] if first_id <= last_id else []
        if missed and self._options.passes_damage:  # the same task may have put them there, at its first attempt
            missed = self._events.not_quarantined(missed)
        if not missed:
            return
        message = (
            f"{events_in(missed, 'are')} gone since the read of {self._events.path} was planned: taken by every group, "
            "or removed with a file"
        )
        if self._options.fail_on_data_loss:
            raise DataLossError(f"{message}. Set failOnDataLoss to false to continue without them") from error
        _log.warning(
            "%s; the read continues without them",
            message,
            extra=fields(self._events.path, group=self._group, first_id=missed[0][0], last_id=missed[-1][1]),
        )

    def _past_damage(self, extent: Extent, error: CorruptionError) -> Iterator[ReadBatch]:
        """Yield the events of an extent without those that can't be read; a stream's go into quarantine."""
        from spillable_stream.spark.source.on_corruption import pass_over

        expected, records = extent.first_id, self._group is not None
        for found in self._events.read_past_damage(extent):
            if not isinstance(found, Unreadable):
                yield found
            elif records or self._events.may_move(extent):
                for first, last in pass_over(self._events, extent.file, found, records=records):
                    yield from self._elsewhere(extent._replace(first_id=first, last_id=last), error)
            expected = found.last_id + 1
        if expected <= extent.last_id:
            yield from self._elsewhere(extent._replace(first_id=expected), error)
