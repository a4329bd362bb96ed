"""What a task checks before it touches a channel: that its host has it, and that no query reads what it writes.

A driver can't see the disks of its executors, so the first task is the first that can tell whether they have the
channel's directories, and its memory tier to read from that.

A query that reads and writes the same channel would never end. Nothing tells a source which query it belongs to, nor
a sink what its query reads; but tasks know their query. A task that reads writes it down beside its group, and the
sink's commit looks there.
"""

from __future__ import annotations

import contextlib
import os

from pyspark import TaskContext

from spillable_stream.channel.channel import Channel
from spillable_stream.engine.port import ReadPlan
from spillable_stream.errors import NotAChannelError, OptionError, OtherHostError, StorageError
from spillable_stream.format.file_names import in_memory
from spillable_stream.log.identity import read_identity
from spillable_stream.log.layout import Layout
from spillable_stream.names import is_name
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["query_of_task", "record_query", "refuse_self_read", "require_channel", "require_memory"]


def require_channel(fs: FileSystem, layout: Layout) -> None:
    """Refuse to run a task on a host that does not have the channel's directories.

    A driver can't see the disks of its executors, so the first task is the first that can tell.

    Raises:
        NotAChannelError: this host has no channel there, or another one.
    """
    try:
        known = read_identity(fs, layout.path).channel == layout.channel
        lacking = f"another channel at {layout.path}" if not known else ""
    except NotAChannelError:
        lacking = f"no channel at {layout.path}"
    absent = [str(directory) for directory in layout.data_dirs if not fs.exists(directory)]
    if not lacking and absent:
        lacking = f"no directory {absent[0]} of the channel {layout.path}"
    if lacking:
        raise NotAChannelError(
            f"the host {os.uname().nodename} has {lacking}, and every executor must see the channel's directory: run "
            "Spark on the channel's host, or put the channel on a volume that all hosts have at the same path"
        )


def require_memory(fs: FileSystem, plan: ReadPlan) -> None:
    """Refuse to read events of the memory tier where it is not.

    Args:
        fs: the file system.
        plan: where the events are.

    Raises:
        OtherHostError: some of the events are in memory, and not in this host's.
    """
    layout, wanted = plan.layout, [extent for extent in plan.extents if in_memory(extent.file)]
    # No link is another matter: the tier was closed since, and its events are on disk.
    if wanted and fs.link_target(layout.memory) is not None and not fs.exists(layout.memory):
        raise OtherHostError(
            f"the host {os.uname().nodename} can't read the events {wanted[0].first_id} to {wanted[-1].last_id} of "
            f"{layout.path}, which are in the memory of the host {plan.host}: run Spark there, or move them to disk "
            "there with Channel.flush() and do without a memory tier (memoryCapacity 0)"
        )


def query_of_task() -> str | None:
    """Return the streaming query that this task belongs to, or None outside of one."""
    context = TaskContext.get()
    return context.getLocalProperty("sql.streaming.queryId") if context else None


def record_query(fs: FileSystem, plan: ReadPlan, group: str) -> None:
    """Record that this task's query reads as a group; without a right to write there, nothing is recorded."""
    query = query_of_task()
    if query is not None:
        with contextlib.suppress(StorageError):
            plan.record_query(fs, group, query)


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
