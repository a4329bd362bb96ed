"""Moves events from memory to disk, under the same write-order IDs: those of a flush, and taken ones that are kept."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from spillable_stream.engine.appender import Appender
from spillable_stream.engine.follower import Follower
from spillable_stream.engine.local.local_log import LocalLog
from spillable_stream.engine.local.memory_tier import MemoryTier
from spillable_stream.engine.requests import Control, Move
from spillable_stream.engine.take_requests import PrepareOnDisk
from spillable_stream.errors import CommitOutcomeUnknownError, StorageError
from spillable_stream.format.commit_record import SegmentRef
from spillable_stream.format.frame import FrameType
from spillable_stream.format.record import RetentionRecord
from spillable_stream.log.staged_file import copy_to_disk
from spillable_stream.log.wal import Entry
from spillable_stream.log_records import fields, log_of
from spillable_stream.state.block import Block
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.ranges import events_in

__all__ = ["Moving"]

_log = log_of(__name__)

_MOVED_BYTES = 16 << 20


class Moving:
    """Moves blocks of the memory tier to disk.

    Args:
        log: the channel's log.
        follower: its state.
        appender: appends to the disk tier's log.
        memory: the memory tier.
    """

    def __init__(self, log: LocalLog, follower: Follower, appender: Appender, memory: MemoryTier) -> None:
        self._log = log
        self._follower = follower
        self._appender = appender
        self._memory = memory

    def flush(self) -> int:
        """Move every event of the memory tier, and return how many there were.

        Others may put and take meanwhile. A crash in between leaves every event in one tier or the other.

        Raises:
            StorageError: the disk refused; what was not moved is still in memory.
        """
        moved = 0
        while True:
            with self._appender.committing(), self._follower.snapshot as state:
                blocks = self._first_of(state.blocks.memory)
                if not blocks:
                    return moved
                moved += self._move(blocks)

    def _move(self, blocks: list[Block]) -> int:
        """Move blocks in one append, and return how many events they have; the commit lock is held.

        Raises:
            StorageError: the disk refused; they are still in memory.
        """
        entries: list[Entry] = []
        segments: list[SegmentRef] = []
        reader = self._log.reader(self._follower.schema_of, self._follower.end_of)
        try:
            for block in blocks:
                if isinstance(block.file, str):
                    segments.append(self._copy_segment(block, block.file))
                else:
                    entries += [(header, payload, None) for header, payload in reader.frames(block.extent())]
        finally:
            reader.close()
        self._move_judgements()
        self._appender.append_alone(Move(entries, segments))
        self._memory.free_taken()
        return sum(b.count for b in blocks)

    def _move_judgements(self) -> None:
        """Write on disk, too, which of the events that are being taken have expired, or that none has."""
        state = self._follower.state
        if not state.blocks.has_expiry:
            return
        judged = {tx: list(p.takes) for tx, p in state.pending.items() if p.in_memory and p.takes}
        if judged:
            self._appender.append_alone(PrepareOnDisk(judged))

    def _copy_segment(self, block: Block, name: str) -> SegmentRef:
        target, end = copy_to_disk(self._log.fs, self._log.layout, name)
        adopted = block.first_id, block.transaction_id, block.time_us
        return SegmentRef(target, end, block.count, block.payload_bytes, *adopted, *block.expiry.since(-block.time_us))

    def _first_of(self, blocks: Iterable[Block]) -> list[Block]:
        """Return as many of the first blocks as one append may have, at least one if there is one.

        They are no more than a file may have: an append is never split, and kept events leave by files.
        """
        left_bytes = min(_MOVED_BYTES, self._log.tiers.disk.max_file_size_bytes)
        found: list[Block] = []
        for block in blocks:
            left_bytes -= block.payload_bytes
            if found and left_bytes < 0:
                break
            found.append(block)
        return found

    def move_taken(self) -> int:
        """Move the events in memory that every group has taken by now, and return how many there were.

        Raises:
            StorageError: the disk refused; what was not moved is still in memory.
        """
        state = self._follower.state
        if not state.options.keeps or not len(state.blocks.memory):
            return 0
        through, moved = state.last_id, 0  # what is put and taken meanwhile is for the next call: it may never end
        while True:
            with self._follower.snapshot as state:
                if not _taken(state, through):
                    return moved
            with self._appender.committing(), self._follower.snapshot as state:
                blocks = self._first_of(_taken(state, through))
                moved += self._move(blocks) if blocks else 0

    def make_room(self, size_bytes: int) -> None:
        """Move taken events out of the way of a put to memory; the commit lock is held.

        If the disk refuses them they leave, and with them all kept ones before: kept events never make a put wait.

        Args:
            size_bytes: the size of the put's payloads.

        Raises:
            StorageError: the disk refused that, too.
        """
        while not self._memory.has_pages_for(size_bytes):
            try:
                with self._follower.snapshot as state:
                    blocks = self._first_of(_taken(state, state.last_id))
                    if not blocks:
                        return
                    self._move(blocks)
            except CommitOutcomeUnknownError:
                raise
            except StorageError as e:
                self._give_up(e)

    def _give_up(self, cause: StorageError) -> None:
        state = self._follower.state
        through = state.needed_from() - 1
        if through < state.first_kept:
            raise cause
        _log.warning(
            "%s: %s kept no longer, to make room for a put, since the disk refused to take more: %s",
            self._log.path,
            events_in([(state.first_kept, through)], "are"),
            cause,
            extra=fields(self._log.path, first_id=state.first_kept, last_id=through),
        )
        self._appender.append_alone(Control(FrameType.RETENTION, RetentionRecord(through=through)))
        self._memory.free_taken()


def _taken(state: ChannelState, through: int) -> list[Block]:
    """Return the blocks in memory that no group needs: those that are kept, and those that were taken ahead.

    Args:
        state: the channel's state.
        through: the last event that they may begin with.
    """
    memory, not_needed = state.blocks.memory, state.not_needed()
    ahead = [block for first, last in not_needed for block in memory.between(first, min(last, through))]
    ahead = [b for b in ahead if not any(not_needed.gaps(max(b.first_id, state.floor), b.last_id))]
    return [*takewhile(lambda b: b.first_id <= through, memory.kept()), *ahead]
