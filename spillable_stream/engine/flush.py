"""Moving what is in memory to disk, in order, under the same write-order IDs."""

from __future__ import annotations

from spillable_stream.engine.engine import Engine

__all__ = ["flush_memory"]


def flush_memory(engine: Engine) -> int:
    """Move every event of the memory tier to disk and return how many there were.

    Others may put and take meanwhile. A crash in between leaves every event in one tier or the other.

    Args:
        engine: the channel.

    Raises:
        StorageError: the disk refused; what was not moved is still in memory.
        TransactionStateError: this thread is inside of another call to the channel.
    """
    return engine.active_calls.run("a flush", lambda: _flush(engine))


def _flush(engine: Engine) -> int:
    moved = 0
    while True:
        with engine.committing(), engine.snapshot() as state:
            blocks = engine.moving.first_of(state.blocks.memory)
            if not blocks:
                return moved
            moved += engine.moving.move(blocks)
