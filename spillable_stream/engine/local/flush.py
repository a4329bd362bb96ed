"""Moving what is in memory to disk, in order, under the same write-order IDs."""

from __future__ import annotations

from spillable_stream.engine.active_calls import ActiveCalls
from spillable_stream.engine.appender import Appender
from spillable_stream.engine.follower import Follower
from spillable_stream.engine.local.moving import Moving

__all__ = ["flush_memory"]


def flush_memory(follower: Follower, appender: Appender, moving: Moving, active_calls: ActiveCalls) -> int:
    """Move every event of the memory tier to disk and return how many there were.

    Others may put and take meanwhile. A crash in between leaves every event in one tier or the other.

    Args:
        follower: the channel's state.
        appender: appends to its log.
        moving: moves blocks to disk.
        active_calls: the calls that are under way in this process.

    Raises:
        StorageError: the disk refused; what was not moved is still in memory.
        TransactionStateError: this thread is inside of another call to the channel.
    """

    def flush() -> int:
        moved = 0
        while True:
            with appender.committing(), follower.snapshot as state:
                blocks = moving.first_of(state.blocks.memory)
                if not blocks:
                    return moved
                moved += moving.move(blocks)

    return active_calls.run("a flush", flush)
