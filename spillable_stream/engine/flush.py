"""Moving what is in memory to disk, in order, under the same write-order IDs."""

from __future__ import annotations

from spillable_stream.engine.engine import Engine
from spillable_stream.engine.requests import Move
from spillable_stream.format.record import SegmentRef
from spillable_stream.log.event_reader import EventReader
from spillable_stream.log.staged_file import copy_to_disk
from spillable_stream.log.wal import Entry
from spillable_stream.state.blocks import Block

__all__ = ["flush_memory"]

_MOVED_BYTES = 16 << 20


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
            blocks = _first(list(state.blocks.memory))
            if not blocks:
                return moved
            engine.append_alone(_move(engine, blocks))
            engine.memory.free_taken()
            moved += sum(b.count for b in blocks)


def _first(blocks: list[Block]) -> list[Block]:
    """Return as many of the first blocks as one append may have, at least one if there is one."""
    chosen: list[Block] = []
    size_bytes = 0
    for block in blocks:
        size_bytes += block.payload_bytes
        if chosen and size_bytes > _MOVED_BYTES:
            break
        chosen.append(block)
    return chosen


def _move(engine: Engine, blocks: list[Block]) -> Move:
    entries: list[Entry] = []
    segments: list[SegmentRef] = []
    reader = engine.reader()
    try:
        for block in blocks:
            if isinstance(block.file, str):
                segments.append(_copy_segment(engine, block, block.file))
            else:
                entries += _entries(reader, block)
    finally:
        reader.close()
    return Move(entries, segments)


def _entries(reader: EventReader, block: Block) -> list[Entry]:
    return [Entry(header, payload) for header, payload in reader.frames(block.extent())]


def _copy_segment(engine: Engine, block: Block, name: str) -> SegmentRef:
    target, end = copy_to_disk(engine.fs, engine.layout, name)
    return SegmentRef(
        target, end, block.count, block.payload_bytes, block.first_id, block.transaction_id, block.time_us
    )
