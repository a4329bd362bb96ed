"""Making checkpoints, and removing the files that nothing needs any more.

A file of the log is removed once nothing in it is needed and a checkpoint was made after it. The newest file is never
removed: where it holds nothing but taken events, the log goes on in a new one first. So a channel that was drained
gives its space back with one checkpoint.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator

from spillable_stream.engine.memory_tier import MemoryTier
from spillable_stream.engine.replica import Replica
from spillable_stream.errors import LockTimeoutError, StorageError
from spillable_stream.format.file_names import disk_segment
from spillable_stream.log.staged_file import remove_abandoned_segments
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.storage.lock import FileLock

__all__ = ["IDLE_SECONDS", "Checkpointing"]

_log = logging.getLogger(__name__)

_WORTH_A_FILE_BYTES = 256 << 10  # of taken events, for which the log goes on in a new file
IDLE_SECONDS = 1.0


class Checkpointing:
    """The checkpoints of one process; commits of other threads and processes go on meanwhile.

    Args:
        replica: the channel.
        memory: its memory tier.
    """

    def __init__(self, replica: Replica, memory: MemoryTier) -> None:
        self._replica = replica
        self._memory = memory
        self._fs = replica.fs
        self._checkpoints = replica.checkpoints
        self._under_way = replica.under_way
        self._threads = threading.Lock()
        self._lock = FileLock.open(replica.fs, replica.layout.checkpoint_lock)
        self._failed_at = float("-inf")
        self._made_at = float("-inf")  # the last one that was seen, in seconds since 1970
        self._idle = replica.positions.disk  # where the log ended when there was nothing to take,
        self._idle_until: float | None = time.monotonic() + IDLE_SECONDS  # and when that counts; None once it did

    def make_if_due(self) -> None:
        """Make a checkpoint if the last one is older than ``checkpointInterval`` and nobody is at it."""
        self._make_if(self._is_due)

    def _make_if(self, is_wanted: Callable[[], bool]) -> bool:
        """Make a checkpoint, if one is wanted and nobody is at it; tell whether none is wanted now.

        A failure is logged.
        """
        try:
            if is_wanted():
                self._under_way.run("a checkpoint", lambda: self._make_alone(0, is_wanted))
            return True
        except LockTimeoutError:
            return False
        except Exception as e:  # what was committed is committed
            if self._replica.closed:
                return True
            self._failed_at = time.monotonic()
            self._replica.counters.checkpoint_write_error_count += 1
            _log.warning("no checkpoint was made; the next open takes longer: %s", e)
            return False

    def _is_due(self) -> bool:
        interval_seconds: float = self._replica.state.options["checkpoint_interval"] / 1000
        if time.monotonic() - self._failed_at < interval_seconds:
            return False
        now = time.time()
        if 0 <= now - self._made_at < interval_seconds:  # and by now others may only have made later ones
            return False
        self._made_at = self._replica.lock.published().checkpoint_time
        return not 0 <= now - self._made_at < interval_seconds  # before 0 a clock was set back

    def make(self) -> None:
        """Make the state durable and remove the files that nothing needs any more.

        Raises:
            StorageError: the checkpoint could not be written; nothing was removed.
            LockTimeoutError: another process makes one for too long.
            TransactionStateError: this thread is inside of another call to the channel.
        """
        self._replica.require_open()
        if self._replica.looker == threading.get_ident():
            self._under_way.refuse("a checkpoint")
        self._under_way.run("a checkpoint", lambda: self._make_alone(self._replica.lock_timeout_seconds))

    def give_back_when_idle(self) -> None:
        """Give back the disk space of taken events if nothing was committed for a second; for who finds none to take.

        Who takes as fast as others put would make files all the time else.
        """
        if self._replica.looker == threading.get_ident():  # a signal handler's take
            return
        now, end = time.monotonic(), self._replica.positions.disk
        if end != self._idle:
            self._idle, self._idle_until = end, now + IDLE_SECONDS
        elif self._idle_until is not None and now >= self._idle_until:
            self._idle_until = None
            if not self._make_if(self._frees_space):
                interval_seconds = self._replica.state.options["checkpoint_interval"] / 1000
                self._idle_until = max(now + IDLE_SECONDS, self._failed_at + interval_seconds)

    def give_back_within_a_commit(self, timeout_seconds: float) -> None:
        """Give back the disk space of taken events, if there is any, for a commit that lacks it.

        Args:
            timeout_seconds: how long to wait for others that make a checkpoint.

        Raises what `make` raises.
        """
        if self._frees_space():
            self._make_alone(timeout_seconds, self._frees_space)

    def _frees_space(self) -> bool:
        """Tell whether a checkpoint made now would let files of the disk tier go."""
        replica = self._replica
        if self._is_drained():
            return True
        with replica.looking() as state:
            first_needed, live = self._first_needed(state), state.blocks.segments()
            gone = [name for name in state.blocks.disk.emptied if isinstance(name, str) and name not in live]
        return bool(gone) or any(i < first_needed for i in replica.layout.log_files(self._fs))

    def _first_needed(self, state: ChannelState) -> int:
        """Return the first data file that is needed for its events, the newest one if none is."""
        current, oldest_block = self._replica.positions.disk.file_id, state.blocks.oldest_data_file()
        return current if oldest_block is None else min(current, oldest_block)

    def _is_drained(self) -> bool:
        """Tell whether the newest file of the log, and any before it, holds much, and nothing that is needed."""
        with self._replica.looking() as state:
            end, log = self._replica.positions.disk, self._replica.tiers.disk
            if len(state.blocks.disk) or end.offset < _WORTH_A_FILE_BYTES:
                return False
            try:
                return end.offset - log.first_frame_end(end.file_id) >= _WORTH_A_FILE_BYTES
            except FileNotFoundError:  # the log went on, and others removed it
                return False

    def _make_alone(self, timeout_seconds: float, if_still: Callable[[], bool] = lambda: True) -> None:
        with self._alone(timeout_seconds):
            if if_still():  # nobody made one meanwhile
                self._make()

    @contextlib.contextmanager
    def _alone(self, timeout_seconds: float) -> Iterator[None]:
        if not self._threads.acquire(timeout=timeout_seconds):
            raise LockTimeoutError(f"another thread has been making a checkpoint for more than {timeout_seconds:g} s")
        try:
            if not self._lock.acquire(timeout_seconds):
                raise LockTimeoutError(
                    f"another process has held {self._lock.path} for more than {timeout_seconds:g} s; "
                    "check whether it is stuck"
                )
            try:
                yield
            finally:
                self._lock.release()
        finally:
            self._threads.release()

    def _make(self) -> None:
        replica = self._replica
        replica.directories.require_in_place(checkpoint=True)
        self._leave_drained_file()
        with replica.looking() as state:
            image, position = state.image(), replica.positions.disk
        self._checkpoints.write(position, image)
        with replica.committing():
            replica.directories.require_in_place(checkpoint=True)
            self._memory.renew()
            replica.lock.note_checkpoint()
            self._clean(position.file_id)

    def _leave_drained_file(self) -> None:
        """Let the log go on in a new file if nothing in it is needed, so that the checkpoint lets the old one go."""
        if not self._is_drained():
            return
        replica = self._replica
        try:
            with replica.committing():
                if self._is_drained():
                    replica.tiers.disk.roll(replica.state.small)
                    replica.catch_up()
        except StorageError as e:
            _log.warning("taken events keep their disk space until the next checkpoint: %s", e)

    def _clean(self, checkpointed: int) -> None:
        """Remove log files and segments that hold nothing which is needed; the channel's lock is held.

        A replay keeps two ways to begin: the newest checkpoint, and the header of the oldest file that is left, which
        holds all that a replay needs if nothing before it is needed. A checkpoint goes before its file does.

        Args:
            checkpointed: the file that the newest checkpoint was made of.
        """
        replica = self._replica
        with replica.looking() as state:
            first_needed = min(checkpointed, self._first_needed(state))
            live, sinks = state.blocks.segments(), dict(state.sinks)
            ttl_seconds = state.options["staging_ttl"]
            state.blocks.disk.emptied.clear()
        remove_abandoned_segments(self._fs, replica.layout, live, sinks, ttl_seconds)
        unneeded = [i for i in replica.layout.log_files(self._fs) if i < first_needed]
        if not unneeded or replica.tiers.disk.read_file_header(first_needed) is None:
            return
        self._checkpoints.remove_before(first_needed)
        paths = [replica.layout.log_file(i) for i in unneeded]
        for path in paths:
            self._fs.remove(path)
        for directory in {path.parent for path in paths}:
            self._fs.sync_directory(directory)

    def remove_staging(self, owner: str, batch_id: int) -> None:
        """Remove what a Spark query, or a batch write, staged up to a batch and no commit adopted: that is over."""
        replica = self._replica
        if any(f"segment.{owner}." in name for name in replica.layout.segments(self._fs)):
            with replica.committing(), replica.looking() as state:
                live = state.blocks.segments()
                remove_abandoned_segments(self._fs, replica.layout, live, {owner: batch_id}, float("inf"), owner)

    def discard(self, segments: list[str]) -> None:
        """Remove staged segments that no commit adopted, whatever became of the commit that was to.

        Under the channel's lock that is settled: what a commit of unknown outcome left in the log was cut, or
        the log went on in another file. A commit that failed may have moved a segment to disk before.
        """
        replica = self._replica
        with replica.committing(), replica.looking() as state:
            adopted = {disk_segment(name) for name in state.blocks.segments()}
            for name in segments:
                if disk_segment(name) not in adopted:
                    self._fs.remove(replica.layout.segment_file(name))
                    self._fs.remove(replica.layout.segment_file(disk_segment(name)))

    def close(self) -> None:
        """Close the lock file."""
        self._lock.close()
