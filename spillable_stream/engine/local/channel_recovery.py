"""Recovers a channel for the first handle that opens it: settles both logs, and publishes their ends.

`spillable_stream.log.recovery` finds and cuts the end of a log, `spillable_stream.engine.local.memory_recovery` settles
what became of the memory tier.
"""

from __future__ import annotations

from functools import partial

from spillable_stream.engine.local.held_channel import HeldChannel
from spillable_stream.engine.local.loading import LoadedState, bytes_between, metered
from spillable_stream.engine.local.memory_recovery import RecoveredEnds
from spillable_stream.format.file_names import log_name
from spillable_stream.format.head_page import NO_TIER, CommitPoint, HeadState, TierEnd
from spillable_stream.log.anchors import write_anchors
from spillable_stream.log.commit_lock import CommitLock
from spillable_stream.log.identity_file import remove_unfinished_identity
from spillable_stream.log.recovery import discard_unfinished_file, recover, require_log_of_checkpoint
from spillable_stream.log.spares import Spares
from spillable_stream.log.tier_logs import Positions
from spillable_stream.log.wal import Position
from spillable_stream.log_records import fields, log_of
from spillable_stream.progress import meter_of_open

__all__ = ["recover_channel"]

_log = log_of(__name__)


def recover_channel(held: HeldChannel, timeout_seconds: float) -> None:
    """Recover a channel from its log, whatever its head says; all other handles are parked.

    Args:
        held: the channel. It gets what the recovery found.
        timeout_seconds: how long to wait for the commit lock.

    Raises:
        CorruptionError: bytes that had been synced are damaged.
        DataLossError: data files are missing.
        OtherHostError: the memory tier may be alive on another host or in another container.
        ForeignDirectoryError: it is there, and not to be trusted.
    """
    lock = held.lock
    with lock.locked(timeout_seconds):
        held.torn_bytes, held.replayed = _recover(held)
        held.recovery = write_anchors(*held.anchors())
        remove_unfinished_identity(lock.fs, lock.layout)
    held.recovered = True


def _recover(held: HeldChannel) -> tuple[int, LoadedState | None]:
    """Find the ends of the logs, cut what is torn, settle what became of the memory tier, publish.

    The commit lock is held. The head is of no use for that but as a lower bound of what had been synced.

    Returns:
        How many bytes were cut from the disk tier; and the state, where all of it is on disk: else it has yet to be
        loaded.
    """
    lock, loader = held.lock, held.loader
    fs, path, disk = lock.fs, lock.layout.path, held.tiers.disk
    fs.sync_directory(path)  # whoever created the channel may have been killed before that
    discard_unfinished_file(fs, disk, held.checkpoints)
    known = lock.head.read_any_boot()
    state, start = loader.disk_base(None)
    if start.disk.offset:
        require_log_of_checkpoint(fs, disk, start.disk, state.time_us)
    meter = meter_of_open("bytes")
    meter.begin(None if known is None else bytes_between(start.disk, Position(*known.disk[:2]), state))
    log = recover(fs, disk, start.disk, metered(partial(loader.apply, state), meter))
    meter.end()
    if state.last_id or log.torn_bytes:  # of a new channel there is nothing to say
        ends_in, more = log_name(log.end.file_id), fields(path, last_id=state.last_id)
        says = "recovered %s: %s ends at %d, with event %d"
        _log.info(says, path, ends_in, log.end.offset, state.last_id, extra=more)
    Spares(fs, lock.layout).keep(0)  # of a copied or restored channel they may hold frames of files that are to come
    if state.memory.open:
        ends, replayed = held.memory_recovery.settle(state, log.end, known), None
    else:
        ends, replayed = RecoveredEnds(log.end, None, state.last_id), (state, Positions(log.end))
    _publish(lock, ends, known)
    if ends.memory is None:
        held.memory_directory.remove()
    lock.head.write_host()
    return log.torn_bytes, replayed


def _publish(lock: CommitLock, ends: RecoveredEnds, known: CommitPoint | None) -> None:
    """Publish what was recovered; the last checkpoint is as old as the head said.

    A file whose sync failed, by the head, is still never written to again.
    """
    checkpoint_ms, state = 0, HeadState.CLEAN
    if known is not None:
        checkpoint_ms = known.checkpoint_ms
        if known.disk.file_id == ends.disk.file_id and known.disk.state == HeadState.SYNC_FAILED:
            state = HeadState.SYNC_FAILED
    memory = TierEnd(*ends.memory) if ends.memory else NO_TIER
    lock.publish(CommitPoint(TierEnd(*ends.disk, state), memory, ends.last_id, checkpoint_ms))
