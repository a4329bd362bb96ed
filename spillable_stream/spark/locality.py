"""What a task's host must have of a channel: its directories, and its memory tier to read from that."""

from __future__ import annotations

import os
from collections.abc import Iterable

from spillable_stream.errors import NotAChannelError, OtherHostError
from spillable_stream.format.extent import Extent
from spillable_stream.format.file_names import in_memory
from spillable_stream.log.identity import read_identity
from spillable_stream.log.layout import Layout
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["require_channel", "require_memory"]


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


def require_memory(fs: FileSystem, layout: Layout, extents: Iterable[Extent], host: str) -> None:
    """Refuse to read events of the memory tier where it is not.

    Args:
        fs: the file system.
        layout: where the channel's files are.
        extents: where the events are.
        host: the name of the host that planned the read, and so has the tier.

    Raises:
        OtherHostError: some of the events are in memory, and not in this host's.
    """
    wanted = [extent for extent in extents if in_memory(extent.file)]
    # No link is another matter: the tier was closed since, and its events are on disk.
    if wanted and fs.link_target(layout.memory) is not None and not fs.exists(layout.memory):
        raise OtherHostError(
            f"the host {os.uname().nodename} can't read the events {wanted[0].first_id} to {wanted[-1].last_id} of "
            f"{layout.path}, which are in the memory of the host {host}: run Spark there, or move them to disk there "
            "with Channel.flush() and do without a memory tier (memoryCapacity 0)"
        )
