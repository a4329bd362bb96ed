"""What a task and a commit know of their query: that none writes to the channel that it reads.

A query that reads and writes the same channel would never end. Nothing tells a source which query it belongs to, nor
a sink what its query reads; but tasks know their query. A task that reads writes it down beside its group, and the
sink's commit looks there.
"""

from __future__ import annotations

import contextlib

from pyspark import TaskContext

from spillable_stream.channel.channel import Channel
from spillable_stream.engine.port import PlanReader
from spillable_stream.errors import OptionError, StorageError
from spillable_stream.names import is_name

__all__ = ["query_of_task", "record_query", "refuse_self_read"]


def query_of_task() -> str | None:
    """Return the streaming query that this task belongs to, or None outside of one."""
    context = TaskContext.get()
    return context.getLocalProperty("sql.streaming.queryId") if context else None


def record_query(events: PlanReader, group: str) -> None:
    """Record that this task's query reads as a group; without a right to write there, nothing is recorded.

    Args:
        events: the reader of the task's events.
        group: the group.
    """
    query = query_of_task()
    if query is not None:
        with contextlib.suppress(StorageError):
            events.record_query(group, query)


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
        if port.query_of(group) == query:
            raise OptionError(
                f"the query {query} reads {channel.path} (as the group {group!r}) and writes to it, so it would never "
                "end; write to another channel"
            )
