"""Makes checkpoints, and removes files that are no longer needed.

A log file is removed once nothing in it is needed and a later checkpoint exists. The newest file is never removed:
if it holds only taken events, the log first continues in a new file. So one checkpoint frees the space of a drained
channel.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator

from spillable_stream.engine.active_calls import ActiveCalls
from spillable_stream.engine.appender import Appender
from spillable_stream.engine.follower import Follower
from spillable_stream.engine.local_log import LocalLog
from spillable_stream.engine.memory_tier import MemoryTier
from spillable_stream.engine.telemetry import Counters
from spillable_stream.errors import LockTimeoutError, StorageError
from spillable_stream.format.file_names import disk_segment
from spillable_stream.log.staged_file import remove_abandoned_segments
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.storage.lock import FileLock

__all__ = ["IDLE_SECONDS", "Checkpointing"]

_log = logging.getLogger(__name__)

_WORTH_A_FILE_BYTES = 256 << 10  # with fewer bytes of taken events, the log does not continue in a new file
IDLE_SECONDS = 1.0


class Checkpointing:
    """Makes the checkpoints of one process, while other threads and processes commit.

    Args:
        log: the channel's log.
        follower: its state.
        appender: appends to the log.
        memory: its memory tier.
        active_calls: the calls that are under way in this process.
        counters: what the handle counts.

    Attributes:
        after_each: called after each checkpoint.
    """

    def __init__(
        self,
        log: LocalLog,
        follower: Follower,
        appender: Appender,
        memory: MemoryTier,
        active_calls: ActiveCalls,
        counters: Counters,
    ) -> None:
        self._log = log
        self._follower = follower
        self._appender = appender
        self._memory = memory
        self._active_calls = active_calls
        self._counters = counters
        self._fs = log.fs
        self.after_each: Callable[[], None] = lambda: None
        self._threads = threading.Lock()
        self._lock = FileLock.open(log.fs, log.layout.checkpoint_lock)
        self._failed_at = float("-inf")
        self._made_at = float("-inf")  # the last known checkpoint, in seconds since 1970
        self._idle = follower.positions.disk  # where the log ended at the last take that found nothing
        self._idle_until: float | None = time.monotonic() + IDLE_SECONDS  # when to act on it; None once done

    def make_if_due(self) -> None:
        """Make a checkpoint if the last one is older than ``checkpointInterval`` and nobody else is making one."""
        self._make_if(self._is_due)

    def _make_if(self, is_wanted: Callable[[], bool]) -> bool:
        """Make a checkpoint if one is wanted and nobody else is making one. A failure is logged.

        Returns:
            Whether none is wanted any more.
        """
        try:
            if is_wanted():
                self._active_calls.run("a checkpoint", lambda: self._make_alone(0, is_wanted))
            return True
        except LockTimeoutError:
            return False
        except Exception as e:  # the commit that triggered this has succeeded, so it must not fail here
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
        if 0 <= now - self._made_at < interval_seconds:  # other processes can only have made later ones
            return False
        self._made_at = self._log.checkpoint_time
        return not 0 <= now - self._made_at < interval_seconds  # negative if a clock was set back

    def make(self) -> None:
        """Make a checkpoint and remove the files that are no longer needed.

        Raises:
            StorageError: the checkpoint could not be written; nothing was removed.
            LockTimeoutError: another thread or process took too long making one.
            TransactionStateError: this thread is inside another call to the channel.
        """
        self._log.require_open()
        if self._follower.snapshot.thread == threading.get_ident():
            self._active_calls.refuse("a checkpoint")
        self._active_calls.run("a checkpoint", lambda: self._make_alone(self._log.lock_timeout_seconds))

    def give_back_when_idle(self) -> None:
        """Free the disk space of taken events if nothing was committed for a second; for takes that find no events.

        Without the wait, a consumer that keeps up with the producers would start a new file again and again.
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

    def give_back_within_a_call(self, timeout_seconds: float) -> None:
        """Free the disk space of taken events, if there is any, within a call that is under way.

        Args:
            timeout_seconds: how long to wait for another checkpoint to finish.

        Raises what `make` raises.
        """
        if self._frees_space():
            self._make_alone(timeout_seconds, self._frees_space)

    def _frees_space(self) -> bool:
        """Tell whether a checkpoint made now would free files of the disk tier."""
        log, follower = self._log, self._follower
        if self._is_drained():
            return True
        with follower.snapshot as state:
            first_needed, live = self._first_needed(state), state.blocks.segments()
            gone = [name for name in state.blocks.disk.emptied if isinstance(name, str) and name not in live]
        return bool(gone) or any(i < first_needed for i in log.layout.log_files(self._fs))

    def _first_needed(self, state: ChannelState) -> int:
        """Return the number of the first data file that holds needed events, or of the newest file if none does."""
        current, oldest_block = self._follower.positions.disk.file_id, state.blocks.oldest_data_file()
        return current if oldest_block is None else min(current, oldest_block)

    def _is_drained(self) -> bool:
        """Tell whether the disk tier holds no events and its newest file is large enough to be worth freeing."""
        with self._follower.snapshot as state:
            end, log = self._follower.positions.disk, self._log.tiers.disk
            if len(state.blocks.disk) or end.offset < _WORTH_A_FILE_BYTES:
                return False
            try:
                return end.offset - log.first_frame_end(end.file_id) >= _WORTH_A_FILE_BYTES
            except FileNotFoundError:  # the log continued in a new file, and another process removed this one
                return False

    def _make_alone(self, timeout_seconds: float, if_still: Callable[[], bool] = lambda: True) -> None:
        with self._alone(timeout_seconds):
            if if_still():  # another process may have made one while we waited
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
        self.after_each()

    def _leave_drained_file(self) -> None:
        """Continue the log in a new file if nothing in this one is needed, so that the checkpoint can free it."""
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
        """Remove log files and segments that are no longer needed; the caller holds the channel's lock.

        A replay can always begin in two places: at the newest checkpoint, and at the header of the oldest remaining
        file, which holds the state before it. A checkpoint is removed before its file.

        Args:
            checkpointed: the number of the file that the newest checkpoint was made in.
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
        """Remove what a Spark query or batch write staged, up to and including a batch, and no commit adopted."""
        log, follower, appender = self._log, self._follower, self._appender
        if any(f"segment.{owner}." in name for name in log.layout.segments(self._fs)):
            with appender.committing(), follower.snapshot as state:
                live = state.blocks.segments()
                remove_abandoned_segments(self._fs, log.layout, live, {owner: batch_id}, float("inf"), owner)

    def discard(self, segments: list[str]) -> None:
        """Remove staged segments that no commit adopted, also after a commit whose outcome is unknown.

        The channel's lock settles that outcome: the leftovers of such a commit were cut, or the log continued in a
        new file. A failed commit may have copied a segment to disk, so both copies are removed.
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
