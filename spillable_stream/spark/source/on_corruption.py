"""``onCorruption = quarantine``: a read continues without the events that can't be read."""

from __future__ import annotations

from spillable_stream.engine.port import PlanReader, Unreadable
from spillable_stream.errors import NotAChannelError, SpillableError
from spillable_stream.log_records import fields, log_of
from spillable_stream.spark.channel_pool import visit

__all__ = ["quarantine"]

_log = log_of(__name__)


def quarantine(events: PlanReader, damage: Unreadable) -> None:
    """Keep the damaged bytes, and report the events as lost, to every group and to `Channel.stats`.

    A failure, for example on a host other than the channel's, is only logged.

    Args:
        events: the reader that met the damage.
        damage: the events that can't be read, and the location of their bytes.
    """
    try:
        events.keep_damaged(damage)
        with visit(events.path, create=False) as channel:
            if channel.uuid != events.channel:
                raise NotAChannelError(f"there is another channel at {events.path} by now")
            channel.port().report_lost(damage.first_id, damage.last_id)
    except (SpillableError, FileNotFoundError) as e:
        _log.warning(
            "%s: the events %d to %d are not put into quarantine: %s",
            events.path,
            damage.first_id,
            damage.last_id,
            e,
            extra=fields(events.path, first_id=damage.first_id, last_id=damage.last_id),
        )
