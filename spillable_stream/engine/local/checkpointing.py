"""Creates checkpoints, and frees the files that nothing needs any more.

A checkpoint frees everything: if the newest file holds only taken events, the log first continues in a new one.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from threading import get_ident

from spillable_stream.engine.active_calls import ActiveCalls
from spillable_stream.engine.appender import Appender
from spillable_stream.engine.follower import Follower
from spillable_stream.engine.local.drained_files import DrainedFiles
from spillable_stream.engine.local.local_log import LocalLog
from spillable_stream.engine.local.memory_tier import MemoryTier
from spillable_stream.engine.telemetry import Counters
from spillable_stream.engine.tier_ports import IDLE_SECONDS
from spillable_stream.errors import DiskSpaceError, LockTimeoutError, StorageError
from spillable_stream.log_records import fields, log_of
from spillable_stream.storage.lock import FileLock

__all__ = ["Checkpointing"]

_log = log_of(__name__)


class Checkpointing:
    """Creates the checkpoints of one process, while other threads and processes commit.

    Args:
        log: the channel's log.
        follower: its state.
        appender: appends to the log.
        memory: its memory tier.
        drained: the files that nothing needs any more.
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
        drained: DrainedFiles,
        active_calls: ActiveCalls,
        counters: Counters,
    ) -> None:
        self._log = log
        self._follower = follower
        self._appender = appender
        self._memory = memory
        self._drained = drained
        self._active_calls = active_calls
        self._counters = counters
        self.after_each: Callable[[], None] = lambda: None
        self._threads = threading.Lock()
        self._holding: tuple[int, list[bool]] = 0, []  # the thread that has it; whether its block is to release it
        self._lock = FileLock.open(log.fs, log.layout.checkpoint_lock)
        self._failed_at = float("-inf")
        self._free_again_at = float("-inf")  # after a failure
        self._created_at = float("-inf")  # the last known checkpoint, in seconds since 1970
        self._idle = follower.positions.disk  # where the log ended at the last take that found nothing
        self._idle_until: float | None = time.monotonic() + IDLE_SECONDS  # when to act on it; None once done

    def create_if_due(self) -> None:
        """Create a checkpoint if the last one is older than ``checkpointInterval`` and nobody else is creating one."""
        interval_seconds: float = self._follower.state.options.checkpoint_interval / 1000
        # What this process knows is enough to do nothing: other processes can only have created later ones.
        if not 0 <= time.time() - self._created_at < interval_seconds:
            self._create_if(self._is_due, spares=True)

    def _create_if(self, is_wanted: Callable[[], bool], *, spares: bool) -> bool:
        """Create a checkpoint if one is wanted and nobody else is creating one. A failure is logged.

        Args:
            is_wanted: tells whether one is.
            spares: whether the files that it frees may be used again.

        Returns:
            Whether none is wanted any more.
        """
        try:
            if is_wanted():
                self._active_calls.run("a checkpoint", lambda: self._create_alone(0, is_wanted, spares=spares))
            return True
        except LockTimeoutError:
            return False
        except Exception as e:  # the commit that triggered this has succeeded, so it must not fail here
            if self._log.closed:
                return True
            self.report(e)
            return False

    def _is_due(self) -> bool:
        interval_seconds: float = self._follower.state.options.checkpoint_interval / 1000
        if time.monotonic() - self._failed_at < interval_seconds:
            return False
        self._created_at = self._log.checkpoint_ms / 1000
        return not 0 <= time.time() - self._created_at < interval_seconds  # negative if a clock was set back

    def create(self, *, spares: bool = False) -> None:
        """Create a checkpoint, and remove the files that are no longer needed.

        Args:
            spares: whether to leave some of them to be used again.

        Raises:
            StorageError: the checkpoint could not be written; nothing was removed.
            LockTimeoutError: another thread or process took too long creating one.
            TransactionStateError: this thread is inside another call to the channel.
        """
        self._log.require_open()
        if self._follower.snapshot.is_mine():
            self._active_calls.refuse("a checkpoint")
        wait_seconds = self._log.lock_timeout_seconds
        self._active_calls.run("a checkpoint", lambda: self._create_alone(wait_seconds, spares=spares))
        _log.debug("a checkpoint of %s was created", self._log.path, extra=fields(self._log.path))

    def create_if_there_is_room(self, *, spares: bool = False) -> StorageError | None:
        """Do what `create` does, and return the error if a full disk had no room for it."""
        try:
            self.create(spares=spares)
        except DiskSpaceError as e:
            return e
        return None

    def report(self, failure: Exception) -> None:
        """Log that there is no checkpoint, as a warning unless there was one within ``checkpointInterval``."""
        self._counters.checkpoint_write_error_count += 1
        interval_seconds = self._follower.state.options.checkpoint_interval / 1000
        before, self._failed_at = self._failed_at, time.monotonic()
        level = logging.WARNING if self._failed_at - before >= interval_seconds else logging.DEBUG
        path = self._log.path
        said = "no checkpoint was created; the next open takes longer"
        _log.log(level, "%s: %s: %s", path, said, failure, extra=fields(path))

    def give_back_when_idle(self) -> None:
        """Free the disk space of taken events if nothing was committed for a second; for takes that find no events.

        Without the wait, a consumer that keeps up with the producers would start a new file again and again.
        """
        if self._follower.snapshot.is_mine():  # a signal handler's take
            return
        now, end = time.monotonic(), self._follower.positions.disk
        if end != self._idle:
            self._idle, self._idle_until = end, now + IDLE_SECONDS
        elif self._idle_until is not None and now >= self._idle_until:
            self._idle_until = None
            if not self._create_if(self._drained.are_any, spares=False):
                interval_seconds = self._follower.state.options.checkpoint_interval / 1000
                self._idle_until = max(now + IDLE_SECONDS, self._failed_at + interval_seconds)
            self._quietly(lambda: self._active_calls.run("a checkpoint", self._drained.remove_spares))

    def give_back_within_a_call(self, timeout_seconds: float) -> None:
        """Free the disk space of taken events, if there is any, within a call that is under way.

        Args:
            timeout_seconds: how long to wait for another checkpoint to finish.

        Raises what `create` raises.
        """
        if self._drained.are_any():
            self._create_alone(timeout_seconds, self._drained.are_any, spares=False)
        self._drained.remove_spares()

    def free_drained(self) -> None:
        """Free the files that a take has emptied, if they are large, without a checkpoint, after the take's commit.

        Not while another process creates a checkpoint, which frees them. A failure is logged, and a checkpoint tries
        again: not every take.
        """
        if time.monotonic() >= self._free_again_at and not self._quietly(self._free_if_worth_it):
            self._free_again_at = time.monotonic() + self._follower.state.options.checkpoint_interval / 1000

    def _free_if_worth_it(self) -> None:
        if not self._drained.are_worth_using_again():
            return
        with self._alone(0), self._appender.committing():
            self._free(spares=True)

    def _quietly(self, free: Callable[[], None]) -> bool:
        """Free files, and tell whether nothing failed, which is logged: whatever it is done after has succeeded."""
        try:
            free()
        except LockTimeoutError:
            return True
        except Exception as e:
            if not self._log.closed:
                _log.warning(
                    "%s: taken events keep their disk space until the next checkpoint: %s",
                    self._log.path,
                    e,
                    extra=fields(self._log.path),
                )
            return False
        return True

    def _create_alone(
        self, timeout_seconds: float, if_still: Callable[[], bool] = lambda: True, *, spares: bool
    ) -> None:
        with self._alone(timeout_seconds):
            if if_still():  # another process may have created one while we waited
                self._create(spares)

    @contextlib.contextmanager
    def _alone(self, timeout_seconds: float) -> Iterator[None]:
        had: list[bool] = []
        try:
            # One call: no interrupt comes in between.
            had.extend(map(self._threads.acquire, (True,), (timeout_seconds,)))
            if not had[0]:
                raise LockTimeoutError(
                    f"another thread has been creating a checkpoint for more than {timeout_seconds:g} s"
                )
            self._holding = get_ident(), had
            if not self._lock.acquire(timeout_seconds):
                raise LockTimeoutError(
                    f"another process has held {self._lock.path} for more than {timeout_seconds:g} s; "
                    "check whether it is stuck"
                )
            yield
        finally:
            if had and had[0]:
                self._give_back()

    def _give_back(self) -> None:
        self._holding = 0, []
        try:
            self._lock.release()
        finally:
            self._threads.release()

    def let_go(self) -> None:
        """Release what an interrupt has left to this thread, whose call has ended (`ActiveCalls.let_go`)."""
        thread, had = self._holding
        if thread == get_ident():
            had[0] = False  # whenever that block ends, it finds nothing to release
            self._give_back()

    def _create(self, spares: bool) -> None:
        self._log.directories.require_in_place(checkpoint=True)
        self._drained.leave_newest()
        try:
            self._write(spares=spares)
        except DiskSpaceError:
            with self._appender.committing():  # what frees the disk must not need room on it
                self._free(spares=False)
            self._write(spares=False)
        with self._appender.committing():
            self._log.directories.require_in_place(checkpoint=True)
            self._log.lock.record_checkpoint()
            self._free(spares=spares)
        self.after_each()

    def _write(self, *, spares: bool) -> None:
        with self._follower.snapshot as state:
            image, position = state.image(), self._follower.positions.disk
        self._quietly(lambda: self._free_taken_segments(spares=spares))  # the image does not know them any more
        self._log.checkpoints.write(position, image)

    def _free_taken_segments(self, *, spares: bool) -> None:
        with self._appender.committing():
            self._log.directories.require_in_place(checkpoint=True)
            self._drained.free_taken_segments(spares=spares)

    def _free(self, *, spares: bool) -> None:
        """Free the files that nothing needs; the commit lock is held."""
        self._log.directories.require_in_place(checkpoint=True)
        self._memory.renew()
        self._drained.free(spares=spares)

    def close(self) -> None:
        """Close the lock file."""
        self._lock.close()
