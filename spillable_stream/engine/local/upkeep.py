"""Upkeep: what has to be done in time, whether anybody commits or not.

A channel that keeps taken events moves those in memory to disk, and lets the old ones go. A channel with automatic
groups drops those that nobody reads. One process at a time does it, in a thread of its own: the holder of
``upkeep.lock``. A channel with neither has no thread and no such file.

::

    ensure()          the handle of a channel that needs upkeep starts the thread: when it is opened, when it caused the
                      need, and with each checkpoint and each put that finds no room, since others may have created it
    settle()          a handle that is closed or parked looks once more: it may have been open for less than a period
    stop(), close()   the thread ends; whoever is next takes the lock
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack

from spillable_stream.engine.active_calls import ActiveCalls
from spillable_stream.engine.automatic_groups import AutomaticGroups
from spillable_stream.engine.follower import Follower
from spillable_stream.engine.local.checkpointing import Checkpointing
from spillable_stream.engine.local.disk_room import DiskRoom
from spillable_stream.engine.local.local_log import FILES_OF_A_LIMIT, LocalLog
from spillable_stream.engine.local.moving import Moving
from spillable_stream.engine.retention import Retention
from spillable_stream.engine.upkeep_thread import UpkeepThread
from spillable_stream.errors import ChannelClosedError, LockTimeoutError, SpillableError
from spillable_stream.option_types import ChannelOptions
from spillable_stream.storage.boot import since_boot_us
from spillable_stream.storage.lock import FileLock

__all__ = ["Upkeep"]

_LONGEST_SECONDS = 1.0
_SHORTEST_SECONDS = 0.05
_MOVING_SECONDS = 0.1  # taken events stay in memory for this long
_SIZE_SECONDS = 0.2  # what is put in this time may be kept beyond ``retentionBytes``


class Upkeep:
    """Looks after a channel in the background. Thread-safe.

    Args:
        log: the channel's log.
        follower: its state.
        retention: lets kept events go.
        moving: moves taken events from memory to disk.
        groups: drops automatic groups that nobody reads as.
        checkpointing: frees the files of what left.
        room: gives disk space back.
        active_calls: the calls that are under way in this process.
    """

    def __init__(
        self,
        log: LocalLog,
        follower: Follower,
        retention: Retention,
        moving: Moving,
        groups: AutomaticGroups,
        checkpointing: Checkpointing,
        room: DiskRoom,
        active_calls: ActiveCalls,
    ) -> None:
        self._log = log
        self._follower = follower
        self._retention = retention
        self._moving = moving
        self._groups = groups
        self._checkpointing = checkpointing
        self._room = room
        self._active_calls = active_calls
        self._turn = threading.Lock()  # of a look
        self._thread = UpkeepThread(self, log, follower, active_calls)
        self._lock: FileLock | None = None  # held, while this process acts
        self._looked_us: int | None = None  # at the groups, by the boot's clock
        self._owes = False  # files of events that have left, which are still there

    def ensure(self) -> None:
        """Start the thread if it is needed and not there."""
        self._thread.ensure()

    def run_once(self) -> bool:
        """Look as a call that a close waits for, and tell whether there will be another look."""
        if self._thread.is_over():
            return False
        try:
            self._active_calls.run("upkeep", self.look)
        except BaseException:
            self._let_others()  # the thread ends
            raise
        return True

    def period_seconds(self) -> float:
        """Return how often to look."""
        return _period_seconds(self._follower.state.options)

    def look(self, *, tidy: bool = True) -> None:
        """Do what is due, if no other process does it; a failure is logged, and keeps nothing else from being done.

        Args:
            tidy: whether to look at groups and at the disk's space, too.
        """
        with self._turn:
            if not self._try(self._acts):
                return
            for step in (self._move, self._retain, *([self._tidy] if tidy else [])):
                self._try(step)

    def _try(self, step: Callable[[], object]) -> bool:
        try:
            return bool(step())
        except LockTimeoutError:  # somebody is busy: there will be another look
            return False
        except (SpillableError, OSError) as e:
            self._thread.report(e)
            return False

    def _acts(self) -> bool:
        """Tell whether this process is the one that acts; one whose log has failed lets others.

        Raises:
            ChannelClosedError: the channel was moved, removed or replaced: one that has its place is for others.
        """
        if self._log.failed:
            self._let_others()
            return False
        try:
            self._log.require_in_place()
        except ChannelClosedError:
            self._let_others()
            raise
        if self._lock is not None and self._lock.is_in_place():
            return True
        self._let_others()
        with ExitStack() as unless_acquired:
            lock = FileLock.open(self._log.fs, self._log.layout.upkeep_lock)
            unless_acquired.callback(lock.close)
            if not lock.try_acquire():
                return False
            unless_acquired.pop_all()
        self._lock, self._looked_us = lock, None
        self._owes = self._follower.state.options.keeps  # whoever acted before may have been killed in between
        return True

    def _move(self) -> None:
        self._follower.follow(unchecked=True)
        self._moving.move_taken()

    def _retain(self) -> None:
        self._owes = self._retention.look() or self._owes
        if self._owes:
            self._checkpointing.give_back_within_a_call(0)
            self._owes = False

    def _tidy(self) -> None:
        if self._looked_us is None or since_boot_us() - self._looked_us >= _LONGEST_SECONDS * 1e6:
            first_kept = self._follower.state.first_kept
            self._room.look()
            self._owes |= self._follower.state.first_kept > first_kept  # a checkpoint may have been under way
            self._groups.look(self._elapsed_ms())

    def _elapsed_ms(self) -> int:
        """Return how much time has passed since the last look at the groups, which is now."""
        before_us, self._looked_us = self._looked_us, since_boot_us()
        return 0 if before_us is None else (self._looked_us - before_us) // 1000

    def settle(self, *, for_good: bool = True) -> None:
        """Look once more before the handle is closed or parked; inside of no call.

        Args:
            for_good: whether it is closed, so that another process has to know how long groups have had no owner.
        """
        if not self._thread.is_needed():
            return
        self._thread.end()
        self.look(tidy=for_good)
        with self._turn:
            if for_good and self._lock is not None:
                self._groups.settle(self._elapsed_ms())
            self._let_others()

    def stop(self) -> None:
        """End the thread, and let another process act."""
        self._thread.end()
        with self._turn:
            self._let_others()

    def close(self, *, forked: bool = False) -> None:
        """End the thread for good.

        Args:
            forked: the process is a forked child, which has no such thread.
        """
        if forked:
            if self._lock is not None:
                self._lock.close()
            return
        self.stop()

    def _let_others(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _period_seconds(options: ChannelOptions) -> float:
    """Return how often to look."""
    if options.keeps and options.memory_capacity:
        return _MOVING_SECONDS
    wanted_seconds = [_LONGEST_SECONDS]
    if options.retention_bytes:
        wanted_seconds.append(_SIZE_SECONDS)
    if options.retention_ms:
        wanted_seconds.append(options.retention_ms / 1000 / (2 * FILES_OF_A_LIMIT))
    return max(_SHORTEST_SECONDS, min(wanted_seconds))
