"""Room on a disk that gets full: gives back the space of taken events where a put or a take finds little.

Those that retention keeps are the first to go.
"""

from __future__ import annotations

import time

from spillable_stream.engine.active_calls import ActiveCalls
from spillable_stream.engine.follower import Follower
from spillable_stream.engine.local.checkpointing import Checkpointing
from spillable_stream.engine.local.drained_files import DrainedFiles
from spillable_stream.engine.local.local_log import LocalLog
from spillable_stream.engine.retention import Retention
from spillable_stream.errors import LockTimeoutError, StorageError
from spillable_stream.log_records import fields, log_of

__all__ = ["DiskRoom"]

_log = log_of(__name__)

_EVERY_SECONDS = 1.0


class DiskRoom:
    """Gives disk space back by a checkpoint; a failure is logged: what was committed is committed.

    Args:
        log: the channel's log.
        follower: its state.
        checkpointing: creates its checkpoints.
        drained: the files that nothing needs any more.
        retention: lets kept events go.
        active_calls: the calls that are under way in this process.
    """

    def __init__(
        self,
        log: LocalLog,
        follower: Follower,
        checkpointing: Checkpointing,
        drained: DrainedFiles,
        retention: Retention,
        active_calls: ActiveCalls,
    ) -> None:
        self._log = log
        self._follower = follower
        self._checkpointing = checkpointing
        self._drained = drained
        self._retention = retention
        self._active_calls = active_calls
        self._emptied = 0  # how many files on disk were emptied when the space was looked at last,
        self._look_at = float("-inf")  # and when a commit that finds more looks again

    def make(self) -> None:
        """Give back the disk space of taken events, or leave a full disk for another, for what will be tried again."""
        self._active_calls.run("a checkpoint", self.make_within_a_commit)

    def make_within_a_commit(self) -> None:
        """Do what `make` does, inside of a call that is under way."""
        self._give_back(self._log.lock_timeout_seconds)
        self._drained.leave_full_directory()

    def make_if_short(self) -> None:
        """Do what `make` does if puts are refused for want of space, or nearly."""
        if self._is_short():
            self._active_calls.run("a checkpoint", lambda: self._give_back(0))

    def after_a_commit(self) -> None:
        """Free the files that a take has emptied; also the one that is written, if space is short."""
        emptied = self._follower.state.blocks.disk.emptied_count
        if emptied == self._emptied:
            return
        self._emptied = emptied
        if not self._drained.are_known_to_be_small():  # most takes of a consumer that keeps up empty the same file
            self._checkpointing.free_drained()
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + _EVERY_SECONDS
            if self._is_short():
                self._give_back(0)

    def look(self) -> None:
        """Do what `make_if_short` does, inside of a call that is under way, where events are kept."""
        if self._follower.state.kept().events and self._is_short():
            self._give_back(0)

    def _is_short(self) -> bool:
        return self._lacking_bytes() > 0

    def _lacking_bytes(self) -> int:
        """Return how many bytes more must be free so that puts are not refused, or nearly; 0 if that is not known."""
        try:
            return self._drained.lacking_bytes()
        except StorageError as e:
            _log.warning("%s: the free space is not known: %s", self._log.path, e, extra=fields(self._log.path))
            return 0

    def _give_back(self, timeout_seconds: float) -> None:
        try:
            self._checkpointing.give_back_within_a_call(timeout_seconds)
            while (lacking_bytes := self._lacking_bytes()) and self._retention.let_go_for_space(lacking_bytes):
                self._checkpointing.give_back_within_a_call(timeout_seconds)
        except LockTimeoutError:
            return  # another thread or process creates a checkpoint
        except Exception as e:
            if not self._log.closed:
                _log.warning(
                    "%s: taken events keep their disk space: %s", self._log.path, e, extra=fields(self._log.path)
                )
