"""``onCorruption = quarantine``: a read continues without the events that can't be read."""

from __future__ import annotations

from spillable_stream.engine.port import PlanReader, Unreadable, is_refusal
from spillable_stream.errors import (
    ForeignDirectoryError,
    LockUnsupportedError,
    NotAChannelError,
    OtherHostError,
    SpillableError,
    StorageError,
)
from spillable_stream.log_records import fields, log_of
from spillable_stream.spark.channel_pool import visit, visit_to_read
from spillable_stream.state.ranges import Range, RangeSet, events_in
from spillable_stream.system_errors import may_not_write

__all__ = ["pass_over"]

_log = log_of(__name__)

_NOT_HERE = (NotAChannelError, ForeignDirectoryError, OtherHostError, LockUnsupportedError)


def pass_over(events: PlanReader, file: int | str, damage: Unreadable, *, records: bool) -> list[Range]:
    """Pass over events that can't be read where the plan has them, and return those that the channel has not there.

    These are in another file by now, or nowhere: nothing is known of them. Of the others a stream keeps the damaged
    bytes, and reports them as lost, to every group and to `Channel.stats`. On a host that never can, which may be
    another one than the channel's, a warning is all that says so.

    Args:
        events: the reader that met the damage.
        file: where the plan has the events.
        damage: the events that can't be read, and the location of their bytes.
        records: whether to keep and to report them.

    Raises:
        SpillableError: it failed just now: the task has to be repeated.
    """
    try:
        with visit(events.path, create=False) if records else visit_to_read(events.path) as channel:
            if channel.uuid != events.channel:
                raise NotAChannelError(f"there is another channel at {events.path} by now")
            port = channel.port()
            with port.snapshot() as state:
                there = state.blocks.in_file(file, damage.first_id, damage.last_id)
            for first, last in there if records else ():
                events.keep_damaged(damage._replace(first_id=first, last_id=last))
                port.report_lost(file, first, last)
            return list(RangeSet(there).gaps(damage.first_id, damage.last_id))
    except (SpillableError, FileNotFoundError) as e:
        if not _is_lasting(e):
            raise
        _log.warning(
            "%s: %s passed over, and not put into quarantine: %s",
            events.path,
            events_in([(damage.first_id, damage.last_id)], "are"),
            e,
            extra=fields(events.path, first_id=damage.first_id, last_id=damage.last_id),
        )
        return []


def _is_lasting(error: SpillableError | FileNotFoundError) -> bool:
    """Tell whether this host would fail again, however often it tries."""
    if isinstance(error, (FileNotFoundError, *_NOT_HERE)) or is_refusal(error):
        return True
    return isinstance(error, StorageError) and may_not_write(error)
