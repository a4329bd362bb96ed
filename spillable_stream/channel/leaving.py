"""What a handle does before its files are closed."""

from __future__ import annotations

from spillable_stream.engine.engine import Engine
from spillable_stream.engine.flush import flush_memory

__all__ = ["leave", "move_to_disk"]


def leave(engine: Engine, *, checkpoint: bool | None = None, flush: bool | None = None) -> None:
    """Let old events go, make a checkpoint; as the last handle, move to disk what is in memory, and reserve no space.

    A handle that only looks, or whose log failed, does nothing.

    Args:
        engine: the channel, whose files are still open.
        checkpoint: whether to make a checkpoint; None: as ``checkpointOnClose`` says.
        flush: whether to move what is in memory; None: as ``flushOnClose`` says.

    Raises:
        StorageError: the disk refused; what was in memory still is.
    """
    options = engine.state.options
    if engine.closed or engine.log.failed or engine.log.is_view:
        return
    engine.upkeep.settle()
    if options.checkpoint_on_close if checkpoint is None else checkpoint:
        engine.checkpointing.make(spares=True)  # other handles may use them; the last one removes them
    flush = options.flush_on_close if flush is None else flush
    if engine.become_last():
        if flush:
            move_to_disk(engine)
        engine.drained.give_back_reserves()


def move_to_disk(engine: Engine) -> None:
    """Move to disk what is in memory, and remove the memory tier; no other handle is open.

    Args:
        engine: the channel.

    Raises:
        StorageError: the disk refused; what was in memory still is.
    """
    if engine.memory.exists() and not engine.memory.is_being_staged_in():
        flush_memory(engine)
        while not engine.memory.close():  # a thread's commit was under way
            flush_memory(engine)
