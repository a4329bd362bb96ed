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

from spillable_stream.engine.appender import Appender
from spillable_stream.engine.follower import Follower
from spillable_stream.engine.local_log import LocalLog
from spillable_stream.engine.memory_tier import MemoryTier
from spillable_stream.engine.telemetry import Counters
from spillable_stream.engine.under_way import UnderWay
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
        log: the channel's log.
        follower: its state.
        appender: appends to the log.
        memory: its memory tier.
        under_way: the calls that are under way in this process.
        counters: what the handle counts.
    """

    def __init__(
        self,
        log: LocalLog,
        follower: Follower,
        appender: Appender,
        memory: MemoryTier,
        under_way: UnderWay,
        counters: Counters,
    ) -> None:
        self._log = log
        self._follower = follower
        self._appender = appender
        self._memory = memory
        self._under_way = under_way
        self._counters = counters
        self._fs = log.fs
        self._threads = threading.Lock()
        self._lock = FileLock.open(log.fs, log.layout.checkpoint_lock)
        self._failed_at = float("-inf")
        self._made_at = float("-inf")  # the last one that is known, in seconds since 1970
        self._idle = follower.positions.disk  # where the log ended when there was nothing to take,
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
            if self._log.closed:
                return True
            self._failed_at = time.monotonic()
            self._counters.checkpoint_write_error_count += 1
            _log.warning("no checkpoint was made; the next open takes longer: %s", e)
            return False

    def _is_due(self) -> bool:
        interval_seconds: float = self._follower.state.options.checkpoint_interval / 1000
        if time.monotonic() - self._failed_at < interval_seconds:
            return False
        now = time.time()
        if 0 <= now - self._made_at < interval_seconds:  # and by now others may only have made later ones
            return False
        self._made_at = self._log.checkpoint_time
        return not 0 <= now - self._made_at < interval_seconds  # before 0 a clock was set back

    def make(self) -> None:
        """Make the state durable and remove the files that nothing needs any more.

        Raises:
            StorageError: the checkpoint could not be written; nothing was removed.
            LockTimeoutError: another process makes one for too long.
            TransactionStateError: this thread is inside of another call to the channel.
        """
        self._log.require_open()
        if self._follower.snapshot.thread == threading.get_ident():
            self._under_way.refuse("a checkpoint")
        self._under_way.run("a checkpoint", lambda: self._make_alone(self._log.lock_timeout_seconds))

    def give_back_when_idle(self) -> None:
        """Give back the disk space of taken events if nothing was committed for a second; for who finds none to take.

        Who takes as fast as others put would make files all the time else.
        """
        if self._follower.snapshot.thread == threading.get_ident():  # a signal handler's take
            return
        now, end = time.monotonic(), self._follower.positions.disk
        if end != self._idle:
            self._idle, self._idle_until = end, now + IDLE_SECONDS
        elif self._idle_until is not None and now >= self._idle_until:
            self._idle_until = None
            if not self._make_if(self._frees_space):
                interval_seconds = self._follower.state.options.checkpoint_interval / 1000
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
        log, follower = self._log, self._follower
        if self._is_drained():
            return True
        with follower.snapshot as state:
            first_needed, live = self._first_needed(state), state.blocks.segments()
            gone = [name for name in state.blocks.disk.emptied if isinstance(name, str) and name not in live]
        return bool(gone) or any(i < first_needed for i in log.layout.log_files(self._fs))

    def _first_needed(self, state: ChannelState) -> int:
        """Return the first data file that is needed for its events, the newest one if none is."""
        current, oldest_block = self._follower.positions.disk.file_id, state.blocks.oldest_data_file()
        return current if oldest_block is None else min(current, oldest_block)

    def _is_drained(self) -> bool:
        """Tell whether the newest file of the log, and any before it, holds much, and nothing that is needed."""
        with self._follower.snapshot as state:
            end, log = self._follower.positions.disk, self._log.tiers.disk
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
        log, follower, appender = self._log, self._follower, self._appender
        log.directories.require_in_place(checkpoint=True)
        self._leave_drained_file()
        with follower.snapshot as state:
            image, position = state.image(), follower.positions.disk
        log.write_checkpoint(position, image)
        with appender.committing():
            log.directories.require_in_place(checkpoint=True)
            self._memory.renew()
            log.lock.record_checkpoint()
            self._clean(position.file_id)

    def _leave_drained_file(self) -> None:
        """Let the log go on in a new file if nothing in it is needed, so that the checkpoint lets the old one go."""
        if not self._is_drained():
            return
        log, follower, appender = self._log, self._follower, self._appender
        try:
            with appender.committing():
                if self._is_drained():
                    log.tiers.disk.roll(follower.state.small)
                    follower.catch_up()
        except StorageError as e:
            _log.warning("taken events keep their disk space until the next checkpoint: %s", e)

    def _clean(self, checkpointed: int) -> None:
        """Remove log files and segments that hold nothing which is needed; the channel's lock is held.

        A replay keeps two ways to begin: the newest checkpoint, and the header of the oldest file that is left, which
        holds all that a replay needs if nothing before it is needed. A checkpoint goes before its file does.

        Args:
            checkpointed: the file that the newest checkpoint was made of.
        """
        log, follower = self._log, self._follower
        with follower.snapshot as state:
            first_needed = min(checkpointed, self._first_needed(state))
            live, sinks = state.blocks.segments(), dict(state.sinks)
            ttl_seconds = state.options.staging_ttl
            state.blocks.disk.emptied.clear()
        remove_abandoned_segments(self._fs, log.layout, live, sinks, ttl_seconds)
        unneeded = [i for i in log.layout.log_files(self._fs) if i < first_needed]
        if not unneeded or log.tiers.disk.read_file_header(first_needed) is None:
            return
        log.checkpoints.remove_before(first_needed)
        paths = [log.layout.log_file(i) for i in unneeded]
        for path in paths:
            self._fs.remove(path)
        for directory in {path.parent for path in paths}:
            self._fs.sync_directory(directory)

    def remove_staging(self, owner: str, batch_id: int) -> None:
        """Remove what a Spark query, or a batch write, staged up to a batch and no commit adopted: that is over."""
        log, follower, appender = self._log, self._follower, self._appender
        if any(f"segment.{owner}." in name for name in log.layout.segments(self._fs)):
            with appender.committing(), follower.snapshot as state:
                live = state.blocks.segments()
                remove_abandoned_segments(self._fs, log.layout, live, {owner: batch_id}, float("inf"), owner)

    def discard(self, segments: list[str]) -> None:
        """Remove staged segments that no commit adopted, whatever became of the commit that was to.

        Under the channel's lock that is settled: what a commit of unknown outcome left in the log was cut, or
        the log went on in another file. A commit that failed may have moved a segment to disk before.
        """
        log, follower, appender = self._log, self._follower, self._appender
        with appender.committing(), follower.snapshot as state:
            adopted = {disk_segment(name) for name in state.blocks.segments()}
            for name in segments:
                if disk_segment(name) not in adopted:
                    self._fs.remove(log.layout.segment_file(name))
                    self._fs.remove(log.layout.segment_file(disk_segment(name)))

    def close(self) -> None:
        """Close the lock file."""
        self._lock.close()
