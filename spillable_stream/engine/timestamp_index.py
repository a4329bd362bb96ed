"""Which event was the first of a point in time: a search of the log, which is in the order of commits."""

from __future__ import annotations

from spillable_stream.engine.engine import Engine
from spillable_stream.errors import DataLossError
from spillable_stream.state.block import Block

__all__ = ["first_id_since"]

_TRIES = 3


def first_id_since(engine: Engine, time_us: int) -> int:
    """Return the first event in the channel, kept or not, that was committed at a time or later.

    Args:
        engine: the channel.
        time_us: the time, in microseconds since 1970.

    Returns:
        Its write-order ID; that of the next event to come if there is none.

    Raises:
        CorruptionError: the log can't be read there.
    """
    for attempt in range(_TRIES):
        with engine.snapshot() as state:
            first_kept = state.first_kept
            before, after = state.blocks.around(time_us)
            following = state.next_id if after is None else after.first_id
        try:
            found = following if before is None else _first_within(engine, before, time_us, following)
            return max(found, first_kept)  # a block may begin with events that have left
        except DataLossError:  # the block was moved to disk meanwhile, or taken
            if attempt == _TRIES - 1:
                raise
    raise AssertionError("unreachable")


def _first_within(engine: Engine, block: Block, time_us: int, following: int) -> int:
    """Return the first event of a block that is as late, or else ``following``."""
    if block.transaction_id:  # a segment: one transaction, at one time
        return following
    reader = engine.reader()
    try:
        for read in reader.read(block.extent()):
            if read.time_us >= time_us:
                return read.first_id
    finally:
        reader.close()
    return following
