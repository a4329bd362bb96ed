"""A query that reads and writes the same channel would never end, so it is refused.

Nothing tells a source which query it belongs to, nor a sink what its query reads; but tasks know their query. A task
that reads notes it beside its group (`first_batch`), and the sink's commit looks there.
"""

from __future__ import annotations

from spillable_stream.channel.channel import Channel
from spillable_stream.errors import OptionError
from spillable_stream.names import is_name
from spillable_stream.shown_value import shown

__all__ = ["refuse_self_read"]


def refuse_self_read(channel: Channel, query: str | None) -> None:
    """Refuse what a query writes to a channel that it reads.

    Args:
        channel: the sink's channel.
        query: the query's ID, or None for a batch write outside of any.

    Raises:
        OptionError: the query has a batch under way that it read there.
    """
    if query is None:
        return
    port = channel.port()
    with port.snapshot() as state:
        reading = [name for name in state.groups if is_name(name) and state.open_takes(name)]
    for group in reading:
        note = port.query_note(group)
        if note is not None and note.query == query:
            raise OptionError(
                f"the query {query} reads {channel.path} (as the group {shown(group)}) and writes to it, so it would "
                "never end; write to another channel"
            )
