"""Transactions whose COMMIT is damaged: each is committed if a later frame proves that its append was synced."""

from __future__ import annotations

from spillable_stream.format.file_names import in_memory
from spillable_stream.format.frame import FrameHeader, FrameType
from spillable_stream.format.packing import MALFORMED, pack
from spillable_stream.integrity.partial_transactions import PartialTransactions
from spillable_stream.state.channel_state import ChannelState

__all__ = ["commit_orphans"]


def commit_orphans(
    state: ChannelState,
    partial: PartialTransactions,
    *,
    memory: bool,
    but: int = -1,
    before: tuple[int, int] | None = None,
) -> None:
    """Commit the transactions of a tier whose COMMIT is damaged, since a later frame proves that they were synced.

    Args:
        state: the state that they are pending in.
        partial: gets those that have events.
        memory: whether it is the memory tier.
        but: a transaction whose COMMIT is not damaged.
        before: only those with frames that all lie before this place, a file's number and an offset; None for all.
    """
    for tx, pending in list(state.pending.items()):
        frames = [f for f in pending.frames if in_memory(f[0]) == memory]
        if before is not None and not all(frame[:2] < before for frame in frames):
            continue
        if tx != but and not pending.takes and (frames or pending.controls):
            _commit(state, partial, tx, frames)


def _commit(
    state: ChannelState, partial: PartialTransactions, tx: int, frames: list[tuple[int, int, FrameHeader]]
) -> None:
    first = min((put.write_order_id for _, _, put in frames), default=0)
    last = max((put.write_order_id + put.count - 1 for _, _, put in frames), default=0)
    if frames:
        partial.add(tx)
    if frames and (last < state.first_kept or any(True for _ in state.blocks.disk.between(first, last))):
        del state.pending[tx]  # the events are in the state already
        return
    for _, _, put in frames:  # if it is a move, the events are in memory too
        state.blocks.memory.remove(put.write_order_id)
    kind, count = ("put", last - first + 1) if frames else ("control", 0)
    header = FrameHeader(FrameType.COMMIT, 0, tx, first, count, 0, 0, 0)
    file_id = frames[-1][0] if frames else 0
    try:
        state.apply(file_id, 0, header, pack({"kind": kind, "start": 0}))
    except MALFORMED:
        state.pending.pop(tx, None)
