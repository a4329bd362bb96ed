"""A query that reads and writes the same channel would never end: it is refused.

Nothing tells a source which query it belongs to, nor a sink what its query reads; but tasks know
their query. A task that reads notes it beside its group, and the sink's commit looks there.
"""

from __future__ import annotations

import contextlib

from pyspark import TaskContext

from spillable_stream.channel.channel import Channel
from spillable_stream.errors import OptionError, StorageError
from spillable_stream.log.layout import Layout
from spillable_stream.names import is_name
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["note_query", "query_of_task", "refuse_loop"]


def query_of_task() -> str | None:
    """Return the streaming query that this task belongs to, or None outside of one."""
    context = TaskContext.get()
    return context.getLocalProperty("sql.streaming.queryId") if context else None


def note_query(fs: FileSystem, layout: Layout, group: str) -> None:
    """Note that this task's query reads as a group; without a right to write there, nothing is noted."""
    query = query_of_task()
    if query is None or _noted(fs, layout, group) == query:
        return
    with contextlib.suppress(StorageError):
        file = fs.open(layout.group_query(group), create=True)
        try:
            file.write(0, [query.encode()])  # all have the same length: they are UUIDs
        finally:
            file.close()


def _noted(fs: FileSystem, layout: Layout, group: str) -> str | None:
    try:
        return fs.read_file(layout.group_query(group)).decode(errors="replace")
    except (FileNotFoundError, StorageError):
        return None


def refuse_loop(channel: Channel, query: str | None) -> None:
    """Refuse what a query writes to a channel that it reads.

    Args:
        channel: the sink's channel.
        query: the query's ID, or None for a batch write outside of any.

    Raises:
        OptionError: the query has a batch under way that it read there.
    """
    if query is None:
        return
    engine = channel.engine()
    with engine.snapshot() as state:
        reading = [name for name in state.groups if is_name(name) and state.open_takes(name)]
    for group in reading:
        if _noted(engine.fs, engine.layout, group) == query:
            raise OptionError(
                f"the query {query} reads {channel.path} (as the group {group!r}) and writes to it, so it would never "
                "end; write to another channel"
            )
